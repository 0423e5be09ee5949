"""The cluster as a client sees it: connections to its brokers, and the leader of each partition.

Connections are opened when they are needed, and kept. Metadata is requested if a topic is unknown, if an error shows
that the metadata is outdated, and if it is older than `metadata.max.age.ms`. A request that any broker can handle goes
to another broker if one cannot be reached. After a failed attempt to connect there is a pause before the next attempt
to the same address. The pause grows with each failure; if attempts continue to fail, a warning is logged. A connection
that is not used is closed after some time."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jesenska import __version__
from jesenska.base.backoff import Backoff
from jesenska.base.clock import Clock, SystemClock, system_random
from jesenska.base.errors import (
    ErrorCode,
    JesenskaError,
    KafkaError,
    LeaderNotAvailableError,
    NetworkException,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    error_name,
)
from jesenska.base.identifiers import NO_UUID, TopicPartition
from jesenska.client.client_config import ClientConfig
from jesenska.net.channel import Channel, open_channel
from jesenska.net.connection import ReadBuffer
from jesenska.net.network import Network
from jesenska.records.header import NO_LEADER_EPOCH
from jesenska.wire.language import Message
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

Answer = TypeVar("Answer", bound=Message)

logger = logging.getLogger(__name__)

#: The time in seconds for which attempts to connect to an address must fail before a warning is logged, and the time
#: between two such warnings.
_QUIET_SECONDS, _TELL_AGAIN_SECONDS = 2.0, 10.0


@dataclass(frozen=True, slots=True)
class Node:
    broker_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition as the metadata describes it. The leader epoch is -1 if the brokers report no reliable epoch."""

    topic_partition: TopicPartition
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    error_code: int
    topic_id: uuid.UUID = NO_UUID


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: uuid.UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


def parse_bootstrap(text: str | Sequence[str]) -> list[tuple[str, int]]:
    """Returns the hosts and ports in "host:port,host:port". A missing port is 9092. Raises JesenskaError for an item
    that is not an address."""
    items = text.split(",") if isinstance(text, str) else list(text)
    found = []
    for item in (piece.strip() for piece in items):
        if not item:
            continue
        host, _, port = item.rpartition(":") if ":" in item.rpartition("]")[2] else (item, "", "9092")
        host = host.strip("[]")
        if "://" in item:
            raise JesenskaError(
                f"{item!r} is not an address: leave out {item.partition('://')[0]}:// and write host:port, for "
                f"example 127.0.0.1:9092."
            )
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise JesenskaError(f"{item!r} is not an address: write host:port, for example 127.0.0.1:9092.")
        found.append((host, int(port)))
    if not found:
        raise JesenskaError("No broker is named: give --bootstrap-server host:port.")
    return found


#: Fields of a response from the controller that may have the results of single topics or partitions.
_ANSWERED_IN = ("topics", "responses", "results")
#: After a broker has reported an outdated leader, other brokers are preferred for this time in seconds.
_OUTDATED_SECONDS = 5.0
#: The first version of Metadata whose leader epochs are reliable. Brokers before 2.4 may report outdated epochs.
_RELIABLE_EPOCHS = 9


