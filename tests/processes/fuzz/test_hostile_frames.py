"""A broker among hostile clients: frames of every API, mutated, over real sockets. JESENSKA_SEED is the seed of the
random source. The long run sends a million:

    JESENSKA_TESTS=everything python -m pytest tests/processes/fuzz -s

The broker stays up, serves a bystander all the time, meets no unexpected error (no stack trace in its log), and keeps
all written records. Its memory does not grow: topics and groups that hostile frames have created are deleted before it
is measured, since they are not a leak.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bench.figures import resident_mb

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.client.administration.admin import Admin
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from jesenska.wire.codec import MalformedMessageError, decoder
from jesenska.wire.headers import FIXED, read_client_id, skip_header_tags
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from jesenska.wire.messages.k37_create_partitions import CreatePartitionsRequest
from jesenska.wire.registry import APIS
from tests.processes.fuzz.mutate import hostile
from tests.processes.fuzz.recorded import record
from tests.processes.fuzz.sender import send_all
from tests.processes.fuzz.well_formed import WellFormed
from tests.profiles import rounds
from tests.raw_connection import RawConnection
from tests.sensible_requests import Served

FRAMES = rounds(quick=8000, ci=40_000, everything=200_000)
SEED = int(os.environ.get("JESENSKA_SEED", "1"))
_CHUNK = 10_000
_WARM_UP = max(20_000, min(50_000, FRAMES // 10))
_GROWTH_MAX_MB = 20.0
_NOW_MS = 1_700_000_000_000
#: Thousands of partitions in one request are legal, slow and large. tests/processes/broker/test_many_partitions tests
#: them. Here they would hide a growth of memory.
_PARTITIONS_MAX = 500
_KEPT = "written-by-a-bystander"

pytestmark = pytest.mark.timeout(120 + FRAMES // 100)

#: Hostile frames may set any timeout, so the broker's own limits are short. Remaining groups then end soon.
_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "10",
    "group.max.session.timeout.ms": "60000",
    "log.retention.ms": "-1",
    "num.partitions": "2",
    "max.incremental.fetch.session.cache.slots": "50",  # full after the warm-up
}


class Bystander(threading.Thread):
    """Writes a numbered record and reads it again, all the time, on connections of its own."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.ends = threading.Event()
        self.slowest_s = 0.0
        self.count = 0
        self.failure: BaseException | None = None
        self._broker = bootstrap

    def run(self) -> None:
        try:
            with RawConnection(self._broker, 60.0) as connection:
                while not self.ends.wait(0.02):
                    begun = time.monotonic()
                    batch = bytes(encode_batch([(_NOW_MS, None, b"record %d" % self.count, ())]))
                    data = ProduceRequestTopic(
                        name=_KEPT, partition_data=[ProduceRequestPartition(index=0, records=batch)]
                    )
                    written = connection.ask(
                        ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data]), 9, ProduceResponse
                    )
                    answer = written.responses[0].partition_responses[0]
                    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, self.count)
                    assert read(connection, self.count) == batch[61:]
                    self.count += 1
                    self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
        except BaseException as failure:
            self.failure = failure

    def __enter__(self) -> Bystander:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        self.join()


def read(connection: RawConnection, offset: int) -> bytes:
    """The records of the batch there, without its header."""
    partition = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=20_000, min_bytes=1, topics=[FetchRequestTopic(topic=_KEPT, partitions=[partition])]
    )
    found = connection.ask(request, 11, FetchResponse).responses[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    assert isinstance(found.records, memoryview | bytes)
    return bytes(found.records[61:])


def _create_kept(bootstrap: str) -> None:
    forever = CreateTopicsRequestConfig(name="retention.ms", value="-1")
    with RawConnection(bootstrap) as connection:
        topic = CreateTopicsRequestTopic(name=_KEPT, num_partitions=1, replication_factor=1, configs=[forever])
        assert (
            connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 5, CreateTopicsResponse)
            .topics[0]
            .error_code
            == ErrorCode.NONE
        )


