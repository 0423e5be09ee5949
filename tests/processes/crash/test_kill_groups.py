"""The broker is killed with SIGKILL while producers write and groups read and commit: at any moment of the load, and
between the append of a request and its acknowledgement (of a producer with idempotence, of one without, of a commit,
in turn). The profile of the tests sets the number of kills of each kind.

After every kill, every acknowledged record must be there, in order, at its acknowledged offset, and once with
idempotence. No committed offset that was acknowledged or seen may go back. Groups must continue, and read everything.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC, partition_for
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batch
from jesenska.records.encode import encode_batch
from jesenska.records.header import NO_PRODUCER_EPOCH, NO_SEQUENCE, Codec
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tests.processes.crash.load import (
    PARTITIONS,
    TOPIC,
    Ledger,
    check,
    new_producer_id,
    produce,
    produce_with_librdkafka,
    read_everything,
)
from tests.processes.crash.readers import GroupLedger, look_at_offsets, read_in_group, read_with_librdkafka
from tests.processes.crash.window import Window, log_bytes
from tests.profiles import rounds
from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

CRASHES = rounds(quick=1, ci=5, everything=20)
SEED = int(os.environ.get("JESENSKA_SEED", "1948"))
_HAS_LIBRDKAFKA = importlib.util.find_spec("confluent_kafka") is not None
_OFFSETS_PARTITIONS = 8
#: Rests of the producers after a hundred records: a load that two cores can read as well.
_PAUSE_SECONDS = 0.03


class ProducingProbe:
    """Writes one record after another to a partition of its own, on raw connections. The broker is killed in the
    window."""

    def __init__(self, topic: str, data: Path, producer_id: int) -> None:
        self.name = self.topic = topic
        self._directory = data / f"{topic}-0"
        self._producer_id = producer_id
        self._next = 0
        #: The acknowledged offset of each acknowledged number.
        self.acknowledged: dict[int, int] = {}
        self.in_doubt: set[int] = set()

    def _request(self, number: int) -> ProduceRequest:
        once = self._producer_id >= 0
        epoch, sequence = (0, number) if once else (NO_PRODUCER_EPOCH, NO_SEQUENCE)
        batch = encode_batch(
            [(0, None, b"%d" % number, ())], producer_id=self._producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        partition = ProduceRequestPartition(index=0, records=memoryview(batch))
        return ProduceRequest(
            acks=-1, timeout_ms=10_000, topic_data=[ProduceRequestTopic(name=self.topic, partition_data=[partition])]
        )

    def _take(self, number: int, connection: RawConnection) -> None:
        item = connection.receive(9, ProduceResponse).responses[0].partition_responses[0]
        assert item.error_code == ErrorCode.NONE
        self.acknowledged[number] = item.base_offset

    def kill(self, broker: BrokerProcess, window: Window) -> None:
        def frame_of(connection: RawConnection) -> bytes:
            self._next += 1
            return connection.frame(self._request(self._next - 1), 9)

        window.kill(
            broker,
            frame_of,
            lambda: log_bytes(self._directory),
            lambda connection: self._take(self._next - 1, connection),
        )
        self.in_doubt.add(self._next - 1)

    def go_on(self, broker: BrokerProcess) -> None:
        """Sends a record whose outcome is unknown again if idempotence is on, as a producer would."""
        number = self._next - 1
        if self._producer_id >= 0 and number in self.in_doubt:
            with RawConnection(broker.bootstrap) as connection:
                connection.send_frame(connection.frame(self._request(number), 9))
                self._take(number, connection)
            self.in_doubt.discard(number)

    def check(self, values: list[bytes]) -> None:
        numbers = [int(value) for value in values]
        assert numbers == sorted(set(numbers)), f"{self.topic}: in order, each once"
        assert set(self.acknowledged) <= set(numbers) <= set(self.acknowledged) | self.in_doubt
        assert all(numbers[offset] == number for number, offset in self.acknowledged.items())


class CommittingProbe:
    """Commits one offset after another for a group without members. The broker is killed in the window."""

    version = 7

    def __init__(self, group: str, data: Path) -> None:
        self.name = "commits"
        self.group = group
        self._directory = data / f"{OFFSETS_TOPIC}-{partition_for(group, _OFFSETS_PARTITIONS)}"
        self._offset = 0
        self._acknowledged = -1

    def kill(self, broker: BrokerProcess, window: Window) -> None:
        def frame_of(connection: RawConnection) -> bytes:
            self._offset += 1
            partition = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=self._offset, committed_metadata=""
            )
            request = OffsetCommitRequest(
                group_id=self.group, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
            )
            return connection.frame(request, self.version)

        def answered(connection: RawConnection) -> None:
            item = connection.receive(self.version, OffsetCommitResponse).topics[0].partitions[0]
            assert item.error_code == ErrorCode.NONE
            self._acknowledged = self._offset

        window.kill(broker, frame_of, lambda: log_bytes(self._directory), answered)

    def go_on(self, broker: BrokerProcess) -> None:
        request = OffsetFetchRequest(
            group_id=self.group, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        )
        with RawConnection(broker.bootstrap) as connection:
            while (
                answer := connection.ask(request, 5, OffsetFetchResponse)
            ).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                pass
        committed = answer.topics[0].partitions[0].committed_offset
        assert self._acknowledged <= committed <= self._offset
        self._acknowledged = committed


Probe = ProducingProbe | CommittingProbe


def _values(data: Path, topic: str) -> list[bytes]:
    """The values of a partition's only segment on disk."""
    (path,) = (data / f"{topic}-0").glob("*.log")
    content = memoryview(path.read_bytes())
    return [
        bytes(record.value or b"")
        for position, _ in iter_headers(content)
        for record in decode_batch(content, position)
    ]


