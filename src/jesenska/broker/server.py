"""Starts and stops a broker, in this order:

  start   bind listeners -> lock log directories -> open the metadata tree, in this process or on a ZooKeeper server ->
          find or choose the cluster id -> load and recover logs -> register in the tree, and take part in the election
          of a controller -> get replicas, topics and brokers from the controller (this broker or another) -> ready
  stop    let other brokers lead -> refuse new connections -> answer the requests that are being handled -> sync logs
          and mark them as cleanly closed -> close the session of the tree -> unlock log directories

Listeners are bound first, so that a port in use is reported before any file is changed. Clients that connect during
recovery wait in the sockets' backlog. Connections are accepted when this broker has metadata for clients. If another
broker is controller they are accepted earlier, because the controller's requests come over a connection.

After a crash the metadata tree has every change that was answered, and the logs are recovered from their recovery
points on. The leader epoch of each partition is raised, so that a consumer can detect that a log was truncated."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from jesenska.base.backoff import Backoff
from jesenska.base.errors import ErrorCode, InvalidConfigError, JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.config_in_force import ConfigInForce
from jesenska.broker.fetching.fetch_sessions import FetchSessions
from jesenska.broker.figures import figures_of
from jesenska.broker.loop_lag import LoopLag
from jesenska.broker.machine import Machine
from jesenska.broker.metadata_cache import MetadataCache
from jesenska.broker.pool import Pool
from jesenska.broker.requests.connection_limits import ConnectionLimits
from jesenska.broker.requests.dispatch import Dispatcher
from jesenska.broker.requests.families import (
    ClusterFamily,
    Families,
    FetchFamily,
    FetchRules,
    GroupFamily,
    LogFamily,
    PeerFamily,
    ProduceFamily,
    SecurityFamily,
    TopicFamily,
    TransactionFamily,
)
from jesenska.broker.settings.quotas_runtime import QuotasRuntime
from jesenska.broker.shared_parts import SharedParts
from jesenska.broker.stages.authorization import Authorization, authorization, super_users_of
from jesenska.broker.stages.control import Control, control
from jesenska.broker.stages.coordinators import Coordinators, coordinators
from jesenska.broker.stages.ports import Port, bind, endpoints_of
from jesenska.broker.stages.replication import Replication, load
from jesenska.broker.stages.security import Credentials, security_of
from jesenska.broker.stages.storage import Storage, log_dirs_of, open_storage
from jesenska.broker.stages.tokens import delegation_tokens
from jesenska.broker.stages.tree import TreePlace, take_place
from jesenska.broker.waiting import WaitingRoom
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Endpoint, listeners_of
from jesenska.config.replica_selectors import RACK_AWARE
from jesenska.controller.events import EVERYTHING
from jesenska.log.disk.files import raise_open_file_limit
from jesenska.log.log_directories import LogDirectories
from jesenska.metadata import paths as tree_paths
from jesenska.metadata.journal import JournalError
from jesenska.metadata.nodes import NodeFormatError
from jesenska.metadata.store import SessionState
from jesenska.metadata.tree_operations import TreeError
from jesenska.net.listener import Listener
from jesenska.replication.leader.isr_syncs import IsrSyncs
from jesenska.wire.messages.k07_controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

if TYPE_CHECKING:
    from jesenska.broker.effects_runtime import EffectsRuntime
    from jesenska.broker.settings.tokens_runtime import TokensRuntime
    from jesenska.security.delegation_tokens import TokenCredential
    from jesenska.security.scram import ScramCredential

logger = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_STOP_GRACE_SECONDS = 5.0
_POOL_THREADS = 2
#: The longest pause, in seconds, before this broker asks the controller again to elect other leaders for its
#: partitions.
_STOP_PAUSE_SECONDS = 1.0
_PROGRESS_SECONDS = 2.0
#: The pauses between messages that the broker is waiting for a controller.
_MESSAGES = Backoff(_PROGRESS_SECONDS, longest_seconds=60.0, is_first_at_once=True)


@dataclass(frozen=True, slots=True)
class Serving:
    """The parts of a broker that takes part in the cluster, created during its start. `listeners` accept connections
    when they are started."""

    place: TreePlace
    core: SharedParts
    replication: Replication
    control: Control
    coordinators: Coordinators
    dispatcher: Dispatcher
    listeners: tuple[Listener, ...]
    authorization: Authorization | None = None
    tokens: TokensRuntime | None = None

    @property
    def access_runtimes(self) -> list[EffectsRuntime]:
        """Returns the runtimes that store the ACLs and the delegation tokens in the metadata tree (ZooKeeper's
        nodes)."""
        runtimes = (None if self.authorization is None else self.authorization.rules, self.tokens)
        return [runtime for runtime in runtimes if runtime is not None]


class Broker:
    """One broker on the running event loop. Call `start`, then `stop`."""

    def __init__(self, config: BrokerConfig, machine: Machine | None = None) -> None:
        self.machine = machine or Machine()
        self.clock = self.machine.clock
        self.in_force = ConfigInForce(config)
        self._loop = asyncio.get_running_loop()
        self._listeners_config = listeners_of(config)
        self._listener_names = [item.name for item in self._listeners_config.opened]
        self._limits = ConnectionLimits(config, self._listener_names)
        self._super_users = super_users_of(config)
        self._security = security = security_of(
            config, self._listeners_config, os.environ, Credentials(self._credential_of, self._token_of), self.machine
        )
        if security.reconfigure is not None:
            self.in_force.on_change(security.reconfigure)
        self.pool = Pool(self._loop, self.machine.threads(_POOL_THREADS, "pool"))
        self.waiting = WaitingRoom(self._loop)
        self.view = MetadataCache("", -1)
        slots = config.integer("max.incremental.fetch.session.cache.slots")
        self.fetch_sessions = FetchSessions(
            slots, lambda: self.machine.random.randint(1, 2**31 - 1), self.waiting.notify
        )
        # The parts that the start has created so far; None before.
        self._ports: tuple[Port, ...] = ()
        self._storage: Storage | None = None
        self._place: TreePlace | None = None
        self._serving: Serving | None = None
        self._loop_lag: LoopLag | None = None
        self._accepts = self._stopped = False
        self._ticking: asyncio.Task[None] | None = None

    # --- parts and figures -------------------------------------------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        """Returns the current settings."""
        return self.in_force.config

    @property
    def broker_id(self) -> int:
        """Returns the broker's id, or -1 if it is not known yet."""
        return self.config.integer("broker.id") if self._place is None else self._place.broker_id

    @property
    def is_loaded(self) -> bool:
        """Returns True if the broker has loaded its logs, and takes part in the cluster or is about to."""
        return self._serving is not None

    @property
    def storage(self) -> Storage | None:
        """Returns the log directories and their threads, or None before the directories are locked."""
        return self._storage

    @property
    def directories(self) -> LogDirectories:
        assert self._storage is not None, "the log directories are not locked yet"
        return self._storage.directories

    @property
    def place(self) -> TreePlace:
        assert self._place is not None, "the broker has no place in the tree yet"
        return self._place

    @property
    def serving(self) -> Serving:
        assert self._serving is not None, "the broker does not take part in the cluster yet"
        return self._serving

    @property
    def replication(self) -> Replication:
        return self.serving.replication

    @property
    def control(self) -> Control:
        return self.serving.control

    @property
    def coordinators(self) -> Coordinators:
        return self.serving.coordinators

    @property
    def dispatcher(self) -> Dispatcher:
        return self.serving.dispatcher

    @property
    def loop_lag(self) -> LoopLag:
        """Returns the measurement of the event loop's lag, which begins when clients can connect."""
        assert self._loop_lag is not None, "the broker is starting"
        return self._loop_lag

    @property
    def first_listener_name(self) -> str:
        return self._listeners_config.opened[0].name

    def endpoint_for(self, listener_name: str) -> tuple[str, int]:
        """Returns this broker's host and port for clients of a listener."""
        endpoints = self.place.endpoints
        item = next((item for item in endpoints if item.name == listener_name), endpoints[0])
        return item.host, item.port

    @property
    def tree_served_at(self) -> tuple[str, int] | None:
        """Returns the host (empty: every address) and port at which this broker serves ZooKeeper clients, or None if
        this broker does not serve ZooKeeper clients."""
        return self._place.home.served_at if self._place is not None else None

    def figures(self) -> dict[str, Any]:
        """Returns the broker's figures (`broker.figures`). The call resets the figures of the event loop's lag."""
        return figures_of(self.dispatcher, self.directories, self.fetch_sessions, self.waiting, self.loop_lag)

    def _credential_of(self, mechanism: str, user: str) -> ScramCredential | None:
        """Returns the SCRAM credential of a user, or None if the user has none or the users have not been read yet."""
        text = None
        if self._serving is not None:
            text = self._serving.replication.settings.user_settings(user).get(mechanism)
        if text is None:
            return None
        from jesenska.security.scram import parse_credential

        try:
            return parse_credential(text)
        except ValueError:
            logger.error("user %s: the credential for %s in the tree cannot be read", user, mechanism)
            return None

    def _token_of(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Returns the credential of a delegation token, or None if the token is unknown or has expired."""
        if self._serving is None or self._serving.tokens is None:
            return None
        return self._serving.tokens.tokens.credential(mechanism, token_id, self.clock.now_ms())

    # --- starting ----------------------------------------------------------------------------------------------------

    async def start(self, on_progress: Callable[[str], None] | None = None) -> None:
        """Starts the broker, and returns when clients can connect. Raises JesenskaError, with a message of one
        sentence, if the broker cannot start. `on_progress` is called with messages during a long recovery or a long
        wait."""
        try:
            await self._start(on_progress)
        except (TreeError, JournalError, NodeFormatError) as error:
            cause = error.reason if isinstance(error, TreeError) and error.reason else str(error)
            where = self.config.string("zookeeper.connect") or str(log_dirs_of(self.config)[0])
            raise JesenskaError(f"The metadata in {where} cannot be written or read: {cause}") from error

    async def _start(self, on_progress: Callable[[str], None] | None) -> None:
        config, machine = self.config, self.machine
        open_segments_max = raise_open_file_limit()
        self._ports = ports = bind(config, self._listeners_config, machine.network)
        paths = log_dirs_of(config)
        self._storage = storage = open_storage(config, paths, machine, open_segments_max)
        endpoints = endpoints_of(self._listeners_config, ports)
        self._place = place = await take_place(config, paths, storage, endpoints, machine, on_progress)
        self.view.cluster_id = place.cluster_id
        core = SharedParts(
            place.broker_id,
            self.in_force,
            machine,
            self.clock,
            self.pool,
            self.waiting,
            self.view,
            storage.directories,
            IsrSyncs(),
            set(),
        )
        replication = await load(core, place, storage, self._security.peers, on_progress)
        rules = await authorization(core, place, self._super_users)
        tokens = await delegation_tokens(core, place, config)
        controlling = control(core, place, replication, config)
        coordinating = coordinators(core, place, replication, controlling)
        security = SecurityFamily(
            controlling.controller, replication.settings, None if rules is None else rules.rules, tokens
        )
        families = self._families(core, place, replication, controlling, coordinating, security)
        dispatcher = self._dispatcher(core, families, rules, QuotasRuntime(replication.settings, config, self.clock))
        listeners = tuple(self._listener(dispatcher, port) for port in ports)
        self._serving = Serving(
            place, core, replication, controlling, coordinating, dispatcher, listeners, rules, tokens
        )
        storage.bell.listen(replication.failures.look)
        await self._join(self._serving, on_progress)

    async def _join(self, serving: Serving, on_progress: Callable[[str], None] | None) -> None:
        """Registers the broker, and waits until a controller has sent it its replicas. Then starts the remaining
        parts."""
        place, controlling = serving.place, serving.control
        home, store, settings = place.home, place.store, serving.replication.settings
        home.on_renewed(controlling.registration.renew)
        if home.is_shared:
            # After a lost connection during the start, everything is read again when the tree can be reached.
            store.on_state(self._tree_state)
        await place.until_reached(partial(controlling.registration.join, on_progress))
        await controlling.controllership.is_settled.wait()
        if home.is_shared:
            # Users and ACLs may have changed since this start has read them. Clients must not use the old ones.
            runtimes = (settings, *serving.access_runtimes)
            for runtime in runtimes:
                runtime.look(EVERYTHING)
            for runtime in runtimes:
                await runtime.until_idle()
        if not controlling.controllership.is_controller:
            self._accept(serving)
        await self._wait_for_replicas(serving, on_progress)
        await place.until_reached(controlling.features.begin)
        serving.coordinators.take_over()
        if home.is_shared:
            await home.serve()
        else:
            # The controller also writes settings: those of a topic that is a branch (a copy of another topic).
            settings.look(tree_paths.CONFIG_CHANGES)
        self._accept(serving)
        self._ticking = self._loop.create_task(self._tick(serving))
        self._loop_lag = LoopLag(self._loop, measures=self.machine.loop_may_be_late)
        logger.info(
            "broker %d of cluster %s is ready with %d partitions",
            place.broker_id,
            place.cluster_id,
            len(serving.core.directories.logs),
        )

    def _families(
        self,
        core: SharedParts,
        place: TreePlace,
        replication: Replication,
        controlling: Control,
        coordinating: Coordinators,
        security: SecurityFamily,
    ) -> Families:
        """Returns the parts of the broker that request handlers use, by family. A family is a class such as
        `FetchFamily`, with the parts that one group of handlers needs."""
        clock, pool, view, waiting, in_force = core.clock, core.pool, core.view, core.waiting, core.in_force
        controller, features, producer_ids = controlling.controller, controlling.features, controlling.producer_ids
        groups, transactions, verification = coordinating.groups, coordinating.transactions, coordinating.verification
        rules = FetchRules(
            core.config.integer("fetch.max.bytes"),
            core.config.string("replica.selector.class") == RACK_AWARE,
            replication.throttles.leader,
        )
        values = (
            ProduceFamily(clock, self._loop, pool, verification, view, waiting),
            FetchFamily(clock, controlling.isr_changes, core.joining, pool, rules, self.fetch_sessions, view, waiting),
            LogFamily(clock, core.directories, pool, view),
            ClusterFamily(core.broker_id, clock, features, in_force, controller, view),
            GroupFamily(clock, groups, in_force, place.store, transactions, verification, view),
            TransactionFamily(clock, features, groups, in_force, producer_ids, transactions, view),
            TopicFamily(core.broker_id, clock, controller, view),
            PeerFamily(
                clock, coordinating.marker_writer, place.home.is_shared, controlling.orders, producer_ids, controller
            ),
            security,
        )
        return {type(value): value for value in values}

    def _dispatcher(
        self, core: SharedParts, families: Families, rules: Authorization | None, quotas: QuotasRuntime
    ) -> Dispatcher:
        view, max_request_bytes = core.view, core.config.integer("socket.request.max.bytes")
        dispatcher = Dispatcher(
            families,
            lambda: view.partition_count,
            self._loop,
            core.clock,
            max_request_bytes,
            self._limits,
            self._security.listeners,
            None if rules is None else rules.authorizer,
            quotas.clients,
            quotas.connections,
        )

        def limit(config: BrokerConfig) -> None:
            """Applies the limits of connections. An invalid dynamic setting is logged, and the old limits remain."""
            try:
                dispatcher.limits = limits = ConnectionLimits(config, self._listener_names)
                quotas.connections.limit(limits.creation_rates)
            except InvalidConfigError as error:
                logger.error("a dynamic setting has no effect: %s", error)

        limit(core.config)
        core.in_force.on_change(limit)
        return dispatcher

    def _listener(self, dispatcher: Dispatcher, port: Port) -> Listener:
        name = port.listener_name
        return Listener(self._loop, name, port.listening, lambda sock, host: dispatcher.accept(sock, host, name))

    async def failed(self) -> None:
        """Waits until all log directories have failed. The broker must then be stopped."""
        await self.replication.failures.all_failed.wait()

    def _accept(self, serving: Serving) -> None:
        """Starts to accept connections. A second call does nothing."""
        if self._accepts:
            return
        self._accepts = True
        for listener in serving.listeners:
            listener.start()
            logger.info("listener %s takes connections at port %d", listener.name, listener.port)

    async def _wait_for_replicas(self, serving: Serving, on_progress: Callable[[str], None] | None) -> None:
        """Waits until a controller has sent this broker its replicas and the cluster's metadata."""
        orders, controllership = serving.control.orders, serving.control.controllership
        messages, silent = 0, 0.0
        while True:
            try:
                async with asyncio.timeout(_PROGRESS_SECONDS):
                    await orders.has_replicas.wait()
                return
            except TimeoutError:
                if orders.knows_cluster and not controllership.is_controller:
                    return  # Apache Kafka's controller sends no replicas to a broker that has none
                controller_id = controllership.controller_id
                if controller_id not in (-1, self.broker_id):
                    self._accept(serving)
                silent += _PROGRESS_SECONDS
                if on_progress is not None and silent >= _MESSAGES.seconds(messages + 1):
                    on_progress(self._waits_for(controller_id, serving.place.endpoints))
                    messages, silent = messages + 1, 0.0

    def _waits_for(self, controller_id: int, endpoints: Sequence[Endpoint]) -> str:
        """Returns a message that names the controller for which the broker waits, and this broker's address, which may
        be wrong."""
        if controller_id in (-1, self.broker_id):
            return "waiting for a controller to tell this broker of its partitions"
        name = self._listeners_config.inter_broker
        at = next((f"{item.host}:{item.port}" for item in endpoints if item.name == name), name)
        return (
            f"waiting for broker {controller_id}, the controller, to reach this broker at {at} (advertised.listeners) "
            f"and to tell it of its partitions"
        )

    def _tree_state(self, state: SessionState) -> None:
        """Reads settings, metadata and ACLs again when the connection to the metadata tree is restored."""
        if state is SessionState.CONNECTED and self._serving is not None:
            self._serving.replication.settings.look(EVERYTHING)
            self._serving.control.controllership.look(EVERYTHING)
            for runtime in self._serving.access_runtimes:
                runtime.look(EVERYTHING)

    # --- running and stopping ----------------------------------------------------------------------------------------

    async def _tick(self, serving: Serving) -> None:
        replication, isr_changes = serving.replication, serving.control.isr_changes
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                for _ in serving.core.directories.tick_in_steps(self.clock.now_ms()):
                    await asyncio.sleep(0)
                replication.failures.look()
                if replication.replicas.make_missing_logs():
                    replication.failures.tell()
                await replication.replicas.propose_isrs(isr_changes.propose)
                serving.core.isr_syncs.try_again()
                replication.links.look()
                serving.dispatcher.close_idle()
                self._security.look()
                if serving.tokens is not None and serving.control.controllership.is_controller:
                    serving.tokens.remove_expired()
            except Exception:
                logger.exception("housekeeping of the log directories failed; it is tried again in %g s", _TICK_SECONDS)

    async def stop(self) -> None:
        """Stops the broker's parts in the order at the top of this file. Does nothing at a second call. After a failed
        start, stops the parts that were started."""
        if self._stopped:
            return
        self._stopped = True
        serving = self._serving
        if self._ticking is not None and serving is not None:
            # If this broker continued to fetch, leaders would add it again to the ISRs that it is about to leave.
            serving.replication.links.close()
            await self._leave_to_others(serving)
        for listener in () if serving is None else serving.listeners:
            listener.close()
        for port in self._ports:
            port.listening.close()
        if self._loop_lag is not None:
            self._loop_lag.close()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait({self._ticking})
        if serving is not None:
            serving.replication.links.close()
            serving.control.controllership.stop_watching()
            serving.replication.settings.stop_watching()
            for runtime in serving.access_runtimes:
                runtime.stop_watching()
        self.waiting.close()
        if serving is not None:
            await self._stop_rooms(serving)
        if self._storage is not None:
            await self._storage.stop_work()
        await self._loop.run_in_executor(None, self.pool.close)
        if self._storage is not None:
            await self._storage.drain()
        if self._place is not None:
            await self._place.home.close()
        if self._storage is not None:
            # After an incomplete start, the logs are not marked as cleanly closed.
            await self._loop.run_in_executor(
                None, partial(self._storage.directories.close, clean=self._ticking is not None)
            )

    async def _stop_rooms(self, serving: Serving) -> None:
        controlling = serving.control
        await serving.coordinators.close()
        await controlling.features.close()
        await controlling.producer_ids.close()
        await serving.replication.failures.close()
        serving.core.isr_syncs.close()
        await controlling.isr_changes.close()
        await serving.dispatcher.close(_STOP_GRACE_SECONDS)
        await controlling.controllership.close()
        ending = serving.replication.settings.close()
        for runtime in serving.access_runtimes:
            ending += runtime.close()
        await asyncio.gather(*ending, return_exceptions=True)
        await controlling.orders.close()

    async def _leave_to_others(self, serving: Serving) -> None:
        """Asks the controller to elect other brokers as leaders of this broker's partitions
        (controlled.shutdown.*)."""
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
                    stays = await self._ask_to_stop(serving)
            except (KafkaError, TimeoutError) as error:
                logger.info("the controller is not told yet that this broker stops: %s", type(error).__name__)
                continue
            if not stays:
                return
            logger.info("this broker still leads %d partitions, since no other replica is in sync", len(stays))
        logger.warning(
            "this broker stops although it still leads partitions: these partitions have no leader until another "
            "replica may lead"
        )

    async def _ask_to_stop(self, serving: Serving) -> Sequence[TopicPartition]:
        """Tells the controller that this broker is about to stop. Returns the partitions that this broker still
        leads."""
        if serving.control.controller.is_controller:
            return await serving.control.controller.stop_wanted(self.broker_id)
        channel = await serving.replication.peers.connect(serving.control.controllership.controller_id)
        try:
            request = ControlledShutdownRequest(
                broker_id=self.broker_id, broker_epoch=serving.control.registration.broker_epoch
            )
            answer = await channel.request(request, ControlledShutdownResponse, timeout_seconds=_STOP_GRACE_SECONDS)
        finally:
            channel.close()
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError.of(answer.error_code, "It refuses.")
        return [TopicPartition(item.topic_name, item.partition_index) for item in answer.remaining_partitions]
