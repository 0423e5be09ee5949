"""Kafka 3.9.1's kafka-dump-log reads every segment, index, time index and producer snapshot that the broker writes,
and finds no mismatch."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.records.kafka_dump_log import main as dump
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import LATEST, list_offsets
from jesenska.client.producer import Producer
from jesenska.groups.records import (
    GroupMetadataValue,
    GroupMetadataValueMember,
    OffsetCommitValue,
    group_record,
    offset_record,
)
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from jesenska.wire.consumer_protocol import encode_assignment, encode_subscription
from tests.peers.tools import Tools

pytestmark = pytest.mark.conformance

_SMALL_SEGMENTS = {
    "segment.bytes": "30000",
    "index.interval.bytes": "500",
    "segment.index.bytes": "4096",
    "retention.ms": "-1",
}
_RECORDS = 1500
_FINDS_FAULT = re.compile(
    r"(?i)mismatch|non-?consecutive|out of order|isvalid: false|exception|error|invalid|corrupt|sanity check failed"
)
#: Kafka's file kinds; what stands behind a dot in a partition's directory and is none of these is told by name.
_DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
#: Those that this load writes: it aborts no transaction. tests/processes/cli/test_kafka_dump_log dumps an index of
#: those.
_WRITTEN = (".log", ".index", ".timeindex", ".snapshot")


async def _write(cluster: Cluster, topic: str, codec: Codec, idempotent: bool, first: int, count: int) -> None:
    async with Producer(cluster, compression=codec, enable_idempotence=idempotent, batch_size=2500) as producer:
        for number in range(first, first + count):
            await producer.send(
                topic,
                b"value %d " % number * 6,
                b"key %d" % (number % 50),
                number % 2,
                [("h", b"x")] if number % 3 else [],
                1_000_000 + number * 7,
            )


def _load(broker: BrokerProcess, first: int) -> None:
    """The same load in every codec, with two idempotent producers and one that is not."""

    async def work() -> None:
        cluster = Cluster(broker.bootstrap)
        try:
            admin = Admin(cluster)
            wanted: dict[str, dict[str, str]] = {f"dump-{codec.name.lower()}": {} for codec in Codec} | {
                "dump-append-time": {"message.timestamp.type": "LogAppendTime"},
                "dump-compact": {"cleanup.policy": "compact"},
            }
            if not first:
                await admin.create_topics(
                    [NewTopic(name, 2, 1, _SMALL_SEGMENTS | more) for name, more in wanted.items()]
                )
            for codec in Codec:
                for turn, idempotent in enumerate((True, False, True)):
                    await _write(
                        cluster, f"dump-{codec.name.lower()}", codec, idempotent, first + turn * _RECORDS, _RECORDS
                    )
            await _write(cluster, "dump-append-time", Codec.LZ4, True, first, _RECORDS)
            await _write(cluster, "dump-compact", Codec.NONE, True, first, _RECORDS)
            await admin.delete_records({TopicPartition("dump-gzip", 0): 700})
        finally:
            await cluster.close()

    asyncio.run(work())


def _ends(broker: BrokerProcess) -> dict[str, int]:
    """Log end offsets by the name of the partition's directory."""

    async def work() -> dict[str, int]:
        cluster = Cluster(broker.bootstrap)
        try:
            keys = [
                TopicPartition(name, index)
                for name, topic in (await cluster.topics()).items()
                if name.startswith("dump-")
                for index in range(len(topic.partitions))
            ]
            return {
                str(key): found.offset
                for key, found in (await list_offsets(cluster, dict.fromkeys(keys, LATEST))).items()
            }
        finally:
            await cluster.close()

    return asyncio.run(work())


