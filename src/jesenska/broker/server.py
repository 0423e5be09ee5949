"""A broker: the order in which it starts and stops, and what handlers find in it.

    start   listeners bound -> directories locked -> tree opened, here or on a ZooKeeper server -> cluster id settled
            -> registered in the tree, controller -> logs loaded and recovered -> view of topics built -> connections
            accepted -> others' changes of the tree looked at
    stop    no new connections -> requests in work answered -> session closed -> logs synced, marked clean ->
            directories given up

Binding first means that a taken port is told before anything is touched; clients that connect during recovery wait in
the backlog.

After a crash the tree has what was answered, the logs are recovered past their recovery points, and each partition's
leader epoch is raised, so that a consumer can tell a log that was cut from one that went on.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from jesenska.base.errors import InvalidConfigError, JesenskaError
from jesenska.base.identifiers import uuid_to_text
from jesenska.base.limits import LISTEN_BACKLOG
from jesenska.broker import handlers
from jesenska.broker.connection_limits import ConnectionLimits
from jesenska.broker.controller_runtime import ControllerRuntime
from jesenska.broker.derived_settings import directory_settings_of
from jesenska.broker.dispatch import Dispatcher
from jesenska.broker.groups import Groups
from jesenska.broker.loop_lag import LoopLag
from jesenska.broker.machine import Machine
from jesenska.broker.membership import Membership
from jesenska.broker.metadata_cache import BrokerNode
from jesenska.broker.replica_manager import ReplicaManager, known_to
from jesenska.broker.services import Services
from jesenska.broker.topics import Topics
from jesenska.broker.tree_home import TreeHome, open_home
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Endpoint, listeners_of
from jesenska.controller.events import BrokerCame, Look, Started
from jesenska.controller.machine import Controller
from jesenska.log.background import DirectoryWriter, ThreadBackground
from jesenska.log.files import raise_open_file_limit
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition_loading import Known, LoadProgress
from jesenska.metadata.journal import JournalError
from jesenska.metadata.nodes import BrokerRegistration, NodeFormatError
from jesenska.metadata.paths import ISR_CHANGES
from jesenska.metadata.producer_ids import ProducerIds
from jesenska.metadata.registration import ensure_cluster_id, ensure_paths, next_broker_id
from jesenska.metadata.tree_operations import TreeError
from jesenska.net.listener import Listener
from jesenska.replication.isr_changes import IsrChanges

logger = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_STOP_GRACE_SECONDS = 5.0
_PROGRESS_SECONDS = 2.0

handlers.load()


def _nothing() -> None:
    """Comes after what a thread has to do already."""


class Broker(Services):
    """One broker on the running event loop: `start`, then `stop`."""

    def __init__(self, config: BrokerConfig, machine: Machine | None = None) -> None:
        super().__init__(config, machine or Machine())
        self._loop = asyncio.get_running_loop()
        self._listeners_config = listeners_of(config)
        self._listeners: list[Listener] = []
        self._home: TreeHome | None = None
        self._membership: Membership
        self._controller: ControllerRuntime | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._writers: list[Executor] = []
        self._flushers: list[Executor] = []
        self._locked = False
        self._background = self.machine.threads(1, "background")
        self._stopped = False
        limits = ConnectionLimits(config)
        self.dispatcher = Dispatcher(self, self._loop, self.clock, config.integer("socket.request.max.bytes"), limits)
        #: From the moment on that clients can connect.
        self.loop_lag: LoopLag

    # --- starting ----------------------------------------------------------------------------------------------------

    async def start(self, on_progress: Callable[[str], None] | None = None) -> None:
        """Returns when clients can connect; JesenskaError with one sentence if this broker cannot start. `on_progress`
        is told of long recoveries."""
        try:
            await self._start(on_progress)
        except (TreeError, JournalError, NodeFormatError) as error:
            told = error.reason if isinstance(error, TreeError) and error.reason else str(error)
            where = self.config.string("zookeeper.connect") or self._log_dirs()[0]
            raise JesenskaError(f"The metadata in {where} cannot be written or read: {told}") from error

    async def _start(self, on_progress: Callable[[str], None] | None) -> None:
        open_segments_max = raise_open_file_limit()
        self._bind()
        paths = [Path(item) for item in self._log_dirs()]
        self.directories = LogDirectories(
            paths,
            files=self.machine.files,
            helpers=self.machine.helpers,
            settings=directory_settings_of(self.config),
            background=ThreadBackground(self._background, self._loop.call_soon_threadsafe),
            writer_for=self._writer_for,
            open_segments_max=open_segments_max,
            jitter=lambda limit: self.random.randint(0, limit) if limit > 0 else 0,
            monotonic_ms=lambda: int(self.clock.monotonic() * 1000),
        )
        found = self.directories.lock()
        self._locked = True
        self._home = home = await open_home(self.config, paths[0], self.machine)
        self.store = store = home.store
        await ensure_paths(store)
        found_id = next((item.cluster_id for item in found if item is not None and item.cluster_id), None)
        cluster_id = await ensure_cluster_id(store, found_id or uuid_to_text(self.machine.new_uuid()))
        if self.broker_id < 0:
            known_id = next((item.broker_id for item in found if item is not None and item.broker_id is not None), None)
            self.broker_id = known_id if known_id is not None else await next_broker_id(store, self.config.integer("reserved.broker.max.id"))
        self.directories.claim(cluster_id, self.broker_id)
        self.view.cluster_id = cluster_id
        endpoints = self._endpoints()
        node = BrokerRegistration(endpoints, self.clock.now_ms(), self.config.string("broker.rack"))
        self._membership = Membership(store, self.broker_id, node, self.clock, home.session_timeout_ms)
        await self._membership.join(on_progress)
        controller = Controller(self.broker_id, await home.facts(), self.config, self.machine.new_uuid, self.random.randrange)
        self.reconfigure(controller.config)
        self.replicas = ReplicaManager(self, controller.topic_config)
        self._controller = ControllerRuntime(self, store, controller, self.replicas, self._membership, home.change_max_bytes)
        self.topics = Topics(self, self._controller)
        await self._controller.ask(Started)
        await self._load_logs(known_to(controller.context, controller.topic_config), on_progress)
        self.groups = self.replicas.offsets_keeper = Groups(self, self.topics.create_automatically)
        crashed = not self.directories.was_clean
        await self._controller.ask(lambda token: BrokerCame(token, self.broker_id, node, crashed))
        self.groups.take_over()
        self.isr_changes = IsrChanges(store, self.broker_id, lambda: controller.context.controller_epoch)
        self._controller.submit(Look(ISR_CHANGES))
        self.view.brokers[self.broker_id] = BrokerNode(
            self.broker_id, {item.name: (item.host, item.port) for item in endpoints}, self.config.string("broker.rack")
        )
        self.view.controller_id = self.broker_id
        self.producer_ids = ProducerIds(store, self.broker_id)
        if home.is_shared:
            home.on_renewed(self._controller.renewed)
            await home.serve()
            self._controller.watch_the_tree()
        for listener in self._listeners:
            listener.start()
            logger.info("listener %s takes connections at port %d", listener.name, listener.port)
        self._ticking = self._loop.create_task(self._tick())
        self.loop_lag = LoopLag(self._loop)
        logger.info("broker %d of cluster %s is ready with %d partitions", self.broker_id, cluster_id, len(self.directories.logs))

    def _bind(self) -> None:
        name = "socket.listen.backlog.size"
        # The loop accepts between other work, where Kafka has a thread that does nothing else.
        backlog = self.config.integer(name) if self.config.is_set(name) else LISTEN_BACKLOG
        for item in self._listeners_config.opened:

            def accepted(sock: socket.socket, host: str, listener_name: str = item.name) -> None:
                self.dispatcher.accept(sock, host, listener_name)

            listening = self.machine.network.listening_socket(item.host, item.port, backlog)
            self._listeners.append(Listener(self._loop, item.name, listening, accepted))

    def _log_dirs(self) -> list[str]:
        several = self.config.string("log.dirs")
        text = several if several is not None else self.config.string("log.dir") or ""
        found = [item.strip() for item in text.split(",") if item.strip()]
        if not found:
            raise JesenskaError("log.dirs names no directory: set it to where the data is to be kept.")
        return found

    def _writer_for(self, path: Path) -> DirectoryWriter:
        writer, flusher = (self.machine.threads(1, work) for work in ("writer", "flusher"))
        self._writers.append(writer)
        self._flushers.append(flusher)
        give_back = self._loop.call_soon_threadsafe
        return DirectoryWriter(ThreadBackground(writer, give_back), ThreadBackground(flusher, give_back))

    async def _load_logs(self, known: Known, on_progress: Callable[[str], None] | None) -> None:
        latest: list[LoadProgress] = []

        def progress(item: LoadProgress) -> None:
            latest[:] = [item]

        loading = self._loop.run_in_executor(self._background, self.directories.load, known, self.clock.now_ms(), progress)
        while True:
            done, _ = await asyncio.wait({loading}, timeout=_PROGRESS_SECONDS)
            if done:
                break
            if latest and on_progress is not None:
                item = latest[0]
                on_progress(f"recovering: {item.partitions_done} of {item.partitions_total} partitions, {item.checked_bytes / 1e6:.0f} MB checked")
        loading.result()

    def _endpoints(self) -> tuple[Endpoint, ...]:
        ports = {listener.name: listener.port for listener in self._listeners}
        return self._listeners_config.advertise(ports, socket.gethostname())

    def reconfigure(self, config: BrokerConfig) -> None:
        """Settings that changed while running take effect; what is wrong with one is logged and the old value
        stays."""
        super().reconfigure(config)
        try:
            self.dispatcher.limits = ConnectionLimits(config)
        except InvalidConfigError as error:
            logger.error("a dynamic setting has no effect: %s", error)

    # --- what handlers ask -------------------------------------------------------------------------------------------

    @property
    def first_listener_name(self) -> str:
        return self._listeners[0].name

    @property
    def tree_served_at(self) -> tuple[str, int] | None:
        """Host (empty: every address) and port where ZooKeeper's clients are answered; None where they are not."""
        return self._home.served_at if self._home is not None else None

    # --- running and stopping ----------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                for _ in self.directories.tick_in_steps(self.clock.now_ms()):
                    await asyncio.sleep(0)
                self.replicas.make_missing_logs()
                self.replicas.propose_without_lagging(self.propose_isr)
                self.dispatcher.close_idle()
            except Exception:
                logger.exception("housekeeping of the log directories failed; it is tried again in %g s", _TICK_SECONDS)

    async def stop(self) -> None:
        """Stops in order; harmless a second time, or after a start that failed."""
        if self._stopped:
            return
        self._stopped = True
        for listener in self._listeners:
            listener.close()
        if self._ticking is not None:
            self.loop_lag.close()
            self._ticking.cancel()
            await asyncio.wait({self._ticking})
        if self._controller is not None:
            self._controller.stop_watching()
        self.waiting.close()
        if self._ticking is not None:
            await self.groups.close()
            await self.isr_changes.close()
        await self.dispatcher.close(_STOP_GRACE_SECONDS)
        if self._controller is not None:
            await self._controller.close()
        # In this order: what a thread hands back to the loop may have something for the next ones (a roll is followed
        # by a flush, a flush by the next one where records came meanwhile).
        await self._loop.run_in_executor(None, self.pool.close)
        while self._locked and self.directories.has_work_in_flight:
            for executor in (*self._writers, *self._flushers):
                await self._loop.run_in_executor(executor, _nothing)
            await asyncio.sleep(0)
        for executors in (self._writers, self._flushers, [self._background]):
            for executor in executors:
                await self._loop.run_in_executor(None, executor.shutdown)
            await asyncio.sleep(0)
        if self._home is not None:
            await self._home.close()
        if self._locked:
            await self._loop.run_in_executor(None, self._close_directories)

    def _close_directories(self) -> None:
        self.directories.close(clean=self._ticking is not None)