def _clean(bootstrap: str, recorded: str) -> tuple[int, int]:
    """Deletes the topics and groups that hostile frames have created. Returns their number."""

    async def delete() -> tuple[int, int]:
        cluster = Cluster(bootstrap, ClientConfig(request_timeout_seconds=300.0))
        try:
            admin, of_groups = Admin(cluster), Admin(cluster)
            topics = [
                name for name in await admin.topics() if name not in (_KEPT, recorded) and not name.startswith("__")
            ]
            for start in range(0, len(topics), 200):
                await admin.delete_topics(topics[start : start + 200])
            groups = [item.group_id for item in await of_groups.list_groups()]
            if groups:
                await of_groups.delete_groups(groups)
            return len(topics), len(groups)
        finally:
            await cluster.close()

    return asyncio.run(delete())


class Frames:
    """Two thirds are mutations of recorded frames. The others are well formed with hostile values, and a few of those
    are mutated, too."""

    def __init__(self, served: Served) -> None:
        self.recorded = record(served)
        batches = [
            bytes(encode_batch([(_NOW_MS, b"key", b"value %d" % number, ()) for number in range(count)], codec))
            for codec in Codec
            for count in (1, 9)
        ]
        self._well_formed = WellFormed(
            served.announced, [served.name, "group-topic-9", "group-topic-10"], [served.id], batches
        )

    def frame(self, number: int) -> bytes:
        source = random.Random(f"{SEED}-{number}")
        made = self._frame(source)
        while partitions_wanted(made) > _PARTITIONS_MAX:
            made = self._frame(source)
        return made

    def _frame(self, source: random.Random) -> bytes:
        if source.random() < 0.65:
            return hostile(self.recorded, source)
        frame = self._well_formed.frame(source)
        return hostile([frame], source) if source.random() < 0.2 else struct.pack(">i", len(frame)) + frame


def partitions_wanted(frame: bytes) -> int:
    """The number of partitions that a frame makes the broker create, if it can be read."""
    view = memoryview(frame)[4:]
    try:
        key, version, _ = FIXED.unpack_from(view)
        if key not in (CreateTopicsRequest.api_key, CreatePartitionsRequest.api_key):
            return 0
        _, position = read_client_id(view, FIXED.size, len(view))
        api = APIS[key]
        if api.flexible is not None and version >= api.flexible:
            position = skip_header_tags(view, position, len(view))
        asked: Any = decoder(api.request, version)(view, position, len(view))[0]
    except (KafkaError, MalformedMessageError, struct.error, ValueError):
        return 0
    return sum(topic.num_partitions if key == CreateTopicsRequest.api_key else topic.count for topic in asked.topics)


@pytest.mark.crash
def test_hostile_frames_harm_nobody_but_those_who_send_them(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=_SETTINGS) as broker:
        served = Served(broker)
        frames = Frames(served)
        _create_kept(broker.bootstrap)
        totals: Counter[str] = Counter()
        resident: list[float] = []
        sent = 0
        begun = time.monotonic()
        with Bystander(broker.bootstrap) as bystander:
            while sent < _WARM_UP + FRAMES:
                following = min(sent + _CHUNK, _WARM_UP if sent < _WARM_UP else _WARM_UP + FRAMES)
                totals += send_all(broker.bootstrap, map(frames.frame, range(sent, following)), random.Random(sent))
                assert "Traceback" not in broker.log, (
                    f"frames {sent} to {following} of seed {SEED}:\n{broker.log[-6000:]}"
                )
                assert bystander.failure is None, f"frames {sent} to {following} of seed {SEED}: {bystander.failure!r}"
                sent = following
                totals["topics made"] += (made := _clean(broker.bootstrap, served.name))[0]
                totals["groups made"] += made[1]
                if sent >= _WARM_UP:
                    resident.append(resident_mb(broker.pid))
        seconds = time.monotonic() - begun
        with RawConnection(broker.bootstrap) as connection:
            for offset in range(bystander.count):
                assert read(connection, offset).endswith(b"record %d\0" % offset)
        print(
            f"\n{sent:,} hostile frames from {len(frames.recorded)} recorded ones in {seconds:.0f} s; "
            f"{dict(totals)}; bystander: {bystander.count:,} records, "
            f"slowest {bystander.slowest_s * 1000:.0f} ms; "
            f"resident {resident[0]:.1f} MB after the warm-up, {resident[-1]:.1f} at the end, {max(resident):.1f} at "
            f"most"
        )
        assert bystander.count > 0
        assert totals["answers read"] > FRAMES // 100, "frames so broken that none gets past the header test nothing"
        assert resident[-1] - resident[0] < _GROWTH_MAX_MB
        assert broker.stop() == 0
