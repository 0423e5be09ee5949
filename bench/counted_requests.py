"""The program that `bench.instructions` counts: brokers and one client in one process, in lock step.

    python -m bench.counted_requests DIR SHARE      one line of JSON for each case that it reads, when it has run

It reads the cases' names from stdin, a line each: words in the command's line would change addresses in memory. SHARE
is the share of each case's requests that are sent, 1 for all.

Sources of differences between two runs are removed:

    time        does not pass, and jumps to the next timer when nothing else is left to do
    chance      comes from one seed
    threads     none: a broker's work for threads runs on the loop, in its own turn
    clients     one, on the same loop: it sends a request when it has the whole answer to the one before
    collector   has been through everything, and is off while requests are counted

Sockets, files and the tree's journal are the system's own, and compiled modules are used as a broker uses them. The
count has the client's part in it, some thousands of instructions a request, always the same.

Each case runs in a process that is forked when everything is imported, so it finds the same state after any other
case. It warms the brokers up with requests of its kind, and calls `mark` before and after each span of requests that
counts."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, ParamSpec, TypeVar

from bench.raw_clients import FETCH_VERSION, PRODUCE_VERSION, frame
from jesenska.base.clock import ManualClock
from jesenska.broker.machine import Machine
from jesenska.broker.server import Broker
from jesenska.cli.shared.configuration import broker_config
from jesenska.cli.shared.memory import Memory
from jesenska.cli.supervision.up_options import broker_defaults
from jesenska.net.event_loop import broker_loop
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from jesenska.security.sasl import plain_message
from jesenska.wire.codec import decode
from jesenska.wire.headers import read_response_head
from jesenska.wire.language import Message, Struct
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from jesenska.wire.messages.k12_heartbeat import HeartbeatRequest
from jesenska.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from jesenska.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnRequestTopic
from jesenska.wire.messages.k26_end_txn import EndTxnRequest
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from jesenska.wire.registry import APIS

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: The number of spans of requests that are counted one by one: the growth of a table in one of them does not matter.
SPANS = 3
_TOPIC = "counted"
_SEED = 1
#: Seconds that the system may take for immediate work, a write to the other end of a socket, before time jumps.
_GRACE_SECONDS = 0.02
#: Seconds before a request that came too early is sent again.
_PAUSE_SECONDS = 0.1
_RECEIVE_BYTES = 4 << 20
_SEND_BUFFER_BYTES = 2 << 20


def mark() -> None:
    """Ends the count of one part of the program and begins the next: callgrind's options name this function of the C
    library, which nothing else here calls."""
    os.getppid()


# --- a machine on which everything happens in one order -------------------------------------------------------------


class _OnTheLoop(Executor):
    """Runs work on the event loop, each piece in its own turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        future: Future[_T] = Future()
        self._loop.call_soon(_settle, future, lambda: fn(*args, **kwargs))
        return future


class _AtOnce(Executor):
    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        future: Future[_T] = Future()
        _settle(future, lambda: fn(*args, **kwargs))
        return future


