"""Fetch sessions: the same raw requests to Apache Kafka 3.9.1 and to our broker, step by step, and the same
answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import NO_UUID
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopicsData,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from jesenska.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.raw_connection import RawConnection

pytestmark = pytest.mark.conformance

_SECONDS = 30.0
#: Records of long ago stay.
_SETTINGS = {"auto.create.topics.enable": "false", "log.retention.ms": "-1"}
_RECORD = encode_batch([(1_700_000_000_000, b"key", b"v" * 900, ())])
_BIG = 1 << 20


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    need("java", "mvn")
    with ApacheKafka("3.9.1", tmp_path_factory.mktemp("kafka"), heap="384m", settings=_SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("ours"), settings=_SETTINGS) as running:
        yield running


class Told(NamedTuple):
    """One partition of an answer, without what differs from broker to broker (bytes of a batch, ids)."""

    topic: str
    partition: int
    error: str
    high_watermark: int
    log_start_offset: int
    batches: int


class Seen(NamedTuple):
    error: str
    #: none, new, same
    session: str
    partitions: list[Told]


class Peer:
    """A broker of either kind, and what is known of the session with it."""

    def __init__(self, bootstrap: str, version: int) -> None:
        self.connection = RawConnection(bootstrap, _SECONDS)
        self.version = version
        self.by_id = version >= 13
        self.ids: dict[str, uuid.UUID] = {}
        self.session_id = 0
        self.steps: list[tuple[str, Seen]] = []

    # --- around it ---------------------------------------------------------------------------------------------------

    def create(self, topic: str, partitions: int) -> None:
        wanted = CreateTopicsRequestTopic(name=topic, num_partitions=partitions, replication_factor=1)
        created = self.connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
        assert created.topics[0].error_code == ErrorCode.NONE, created.topics[0].error_message
        self.wait_for(topic, {NO_UUID, self.ids.get(topic)}, partitions)

    def wait_for(self, topic: str, not_these: set[uuid.UUID | None], partitions: int) -> None:
        """Until the broker itself answers for every partition of a topic: Kafka creates and deletes a moment after it
        has said so."""
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            found = self.connection.ask(request, 10, MetadataResponse).topics[0]
            if partitions == 0 and found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return
            if partitions and found.error_code == ErrorCode.NONE and found.topic_id not in not_these:
                asked = [self.want(topic, number, 0) for number in range(partitions)]
                probe = FetchRequest(max_bytes=_BIG, topics=[FetchRequestTopic(topic=topic, partitions=asked)])
                answers = self.connection.ask(probe, 12, FetchResponse).responses
                if all(part.error_code == ErrorCode.NONE for answer in answers for part in answer.partitions):
                    self.ids[topic] = found.topic_id
                    return
        raise AssertionError(f"{topic} does not come or go")

    def delete(self, topic: str) -> None:
        answer = self.connection.ask(
            DeleteTopicsRequest(topic_names=[topic], timeout_ms=20_000), 5, DeleteTopicsResponse
        )
        assert answer.responses[0].error_code == ErrorCode.NONE
        self.wait_for(topic, set(), 0)

    def produce(self, topic: str, *partitions: int, count: int = 1) -> None:
        for _ in range(count):
            data = [ProduceRequestPartition(index=number, records=bytes(_RECORD)) for number in partitions]
            request = ProduceRequest(
                acks=-1, timeout_ms=20_000, topic_data=[ProduceRequestTopic(name=topic, partition_data=data)]
            )
            answer = self.connection.ask(request, 9, ProduceResponse)
            assert [part.error_code for part in answer.responses[0].partition_responses] == [0] * len(partitions)

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        asked = DeleteRecordsRequestTopic(
            name=topic, partitions=[DeleteRecordsRequestPartition(partition_index=partition, offset=offset)]
        )
        answer = self.connection.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=20_000), 2, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    # --- the fetches -------------------------------------------------------------------------------------------------

    def want(self, topic: str, partition: int, offset: int) -> FetchRequestPartition:
        return FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_BIG)

    def fetch(
        self,
        step: str,
        epoch: int,
        wanted: Sequence[tuple[str, Sequence[tuple[int, int]]]] = (),
        *,
        session_id: int | None = None,
        forget: Mapping[str, Sequence[int]] | None = None,
        max_bytes: int = _BIG,
        min_bytes: int = 1,
        max_wait_ms: int = 0,
        version: int | None = None,
    ) -> Seen:
        """One request: `wanted` are partitions with offsets, by topic. Notes what came."""
        version = self.version if version is None else version
        by_id = version >= 13
        topics = []
        for topic, parts in wanted:
            asked = [self.want(topic, number, offset) for number, offset in parts]
            topics.append(
                FetchRequestTopic(
                    topic="" if by_id else topic, topic_id=self._id(topic) if by_id else NO_UUID, partitions=asked
                )
            )
        forgotten = [
            FetchRequestForgottenTopicsData(
                topic="" if by_id else topic, topic_id=self._id(topic) if by_id else NO_UUID, partitions=list(parts)
            )
            for topic, parts in (forget or {}).items()
        ]
        sent = self.session_id if session_id is None else session_id
        request = FetchRequest(
            session_id=sent,
            session_epoch=epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        answer = self.connection.ask(request, version, FetchResponse)
        names = {topic_id: name for name, topic_id in self.ids.items()}
        told = []
        for answered in answer.responses:
            name = names.get(answered.topic_id, "?") if by_id else answered.topic
            for part in answered.partitions:
                batches = 0 if not part.records else len(part.records) // len(_RECORD)
                told.append(
                    Told(
                        name,
                        part.partition_index,
                        ErrorCode(part.error_code).name,
                        part.high_watermark,
                        part.log_start_offset,
                        batches,
                    )
                )
        session = "none" if answer.session_id == 0 else "same" if answer.session_id == sent else "new"
        if session == "new":
            self.session_id = answer.session_id
        seen = Seen(ErrorCode(answer.error_code).name, session, told)
        self.steps.append((step, seen))
        return seen

    def _id(self, topic: str) -> uuid.UUID:
        return self.ids.setdefault(topic, uuid.uuid5(uuid.NAMESPACE_OID, topic))


def _go_on_and_end(peer: Peer, topic: str) -> None:
    """The life of a session."""
    peer.create(topic, 3)
    nowhere = f"{topic}-nowhere"
    peer.fetch("a first request without partitions", 0)
    peer.fetch("a session that was never begun", 1, session_id=0)
    peer.fetch("an id that nobody has", 1, session_id=12345)
    peer.fetch("first request", 0, [(topic, [(0, 0), (1, 0), (2, 0)]), (nowhere, [(0, 0)])])
    peer.fetch("nothing new", 1)
    peer.fetch("an epoch that is not due", 7)
    peer.fetch("a negative epoch", -7)
    peer.fetch("nothing new after wrong epochs", 2)
    peer.produce(topic, 1)
    peer.fetch("one partition has a record", 3)
    peer.fetch("its offset was not moved", 4)
    peer.fetch("its offset is moved", 5, [(topic, [(1, 1)])])
    peer.fetch("it is forgotten, with the unknown one", 6, forget={topic: [1, 2], nowhere: [0]})
    peer.produce(topic, 1, 2)
    peer.fetch("records of forgotten partitions", 7)
    peer.fetch("one of them is wanted again", 8, [(topic, [(2, 0)])])
    peer.fetch("one that is not there is forgotten", 9, [(topic, [(2, 1)])], forget={topic: [1, 17]})
    peer.delete_records(topic, 2, 1)
    peer.fetch("the log start has moved", 10)
    peer.fetch("an offset outside the log", 11, [(topic, [(0, 99)])])
    peer.fetch("the error stays", 12)
    peer.fetch("the offset is right again", 13, [(topic, [(0, 0)])])
    peer.fetch("nothing new after the error", 14)
    peer.fetch("a partition that the topic does not have", 15, [(topic, [(9, 0)])])
    peer.produce(topic, 0)
    peer.fetch("a limit of bytes that nothing fits", 16, max_bytes=1)
    peer.fetch("other names than ids, other ids than names", 17, version=12 if peer.by_id else 13)
    peer.fetch("more than there is asked for", 17, [(topic, [(0, 1)])], min_bytes=10_000, max_wait_ms=50)
    old = peer.session_id
    peer.fetch("a new session in place of this one", 0, [(topic, [(0, 1), (2, 2)])])
    peer.fetch("the old one", 18, session_id=old)
    peer.fetch("everything is forgotten", 1, forget={topic: [0, 2]})
    peer.fetch("the session that has no partitions", 2)
    peer.fetch("another", 0, [(topic, [(0, 1)])])
    peer.fetch("the end", -1, [(topic, [(0, 0)])])
    peer.fetch("after the end", 1)
    peer.fetch("no session is wanted", -1, [(topic, [(0, 0)])], session_id=0)


def _take_turns(peer: Peer, topic: str) -> None:
    """With a small limit of bytes every partition has its turn."""
    peer.create(topic, 4)
    peer.produce(topic, 0, 1, 3, count=6)
    offsets = dict.fromkeys(range(4), 0)
    seen = peer.fetch("first", 0, [(topic, sorted(offsets.items()))], max_bytes=1)
    for number in range(10):
        moved = []
        for told in seen.partitions:
            if told.batches:
                offsets[told.partition] += told.batches
                moved.append((told.partition, offsets[told.partition]))
        if number == 4:
            peer.produce(topic, 2, count=3)
        seen = peer.fetch(f"turn {number}", number + 1, [(topic, moved)] if moved else [], max_bytes=1)


def _lose_the_topic(peer: Peer, topic: str) -> None:
    """The topic of a session is deleted, and another of its name is made."""
    peer.create(topic, 1)
    peer.produce(topic, 0)
    peer.create(f"{topic}-other", 1)
    peer.fetch("first", 0, [(topic, [(0, 1)]), (f"{topic}-other", [(0, 0)])])
    peer.fetch("nothing new", 1)
    peer.delete(topic)
    peer.fetch("it is deleted", 2)
    before = peer.ids[topic]
    peer.create(topic, 1)
    after, peer.ids[topic] = peer.ids[topic], before
    peer.fetch("another has its name", 3)
    peer.produce(topic, 0)
    peer.fetch("the other has records", 4)
    if peer.by_id:
        peer.fetch("the old id is forgotten", 5, forget={topic: [0]})
        peer.ids[topic] = after
        peer.fetch("the new id", 6, [(topic, [(0, 0)])])


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
@pytest.mark.parametrize(
    "scenario", [_go_on_and_end, _take_turns, _lose_the_topic], ids=lambda scenario: scenario.__name__.strip("_")
)
def test_a_session_is_answered_as_kafka_answers_it(
    kafka: ApacheKafka, ours: BrokerProcess, scenario: object, version: int
) -> None:
    assert callable(scenario)
    peers = [Peer(kafka.bootstrap, version), Peer(ours.bootstrap, version)]
    for peer in peers:
        with peer.connection:
            scenario(peer, f"{getattr(scenario, '__name__', '').strip('_')}-{version}")
    theirs, mine = (peer.steps for peer in peers)
    assert len(theirs) >= 5
    for (step, expected), (_, found) in zip(theirs, mine, strict=True):
        assert found == expected, step