@pytest.fixture(scope="module", params=["", "1"], ids=["compiled", "pure"])
def broker(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """With the compiled record codec, where it was built, and with its twin: both write to the disk."""
    data = tmp_path_factory.mktemp("dump-log") / "data"
    settings = {"group.initial.rebalance.delay.ms": "0", "log.cleaner.backoff.ms": "0"}
    with BrokerProcess(data, settings=settings, environment={"JESENSKA_PURE": request.param}) as running:
        _load(running, 0)
        _until_compacted(data)
        yield running


def _until_compacted(data: Path) -> None:
    """Until the cleaner's checkpoint has all but the active segment of each partition that is compacted."""
    deadline = time.monotonic() + 60
    while True:
        active = {path.name: max(int(log.stem) for log in path.glob("*.log")) for path in data.glob("dump-compact-*")}
        checkpoint = data / "cleaner-offset-checkpoint"
        lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        if {
            f"{topic}-{partition}": int(offset)
            for topic, partition, offset in map(str.split, lines)
            if topic == "dump-compact"
        } == active:
            return
        assert time.monotonic() < deadline, (lines, active)
        time.sleep(0.05)


def _files(data: Path) -> list[Path]:
    return sorted(path for directory in data.glob("dump-*") for path in directory.iterdir() if path.suffix in _DUMPED)


def _check(tools: Tools, data: Path) -> str:
    """Every file through kafka-dump-log, deeply and with its indexes verified; what it said."""
    files = _files(data)
    kinds = {kind: [path for path in files if path.suffix == kind] for kind in _DUMPED}
    assert all(kinds[kind] for kind in _WRITTEN), kinds
    assert len(kinds[".log"]) > 30, "rolls"
    indexes = kinds[".index"] + kinds[".timeindex"]
    written = {path for path in indexes if path.stat().st_size}
    said = []
    for arguments in (["--deep-iteration"], ["--index-sanity-check"], ["--verify-index-only"]):
        of = files if arguments == ["--deep-iteration"] else indexes
        outcome = tools.run("kafka-dump-log", *arguments, "--files", ",".join(map(str, of)))
        assert outcome.code == 0, outcome.errors[-2000:]
        lines = (outcome.output + outcome.errors).splitlines()
        faults = [lines[index : index + 3] for index, line in enumerate(lines) if _FINDS_FAULT.search(line)]
        assert faults == [], arguments
        said.append(outcome.output)
    lines = said[1].splitlines()
    for path in indexes:
        # A segment shorter than the interval between entries ends without one, as Kafka's own do; an active one may
        # have them in the broker's memory yet.
        assert f"{path} passed sanity check." in lines or (f"{path} is empty." in lines and path not in written)
    return said[0]


def test_a_running_brokers_files_are_sound(tools_3: Tools, broker: BrokerProcess) -> None:
    """As an operator looks at them, with no stop before: what is in the index files of active segments is true,
    too."""
    said = _check(tools_3, broker.data)
    for codec in Codec:
        part = "".join(
            re.findall(rf"Dumping \S*/dump-{codec.name.lower()}-\d/\S*\.log\n(.*?)(?=Dumping |\Z)", said, re.DOTALL)
        )
        assert set(re.findall(r"compresscodec: (\w+)", part)) == {codec.name.lower()}


def test_every_record_is_there_once(tools_3: Tools, broker: BrokerProcess) -> None:
    ends = _ends(broker)
    assert len(ends) == 2 * (len(Codec) + 2)
    for name, end in ends.items():
        logs = ",".join(str(path) for path in sorted((broker.data / name).glob("*.log")))
        outcome = tools_3.run("kafka-dump-log", "--print-data-log", "--files", logs)
        assert outcome.code == 0
        offsets = [int(number) for number in re.findall(r"^\| offset: (\d+) ", outcome.output, re.MULTILINE)]
        if name.startswith("dump-compact"):
            # Each of its 25 keys stands once in what is compacted, and the rest is whole.
            active = max(int(path.stem) for path in (broker.data / name).glob("*.log"))
            assert sum(offset < active for offset in offsets) <= 25 < len(offsets)
            assert offsets == sorted(set(offsets))
            assert set(range(active, end)) <= set(offsets)
            continue
        assert offsets == list(range(offsets[0], end)), name
        assert offsets[0] <= (700 if name == "dump-gzip-0" else 0)


def test_a_producers_snapshot_says_what_the_log_says(tools_3: Tools, broker: BrokerProcess) -> None:
    """The newest snapshot of a partition names the producers of the batches below it, each with its last sequence."""
    snapshots = sorted((broker.data / "dump-none-0").glob("*.snapshot"))
    newest = snapshots[-1]
    logs = ",".join(str(path) for path in sorted((broker.data / "dump-none-0").glob("*.log")))
    end = int(newest.stem)
    last: dict[int, int] = {}
    for line in tools_3.run("kafka-dump-log", "--files", logs).lines:
        found = re.search(r"lastOffset: (\d+) .*lastSequence: (-?\d+) producerId: (-?\d+) ", line)
        if found and int(found[1]) < end and int(found[3]) >= 0:
            last[int(found[3])] = int(found[2])
    said = tools_3.run("kafka-dump-log", "--files", newest).output
    remembered = {
        int(producer): int(sequence)
        for producer, sequence in re.findall(r"producerId: (\d+) .*?lastSequence: (-?\d+)", said)
    }
    assert remembered == last
    assert len(last) == 2


def test_after_crashes_and_orderly_stops_everything_is_sound(tools_3: Tools, broker: BrokerProcess) -> None:
    for first in (10_000, 20_000):
        broker.kill()
        broker.start()
        _until_compacted(broker.data)
        _check(tools_3, broker.data)
        _load(broker, first)
        assert broker.stop() == 0
        _check(tools_3, broker.data)
        broker.start()


def _group_records() -> list[tuple[bytes, bytes | None]]:
    """Committed offsets in two versions, a tombstone, groups with and without members, consumers and others."""
    member = GroupMetadataValueMember(
        member_id="c-1",
        group_instance_id="i",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=1000,
        session_timeout=900,
        subscription=encode_subscription(["t"], [TopicPartition("t", 0)], 3, b"more"),
        assignment=encode_assignment([TopicPartition("t", 0), TopicPartition("t", 1)]),
    )
    return [
        offset_record(
            "g", "t", 0, OffsetCommitValue(offset=5, leader_epoch=2, metadata='m "quoted"', commit_timestamp=1000)
        ),
        offset_record(
            "g", "t", 1, OffsetCommitValue(offset=6, metadata="", commit_timestamp=1001, expire_timestamp=2000)
        ),
        offset_record("g", "t", 0, None),
        group_record(
            "g",
            GroupMetadataValue(
                protocol_type="consumer", generation=3, protocol="range", leader="c-1", members=[member]
            ),
        ),
        group_record(
            "h",
            GroupMetadataValue(
                protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=7, members=[]
            ),
        ),
        group_record(
            "i", GroupMetadataValue(protocol_type="connect", generation=1, protocol="x", leader="l", members=[member])
        ),
        group_record("g", None),
        (b"\0\x63\0\1g", b"unknown"),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--offsets-decoder"],
        ["--offsets-decoder", "--skip-record-metadata"],
        ["--print-data-log", "--skip-record-metadata"],
        ["--deep-iteration", "--skip-record-metadata"],
        ["--value-decoder-class"],
        [
            "--key-decoder-class",
            "org.apache.kafka.tools.api.IntegerDecoder",
            "--value-decoder-class",
            "org.apache.kafka.tools.api.LongDecoder",
        ],
        ["--key-decoder-class", "org.apache.kafka.tools.api.StringDecoder"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_a_decoder_writes_what_kafkas_writes(
    tools_4: Tools, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    file = tmp_path / f"{0:020d}.log"
    of_groups = [(1000, key, value, ()) for key, value in _group_records()]
    of_numbers = [
        (1, (7).to_bytes(4, "big"), (-9).to_bytes(8, "big", signed=True), (("h", b"1"),)),
        (2, None, b"a long value", ()),
        (3, b"keys", None, ()),
        (4, None, None, ()),
    ]
    file.write_bytes(encode_batch(of_groups if "--offsets-decoder" in arguments else of_numbers))
    theirs = tools_4.run("kafka-dump-log", "--files", file, *arguments)
    assert theirs.code == dump(["--files", str(file), *arguments]) == 0
    assert capsys.readouterr().out == theirs.output