def _settle(future: Future[_T], work: Callable[[], _T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)


def _loop_on(clock: ManualClock) -> asyncio.AbstractEventLoop:
    """A broker's loop on this clock, which jumps to the next timer when nothing is left to do."""
    made = broker_loop()
    loop: Any = made
    selector = loop._selector
    select, poll = selector.select, selector._poll
    threads = _OnTheLoop(made)

    def next_events(timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0 or poll.poll(_GRACE_SECONDS, 1):
            return select(timeout)
        clock.advance(timeout * 1000)
        return []

    def run_in_executor(executor: Executor | None, work: Callable[..., Any], *arguments: Any) -> Any:
        return asyncio.wrap_future((executor or threads).submit(work, *arguments), loop=made)

    selector.select, loop.time, loop.run_in_executor = next_events, clock.monotonic, run_in_executor
    return made


def _machine(loop: asyncio.AbstractEventLoop, clock: ManualClock) -> Machine:
    random = Random(_SEED)
    return Machine(
        clock=clock,
        random=random,
        new_uuid=lambda: uuid.UUID(int=random.getrandbits(128), version=4),
        threads=lambda size, name: _OnTheLoop(loop),
        helpers=lambda size, name: _AtOnce(),
        loop_may_be_late=False,
    )


# --- the client -----------------------------------------------------------------------------------------------------


class Client:
    """One connection: a request at a time, its answer kept."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._connection = connection
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._room = memoryview(self._buffer)
        self._received = 0
        self._unsent = memoryview(b"")
        self._frames: Iterator[bytes] = iter(())
        self._answers: list[bytes] = []
        self._is_done: asyncio.Future[None]
        loop.add_reader(connection.fileno(), self._readable)

    @staticmethod
    async def connect(loop: asyncio.AbstractEventLoop, broker: Broker) -> Client:
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(connection, broker.endpoint_for(broker.first_listener_name))
        return Client(loop, connection)

    async def send_all(self, frames: Sequence[bytes]) -> list[bytes]:
        """Sends the frames one after the other; returns their answers, without the length prefixes."""
        self._frames, self._answers = iter(frames), []
        self._is_done = self._loop.create_future()
        self._send_next()
        await self._is_done
        return self._answers

    async def ask(self, request: Message, version: int, response: type[Any]) -> Any:
        """The answer; the program ends if it contains an error."""
        (answer,) = await self.send_all([frame(request, version)])
        found = _decoded(answer, response, version)
        _refuse_errors(found)
        return found

    def _send_next(self) -> None:
        for following in self._frames:
            self._unsent = memoryview(following)
            self._send()
            return
        self._is_done.set_result(None)

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[self._connection.send(self._unsent) :]
        except BlockingIOError:
            pass
        if self._unsent:
            self._loop.add_writer(self._connection.fileno(), self._writable)

    def _writable(self) -> None:
        self._loop.remove_writer(self._connection.fileno())
        self._send()

    def _readable(self) -> None:
        size = self._connection.recv_into(self._room[self._received :])
        if not size:
            raise SystemExit("the broker has closed the connection")
        self._received += size
        if self._received < 4 or self._received < 4 + int.from_bytes(self._room[:4], "big"):
            return
        self._answers.append(bytes(self._room[4 : self._received]))
        self._received = 0
        self._send_next()


def _decoded(answer: bytes, response: type[Any], version: int) -> Any:
    view = memoryview(answer)
    _, position = read_response_head(view, APIS[response.api_key].response_header_version(version))
    return decode(response, version, view[position:])


def _refuse_errors(answer: Struct) -> None:
    """Ends the program if there is an error code anywhere in it."""
    for item in answer.fields:
        value = getattr(answer, item.name)
        if item.name.endswith("error_code") and value:
            raise SystemExit(f"a broker answers with error {value}: {answer}")
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Struct):
                _refuse_errors(inner)


# --- the cases ------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A request as it is sent, and the reader of its answer."""

    frame: bytes
    response: type[Any]
    version: int


def _asked(request: Message, version: int) -> Asked:
    return Asked(frame(request, version), APIS[request.api_key].response, version)


#: An endless iterator of a case's requests: one frame each, or several in a row.
Requests = Iterator[tuple[Asked, ...]]


@dataclass(frozen=True)
class Case:
    """`prepare` makes topics and all other requirements, and returns the requests; `count` of them make a span. With
    `rules`, the client logs in by PLAIN, and the broker decides by so many access rules."""

    prepare: Callable[[Client], Awaitable[Requests]]
    count: int
    brokers: int = 1
    rules: int = 0


def _for_ever(request: Message, version: int) -> Requests:
    asked = _asked(request, version)
    return ((asked,) for _ in count())


async def _make_topic(client: Client, partitions: int, copies: int = 1) -> None:
    """Returns when every partition has its leader, the first broker, and `copies` replicas in sync."""
    assigned = [
        CreateTopicsRequestAssignment(partition_index=index, broker_ids=list(range(1, copies + 1)))
        for index in range(partitions)
    ]
    topic = CreateTopicsRequestTopic(name=_TOPIC, num_partitions=-1, replication_factor=-1, assignments=assigned)
    await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5, CreateTopicsResponse)
    asking = frame(MetadataRequest(topics=[MetadataRequestTopic(name=_TOPIC)], allow_auto_topic_creation=False), 8)
    while True:
        (answer,) = await client.send_all([asking])
        found = _decoded(answer, MetadataResponse, 8).topics[0].partitions
        if len(found) == partitions and all(item.leader_id >= 0 and len(item.isr_nodes) == copies for item in found):
            return
        await asyncio.sleep(_PAUSE_SECONDS)


def _batch(size: int, codec: Codec) -> bytes:
    """Records of 100 bytes that make about `size` bytes before they are compressed; a part of each record repeats."""
    chance = Random(_SEED)
    values = [bytes(chance.choices(range(64), k=50)) + bytes(range(50)) for _ in range(max(1, size // 107))]
    return bytes(encode_batch([(ManualClock().now_ms(), None, value, ()) for value in values], codec=codec))


def _produce(partitions: int, batch: bytes, acks: int = 1, transactional_id: str | None = None) -> ProduceRequest:
    data = [ProduceRequestPartition(index=index, records=batch) for index in range(partitions)]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[ProduceRequestTopic(name=_TOPIC, partition_data=data)],
    )


def _producing(
    partitions: int, size: int, codec: Codec = Codec.NONE, acks: int = 1, copies: int = 1
) -> Callable[[Client], Awaitable[Requests]]:
    async def prepare(client: Client) -> Requests:
        await _make_topic(client, partitions, copies)
        return _for_ever(_produce(partitions, _batch(size, codec), acks), PRODUCE_VERSION)

    return prepare


def _fetch(
    partitions: int, *, offset: int = 0, max_wait_ms: int = 0, session: tuple[int, int] = (0, -1)
) -> FetchRequest:
    """A fetch of the first partitions, up to a record or two of each, in this session (its id and epoch)."""
    wanted = [
        FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=200)
        for index in range(partitions)
    ]
    topics = [FetchRequestTopic(topic=_TOPIC, partitions=wanted)] if wanted else []
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, session_id=session[0], session_epoch=session[1], topics=topics
    )


async def _filled(client: Client, partitions: int) -> None:
    """A topic with a record in each partition."""
    await _make_topic(client, partitions)
    await _send(client, [_asked(_produce(partitions, _batch(100, Codec.NONE)), PRODUCE_VERSION)])


async def _fetching(client: Client) -> Requests:
    await _filled(client, 1)
    return _for_ever(_fetch(1), FETCH_VERSION)


def _in_session(partitions: int, with_news: int, max_wait_ms: int = 0) -> Callable[[Client], Awaitable[Requests]]:
    """A fetch session that has read everything. Each request goes back in some of its partitions, so that they have a
    record for it."""

    async def prepare(client: Client) -> Requests:
        await _filled(client, partitions)
        answer = await client.ask(_fetch(partitions, offset=1, session=(0, 0)), FETCH_VERSION, FetchResponse)
        return (
            (_asked(_fetch(with_news, max_wait_ms=max_wait_ms, session=(answer.session_id, epoch)), FETCH_VERSION),)
            for epoch in count(1)
        )

    return prepare


async def _member(client: Client) -> tuple[str, int]:
    """The only member of a stable group: its id and the generation."""
    joining = JoinGroupRequest(
        group_id="group",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(10))],
    )
    await _until_ready(client, FindCoordinatorRequest(key="group", key_type=0), 2, FindCoordinatorResponse)
    joined = await _until_ready(client, joining, 3, JoinGroupResponse)
    assigned = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(10))]
    syncing = SyncGroupRequest(
        group_id="group", generation_id=joined.generation_id, member_id=joined.member_id, assignments=assigned
    )
    await client.ask(syncing, 3, SyncGroupResponse)
    return joined.member_id, joined.generation_id