class Cluster:
    """The connections to a cluster and its metadata, shared by producer, consumer and admin client. It must be used on
    one event loop. `chance` returns random numbers from 0 to 1."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        config: ClientConfig | None = None,
        *,
        clock: Clock | None = None,
        chance: Callable[[], float] | None = None,
        network: Network | None = None,
    ) -> None:
        self.config = config = config or ClientConfig()
        self.bootstrap = parse_bootstrap(bootstrap)
        self.client_id = config.client_id
        self.request_timeout_seconds = config.request_timeout_seconds
        self.retry_backoff_seconds = config.retry_backoff_seconds
        self.clock: Clock = clock or SystemClock()
        chance = chance or system_random().random
        self._network = network
        self._retry = Backoff(config.retry_backoff_seconds, config.retry_backoff_max_seconds, chance)
        self._reconnect = Backoff(config.reconnect_backoff_seconds, config.reconnect_backoff_max_seconds, chance)
        self._connect_timeout = Backoff(config.connect_timeout_seconds, config.connect_timeout_max_seconds, chance)
        #: For each address the number of failed attempts to connect in a row, and the time of the next allowed
        #: attempt.
        self._failed: dict[tuple[str, int], tuple[int, float]] = {}
        #: For each address the time of the first failed attempt since the last success, and the time of the next
        #: warning.
        self._away: dict[tuple[str, int], tuple[float, float]] = {}
        self._idle_seconds = config.connections_max_idle_seconds
        self._idle_timer: asyncio.TimerHandle | None = None
        self._used_at: dict[tuple[str, int, str], float] = {}
        self.metadata_max_age_seconds = config.metadata_max_age_seconds
        self._metadata_idle_seconds = config.metadata_max_idle_seconds
        self._buffer = ReadBuffer()
        self._channels: dict[tuple[str, int, str], Channel] = {}
        self._opening: dict[tuple[str, int, str], asyncio.Task[Channel]] = {}
        self.nodes: dict[int, Node] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self._topics: dict[str, TopicInfo] = {}
        #: The newest known state of each topic's partitions, with the topic's id. It is kept when the topic's metadata
        #: is dropped as outdated, as long as the topic exists and is used.
        self._newest: dict[str, tuple[uuid.UUID, dict[int, PartitionInfo]]] = {}
        #: The broker that reported each topic; and the brokers that reported outdated leaders, with the time until
        #: which other brokers are preferred.
        self._sources: dict[str, tuple[str, int]] = {}
        self._outdated_until: dict[tuple[str, int], float] = {}
        self._topics_at: dict[str, float] = {}
        self._topics_used_at: dict[str, float] = {}
        #: The last reported number of partitions of each topic. It is kept as long as the entry in `_newest`.
        self._partition_counts: dict[str, int] = {}
        self._closed = False

    # --- connections -------------------------------------------------------------------------------------------------

    async def _channel_to(self, host: str, port: int, purpose: str = "") -> Channel:
        address = (host, port, purpose)
        self._used_at[address] = self.clock.monotonic()
        channel = self._channels.get(address)
        if channel is not None and not channel.closed and not channel.is_session_ending:
            return channel
        if self._closed:
            raise NetworkException("The client is closed.")
        opening = self._opening.get(address)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._open(host, port))
            self._opening[address] = opening
            opening.add_done_callback(lambda opened: self._opened(address, opened))
        return await asyncio.shield(opening)

    async def _open(self, host: str, port: int) -> Channel:
        failures, not_before = self._failed.get((host, port), (0, 0.0))
        pause = not_before - self.clock.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        try:
            channel = await open_channel(
                host,
                port,
                self.client_id,
                self._buffer,
                software_version=__version__,
                timeout_seconds=self._connect_timeout.seconds(failures + 1),
                send_buffer_bytes=self.config.send_buffer_bytes,
                receive_buffer_bytes=self.config.receive_buffer_bytes,
                network=self._network,
                security=self.config.security,
            )
        except KafkaError:
            self._failed[host, port] = (
                failures + 1,
                self.clock.monotonic() + self._reconnect.seconds(failures + 1),
            )
            self._tell_of_failures(host, port, failures + 1)
            raise
        self._failed.pop((host, port), None)
        self._away.pop((host, port), None)
        return channel

    def _tell_of_failures(self, host: str, port: int, failures: int) -> None:
        now = self.clock.monotonic()
        since, tell_at = self._away.setdefault((host, port), (now, now + _QUIET_SECONDS))
        if now >= tell_at:
            self._away[host, port] = since, now + _TELL_AGAIN_SECONDS
            logger.warning(
                "%s:%d cannot be reached (%d attempts in %.0f s): it is tried again.", host, port, failures, now - since
            )

    def _opened(self, address: tuple[str, int, str], opening: asyncio.Task[Channel]) -> None:
        """Stores a new connection, even if its caller has stopped waiting for it."""
        self._opening.pop(address, None)
        if opening.cancelled() or opening.exception() is not None:
            return
        if self._closed:
            opening.result().close()
        else:
            self._channels[address] = opening.result()
            self._used_at[address] = self.clock.monotonic()
            self._watch_idle()

    def _watch_idle(self) -> None:
        """Sets a timer for the moment when the connection that has been unused for longest reaches the idle limit."""
        if self._idle_timer is None and self._idle_seconds >= 0 and self._channels:
            first = min(self._used_at[address] for address in self._channels) + self._idle_seconds
            self._idle_timer = asyncio.get_running_loop().call_later(
                max(0.0, first - self.clock.monotonic()), self._close_idle
            )

    def _close_idle(self) -> None:
        self._idle_timer = None
        now = self.clock.monotonic()
        for address, channel in list(self._channels.items()):
            if channel.is_waiting:
                self._used_at[address] = now
            elif now >= self._used_at[address] + self._idle_seconds:
                self._channels.pop(address).close("it was not used for connections.max.idle.ms")
                del self._used_at[address]
        self._watch_idle()

    def retry_pause_seconds(self, failures: int) -> float:
        """Returns the pause in seconds before a request is sent again after this many failures in a row."""
        return self._retry.seconds(failures)

    async def any_channel(self) -> Channel:
        """Returns a connection to the first broker that can be reached. The order is: open connections, known brokers,
        the bootstrap list. Brokers that reported outdated leaders come last."""
        now = self.clock.monotonic()
        for address, channel in self._channels.items():
            if not address[2] and not channel.closed and not self._is_outdated(address[:2], now):
                self._used_at[address] = now
                return channel
        addresses = list(dict.fromkeys([*((node.host, node.port) for node in self.nodes.values()), *self.bootstrap]))
        # Addresses to which an attempt is allowed now come first.
        not_before = {address: self._failed.get(address, (0, 0.0))[1] for address in addresses}
        addresses.sort(
            key=lambda address: (not_before[address] > now, self._is_outdated(address, now), not_before[address])
        )
        failure: KafkaError | None = None
        for host, port in addresses:
            try:
                return await self._channel_to(host, port)
            except KafkaError as error:
                failure = error
        assert failure is not None
        raise failure

    def _is_outdated(self, address: tuple[str, int], now: float) -> bool:
        return self._outdated_until.get(address, now) > now

    async def channel_of(self, broker_id: int, purpose: str = "") -> Channel:
        """Returns a connection to one broker. Raises NetworkException if the broker is unknown or does not answer. A
        broker handles the requests of a connection one after another. So a caller with long requests (a fetch) gives a
        `purpose` and gets its own connection."""
        node = self.nodes.get(broker_id)
        if node is None:
            await self.refresh(None)
            node = self.nodes.get(broker_id)
            if node is None:
                raise NetworkException(f"Broker {broker_id} is not in the cluster at present.")
        try:
            return await self._channel_to(node.host, node.port, purpose)
        except NetworkException as error:
            if self._answers_elsewhere(node):
                raise NetworkException(_advertised_error(node, error)) from error
            raise

    def _answers_elsewhere(self, node: Node) -> bool:
        """Returns true if the client is connected to a bootstrap address, and this broker advertises an address that
        is not in the bootstrap list."""
        return (node.host, node.port) not in self.bootstrap and any(
            address[:2] in self.bootstrap and not channel.closed for address, channel in self._channels.items()
        )

    async def ask_any(self, request: Message, response: type[Answer], *, at_most: int | None = None) -> Answer:
        return (await self._ask(self.any_channel, request, response, at_most))[0]

    async def ask_broker(
        self, broker_id: int, request: Message, response: type[Answer], *, at_most: int | None = None
    ) -> Answer:
        return (await self._ask(lambda: self.channel_of(broker_id), request, response, at_most))[0]

    async def _ask(
        self, open_one: Callable[[], Awaitable[Channel]], request: Message, response: type[Answer], at_most: int | None
    ) -> tuple[Answer, Channel]:
        """Sends a request on the connection that `open_one` returns. Returns the response and the connection. If an
        existing connection has broken, the request is sent once more on a new connection."""
        channel = await open_one()
        try:
            return await channel.request(
                request, response, timeout_seconds=self.request_timeout_seconds, at_most=at_most
            ), channel
        except NetworkException:
            channel = await open_one()
            return await channel.request(
                request, response, timeout_seconds=self.request_timeout_seconds, at_most=at_most
            ), channel

    async def ask_controller(self, request: Message, response: type[Answer], *, at_most: int | None = None) -> Answer:
        """Sends a request to the controller that the metadata names, and returns the response. If that broker cannot
        be reached, or is no longer the controller, the controller is looked up and asked again, until the request
        timeout has passed. Then the last response is returned, or the last NetworkException raised.

        A controller may do the work and fail before its response arrives. Then the next controller's response to the
        same request is returned, such as TopicAlreadyExistsError for a topic that was created."""
        ends = self.clock.monotonic() + self.request_timeout_seconds
        if self.controller_id not in self.nodes:
            await self.refresh([])
        failures = 0
        while True:
            try:
                if failures:
                    await self.refresh([])
                answer = await self._ask_named_controller(request, response, at_most)
                if not _is_of_no_controller(answer) or self.clock.monotonic() > ends:
                    return answer
            except NetworkException:
                if self._closed or self.clock.monotonic() > ends or self._is_only_node_elsewhere():
                    raise
            failures += 1
            await asyncio.sleep(self.retry_pause_seconds(failures))

    async def _ask_named_controller(self, request: Message, response: type[Answer], at_most: int | None) -> Answer:
        """Sends the request to the controller; if the metadata names no controller, to any broker."""
        if self.controller_id in self.nodes:
            return await self.ask_broker(self.controller_id, request, response, at_most=at_most)
        return await self.ask_any(request, response, at_most=at_most)

    def _is_only_node_elsewhere(self) -> bool:
        """Returns true if the cluster has only one broker, and the client reaches that broker only at an address that
        it does not advertise. Then waiting for another broker does not help."""
        return len(self.nodes) == 1 and all(map(self._answers_elsewhere, self.nodes.values()))

    # --- metadata ----------------------------------------------------------------------------------------------------

    async def refresh(self, topics: Iterable[str] | None, *, create: bool = False) -> dict[str, KafkaError]:
        """Requests the metadata of these topics (None: all topics; empty: only the brokers). Returns the errors by
        topic. The metadata of a topic that no longer exists is dropped."""
        wanted = None if topics is None else list(topics)
        request = MetadataRequest(
            topics=None if wanted is None else [MetadataRequestTopic(name=name) for name in wanted],
            allow_auto_topic_creation=create,
        )
        answer, channel = await self._ask(self.any_channel, request, MetadataResponse, None)
        has_epochs = channel.version_for(MetadataRequest) >= _RELIABLE_EPOCHS
        source, is_outdated = (channel.host, channel.port), False
        self.nodes = {item.node_id: Node(item.node_id, item.host, item.port, item.rack) for item in answer.brokers}
        self.controller_id = answer.controller_id
        self.cluster_id = answer.cluster_id
        now = self.clock.monotonic()
        errors: dict[str, KafkaError] = {}
        if wanted is None:
            self._topics.clear()
            there = {topic.name for topic in answer.topics}
            for gone in self._sources.keys() - there:
                self._drop(gone)
        for topic in answer.topics:
            name = topic.name or ""
            if topic.error_code != ErrorCode.NONE:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._drop(name)
                self._topics.pop(name, None)
                errors[name] = KafkaError.of(topic.error_code, _topic_error(name, topic.error_code))
                continue
            partitions = []
            for item in sorted(topic.partitions, key=lambda item: item.partition_index):
                answered = PartitionInfo(
                    TopicPartition(name, item.partition_index),
                    item.leader_id,
                    item.leader_epoch if has_epochs else NO_LEADER_EPOCH,
                    tuple(item.replica_nodes),
                    tuple(item.isr_nodes),
                    item.error_code,
                    topic.topic_id,
                )
                partitions.append(self._newer(answered))
                is_outdated = is_outdated or partitions[-1] is not answered
            self._topics[name] = TopicInfo(name, topic.topic_id, topic.is_internal, tuple(partitions))
            self._partition_counts[name] = len(partitions)
            self._topics_at[name] = now
            self._sources[name] = source
            self._topics_used_at.setdefault(name, now)
        if is_outdated:
            self._outdated_until[source] = now + _OUTDATED_SECONDS
        elif answer.topics:
            self._outdated_until.pop(source, None)
        if self._metadata_idle_seconds is not None:
            for name in [
                name for name in self._topics if now - self._topics_used_at[name] >= self._metadata_idle_seconds
            ]:
                self._drop(name)
        return errors

    def _drop(self, name: str) -> None:
        """Drops everything that is stored about a topic, because it was deleted or is not used."""
        self._topics.pop(name, None)
        self._newest.pop(name, None)
        self._sources.pop(name, None)
        self._topics_at.pop(name, None)
        self._topics_used_at.pop(name, None)
        self._partition_counts.pop(name, None)

    def _newer(self, answered: PartitionInfo) -> PartitionInfo:
        """Returns the partition with the newer leader epoch: the partition in the response, or the partition in
        memory. A broker that is cut off from the cluster reports an outdated leader, which must not replace the known
        leader (KIP-320). If topics have no ids, a lower epoch may belong to a new topic of the same name, so the
        partition in the response is returned."""
        (name, number), topic_id = answered.topic_partition, answered.topic_id
        known_id, partitions = self._newest.get(name, (topic_id, {}))
        if topic_id != known_id or topic_id == NO_UUID:
            partitions = {}
        self._newest[name] = topic_id, partitions
        if answered.leader_epoch < 0:
            return answered
        known = partitions.get(number)
        if known is None or answered.leader_epoch >= known.leader_epoch:
            partitions[number] = known = answered
        return known

    def doubt(self, topic: str) -> None:
        """Marks the known leaders of a topic as outdated. The next look-up requests the metadata again, from another
        broker if there is one."""
        self.forget_topic(topic)
        source = self._sources.get(topic)
        if source is not None:
            self._outdated_until[source] = self.clock.monotonic() + _OUTDATED_SECONDS

    async def topics(self) -> dict[str, TopicInfo]:
        """Requests the metadata of all topics, and returns it."""
        await self.refresh(None)
        return dict(self._topics)

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """Returns a topic's metadata, from memory if it is recent enough. If there is no such topic, raises the error
        that the broker reports, usually UnknownTopicOrPartitionError."""
        info = self._topics.get(name)
        self._topics_used_at[name] = self.clock.monotonic()
        if info is not None and self.clock.monotonic() - self._topics_at[name] < self.metadata_max_age_seconds:
            return info
        deadline = self.clock.monotonic() + self.request_timeout_seconds
        attempts = 0
        while True:
            attempts += 1
            errors = await self.refresh([name], create=create)
            info = self._topics.get(name)
            if info is not None:
                return info
            error = errors.get(name) or UnknownTopicOrPartitionError(
                _topic_error(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            )
            waiting = isinstance(error, LeaderNotAvailableError) or (
                create and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            if not waiting or self.clock.monotonic() > deadline:
                raise error
            await asyncio.sleep(self.retry_pause_seconds(attempts))

    async def partition_count(self, name: str, *, within_seconds: float, create: bool = False) -> int:
        """Returns the last reported number of partitions of a topic, even if no broker answers now. If no number was
        ever reported, it is requested until a broker answers. After `within_seconds` the last NetworkException or
        RequestTimedOutError is raised. An error in a broker's response is raised immediately, as in `topic`."""
        self._topics_used_at[name] = self.clock.monotonic()
        count = self._partition_counts.get(name)
        if count is not None:
            return count
        failure: KafkaError | None = None
        attempts = 0
        try:
            async with asyncio.timeout(within_seconds):
                while True:
                    try:
                        return len((await self.topic(name, create=create)).partitions)
                    except (NetworkException, RequestTimedOutError) as error:
                        if self._closed:
                            raise
                        failure = error
                    attempts += 1
                    await asyncio.sleep(self.retry_pause_seconds(attempts))
        except TimeoutError:
            raise failure or RequestTimedOutError(
                f"No broker has reported the partitions of topic {name} within {within_seconds:g} s."
            ) from None

    def known(self, name: str) -> TopicInfo | None:
        """Returns a topic's metadata from memory; None if it is not in memory."""
        return self._topics.get(name)

    def forget_topic(self, name: str) -> None:
        """Drops a topic's metadata as outdated, so that the next look-up requests it again."""
        self._topics.pop(name, None)

    async def leader_of(
        self, topic_partition: TopicPartition, *, create: bool = False, waits: bool = True
    ) -> PartitionInfo:
        """Returns the partition with its leader. If there is no leader, waits for an election up to the request
        timeout, and then raises RequestTimedOutError. Without `waits`, raises LeaderNotAvailableError immediately."""
        deadline = self.clock.monotonic() + self.request_timeout_seconds
        attempts = 0
        while True:
            attempts += 1
            info = await self.topic(topic_partition.topic, create=create)
            if not 0 <= topic_partition.partition < len(info.partitions):
                raise UnknownTopicOrPartitionError(
                    f"Topic {topic_partition.topic} has {len(info.partitions)} partitions, none with the number "
                    f"{topic_partition.partition}."
                )
            partition = info.partitions[topic_partition.partition]
            if partition.leader >= 0 and partition.leader in self.nodes:
                return partition
            if self.clock.monotonic() > deadline:
                raise RequestTimedOutError(
                    f"{topic_partition} has had no leader for {self.request_timeout_seconds:g} s."
                )
            self.forget_topic(topic_partition.topic)
            if not waits:
                raise LeaderNotAvailableError(f"{topic_partition} has no leader at present.")
            await asyncio.sleep(self.retry_pause_seconds(attempts))

    def close_purpose(self, purpose: str) -> None:
        """Closes the connections that `channel_of` has opened for this purpose."""
        for address in [address for address in self._channels if address[2] == purpose]:
            self._channels.pop(address).close()
            self._used_at.pop(address, None)

    async def close(self) -> None:
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        openings = list(self._opening.values())
        for opening in openings:
            opening.cancel()
        if openings:
            await asyncio.wait(openings)
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


def _advertised_error(node: Node, error: NetworkException) -> str:
    """Returns a message which says that the broker's advertised address cannot be reached, although the address that
    the user gave can."""
    cause = error.__cause__
    if isinstance(cause, socket.gaierror):
        reason = cause.strerror or "no address"
    else:
        reason = os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else "no answer"
    return (
        f"Broker {node.broker_id} tells its clients to connect to {node.host}:{node.port}, which cannot be reached "
        f"from here ({reason}): "
        "start it, or correct its advertised.listeners."
    )


def _topic_error(name: str, code: int) -> str:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"Topic {name} does not exist: create it with kafka-topics --create --topic {name}."
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return (
            f"{name!r} cannot be the name of a topic: use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'."
        )
    return f"Topic {name}: the broker answers {error_name(code)}."


def _is_of_no_controller(answer: Message) -> bool:
    """Returns true if a broker has refused the request because it is not the controller: the whole request, or every
    item in it."""
    if getattr(answer, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER:
        return True
    codes = [
        getattr(item, "error_code", ErrorCode.NONE)
        for name in _ANSWERED_IN
        for item in getattr(answer, name, None) or ()
    ]
    return bool(codes) and all(code == ErrorCode.NOT_CONTROLLER for code in codes)
