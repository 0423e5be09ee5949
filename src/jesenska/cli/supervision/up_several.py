"""`jesenska up -n N`: runs N brokers and their metadata tree on this machine, as processes that this process
supervises (`supervisor`).

    start    settings and directories checked -> ports found -> the tree -> the brokers, all at once -> announced when
             the last broker is ready; if a broker ends before that, the start has failed
    then     a process that dies is started again, at the same port and with the same data (`several_directories`)
    stop     a signal, or the end of this process's parent: the brokers one after the other, then the tree
    signals  a second Ctrl-C ends everything at once; SIGUSR1 has every broker print its measurements

Each broker is a `supervised_broker`, with the settings that `jesenska up` gives to a single broker (`up_options`), and
with its own broker.id (from 1 on), port and directory. The user cannot set these three settings, the address of the
tree, or the login to it (`tree_login`)."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.configuration import broker_config
from jesenska.cli.shared.ending import parents_end, stopped_in_order
from jesenska.cli.shared.log_lines import LogFile, configure_logging
from jesenska.cli.shared.several_directories import (
    broker_directory,
    brokers_with_data,
    held_directory,
    refuse_directory_of_one,
    tree_directory,
)
from jesenska.cli.shared.stop_signals import heeded_signals
from jesenska.cli.shared.tree_login import LOGIN_FILE
from jesenska.cli.supervision.prefixed_output import PrefixedOutput
from jesenska.cli.supervision.reserved_port import ReservedPort
from jesenska.cli.supervision.supervisor import Child, Supervisor
from jesenska.cli.supervision.tree_orders import TREE_HOST
from jesenska.cli.supervision.up_options import (
    DEFAULT_DATA,
    address_of,
    announcement,
    broker_defaults,
    listening_host,
    port_of,
    tree_host,
    warn_if_open,
)
from jesenska.config.sources import gather
from jesenska.net.listener import PortTakenError

#: The number of seconds that a broker may take to stop. It may have much data to sync.
_GRACE_SECONDS = 120.0
#: Settings that must differ between the brokers. The text tells the user how the setting is chosen.
_NUMBERED = "up numbers its brokers from 1 on"
_ITS_OWN = {
    "broker.id": _NUMBERED,
    "node.id": _NUMBERED,
    "listeners": "--host and --port say where they listen",
    "host.name": "--host says where they listen",
    "port": "--port says where the first one listens",
    "advertised.listeners": "--host says what clients are told",
    "advertised.port": "clients are told where they listen",
    "log.dirs": "--data names the directory for all of them",
    "log.dir": "--data names the directory for all of them",
    "zookeeper.connect": "up keeps their tree itself",
    "jesenska.zookeeper.login.file": "up makes their login itself",
    "jesenska.zookeeper.listener": "--zookeeper-port says where their tree is served",
}


def run_several(options: argparse.Namespace) -> int:
    """Starts the brokers and their metadata tree, runs until a signal stops them, and returns the exit code."""
    configure_logging(options)
    warn_if_open(options)
    data = data_of(options)
    refuse_its_own(options)
    # Most settings are the same for all brokers. So they are checked here once, and warnings are printed once.
    broker_config(
        None if options.secured is None else options.secured.file,
        broker_defaults(options.brokers),
        options.override,
        flags=flags_of(options, 1, port_of(options), f"{TREE_HOST}:1"),
    )
    refuse_directory_of_one(data)
    if options.secured is not None and options.data is None:
        refuse_directory_of_one(options.secured.data_of_one)
    if sentence := left_out(data, options.brokers):
        print(sentence, file=sys.stderr)
    with held_directory(data):
        return asyncio.run(_run(options, data))


def data_of(options: argparse.Namespace) -> Path:
    """Returns the directory with the data of all brokers."""
    if options.data is None and options.secured is not None:
        return Path(options.secured.data)
    return Path(options.data or DEFAULT_DATA)


def refuse_its_own(options: argparse.Namespace) -> None:
    """Raises JesenskaError with one sentence if the user has set a setting that must differ between the brokers."""
    try:
        settings = gather(None, os.environ, options.override).settings
    except ValueError as error:
        raise JesenskaError(str(error)) from error
    for name, remedy in _ITS_OWN.items():
        if name in settings:
            raise JesenskaError(
                f"{name}={settings[name]} cannot be the same for {options.brokers} brokers: leave it out, {remedy}."
            )


def flags_of(options: argparse.Namespace, number: int, port: int, tree: str) -> dict[str, str]:
    """Returns the settings of one broker that have precedence over all other settings."""
    data = data_of(options)
    if options.secured is None:
        listener = {"listeners": f"PLAINTEXT://{address_of(listening_host(options), port)}"}
    else:
        # The numbers of replicas in the file are those of a single broker.
        listener = {**options.secured.listener(port), **broker_defaults(options.brokers)}
    return {
        **listener,
        "broker.id": str(number),
        "log.dirs": str(broker_directory(data, number)),
        "zookeeper.connect": tree,
        "jesenska.zookeeper.login.file": str(tree_directory(data).absolute() / LOGIN_FILE),
    }


def command_of(options: argparse.Namespace, number: int, port: int, tree: str) -> list[str]:
    """Returns the command that starts the broker with this number."""
    command = [
        sys.executable,
        "-m",
        "jesenska.cli.supervision.supervised_broker",
        "--log-level",
        options.log_level,
        "--log-format",
        options.log_format,
    ]
    if options.debug:
        command.append("--debug")
    if options.secured is not None:
        command += ["--file", options.secured.file]
    for flag, settings in (
        ("--flag", flags_of(options, number, port, tree)),
        ("--default", broker_defaults(options.brokers)),
    ):
        for name, value in settings.items():
            command += [flag, f"{name}={value}"]
    for override in options.override:
        command += ["--override", override]
    return command


def left_out(data: Path, brokers: int) -> str:
    """Returns a sentence about brokers that have data in the directory but are not started. Returns an empty text if
    there are no such brokers."""
    numbers = [number for number in brokers_with_data(data) if number > brokers]
    if not numbers:
        return ""
    again = f"have copies of have no leader until up runs with -n {numbers[-1]} again."
    if len(numbers) == 1:
        return f"Broker {numbers[0]} has data in {data} and is not started: partitions that no other brokers {again}"
    return (
        f"Brokers {', '.join(map(str, numbers))} have data in {data} and are not started: partitions that no other "
        f"brokers {again}"
    )


def ports_for(options: argparse.Namespace, kept: ExitStack) -> list[int]:
    """Returns the ports of the brokers. The ports are reserved until `kept` is closed. Raises JesenskaError with one
    sentence if a port is in use and the user has not allowed any port."""
    host, first = listening_host(options), port_of(options)
    found = []
    for port in range(first, first + options.brokers) if first else [0] * options.brokers:
        try:
            one = ReservedPort(host, port)
        except PortTakenError as error:
            if not options.any_port:
                raise JesenskaError(
                    f"Port {error.port} is taken by another process, perhaps another broker: stop that process, "
                    "choose other ports with --port, or add --any-port."
                ) from error
            print(f"Port {error.port} is taken; using another one.", file=sys.stderr)
            one = ReservedPort(host, 0)
        kept.callback(one.close)
        found.append(one.port)
    return found


async def _run(options: argparse.Namespace, data: Path) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    file = LogFile(options.log_file) if options.log_file is not None else None
    passed_on = PrefixedOutput(err=file, as_json=options.log_format == "json")
    listens_at = (TREE_HOST, 0) if options.zookeeper_port is None else (tree_host(options), options.zookeeper_port)
    supervisor = Supervisor(
        tree_directory(data), passed_on=passed_on, grace_seconds=_GRACE_SECONDS, listens_at=listens_at, has_login=True
    )

    def interrupted() -> None:
        if stopping.is_set():
            supervisor.kill()
            os._exit(1)
        passed_on.say(f"Stopping {options.brokers} brokers and their tree; a second Ctrl-C ends them at once.")
        stopping.set()

    for signal_number in heeded_signals():
        loop.add_signal_handler(signal_number, interrupted if signal_number == signal.SIGINT else stopping.set)
    parents_end(loop, stopping)
    with ExitStack() as kept:
        try:
            ports = ports_for(options, kept)
            brokers = _Brokers(supervisor, passed_on, options.brokers)
            loop.add_signal_handler(signal.SIGUSR1, brokers.send, signal.SIGUSR1)
            await supervisor.start()
            if not stopping.is_set():
                for number, port in enumerate(ports, 1):
                    brokers.add(number, command_of(options, number, port, supervisor.address))
            if found := await brokers.ready_or(stopping):
                tree = (
                    address_of(listens_at[0] or found[0][0], supervisor.port)
                    if options.zookeeper_port is not None
                    else None
                )
                passed_on.announce(
                    announcement(
                        [address_of(*one) for one in found],
                        str(data),
                        tree,
                        str(tree_directory(data) / LOGIN_FILE),
                        None if options.secured is None else options.secured.client_file,
                    )
                )
            await stopping.wait()
        finally:
            await supervisor.stop()
            if file is not None:
                file.close()
    stopped_in_order()
    return 0


class _Brokers:
    """The brokers of a supervisor, by number, with the states that they have reported."""

    def __init__(self, supervisor: Supervisor, passed_on: PrefixedOutput, count: int) -> None:
        self._supervisor = supervisor
        self._passed_on = passed_on
        self._count = count
        #: The addresses for clients of brokers that have been ready at least once.
        self._found: dict[int, tuple[str, int]] = {}
        #: The brokers that are ready now. Signals are sent only to these brokers: a broker that is not ready would
        #: end.
        self._ready: set[int] = set()
        #: The reasons for their failure that brokers have reported.
        self._failures: dict[int, str] = {}
        #: A future that is completed when all brokers are ready. If a broker fails before that, the future gets an
        #: error.
        self._all_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def add(self, number: int, command: Sequence[str]) -> None:
        """Starts a broker under the supervisor."""
        self._supervisor.add(
            Child(
                _name(number),
                command,
                f"/brokers/ids/{number}",
                on_word=partial(self._said, number),
                on_end=partial(self._ended, number),
            )
        )

    async def ready_or(self, stopping: asyncio.Event) -> list[tuple[str, int]]:
        """Waits until clients can connect to all brokers, and returns their addresses in order. Returns an empty list
        if `stopping` is set before that. Raises JesenskaError with one sentence if a broker cannot start."""
        waiting = asyncio.get_running_loop().create_task(stopping.wait())
        either: set[asyncio.Future[Any]] = {self._all_ready, waiting}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not self._all_ready.done():
            self._all_ready.cancel()
            return []
        self._all_ready.result()
        return [self._found[number] for number in sorted(self._found)]

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to all brokers that are ready."""
        for broker in self._ready:
            self._supervisor.send(_name(broker), number)

    def _said(self, number: int, said: dict[str, Any]) -> None:
        if "progress" in said:
            self._passed_on.say(f"{_name(number)}: {said['progress']}")
        elif "failed" in said:
            self._failures[number] = str(said["failed"])
        elif "ready" in said:
            if number in self._found:
                self._passed_on.say(f"{_name(number)} is up again.")
            self._found[number] = str(said["host"]), int(said["port"])
            self._ready.add(number)
            if len(self._ready) == self._count and not self._all_ready.done():
                self._all_ready.set_result(None)

    def _ended(self, number: int, how: str) -> None:
        self._ready.discard(number)
        failure = self._failures.pop(number, None)
        if number in self._found or self._all_ready.done():
            return
        # If the first start of a broker has failed, a second start would fail for the same cause.
        message = (
            f"Broker {number} did not start: {failure}"
            if failure
            else f"Broker {number} {how} before it was ready: see what it has logged."
        )
        self._all_ready.set_exception(JesenskaError(message))
        self._supervisor.begin_stop()


def _name(number: int) -> str:
    return f"broker {number}"
