"""kafka-producer-perf-test and kafka-consumer-perf-test: they count the records that they send and read correctly, and
their lines are Kafka's."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.cli.kafka.groups import kafka_transactions
from jesenska.cli.kafka.records import kafka_console_consumer, kafka_consumer_perf_test, kafka_producer_perf_test
from jesenska.cli.kafka.records.kafka_producer_perf_test import Values
from jesenska.cli.kafka.records.perf_figures import Consumed, Latencies, date_text
from jesenska.cli.kafka.topics import kafka_get_offsets
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Result, Tool
from tests.processes.cli.groups import committed, fill

_NUMBER = r"\d+\.\d+"
_WINDOW = re.compile(
    rf"(\d+) records sent, {_NUMBER} records/sec \({_NUMBER} MB/sec\), {_NUMBER} ms avg latency, {_NUMBER} ms max "
    rf"latency\."
)
_TOTAL = re.compile(
    rf"(\d+)( steady state)? records sent, {_NUMBER} records/sec \({_NUMBER} MB/sec\), {_NUMBER} ms avg latency, "
    rf"{_NUMBER} ms max latency, "
    r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)
Run = Callable[..., Result]


@pytest.fixture
def produce(tool: Tool, fast_broker: BrokerProcess) -> Run:
    def run(topic: str, count: int, *arguments: str, rate: str = "-1") -> Result:
        return tool(
            kafka_producer_perf_test.main,
            "--bootstrap-server",
            fast_broker.bootstrap,
            "--topic",
            topic,
            "--num-records",
            str(count),
            "--throughput",
            rate,
            *arguments,
        )

    return run


@pytest.fixture
def consume(tool: Tool, fast_broker: BrokerProcess) -> Run:
    def run(*arguments: str) -> Result:
        return tool(kafka_consumer_perf_test.main, "--bootstrap-server", fast_broker.bootstrap, *arguments)

    return run


@pytest.fixture
def values_of(tool: Tool, fast_broker: BrokerProcess) -> Callable[[str, int], list[str]]:
    """The values of a topic. There must be exactly this number."""

    def run(topic: str, count: int) -> list[str]:
        at = ("--bootstrap-server", fast_broker.bootstrap, "--topic", topic)
        offsets = tool(kafka_get_offsets.main, *at).lines
        assert sum(int(line.rpartition(":")[2]) for line in offsets) == count
        return tool(
            kafka_console_consumer.main, *at, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000"
        ).lines

    return run


# --- the producer ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [[], ["--each-record"], ["--producer-props", "acks=1", "compression.type=zstd", "batch.size=1000"]]
)
def test_every_record_is_sent_with_the_size_that_was_asked_for(
    produce: Run, values_of: Callable[[str, int], list[str]], arguments: list[str]
) -> None:
    topic = f"perf-size-{len(arguments)}"
    result = produce(topic, 3000, "--record-size", "50", *arguments)
    assert (result.code, result.err) == (0, "")
    match = _TOTAL.fullmatch(result.lines[-1])
    assert match is not None
    assert (match[1], match[2]) == ("3000", None)
    values = values_of(topic, 3000)
    assert len(values) == 3000
    assert all(re.fullmatch(r"[A-Z]{50}", value) for value in values)
    assert len(set(values)) > 2900


def test_numbers_are_sent_once_each(produce: Run, values_of: Callable[[str, int], list[str]]) -> None:
    assert produce("perf-monotonic", 2000, "--payload-monotonic").code == 0
    assert sorted(map(int, values_of("perf-monotonic", 2000))) == list(range(2000))


def test_values_are_drawn_from_a_file(produce: Run, values_of: Callable[[str, int], list[str]], tmp_path: Path) -> None:
    file = tmp_path / "values"
    file.write_text("one;two;;three")
    assert produce("perf-file", 300, "--payload-file", str(file), "--payload-delimiter", ";").code == 0
    assert set(values_of("perf-file", 300)) == {"one", "two", "", "three"}


def test_a_rate_is_kept_and_told_while_it_runs(produce: Run) -> None:
    result = produce(
        "perf-rate", 1000, "--record-size", "10", "--reporting-interval", "200", "--output", "json", rate="1000"
    )
    document = json.loads(result.out)
    assert (document["records"], document["bytes"]) == (1000, 10_000)
    # Never faster than asked for; how much slower is the machine's affair.
    assert document["recordsPerSecond"] < 1100
    text = produce("perf-rate", 400, "--record-size", "10", "--reporting-interval", "100", rate="1000")
    windows = [_WINDOW.fullmatch(line) for line in text.lines[:-1]]
    assert windows
    assert all(windows)
    assert sum(int(match[1]) for match in windows if match) <= 400


def test_records_of_the_warm_up_are_left_out_of_the_second_summary(produce: Run) -> None:
    result = produce("perf-warm", 500, "--record-size", "10", "--warmup-records", "100")
    assert (
        result.lines[0] == "Warmup first 100 records. Steady state results will print after the complete test summary."
    )
    totals = [_TOTAL.fullmatch(line) for line in result.lines[-2:]]
    assert [match and (match[1], match[2]) for match in totals] == [("500", None), ("400", " steady state")]


def test_records_that_the_broker_refuses_are_counted_and_the_exit_code_says_so(produce: Run) -> None:
    refused = produce(
        "perf-refused", 20, "--record-size", "1200000", "--producer-props", "max.request.size=2000000", "batch.size=1"
    )
    assert refused.code == 1
    assert "20 records were not acknowledged" in refused.err
    assert refused.lines[-1].startswith("0 records sent")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "one of the arguments --record-size --payload-file --payload-monotonic is required"),
        (["--record-size", "0"], "--record-size should be greater than zero"),
        (["--record-size", "10", "--payload-monotonic"], "not allowed with argument"),
        (["--record-size", "1048576"], "more than max.request.size allows"),
        (["--payload-file", "there/is/none"], "cannot be read"),
        (["--record-size", "10", "--throughput", "0"], "--throughput is records per second"),
        (["--record-size", "10", "--num-records", "0"], "--num-records should be greater than zero"),
        (["--record-size", "10", "--warmup-records", "10"], "--warmup-records must be smaller"),
        (["--record-size", "10", "--transactional-id", ""], "--transactional-id is empty"),
        (
            ["--record-size", "10", "--transaction-duration-ms", "0"],
            "--transaction-duration-ms should be greater than zero",
        ),
        (["--record-size", "10", "--transactional-id", "t", "--producer-props", "acks=1"], "idempotence"),
        (
            ["--record-size", "10", "--transactional-id", "t", "--producer-props", "transaction.timeout.ms=99999999"],
            "transaction.timeout.ms",
        ),
        (["--record-size", "10", "--producer-props", "acks"], "'acks' is not a setting"),
        (["--record-size", "10", "--producer-props", "acks=2"], "acks"),
    ],
)
def test_a_mistake_of_the_producers_is_one_sentence(produce: Run, arguments: list[str], says: str) -> None:
    result = produce("perf-mistakes", 10, *arguments)
    assert (result.code, result.out) == (1, "")
    assert says in result.err


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--transactional-id", "perf-flag", "--producer-props", "transactional.id=perf-other"], "perf-flag"),
        (["--producer-props", "transactional.id=perf-setting", "transaction.timeout.ms=30000"], "perf-setting"),
        (["--transaction-duration-ms", "60000"], "performance-producer-"),
        (["--transactional-id", "perf-each", "--each-record"], "perf-each"),
        (
            [
                "--transactional-id",
                "perf-often",
                "--transaction-duration-ms",
                "1",
                "--producer-props",
                "batch.size=1000",
            ],
            "perf-often",
        ),
    ],
)
def test_transactional_records_are_committed_under_the_id(
    produce: Run, tool: Tool, fast_broker: BrokerProcess, arguments: list[str], name: str
) -> None:
    topic, at = f"perf-{name}", ("--bootstrap-server", fast_broker.bootstrap)
    # Enough records for many transactions of a millisecond, even where one transaction takes long.
    count = 20_000 if name == "perf-often" else 2000
    result = produce(topic, count, "--record-size", "50", *arguments)
    assert (result.code, result.err) == (0, "")
    read = tool(
        kafka_console_consumer.main, *at, "--topic", topic, "--from-beginning", "--isolation-level", "read_committed",
        "--max-messages", str(count), "--timeout-ms", "20000",
    )  # fmt: skip
    assert len(read.lines) == count
    listed = [line.split() for line in tool(kafka_transactions.main, *at, "list").lines[1:]]
    (found,) = [line for line in listed if line[0].startswith(name)]
    assert found[3] == "CompleteCommit"
    described = tool(kafka_transactions.main, *at, "describe", "--transactional-id", found[0]).lines[1].split()
    # Each transaction raises the epoch.
    epoch, timeout_ms = int(described[3]), described[5]
    assert (epoch > 3) == (name == "perf-often")
    assert timeout_ms == ("30000" if name == "perf-setting" else "60000")


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=60), st.integers(-10, 2000))
def test_values_are_cut_into_batches_without_loss(drawn: list[bytes], room: int) -> None:
    values = Values(lambda number: drawn[number], 200)
    seen: list[bytes] = []
    while len(seen) < len(drawn):
        records, size = values.batch(len(seen), len(drawn) - len(seen), room, 7)
        batch = [bytes(record[2] or b"") for record in records]
        assert batch
        assert size == sum(map(len, batch))
        assert len(batch) == 1 or sum(len(value) + 26 for value in batch) <= room
        seen += batch
    assert seen == drawn


# --- the consumer ----------------------------------------------------------------------------------------------------


def test_everything_is_read_and_its_bytes_are_counted(fast_broker: BrokerProcess, produce: Run, consume: Run) -> None:
    produce("perf-read", 5000, "--record-size", "100")
    result = consume("--topic", "perf-read", "--num-records", "5000", "--group", "perf-readers")
    headings, line = (text.split(", ") for text in result.lines)
    assert headings == [
        "start.time",
        "end.time",
        "data.consumed.in.MB",
        "MB.sec",
        "data.consumed.in.nMsg",
        "nMsg.sec",
        "rebalance.time.ms",
        "fetch.time.ms",
        "fetch.MB.sec",
        "fetch.nMsg.sec",
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}", time) for time in line[:2])
    assert (line[2], line[4]) == (f"{500_000 / 2**20:.4f}", "5000")
    assert (result.code, result.err) == (0, "")
    assert sum(committed(fast_broker, "perf-readers").values()) == 5000


def test_fewer_records_than_asked_for_end_with_a_warning(fast_broker: BrokerProcess, consume: Run) -> None:
    fill(fast_broker, "perf-few-a", 2, 6)
    fill(fast_broker, "perf-few-b", 2, 6)
    result = consume("--include", "perf-few-.", "--messages", "1000", "--timeout", "2000", "--output", "json")
    document = json.loads(result.out)
    assert (result.code, document["records"], document["bytes"], document["complete"]) == (0, 12, 12, False)
    assert result.err.startswith(
        "WARNING: Exiting before consuming the expected number of records: timeout (2000 ms) exceeded."
    )


def test_details_are_a_line_for_each_interval(fast_broker: BrokerProcess, consume: Run) -> None:
    fill(fast_broker, "perf-details", 1, 10)
    flags = (
        "--show-detailed-stats",
        "--reporting-interval",
        "100",
        "--timeout",
        "2000",
        "--date-format",
        "HH:mm 'Uhr'",
    )
    result = consume("--topic", "perf-details", "--num-records", "1000", *flags)
    assert result.lines[0].startswith("time, threadId, data.consumed.in.MB, ")
    lines = [line.split(", ") for line in result.lines[1:]]
    assert lines
    assert all(re.fullmatch(r"\d\d:\d\d Uhr", line[0]) and line[1] == "0" and len(line) == 10 for line in lines)
    assert lines[-1][4] == "10"
    bare = consume("--topic", "perf-details", "--num-records", "10", "--hide-header")
    assert len(bare.lines) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--num-records", "3"], "[topic], [include]"),
        (["--topic", "perf-read"], "[messages], [num-records]"),
        (["--topic", "perf-read", "--num-records", "0"], "should be greater than zero"),
        (["--topic", "perf-none", "--num-records", "3"], "perf-none does not exist"),
        (["--include", "perf-none.*", "--num-records", "3"], "No topic matches"),
        (["--topic", "perf-read", "--num-records", "3", "--date-format", "QQ"], "'QQ' is not known"),
        (
            ["--topic", "perf-read", "--num-records", "3", "--group", "a", "--command-property", "group.id=b"],
            "do not match",
        ),
        (["--topic", "perf-read", "--num-records", "3", "--print-metrics"], "Metrics are not published yet"),
    ],
)
def test_a_mistake_of_the_consumers_is_one_sentence(consume: Run, arguments: list[str], says: str) -> None:
    result = consume(*arguments)
    assert (result.code, result.out) == (1, "")
    assert says in result.err


# --- figures ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.floats(0, 5000), st.integers(1, 50)), min_size=1, max_size=50),
    st.sampled_from([0.5, 0.95, 0.99, 0.999]),
)
def test_a_percentile_is_the_one_of_all_records_in_order(samples: list[tuple[float, int]], share: float) -> None:
    latencies = Latencies(0.0)
    every: list[int] = []
    for latency, count in samples:
        latencies.add(latency, count, count * 3)
        every += [int(latency)] * count
    assert latencies.percentile(share) == sorted(every)[max(0, math.ceil(share * len(every)) - 1)]
    assert (latencies.count, latencies.bytes_sent, latencies.max_ms) == (
        len(every),
        3 * len(every),
        max(latency for latency, _ in samples),
    )


def test_lines_of_figures_are_kafkas() -> None:
    latencies = Latencies(10.0)
    latencies.add(1.5, 3, 3 * 2**20)
    latencies.add(7.25, 1, 2**20)
    assert (
        latencies.window_line(12.0)
        == "4 records sent, 2.0 records/sec (2.00 MB/sec), 2.9 ms avg latency, 7.2 ms max latency."
    )
    assert latencies.total_line(12.0) == (
        "4 records sent, 2.000000 records/sec (2.00 MB/sec), 2.94 ms avg latency, 7.25 ms max latency, 1 ms 50th, 7 "
        "ms 95th, 7 ms 99th, 7 ms 99.9th."
    )
    consumed = Consumed(0.0)
    consumed.add(10, 5 * 2**20)
    consumed.rebalance_seconds = 3.0
    assert consumed.cells(5.0) == ["5.0000", "1.0000", "10", "2.0000", "3000", "2000", "2.5000", "5.0000"]


def test_times_are_written_in_javas_patterns() -> None:
    assert re.fullmatch(
        r"\d{4}/\d\d/\d\d T\d\d o'clock 007", date_text(1_600_000_000_007, "yyyy/MM/dd 'T'HH 'o''clock' SSS")
    )
    for pattern in ("yyyy-MM-dd EEE", "yyyy 'open"):
        with pytest.raises(ValueError, match="the date format"):
            date_text(0, pattern)