async def _until_ready(client: Client, request: Message, version: int, response: type[Any]) -> Any:
    """The first answer without an error: a coordinator has its partition only a while after the first request."""
    for _ in range(100):
        (answer,) = await client.send_all([frame(request, version)])
        found = _decoded(answer, response, version)
        if not found.error_code:
            return found
        await asyncio.sleep(_PAUSE_SECONDS)
    raise SystemExit(f"a coordinator is not ready: {found}")


async def _beating(client: Client) -> Requests:
    member_id, generation_id = await _member(client)
    return _for_ever(HeartbeatRequest(group_id="group", generation_id=generation_id, member_id=member_id), 4)


async def _committing(client: Client) -> Requests:
    await _make_topic(client, 10)
    member_id, generation_id = await _member(client)
    offsets = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in range(10)
    ]
    topics = [OffsetCommitRequestTopic(name=_TOPIC, partitions=offsets)]
    return _for_ever(
        OffsetCommitRequest(
            group_id="group", generation_id_or_member_epoch=generation_id, member_id=member_id, topics=topics
        ),
        8,
    )


async def _in_transactions(client: Client) -> Requests:
    """A transaction for each request: one partition is added, a record is written, and it is committed."""
    await _make_topic(client, 1)
    name = "transaction"
    await _until_ready(client, FindCoordinatorRequest(key=name, key_type=1), 2, FindCoordinatorResponse)
    given = await _until_ready(
        client, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 3, InitProducerIdResponse
    )
    who, epoch = given.producer_id, given.producer_epoch
    topics = [AddPartitionsToTxnRequestTopic(name=_TOPIC, partitions=[0])]
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics,
    )
    begin, end = (
        _asked(adding, 3),
        _asked(EndTxnRequest(transactional_id=name, producer_id=who, producer_epoch=epoch, committed=True), 3),
    )

    def requests() -> Requests:
        for sequence in count():
            records = [(ManualClock().now_ms(), None, bytes(100), ())]
            batch = bytes(
                encode_batch(
                    records, producer_id=who, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
                )
            )
            yield begin, _asked(_produce(1, batch, -1, name), PRODUCE_VERSION), end

    return requests()


