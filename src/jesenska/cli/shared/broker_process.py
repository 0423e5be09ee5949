"""Runs a broker in this process: starts it, and shuts it down cleanly on a signal.

SIGTERM, SIGINT and SIGHUP (not under nohup) shut the broker down cleanly: logs are synced and marked as clean, so the
next start need not recover them. A second Ctrl-C ends the process immediately. On SIGUSR1 the broker writes its
measurements (broker.figures) to stderr in one line."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable

from jesenska.base.source_only import request_path_is_compiled
from jesenska.broker import handlers
from jesenska.broker.figures import line_of
from jesenska.broker.server import Broker
from jesenska.cli.shared.data_without_metadata import refuse_data_without_metadata
from jesenska.cli.shared.ending import parents_end, stopped_in_order
from jesenska.cli.shared.memory import Memory
from jesenska.cli.shared.stop_signals import heeded_signals
from jesenska.cli.shared.tool import telling
from jesenska.config.layers import BrokerConfig
from jesenska.net.event_loop import broker_loop
from jesenska.records import codec

logger = logging.getLogger(__name__)

#: The number of allocations between two garbage collections of young objects. A request makes a few dozen objects,
#: nearly all without reference cycles.
_YOUNG_OBJECTS = 10_000


def run_broker(
    config: BrokerConfig,
    on_ready: Callable[[Broker], None],
    on_progress: Callable[[str], None] | None = None,
    *,
    warns: bool = True,
) -> int:
    """Runs a broker until a signal stops it. `on_ready` is called when clients can connect. If `warns` is False, no
    warning is logged when this installation has no compiled modules. Raises JesenskaError if the broker cannot
    start."""
    if warns and not (codec.COMPILED and request_path_is_compiled()):
        missing = "request path" if codec.COMPILED else "record codec"
        logger.warning(
            "The compiled %s is not there, so this broker is slower than it could be: install a C compiler, then "
            "install jesenska again.",
            missing,
        )
    refuse_data_without_metadata(config)
    memory = Memory()
    with asyncio.Runner(loop_factory=broker_loop) as runner:
        return runner.run(_run(config, memory, on_ready, on_progress))


async def _run(
    config: BrokerConfig, memory: Memory, on_ready: Callable[[Broker], None], on_progress: Callable[[str], None] | None
) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    _stop_by_signals(loop, stopping)
    parents_end(loop, stopping)
    # Objects that were made during the start live long. After this collection, the garbage collector no longer checks
    # them.
    gc.collect()
    gc.disable()
    broker = Broker(config)
    figures = _Figures(broker)
    loop.add_signal_handler(signal.SIGUSR1, figures.tell)
    starting = loop.create_task(broker.start(on_progress))
    stopped = loop.create_task(stopping.wait())
    await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        await broker.stop()
        stopped_in_order()
        return 0
    try:
        starting.result()
    except BaseException:
        stopped.cancel()
        await broker.stop()
        raise
    gc.freeze()
    gc.enable()
    memory.keep_small(loop, _YOUNG_OBJECTS)
    figures.are_known = True
    on_ready(broker)
    has_failed = await _until_stopped(broker, stopped)
    # The process is about to end. Closing thousands of logs makes many objects, and garbage among these objects need
    # not be freed.
    gc.disable()
    gc.freeze()
    async with telling("Stopping: logs are synced and closed"):
        await broker.stop()
    logger.info("the broker has stopped in order")
    stopped.cancel()
    stopped_in_order()
    return 1 if has_failed else 0


async def _until_stopped(broker: Broker, stopped: asyncio.Task[bool]) -> bool:
    """Waits until a signal stops the broker, or until all log directories of the broker have failed. Returns True if
    all log directories have failed."""
    loop = asyncio.get_running_loop()
    importing = loop.create_task(handlers.load_all())
    failed = loop.create_task(broker.failed())
    await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
    has_failed = failed.done()
    if has_failed:
        logger.error(
            "every log directory has failed, so this broker stops: repair a log directory, and start the broker again"
        )
    failed.cancel()
    importing.cancel()
    return has_failed


def _stop_by_signals(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    def stop(number: signal.Signals) -> None:
        if not stopping.is_set():
            logger.info("%s: the broker stops in order", number.name)
        elif number == signal.SIGINT:
            os._exit(1)
        stopping.set()

    for number in heeded_signals():
        loop.add_signal_handler(number, stop, number)


class _Figures:
    """Prints the broker's measurements when a signal requests them, once the broker has started."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.are_known = False

    def tell(self) -> None:
        # The measurements are printed at any log level, because a signal has requested them.
        line = line_of(self._broker.figures()) if self.are_known else "figures: the broker is starting"
        print(line, file=sys.stderr, flush=True)