def _create_topics(bootstrap: str, topics: list[NewTopic]) -> None:
    async def work() -> None:
        cluster = Cluster(bootstrap)
        try:
            assert set((await Admin(cluster).create_topics(topics)).values()) == {None}
        finally:
            await cluster.close()

    asyncio.run(work())


def test_groups_go_on_and_no_committed_offset_goes_back_when_the_broker_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"JESENSKA_SEED={SEED}")
    ledger, groups = Ledger(), GroupLedger()
    idempotent = {"ours-once": True, "ours-again": False} | (
        {"rdkafka-once": True, "rdkafka-again": False} if _HAS_LIBRDKAFKA else {}
    )
    readers = ["ours", "ours-cooperative"] + (["rdkafka"] if _HAS_LIBRDKAFKA else [])
    settings = {
        "log.segment.bytes": "1048576",
        "log.flush.offset.checkpoint.interval.ms": "300",
        "log.flush.interval.messages": "5000",
        "offsets.topic.num.partitions": str(_OFFSETS_PARTITIONS),
        "group.initial.rebalance.delay.ms": "0",
    }
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        data = broker.data
        taken = {partition_for(group, _OFFSETS_PARTITIONS) for group in readers}
        quiet_group = next(
            f"probe-{number}"
            for number in count()
            if partition_for(f"probe-{number}", _OFFSETS_PARTITIONS) not in taken
        )
        _create_topics(
            broker.bootstrap,
            [
                NewTopic(TOPIC, PARTITIONS, 1),
                *(NewTopic(name, 1, 1, {"segment.bytes": "1000000000"}) for name in ("once", "again")),
            ],
        )
        once, again = ProducingProbe("once", data, new_producer_id(broker)), ProducingProbe("again", data, -1)
        commits = CommittingProbe(quiet_group, data)

        async def our_producers() -> None:
            codecs = {"ours-once": Codec.NONE, "ours-again": Codec.LZ4}
            await asyncio.gather(
                *(
                    produce(broker.bootstrap, ledger, name, idempotent[name], codec, _PAUSE_SECONDS)
                    for name, codec in codecs.items()
                )
            )

        async def our_readers() -> None:
            assignors = {"ours": "range", "ours-cooperative": "cooperative-sticky"}
            await asyncio.gather(
                *(
                    read_in_group(broker.bootstrap, groups, group, TOPIC, (name,))
                    for group, name in assignors.items()
                    for _ in range(2)
                )
            )

        others = [
            (broker.bootstrap, ledger, name, idempotent[name], _PAUSE_SECONDS)
            for name in idempotent
            if name.startswith("rdkafka")
        ]
        producers = [threading.Thread(target=asyncio.run, args=(our_producers(),))]
        producers += [threading.Thread(target=produce_with_librdkafka, args=each) for each in others]
        consumers = [threading.Thread(target=asyncio.run, args=(our_readers(),))]
        consumers += [
            threading.Thread(target=read_with_librdkafka, args=(broker.bootstrap, groups, "rdkafka", TOPIC))
            for _ in others
        ]
        for thread in producers + consumers:
            thread.start()
        windows: list[tuple[Probe, Window]] = [
            (once, Window(SEED)),
            (again, Window(SEED + 1)),
            (commits, Window(SEED + 2)),
        ]

        def in_mid_load() -> None:
            ledger.wait_for(chance.randrange(1, 3000))
            broker.kill()

        def in_window(probe: Probe, window: Window) -> Callable[[], None]:
            return lambda: probe.kill(broker, window)

        try:
            groups.wait_for_commits(readers, 1)
            for crash in range(CRASHES):
                for kill in (in_mid_load, in_window(*windows[crash % len(windows)])):
                    kill()
                    broker.start()
                    once.go_on(broker)
                    commits.go_on(broker)
                    look_at_offsets(broker.bootstrap, groups, readers)
                    groups.wait_for_commits(readers, 1)
            ledger.wait_for(500)
            ledger.stopping.set()
            for thread in producers:
                thread.join()
            found = read_everything(broker.bootstrap)
            groups.wait_for_ends(
                readers, {TopicPartition(TOPIC, partition): len(records) for partition, records in found.items()}
            )
        finally:
            ledger.stopping.set()
            groups.stopping.set()
            for thread in producers + consumers:
                thread.join()
        assert ledger.failures == []
        assert groups.failures == []
        found = read_everything(broker.bootstrap)
        check(ledger, found, idempotent)
        for group in readers:
            for partition, records in found.items():
                missed = set(range(len(records))) - groups.read[group, TopicPartition(TOPIC, partition)]
                assert not missed, f"{group} never read {sorted(missed)[:10]} of partition {partition}"
        once.check(_values(data, "once"))
        again.check(_values(data, "again"))
        hits = {probe.name: (window.hits, window.attempts) for probe, window in windows}
        print(
            f"{2 * CRASHES} kills, {ledger.count} records acknowledged, commits {dict(groups.commits)}, in the "
            f"window (hits, attempts) {hits}"
        )
        assert len(windows) > CRASHES or any(window.hits for _, window in windows), (
            "no kill fell between append and acknowledgement"
        )