#: Bytes of records in a batch: nearly the default of a producer, and nearly the most that the broker checks on its
#: loop.
_SMALL, _LARGE = 15 << 10, 62 << 10

CASES: dict[str, Case] = {
    "produce one record": Case(_producing(1, 100), 240),
    "produce one record, acks=all": Case(_producing(1, 100, acks=-1), 240),
    "produce one record to each of 6 partitions": Case(_producing(6, 100), 120),
    "produce one record to each of 200 partitions": Case(_producing(200, 100), 24),
    "produce 15 KB": Case(_producing(1, _SMALL), 120),
    "produce 15 KB to each of 6 partitions": Case(_producing(6, _SMALL), 60),
    "produce 62 KB": Case(_producing(1, _LARGE), 120),
    "produce 62 KB to each of 6 partitions": Case(_producing(6, _LARGE), 30),
    "produce 15 KB, lz4": Case(_producing(1, _SMALL, Codec.LZ4), 120),
    "produce 15 KB, lz4, to each of 6 partitions": Case(_producing(6, _SMALL, Codec.LZ4), 30),
    "produce 62 KB, lz4": Case(_producing(1, _LARGE, Codec.LZ4), 60),
    "produce 62 KB, lz4, to each of 6 partitions": Case(_producing(6, _LARGE, Codec.LZ4), 20),
    "fetch one record": Case(_fetching, 240),
    "fetch in a session of 200 partitions, 3 with news": Case(_in_session(200, 3), 120),
    # A second each, so a span is a minute: a broker's work of each minute is once in each.
    "fetch in a session of 200 partitions that waits in vain": Case(_in_session(200, 0, 1000), 60),
    "heartbeat": Case(_beating, 240),
    **{
        f"{name}, logged in, {rules:,} access rule{'s' if rules > 1 else ''}": Case(prepare, 240, rules=rules)
        for rules in (1, 10_000)
        for name, prepare in (
            ("produce one record", _producing(1, 100)),
            ("fetch one record", _fetching),
            ("heartbeat", _beating),
        )
    },
    "offset commit, 10 partitions": Case(_committing, 60),
    "a follower's round": Case(_producing(1, 100, acks=-1, copies=2), 60, brokers=2),
    "transaction": Case(_in_transactions, 40),
}


# --- running one ----------------------------------------------------------------------------------------------------


