"""A broker: the order in which it starts and stops, and what handlers find in it.

    start   listeners bound -> directories locked -> tree opened, here or on a ZooKeeper server -> cluster id settled
            -> logs loaded and recovered -> registered in the tree, which takes part in the election of a controller
            -> told by the controller, this broker or another, of its replicas, topics and brokers -> ready
    stop    others lead what it has led -> no new connections -> requests in work answered -> logs synced, marked
            clean -> session closed -> directories given up

Binding first means that a taken port is told before anything is touched; clients that connect during recovery wait in
the backlog. Connections are accepted once this broker knows what to tell them; where another broker is controller that
is sooner, since it has to be told over one.

After a crash the tree has what was answered, the logs are recovered past their recovery points, and each partition's
leader epoch is raised, so that a consumer can tell a log that was cut from one that went on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

from jesenska.base.errors import ErrorCode, InvalidConfigError, JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition, uuid_to_text
from jesenska.base.limits import LISTEN_BACKLOG
from jesenska.broker.candidacy import Candidacy
from jesenska.broker.connection_limits import ConnectionLimits
from jesenska.broker.controllership import Controllership
from jesenska.broker.derived_settings import cleaner_settings_of, cordoned_paths_of, directory_settings_of, link_settings_of, move_settings_of
from jesenska.broker.directory_failures import DirectoryFailures
from jesenska.broker.dispatch import Dispatcher
from jesenska.broker.features import Features
from jesenska.broker.groups import Groups
from jesenska.broker.loop_lag import LoopLag
from jesenska.broker.machine import Machine
from jesenska.broker.order_desk import OrderDesk
from jesenska.broker.peers import Peers
from jesenska.broker.registration import Registration, require_free
from jesenska.broker.replica_manager import ReplicaManager, known_to
from jesenska.broker.services import Services
from jesenska.broker.settings_runtime import SettingsRuntime
from jesenska.broker.starts import Starts
from jesenska.broker.topics import Topics
from jesenska.broker.transaction_markers import MarkerWriter, TransactionMarkers
from jesenska.broker.transaction_verification import TransactionVerification
from jesenska.broker.transactions import Transactions
from jesenska.broker.tree_home import EmbeddedHome, TreeHome, open_home
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Endpoint, listeners_of
from jesenska.controller.context import ControllerContext
from jesenska.controller.desk import first_of
from jesenska.controller.events import EVERYTHING
from jesenska.controller.settings import Settings
from jesenska.log.background import DirectoryWriter, ThreadBackground
from jesenska.log.files import raise_open_file_limit
from jesenska.log.log_cleaner import CleanerSurroundings
from jesenska.log.log_directories import LogDirectories
from jesenska.log.log_directory import LogDirectory
from jesenska.log.meta_properties import refuse_empty_tree
from jesenska.log.moving import MoveSurroundings
from jesenska.log.partition_loading import Known, LoadProgress
from jesenska.metadata import paths as tree_paths
from jesenska.metadata.journal import JournalError
from jesenska.metadata.nodes import BrokerRegistration, NodeFormatError
from jesenska.metadata.patience import until_reached
from jesenska.metadata.producer_ids import ProducerIds, ProducerIdsExhausted
from jesenska.metadata.registration import ensure_cluster_id, ensure_paths, known_cluster_id, next_broker_id
from jesenska.metadata.store import SessionState
from jesenska.metadata.tree_operations import TreeError
from jesenska.net.listener import Listener
from jesenska.replication.follower_links import FollowerLinks
from jesenska.replication.isr_changes import IsrChanges
from jesenska.replication.lost_data import Written, lost_replicas
from jesenska.replication.older_tree import Heard, newer_than_tree
from jesenska.wire.messages.k07_controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

logger = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_STOP_GRACE_SECONDS = 5.0
#: Compactions that can run at the same time, whatever log.cleaner.threads says; a thread is made when it is needed.
_CLEANER_THREADS_MAX = 32
#: Replicas that can be copied at the same time, whatever num.replica.alter.log.dirs.threads says.
_MOVER_THREADS_MAX = 32
#: The longest pause before the controller is asked again to let others lead.
_STOP_PAUSE_SECONDS = 1.0
_PROGRESS_SECONDS = 2.0
#: Who waits for a controller says so ever more seldom.
_LONGEST_PROGRESS_SECONDS = 60.0


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
        #: Of a broker whose tree is elsewhere.
        self._starts: Starts | None = None
        self._registration: Registration
        self._controllership: Controllership
        self._settings: SettingsRuntime
        self._links: FollowerLinks
        #: It takes part in the cluster: what is above is there. And connections are taken.
        self._is_served = self._accepts = False
        self._ticking: asyncio.Task[None] | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._writers: list[Executor] = []
        self._flushers: list[Executor] = []
        self._locked = False
        self._background = self.machine.threads(1, "background")
        self._cleaners = self.machine.threads(_CLEANER_THREADS_MAX, "cleaner")
        self._movers = self.machine.threads(_MOVER_THREADS_MAX, "mover")
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
            monotonic_ms=self._monotonic_ms,
            cleaner_surroundings=CleanerSurroundings(
                ThreadBackground(self._cleaners, self._loop.call_soon_threadsafe),
                self._loop.call_later,
                self._monotonic_ms,
                self.clock.now_ms,
                lambda: self.machine.new_uuid().bytes,
            ),
            cleaner_settings=cleaner_settings_of(self.config),
            on_failure=self._directory_failed,
            move_surroundings=MoveSurroundings(
                ThreadBackground(self._movers, self._loop.call_soon_threadsafe), self._loop.call_later, self._monotonic_ms, self.machine.new_uuid
            ),
            move_settings=move_settings_of(self.config),
        )
        found = self.directories.lock()
        self._locked = True
        self._home = home = await open_home(self.config, paths[0], self.machine)
        self.store = store = home.store
        self.shares_tree = home.is_shared
        again = partial(until_reached, store, home.patience_seconds)
        found_id = next((item.cluster_id for item in found if item is not None and item.cluster_id), None)
        is_first = await again(partial(known_cluster_id, store)) is None
        if found_id is not None and is_first:
            refuse_empty_tree(zip(paths, found, strict=True), home.name, is_own=isinstance(home, EmbeddedHome))
        await again(home.prepare)
        await again(partial(ensure_paths, store))
        cluster_id = await again(partial(ensure_cluster_id, store, found_id or uuid_to_text(self.machine.new_uuid())))
        if is_first and home.is_shared:
            logger.info("%s knew no cluster: cluster %s begins there", home.name, cluster_id)
        if self.broker_id < 0:
            known_id = next((item.broker_id for item in found if item is not None and item.broker_id is not None), None)
            reserved_max = self.config.integer("reserved.broker.max.id")
            self.broker_id = known_id if known_id is not None else await again(partial(next_broker_id, store, reserved_max))
        self.endpoints = self._endpoints()
        if home.is_shared:
            is_new = all(item is None or item.broker_id is None for item in found)
            await again(partial(require_free, store, self.broker_id, self.endpoints, self.clock, home.session_timeout_ms, on_progress, is_new=is_new))
        self.directories.claim(cluster_id, self.broker_id)
        self.view.cluster_id = cluster_id
        facts = await again(home.facts)
        files_config = self.config
        settings = Settings(self.broker_id, facts.configs, self.config, lambda name: name in self.view.topics)
        self._settings = SettingsRuntime(self, store, settings, home.change_max_bytes)
        self.reconfigure(self._settings.config)
        self.peers = Peers(self, self._listeners_config.inter_broker)
        self._links = FollowerLinks(
            self.peers.connect, self.clock, link_settings_of(self.broker_id, self.config), self.config.integer("num.replica.fetchers"), self._log_changed
        )
        self.replicas = ReplicaManager(self, self._settings, self._links)
        self._settings.changed = self.replicas.settings_changed
        self._failures = DirectoryFailures(self.directories, self.replicas, store, self.broker_id)
        await self._load_logs(known_to(facts, self._settings.topic_config), on_progress)
        self.directories.expect(
            TopicPartition(name, number)
            for name, topic in facts.topics.items()
            for number, replicas in topic.node.replicas.items()
            if self.broker_id in replicas
        )
        if self._older_tree(facts, home.name) is not None:
            # A server of an ensemble may be behind the others.
            await again(store.sync)
            facts = await again(home.facts)
            if (older := self._older_tree(facts, home.name)) is not None:
                raise older
        if home.is_shared:
            self._starts = Starts(store, self.broker_id, self.directories, self.machine.new_uuid)
            await again(self._starts.look)
        lost = self._lost_replicas(facts)
        if self._starts is None:
            self.replicas.refuse_to_lead(lost)
        else:
            self._starts.lack([key for key in lost if len(facts.topics[key.topic].partitions[key.partition].state.isr) == 1])
            self.replicas.refuse_to_lead(lost, self._starts.found)
        # Who has lost data is out of every ISR that has another member before it can lead, like who has crashed.
        crashed = not self.directories.was_clean or bool(lost)
        node = BrokerRegistration(self.endpoints, self.clock.now_ms(), self.config.string("broker.rack"), crashed=crashed)
        self.orders = OrderDesk(self.replicas, lambda: self._registration.broker_epoch, lambda epoch: self._registration.told(epoch))
        self._controllership = controllership = Controllership(self, home, files_config, home.facts, self.replicas, self.orders, self.peers)
        self.topics = Topics(self, controllership, self._settings, self.peers)
        self.features = Features(store)
        self.producer_ids = ProducerIds(store, self.broker_id)
        self.groups = Groups(self, store, self.topics.create_automatically)
        self.marker_writer = MarkerWriter(self, self.groups)
        self._markers = TransactionMarkers(self, self.marker_writer, self.peers.connect)
        self.transactions = Transactions(self, store, self.topics.create_automatically, self.producer_ids, self.features, self._markers)
        self.verification = TransactionVerification(self, self.transactions, self.peers.connect)
        self.replicas.keep(self.groups, self.transactions)
        self.isr_changes = IsrChanges(store, self.broker_id, lambda: self.orders.fence.controller_epoch, self.isr_syncs)
        controllership.candidacy = Candidacy(store, self.broker_id, self.clock, controllership)
        self._registration = Registration(
            store,
            self.broker_id,
            node,
            self.clock,
            home.session_timeout_ms,
            controllership.candidacy,
            None if self._starts is None else self._starts.begin,
        )
        self._is_served = True
        home.on_renewed(self._registration.renew)
        if home.is_shared:
            # Whoever becomes controller in this start looks again at what it could not read.
            store.on_state(self._tree_state)
        await again(partial(self._registration.join, on_progress))
        await controllership.is_settled.wait()
        if not controllership.is_controller:
            self._accept()
        await self._wait_to_be_told(on_progress)
        await again(self.features.begin)
        self.groups.take_over()
        self.transactions.take_over()
        if home.is_shared:
            await home.serve()
            self._settings.look(EVERYTHING)
        else:
            # The controller, too, writes settings: of a branch, that it is made.
            self._settings.look(tree_paths.CONFIG_CHANGES)
        self._accept()
        self._ticking = self._loop.create_task(self._tick())
        self.loop_lag = LoopLag(self._loop, measures=self.machine.loop_may_be_late)
        logger.info("broker %d of cluster %s is ready with %d partitions", self.broker_id, cluster_id, len(self.directories.logs))

    def _older_tree(self, facts: ControllerContext, tree: str) -> JesenskaError | None:
        """One sentence where the tree is older than a log of this broker."""
        logs = self.directories.logs
        in_tree = {
            key: Heard(topic.topic_id, topic.partitions[key.partition].state.leader_epoch)
            for key in logs
            if (topic := facts.topics.get(key.topic)) is not None and key.partition in topic.partitions
        }
        found = newer_than_tree(in_tree, {key: Heard(log.topic_id, log.leader_epochs.latest_epoch) for key, log in logs.items()})
        if found is None:
            return None
        log = logs[found]
        return JesenskaError(
            f"The log directory {log.directory.parent} is newer than {tree}: {found} has heard of leader epoch {log.leader_epochs.latest_epoch}, "
            f"and stands at {in_tree[found].leader_epoch} there. Put the newest tree back, or build it anew with jesenska tree rebuild."
        )

    def _lost_replicas(self, facts: ControllerContext) -> list[TopicPartition]:
        """The replicas of this broker that have lost data, as far as the tree and its disk can tell."""
        directories = self.directories
        written = {
            TopicPartition(name, number): Written(topic.node.replicas.get(number, ()), partition.state, partition.version)
            for name, topic in facts.topics.items()
            for number, partition in topic.partitions.items()
            if not topic.deleting
        }
        logs = directories.logs.keys() | directories.offline
        has_other = directories.has_new_directory or (self._starts is not None and self._starts.has_older)
        lost = list(lost_replicas(self.broker_id, written, logs, directories.cut_logs, has_other_directory=has_other))
        if lost:
            logger.warning("%d replicas that were in sync have lost data here (%s): others are to lead them", len(lost), first_of(lost))
        return lost

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Perhaps in the middle of work on one of its logs, and during the start in another thread."""
        self._loop.call_soon_threadsafe(self._look_at_failures)

    def _look_at_failures(self) -> None:
        """During the start, whoever starts the broker sees to that."""
        if self._is_served:
            self._failures.look()

    async def failed(self) -> None:
        """Returns when every log directory has failed: nothing is left for this broker to do."""
        await self._failures.all_failed.wait()

    def _monotonic_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)

    def _accept(self) -> None:
        """Takes connections from now on; a second call changes nothing."""
        if self._accepts:
            return
        self._accepts = True
        for listener in self._listeners:
            listener.start()
            logger.info("listener %s takes connections at port %d", listener.name, listener.port)

    async def _wait_to_be_told(self, on_progress: Callable[[str], None] | None) -> None:
        """Until a controller has told this broker of its replicas and of the cluster."""
        pause = silent = 0.0
        while True:
            try:
                async with asyncio.timeout(_PROGRESS_SECONDS):
                    await self.orders.is_told.wait()
                return
            except TimeoutError:
                if self.orders.knows_cluster and not self.topics.is_controller:
                    return  # Apache Kafka's controller says nothing of replicas to a broker that has none
                controller_id = self._controllership.controller_id
                if controller_id not in (-1, self.broker_id):
                    self._accept()
                silent += _PROGRESS_SECONDS
                if on_progress is not None and silent >= pause:
                    on_progress(self._waits_for(controller_id))
                    pause, silent = min(max(2 * pause, _PROGRESS_SECONDS), _LONGEST_PROGRESS_SECONDS), 0.0

    def _waits_for(self, controller_id: int) -> str:
        """Whom it waits for, and what keeps that one from it where an address is wrong."""
        if controller_id in (-1, self.broker_id):
            return "waiting for a controller to tell this broker of its partitions"
        name = self._listeners_config.inter_broker
        at = next((f"{item.host}:{item.port}" for item in self.endpoints if item.name == name), name)
        return f"waiting for broker {controller_id}, the controller, to reach this broker at {at} (advertised.listeners) and to tell it of its partitions"

    def _tree_state(self, state: SessionState) -> None:
        """After the store was out of reach, everything is looked at."""
        if state is SessionState.CONNECTED:
            self._settings.look(EVERYTHING)
            self._controllership.look(EVERYTHING)

    def _log_changed(self, topic_partition: TopicPartition) -> None:
        """What is followed has more records, or other offsets."""
        topic = self.view.topics.get(topic_partition.topic)
        if topic is not None and topic_partition.partition < len(topic.partitions):
            topic.partitions[topic_partition.partition].changed()

    def _bind(self) -> None:
        name = "socket.listen.backlog.size"
        # The loop accepts between other work, where Kafka has a thread that does nothing else.
        backlog = self.config.integer(name) if self.config.is_set(name) else LISTEN_BACKLOG
        for item in self._listeners_config.opened:

            def accepted(sock: socket.socket, host: str, listener_name: str = item.name) -> None:
                self.dispatcher.accept(sock, host, listener_name)

            # Another one on the same port is for IPv4.
            shares = any(other.port == item.port != 0 and other is not item for other in self._listeners_config.opened)
            listening = self.machine.network.listening_socket(item.host, item.port, backlog, only_v6=shares)
            self._listeners.append(Listener(self._loop, item.name, listening, accepted))

    def _log_dirs(self) -> list[str]:
        several = self.config.string("log.dirs")
        text = several if several is not None else self.config.string("log.dir") or ""
        found = [item.strip() for item in text.split(",") if item.strip()]
        if not found:
            raise JesenskaError("log.dirs names no directory: set it to where the data is to be kept.")
        named: dict[str, str] = {}
        for item in found:
            path = os.path.realpath(item)
            if path in named:
                other = "" if item == named[path] else f", also as {named[path]}"
                raise JesenskaError(f"log.dirs names {item} twice{other}: name each directory once.")
            named[path] = item
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
        if self.directories.cleaner is not None:
            self.directories.cleaner.reconfigure(cleaner_settings_of(config))
        if self.directories.moves is not None:
            self.directories.moves.reconfigure(move_settings_of(config))
        self.directories.cordon(cordoned_paths_of(config, [directory.path for directory in self.directories.directories]))
        try:
            self.dispatcher.limits = ConnectionLimits(config)
        except InvalidConfigError as error:
            logger.error("a dynamic setting has no effect: %s", error)

    def claim_producer_ids(self) -> None:
        if self._claiming is None or self._claiming.done():
            self._claiming = self._loop.create_task(self._claim_producer_ids())

    async def _claim_producer_ids(self) -> None:
        try:
            await self.producer_ids.claim()
        except (TreeError, ProducerIdsExhausted) as error:
            logger.warning("producers get no ids: %s", error)

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
                self._failures.look()
                if self.replicas.make_missing_logs():
                    self._failures.tell()
                await self.replicas.propose_isrs(self.propose_isr)
                self.isr_syncs.try_again()
                self._links.look()
                self.dispatcher.close_idle()
            except Exception:
                logger.exception("housekeeping of the log directories failed; it is tried again in %g s", _TICK_SECONDS)

    async def stop(self) -> None:
        """Stops in order; harmless a second time, or after a start that failed."""
        if self._stopped:
            return
        self._stopped = True
        if self._ticking is not None:
            # A follower that went on would be taken into the ISRs again that the controller has it leave.
            self._links.close()
            await self._leave_to_others()
        for listener in self._listeners:
            listener.close()
        if self._ticking is not None:
            self.loop_lag.close()
            self._ticking.cancel()
            await asyncio.wait({self._ticking})
        if self._is_served:
            self._links.close()
            self._controllership.stop_watching()
            self._settings.stop_watching()
        self.waiting.close()
        if self._is_served:
            await self.groups.close()
            await self.transactions.close()
            await self._markers.close()
            await self.verification.close()
            await self.features.close()
            if self._claiming is not None:
                self._claiming.cancel()
                await asyncio.gather(self._claiming, return_exceptions=True)
            await self._failures.close()
            self.isr_syncs.close()
            await self.isr_changes.close()
        await self.dispatcher.close(_STOP_GRACE_SECONDS)
        if self._is_served:
            await self._controllership.close()
            await asyncio.gather(*self._settings.close(), return_exceptions=True)
            await self.orders.close()
        if self._locked and self.directories.cleaner is not None:
            self.directories.cleaner.close()
        if self._locked and self.directories.moves is not None:
            self.directories.moves.close()
        for executor in (self._cleaners, self._movers):
            await self._loop.run_in_executor(None, executor.shutdown)
        # In this order: what a thread hands back to the loop may have something for the next ones (a roll is followed
        # by a flush, a flush by the next one where records came meanwhile).
        await self._loop.run_in_executor(None, self.pool.close)
        while self._locked and self.directories.has_work_in_flight:
            for executor in (*self._writers, *self._flushers, self._background):
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

    async def _leave_to_others(self) -> None:
        """Has the controller let others lead what this broker leads (controlled.shutdown.*)."""
        if not self.config.boolean("controlled.shutdown.enable"):
            return
        pause_seconds = self.config.integer("controlled.shutdown.retry.backoff.ms") / 1000
        for attempt in range(1 + self.config.integer("controlled.shutdown.max.retries")):
            if attempt:
                await asyncio.sleep(min(pause_seconds, _STOP_PAUSE_SECONDS))
            if not self.view.brokers.keys() - {self.broker_id}:
                return
            try:
                async with asyncio.timeout(_STOP_GRACE_SECONDS):
                    stays = await self._ask_to_stop()
            except (KafkaError, TimeoutError) as error:
                logger.info("the controller is not told yet that this broker stops: %s", type(error).__name__)
                continue
            if not stays:
                return
            logger.info("%d partitions are led by this broker still, since no other replica is in sync", len(stays))
        logger.warning("this broker stops though it leads partitions still: they have no leader until another replica may lead")

    async def _ask_to_stop(self) -> Sequence[TopicPartition]:
        """The partitions that this broker leads still."""
        if self.topics.is_controller:
            return await self.topics.stop_wanted(self.broker_id)
        channel = await self.peers.connect(self._controllership.controller_id)
        try:
            request = ControlledShutdownRequest(broker_id=self.broker_id, broker_epoch=self._registration.broker_epoch)
            answer = await channel.request(request, ControlledShutdownResponse, timeout_seconds=_STOP_GRACE_SECONDS)
        finally:
            channel.close()
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError.of(answer.error_code, "It refuses.")
        return [TopicPartition(item.topic_name, item.partition_index) for item in answer.remaining_partitions]

    def _close_directories(self) -> None:
        self.directories.close(clean=self._ticking is not None)
