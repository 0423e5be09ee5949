"""kafka-replica-verification: its comparisons, with batches made by hand, and the tool itself against a broker of
ours."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode, JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.cluster import kafka_replica_verification
from jesenska.cli.kafka.cluster.replica_comparison import ChecksumsDiffer, MaxLag, OffsetsDiffer, ReplicaComparison
from jesenska.cli.kafka.topics import kafka_topics
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import Cluster
from jesenska.client.replica_fetch import FetchedReplica
from jesenska.records.batch import read_header
from jesenska.records.encode import encode_batch
from jesenska.records.header import CRC_OFFSET
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Tool, tool_process
from tests.processes.cli.groups import ask, fill

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(base_offset: int, *values: bytes) -> bytearray:
    return encode_batch([(1, None, value, ()) for value in values], base_offset=base_offset)


def replica(high_watermark: int, *batches: bytes | bytearray) -> FetchedReplica:
    return FetchedReplica(None, high_watermark, memoryview(b"".join(batches)))


def failed(code: ErrorCode) -> FetchedReplica:
    return FetchedReplica(KafkaError.of(code, code.name), -1, memoryview(b""))


def comparison(*keys: TopicPartition) -> ReplicaComparison:
    return ReplicaComparison(dict.fromkeys(keys, (2, 1)), dict.fromkeys(keys, 0))


def compare(
    compared: ReplicaComparison, on_1: FetchedReplica | None, on_2: FetchedReplica | None
) -> Sequence[ChecksumsDiffer | OffsetsDiffer]:
    def answer(found: FetchedReplica | None) -> Mapping[TopicPartition, FetchedReplica]:
        return {} if found is None else {KEY: found}

    return list(compared.compare({1: answer(on_1), 2: answer(on_2)}))


def checksum(data: bytes | bytearray) -> int:
    return read_header(data, 0).crc


def test_replicas_that_are_the_same_are_passed_up_to_the_high_watermark() -> None:
    compared = comparison(KEY)
    batches = [batch(0, b"a", b"b"), batch(2, b"c"), batch(3, b"d")]
    assert compare(compared, replica(3, *batches), replica(3, *batches)) == []
    assert compared.offsets == {KEY: 3}
    assert compared.max_lag == MaxLag(0, KEY, 3)


def test_what_a_follower_does_not_have_yet_is_lag() -> None:
    compared = comparison(KEY)
    first, second = batch(0, b"a"), batch(1, b"b", b"c")
    assert compare(compared, replica(3, first, second), replica(1, first)) == []
    assert (compared.offsets, compared.max_lag) == ({KEY: 1}, MaxLag(2, KEY, 1))
    # The same batch is there, and not known to be committed.
    assert compare(compared, replica(3, second), replica(1, second)) == []
    assert compared.offsets == {KEY: 1}
    assert compare(compared, replica(3, second), replica(3, second)) == []
    assert (compared.offsets, compared.max_lag) == ({KEY: 3}, MaxLag(0, KEY, 3))


def test_a_batch_that_is_cut_is_left_for_the_next_time() -> None:
    compared = comparison(KEY)
    first, second = batch(0, b"a"), batch(1, b"b")
    assert compare(compared, replica(2, first, second), replica(2, first, second[:-1])) == []
    assert compared.offsets == {KEY: 1}


def test_another_content_is_told_and_passed() -> None:
    compared = comparison(KEY)
    ours, theirs, following = batch(0, b"a"), batch(0, b"A"), batch(1, b"b")
    found = compare(compared, replica(2, ours, following), replica(2, theirs, following))
    assert found == [ChecksumsDiffer(KEY, 0, 1, checksum(ours), 2, checksum(theirs))]
    assert compared.offsets == {KEY: 2}


def test_a_byte_that_was_changed_on_a_disk_is_found_though_the_header_says_nothing() -> None:
    good = batch(0, b"value")
    damaged = bytearray(good)
    damaged[-3] ^= 1
    (found,) = compare(comparison(KEY), replica(1, good), replica(1, damaged))
    assert isinstance(found, ChecksumsDiffer)
    assert found.first_checksum == checksum(good) != found.other_checksum


def test_a_checksum_that_was_changed_on_a_disk_is_told_as_it_stands_there() -> None:
    good = batch(0, b"value")
    damaged = bytearray(good)
    damaged[CRC_OFFSET : CRC_OFFSET + 4] = b"\0\0\0\1"
    assert compare(comparison(KEY), replica(1, good), replica(1, damaged)) == [
        ChecksumsDiffer(KEY, 0, 1, checksum(good), 2, 1)
    ]


def test_the_leader_epoch_is_not_compared() -> None:
    one, other = (encode_batch([(1, None, b"a", ())], leader_epoch=epoch) for epoch in (3, 4))
    assert one != other
    assert compare(comparison(KEY), replica(1, one), replica(1, other)) == []


def test_batches_that_end_elsewhere_end_the_comparison() -> None:
    compared = comparison(KEY)
    found = compare(
        compared, replica(9, batch(0, b"a"), batch(1, b"b")), replica(9, batch(0, b"a"), batch(1, b"b", b"c"))
    )
    assert found == [OffsetsDiffer(KEY, 1, 1, 2, 2)]
    assert compared.offsets == {KEY: 1}


@pytest.mark.parametrize("missing", [None, failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_a_replica_that_cannot_be_read_keeps_its_partition_where_it_is(missing: FetchedReplica | None) -> None:
    compared = comparison(KEY)
    assert compare(compared, replica(1, batch(0, b"a")), missing) == []
    assert (compared.offsets, compared.max_lag) == ({KEY: 0}, MaxLag(1, KEY, 0))
    assert compare(compared, missing, missing) == []
    assert compared.max_lag == MaxLag(-1, None, -1)


def test_only_what_no_replica_has_is_out_of_range() -> None:
    compared, gone = comparison(KEY), failed(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert compared.out_of_range({1: {KEY: gone}, 2: {KEY: gone}}) == [KEY]
    assert compared.out_of_range({1: {KEY: replica(1)}, 2: {KEY: gone}}) == []
    assert compared.out_of_range({1: {KEY: gone}, 2: {}}) == []


def test_what_is_no_batch_is_one_sentence() -> None:
    with pytest.raises(JesenskaError, match="Replica 2 of t-0 cannot be read at offset 0: "):
        compare(comparison(KEY), replica(1, batch(0, b"a")), replica(1, bytes(30)))


def test_the_partition_that_has_stood_longest_is_asked_for_first() -> None:
    """Only the first partition of a fetch gets a batch larger than the fetch size. It must be the same one on every
    broker."""
    compared = comparison(KEY, OTHER)
    assert list(compared.offsets_on(1)) == list(compared.offsets_on(2)) == [KEY, OTHER]
    compare(compared, replica(1, batch(0, b"a")), replica(1, batch(0, b"a")))
    assert compared.offsets_on(1) == compared.offsets_on(2) == {OTHER: 0, KEY: 1}
    assert list(compared.offsets_on(1)) == list(compared.offsets_on(2)) == [OTHER, KEY]


def test_the_largest_lag_is_told() -> None:
    compared = comparison(KEY, OTHER)
    held = {KEY: replica(1), OTHER: replica(4)}
    assert list(compared.compare({1: held, 2: held})) == []
    assert compared.max_lag == MaxLag(4, OTHER, 0)


# --- the tool --------------------------------------------------------------------------------------------------------

_QUICK = ("--max-wait-ms", "10", "--report-interval-ms", "0")
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"


def test_it_reports_as_often_as_it_is_told(at: Tool, broker: BrokerProcess) -> None:
    fill(broker, "verified", 1, 10)
    result = at(
        kafka_replica_verification.main, "--topics-include", "verified", "--time", "-2", "--reports", "2", *_QUICK
    )
    assert (result.code, result.err) == (0, "")
    started, *reports = result.lines
    assert re.fullmatch(rf"{_TIME}: verification process is started", started)
    assert len(reports) == 2
    for report in reports:
        assert re.fullmatch(rf"{_TIME}: max lag is 0 for partition verified-0 at offset 10 among 1 partitions", report)


@pytest.mark.parametrize(("time", "offset"), [("-1", 5), ("-2", 5), ("1500", 5), ("9000000000000", 5)])
def test_it_begins_where_it_is_told(at: Tool, broker: BrokerProcess, time: str, offset: int) -> None:
    topic = f"verified-from{time}"
    fill(broker, topic, 2, 10, timestamp_ms=1000)
    arguments = [
        "--topic-white-list",
        f"{topic}|never-was",
        "--time",
        time,
        "--reports",
        "1",
        "--output",
        "json",
        *_QUICK,
    ]
    started, report = (json.loads(line) for line in at(kafka_replica_verification.main, *arguments).lines)
    assert started.pop("timestamp") <= report.pop("timestamp")
    assert started == {"name": "started"}
    assert report == {"name": "max_lag", "maxLag": 0, "topic": topic, "partition": 0, "offset": offset, "partitions": 2}


def test_many_small_fetches_come_to_the_end(at: Tool, broker: BrokerProcess) -> None:
    """Batches are larger than the fetch size, so only one partition gets a batch in each round."""
    for number in range(4):
        fill(broker, "verified-slowly", 2, 10, start=10 * number)
    arguments = [
        "--topics-include",
        "verified-slowly",
        "--time",
        "-2",
        "--fetch-size",
        "1",
        "--reports",
        "12",
        "--output",
        "json",
        *_QUICK,
    ]
    lags = [json.loads(line)["maxLag"] for line in at(kafka_replica_verification.main, *arguments).lines[1:]]
    assert lags == sorted(lags, reverse=True)
    assert lags[-1] == 0


def test_a_topic_that_is_made_anew_is_read_from_its_end(tool: Tool, broker: BrokerProcess) -> None:
    """The log is shorter than the offset that the tool reads."""
    fill(broker, "anew", 1, 10)
    arguments = (
        "--topics-include",
        "anew",
        "--time",
        "-1",
        "--max-wait-ms",
        "100",
        "--report-interval-ms",
        "0",
        "--output",
        "json",
    )
    with tool_process(broker, "kafka_replica_verification", *arguments) as process:
        assert process.stdout is not None
        assert b'"offset":10' in b"".join(process.stdout.readline() for _ in range(2))
        for action in ("--delete", "--create"):
            assert tool(kafka_topics.main, "--bootstrap-server", broker.bootstrap, action, "--topic", "anew").code == 0
        while b'"offset":0' not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert process.returncode == 130
    assert b"no replica of anew-0 has offset 10 any more: it goes on at 0." in said


@pytest.mark.parametrize(("offset", "following"), [(3, 5), (30, 10)])
def test_offsets_that_are_not_there_any_more_are_passed_over(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str], offset: int, following: int
) -> None:
    """Deleted offsets up to 5, and a log that ends at 10."""
    key = TopicPartition(f"trimmed-{offset}", 0)
    fill(broker, key.topic, 1, 10)

    async def work(cluster: Cluster) -> int:
        assert await Admin(cluster).delete_records({key: 5}) == {key: 5}
        return await verification(cluster, ReplicaComparison({key: (1,)}, {key: offset}), "--reports", "2").run()

    assert ask(broker, work) == 0
    said = capsys.readouterr()
    assert (
        said.err
        == f"kafka-replica-verification: no replica of {key} has offset {offset} any more: it goes on at {following}.\n"
    )
    assert said.out.splitlines()[-1].endswith(f"max lag is 0 for partition {key} at offset 10 among 1 partitions")


def verification(
    cluster: Cluster, compared: ReplicaComparison, *arguments: str
) -> kafka_replica_verification._Verification:
    options = kafka_replica_verification._parser().parse_args([*_QUICK, *arguments])
    return kafka_replica_verification._Verification(cluster, options, compared)


def two_replicas(monkeypatch: pytest.MonkeyPatch, on_1: FetchedReplica, on_2: FetchedReplica, *arguments: str) -> int:
    """Runs the tool with these answers of two brokers to every fetch."""

    async def fetch(
        _: Cluster, broker: int, offsets: Mapping[TopicPartition, int], **__: object
    ) -> dict[TopicPartition, FetchedReplica]:
        return {KEY: on_1 if broker == 1 else on_2}

    monkeypatch.setattr(kafka_replica_verification, "fetch_replicas", fetch)
    return asyncio.run(verification(Cluster("127.0.0.1:1"), comparison(KEY), "--reports", "1", *arguments).run())


def test_a_difference_is_told_and_ends_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = batch(0, b"a"), batch(0, b"A")
    assert two_replicas(monkeypatch, replica(1, ours), replica(1, theirs)) == 1
    told = (
        f"t-0 has unmatched checksum at offset 0; replica 1's checksum {checksum(ours)}; replica 2's checksum "
        f"{checksum(theirs)}"
    )
    assert re.fullmatch(rf"{_TIME}: partition {re.escape(told)}", capsys.readouterr().out.splitlines()[1])
    two_replicas(monkeypatch, replica(1, ours), replica(1, theirs), "--output", "json")
    document = json.loads(capsys.readouterr().out.splitlines()[1])
    del document["timestamp"]
    named = {"name": "checksums_differ", "topic": "t", "partition": 0, "offset": 0}
    assert document == named | {"checksums": {"1": checksum(ours), "2": checksum(theirs)}}


def test_batches_that_end_elsewhere_end_the_tool(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        JesenskaError, match="The replicas of t-0 on brokers 1 and 2 have other batches behind offset 0: "
    ):
        two_replicas(monkeypatch, replica(9, batch(0, b"a")), replica(9, batch(0, b"a", b"b")))
    assert re.fullmatch(
        rf"{_TIME}: partition t-0: replica 1's offset 0 doesn't match replica 2's offset 1",
        capsys.readouterr().out.splitlines()[1],
    )


def test_an_error_is_told_once_between_two_reports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert two_replicas(monkeypatch, replica(1, batch(0, b"a")), refused, "--report-interval-ms", "1500") == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1].endswith("max lag is 1 for partition t-0 at offset 0 among 1 partitions")
    assert (
        said.err == "kafka-replica-verification: broker 2: it answers NOT_LEADER_OR_FOLLOWER to a fetch of 1 partition "
        "(compared when it has them).\n"
    )


def test_a_broker_that_goes_away_is_waited_for(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        fill(broker, "t", 1, 10)
        arguments = (
            "--topics-include",
            "t",
            "--time",
            "-2",
            "--max-wait-ms",
            "100",
            "--report-interval-ms",
            "0",
            "--output",
            "json",
        )
        with tool_process(broker, "kafka_replica_verification", *arguments) as process:
            assert process.stdout is not None

            def lags() -> int:
                assert process.stdout is not None
                while True:
                    line = json.loads(process.stdout.readline())
                    if line["name"] == "max_lag":
                        return int(line["maxLag"])

            assert lags() == 0
            broker.kill()
            while lags() != -1:
                pass
            broker.start()
            while lags() != 0:
                pass
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
            assert process.returncode == 130
        assert b"kafka-replica-verification: broker 1: " in said
        assert b"Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--topics-include", "["], "is not a regular expression"),
        (["--topics-include", "never-was"], "No topics found: no name matches 'never-was'"),
        (["--fetch-size", "0"], "--fetch-size must be 1 or more"),
        (["--max-wait-ms", "-1"], "--max-wait-ms must be 0 or more"),
        (["--reports", "0"], "--reports must be 1 or more"),
        (["--time", "-3"], "--time must be"),
        (["--report-interval-ms", "soon"], "invalid int value: 'soon'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(at: Tool, arguments: list[str], says: str) -> None:
    result = at(kafka_replica_verification.main, *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert says in result.err