async def _send(client: Client, asked: Sequence[Asked], *, is_counted: bool = False) -> None:
    """Sends all frames, in order, between two marks if they are counted; the program ends if an answer contains an
    error."""
    frames = [item.frame for item in asked]
    if is_counted:
        mark()
    answers = await client.send_all(frames)
    if is_counted:
        mark()
    for item, answer in zip(asked, answers, strict=True):
        _refuse_errors(_decoded(answer, item.response, item.version))


_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SECURED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.jaas.config": f'{_PLAIN} username="admin" password="a" user_admin="a" user_anna="b";',
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
}


async def _log_in(client: Client, broker: Broker, rules: int) -> None:
    """Logs the client in as a user who may do everything by one rule for each type of resource. The other rules are for
    other users and topics, literal and prefixed."""
    message = memoryview(plain_message("anna", "b"))
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
    await client.ask(SaslAuthenticateRequest(auth_bytes=message), 1, SaslAuthenticateResponse)
    authorization = broker.serving.authorization
    assert authorization is not None
    acls = authorization.rules.acls
    everything = AclEntry("User:anna", WILDCARD, AclOperation.ALL, Permission.ALLOW)
    for kind, name in (
        (ResourceType.TOPIC, _TOPIC),
        (ResourceType.GROUP, "group"),
        (ResourceType.CLUSTER, CLUSTER_NAME),
    ):
        acls.put(ResourcePattern(kind, name), frozenset((everything,)))
    for number in range(1, rules):
        other = AclEntry(f"User:user{number}", WILDCARD, AclOperation.READ, Permission.ALLOW)
        pattern_type = PatternType.PREFIXED if number % 2 else PatternType.LITERAL
        acls.put(ResourcePattern(ResourceType.TOPIC, f"topic{number}", pattern_type), frozenset((other,)))


async def _start_brokers(number: int, directory: Path, machine: Machine, more: Mapping[str, str]) -> list[Broker]:
    """Starts `number` brokers, the first of which has the tree. `more` has further settings."""
    brokers: list[Broker] = []
    for broker_id in range(1, number + 1):
        own = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory / str(broker_id)),
            "broker.id": str(broker_id),
            **more,
        }
        if brokers:
            served = brokers[0].tree_served_at
            assert served is not None
            own["zookeeper.connect"] = f"127.0.0.1:{served[1]}"
        elif number > 1:
            own["jesenska.zookeeper.listener"] = "127.0.0.1:0"
        brokers.append(
            Broker(broker_config(environment={}, flags={**broker_defaults(number), **own}, warns=False), machine)
        )
        await brokers[-1].start()
    return brokers


async def _count(case: Case, directory: Path, machine: Machine, share: float) -> int:
    """Runs a case; returns the number of requests of a span."""
    loop = asyncio.get_running_loop()
    brokers = await _start_brokers(case.brokers, directory, machine, _SECURED if case.rules else {})
    client = await Client.connect(loop, brokers[0])
    if case.rules:
        await _log_in(client, brokers[0], case.rules)
    requests = await case.prepare(client)
    size = max(1, round(case.count * share))
    await _send(client, list(chain.from_iterable(islice(requests, size))))
    spans = [list(chain.from_iterable(islice(requests, size))) for _ in range(SPANS)]
    gc.collect()
    gc.freeze()
    gc.disable()
    for span in spans:
        await _send(client, span, is_counted=True)
    return size


def _run(name: str, directory: Path, share: float) -> None:
    clock = ManualClock()
    Memory()  # sets up the allocator as a broker's process does
    loop = _loop_on(clock)
    asyncio.set_event_loop(loop)
    size = loop.run_until_complete(_count(CASES[name], directory, _machine(loop, clock), share))
    print(json.dumps({"case": name, "process": os.getpid(), "requests": size}), flush=True)


def main() -> int:
    directory, share = sys.argv[1:]
    for number, line in enumerate(sys.stdin):
        name = line.strip()
        child = os.fork()
        if not child:
            code = 1
            try:
                _run(name, Path(directory, str(number)), float(share))
                code = 0
            except SystemExit as error:
                print(error, file=sys.stderr, flush=True)
            finally:
                # Brokers are not stopped: they are not needed any more.
                os._exit(code)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            print(f"{name} has failed", file=sys.stderr, flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
