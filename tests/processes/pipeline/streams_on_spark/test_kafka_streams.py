"""Topologies that run on Spark, from topics into topics, compared with the test driver."""

from __future__ import annotations

import re
import shutil
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jesenska.base.clock import SystemClock
from jesenska.base.errors import JesenskaError
from jesenska.pipeline import exactly_once
from jesenska.pipeline.connector.options import source_options
from jesenska.pipeline.streams import (
    Processor,
    PunctuationType,
    Record,
    Serdes,
    SettingError,
    Stores,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyTestDriver,
    dead_letter_topic,
    value,
)
from jesenska.pipeline.streams_on_spark.kafka_streams import KafkaStreams, State
from jesenska.pipeline.streams_on_spark.queries.spark_task import read_ranges
from tests.processes.pipeline.conftest import Topics
from tests.processes.pipeline.streams_on_spark.word_count import LINES, STRINGS, word_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

Given = tuple[str, bytes | None, bytes | None, int]
"""topic, key, value, timestamp"""


class Application:
    """An application of one topology on the tests' session, with a directory of its own."""

    def __init__(self, spark: SparkSession, topics: Topics, directory: Path, name: str, **settings: Any) -> None:
        self.spark = spark
        self.topics = topics
        self.config = {
            "application.id": name,
            "bootstrap.servers": topics.bootstrap,
            "state.dir": str(directory),
            "commit.interval.ms": 0,
            **{setting.replace("_", "."): value for setting, value in settings.items()},
        }

    def streams(self, topology: Topology, **options: Any) -> KafkaStreams:
        return KafkaStreams(topology, self.config, spark=self.spark, **options)

    def run(self, topology: Topology, **options: Any) -> None:
        """Processes the available input."""
        with self.streams(topology, **options) as streams:
            streams.process_available()


def send(topics: Topics, given: Sequence[Given], partitions: Mapping[str, int]) -> None:
    """Puts the records into their topics, each into the partition of its key."""
    from jesenska.client.partitioner import partition_of_key

    for topic, count in partitions.items():
        for number in range(count):
            mine = [
                (value, key, None, at)
                for name, key, value, at in given
                if name == topic and partition_of_key(key or b"", count) == number
            ]
            if mine:
                topics.send(topic, mine, number)


def written(
    topics: Topics, topic: str, partitions: int = 1, **options: str
) -> dict[bytes | None, list[tuple[bytes | None, int]]]:
    """The values of a topic with their times, by key."""
    source = source_options(
        {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, **options}, streaming=False
    )
    ends = topics.offsets(topic, partitions)
    found: dict[bytes | None, list[tuple[bytes | None, int]]] = {}
    for record in read_ranges(source, {(topic, number): ends[number] for number in ends}):
        found.setdefault(record.key, []).append((record.value, record.timestamp))
    return found


def expected(
    topology: Topology, given: Sequence[Given], topic: str
) -> dict[bytes | None, list[tuple[bytes | None, int]]]:
    """The results of the test driver for the same input."""
    found: dict[bytes | None, list[tuple[bytes | None, int]]] = {}
    with TopologyTestDriver(topology) as driver:
        for name, key, value, at in given:
            driver.pipe_raw(name, key, value, at)
        for record in driver.read_raw(topic):
            found.setdefault(record.key, []).append((record.value, record.timestamp))
    return found


def lines(topic: str, count: int = 3, first: int = 0) -> list[Given]:
    return [
        (topic, b"%d" % number, LINES[number % 3].encode(), 1000 + number) for number in range(first, first + count)
    ]


def last_values(found: Mapping[bytes | None, Sequence[tuple[bytes | None, int]]]) -> dict[bytes | None, bytes | None]:
    return {key: values[-1][0] for key, values in found.items()}


def test_word_count_goes_on_where_it_was_stopped(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, sink = topics.create(2), topics.create(2)
    topology = word_count(source, sink)
    application = Application(spark, topics, tmp_path, f"words-{source}")
    send(topics, lines(source, 6), {source: 2})
    application.run(topology, max_offsets_per_trigger=4)
    send(topics, lines(source, 6, 6), {source: 2})
    application.run(topology)
    found, wanted = written(topics, sink, 2), expected(topology, lines(source, 12), sink)
    assert last_values(found) == last_values(wanted)
    assert {key: [value for value, _ in values] for key, values in found.items()} == {
        key: [value for value, _ in values] for key, values in wanted.items()
    }


def orders(source: str, prices: str, rates: str, sink: str) -> Topology:
    """A topology with stateless steps with expressions and functions, a table, a global table, a branch, and a topic
    for each record."""
    builder = StreamsBuilder()
    table = builder.table(prices, key=Serdes.string(), value=Serdes.long())
    global_table = builder.global_table(rates, key=Serdes.string(), value=Serdes.double())
    stream = builder.stream(source, key=Serdes.string(), value=Serdes.json()).filter(value["amount"] > 1)
    joined = stream.left_join(table, lambda order, price: {**order, "price": price})
    rated = joined.join(global_table, lambda order, rate: {**order, "rate": rate}, key_selector=value["currency"])
    rated.to(lambda key, order: sink, key=Serdes.string(), value=Serdes.json())
    return builder.build()


def test_streams_meet_tables(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, prices, rates, sink = topics.create(2), topics.create(2), topics.create(1), topics.create(2)
    topology = orders(source, prices, rates, sink)
    given: list[Given] = [
        (rates, b"EUR", struct.pack(">d", 1.5), 1),
        (prices, b"apple", (3).to_bytes(8, "big"), 2),
        (prices, b"pear", (4).to_bytes(8, "big"), 3),
        (source, b"apple", b'{"amount": 2, "currency": "EUR"}', 4),
        (source, b"apple", b'{"amount": 1, "currency": "EUR"}', 5),
        (prices, b"apple", None, 6),
        (source, b"apple", b'{"amount": 3, "currency": "EUR"}', 7),
        (source, b"pear", b'{"amount": 4, "currency": "USD"}', 8),
        (source, b"pear", b'{"amount": 5, "currency": "EUR"}', 9),
    ]
    send(topics, given, {source: 2, prices: 2, rates: 1})
    application = Application(spark, topics, tmp_path, f"orders-{source}")
    with application.streams(topology) as streams:
        streams.process_available()
        assert written(topics, sink, 2) == expected(topology, given, sink)
        assert streams.store(next(iter(topology.processors.global_stores))).get("EUR") == 1.5


def test_windows_are_counted_and_asked_for(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, sink = topics.create(1), topics.create(1)
    builder = StreamsBuilder()
    windows = (
        builder.stream(source, **STRINGS).group_by_key().windowed_by(TimeWindows(10, grace=5)).count(store="counts")
    )
    final = windows.suppress(Suppressed.until_window_closes())
    final.to_stream().map(lambda key, count: (str(key), str(count))).to(sink, **STRINGS)
    topology = builder.build()
    given: list[Given] = [
        (source, key, b"", at)
        for key, at in ((b"a", 1), (b"b", 2), (b"a", 11), (b"a", 3), (b"a", 17), (b"b", 4), (b"b", 40))
    ]
    application = Application(spark, topics, tmp_path, f"windows-{source}")
    for part in (given[:3], given[3:]):
        send(topics, part, {source: 1})
        application.run(topology)
    assert written(topics, sink) == expected(topology, given, sink)
    counts = application.streams(topology).store("counts")
    assert counts.fetch("b", 40) == 1
    assert counts.fetch("b", 30) is None


def test_an_application_runs_until_it_is_closed(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, sink = topics.create(1), topics.create(1)
    topology = word_count(source, sink)
    application = Application(spark, topics, tmp_path, f"runs-{source}")
    states: list[State] = []
    with application.streams(topology) as streams:
        streams.set_state_listener(lambda new, old: states.append(new))
        assert streams.state() is State.CREATED
        streams.start()
        send(topics, lines(source), {source: 1})
        wanted = last_values(expected(topology, lines(source), sink))
        wait_until(lambda: last_values(written(topics, sink)) == wanted)
        assert dict(streams.store("counts").all())["kafka"] == 3
        with pytest.raises(StreamsError, match="uses the state in"):
            application.streams(topology).start()
        with pytest.raises(StreamsError, match=r"this Spark session already runs a query with the name"):
            Application(spark, topics, tmp_path / "other", f"runs-{source}").streams(topology).start()
        assert streams.state() is State.RUNNING
    assert states == [State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN, State.NOT_RUNNING]


def wait_until(holds: Callable[[], bool]) -> None:
    """Asks repeatedly, for some minutes at most."""
    clock = SystemClock()
    deadline = clock.monotonic() + 150
    while not holds():
        assert clock.monotonic() < deadline, "it has not come in time"
        threading.Event().wait(0.1)


def test_exactly_once_writes_nothing_twice(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver ends after the commit of a micro-batch, and before Spark knows of it."""
    source, sink = topics.create(2), topics.create(2)
    topology = word_count(source, sink)
    application = Application(spark, topics, tmp_path, f"once-{source}", processing_guarantee="exactly_once_v2")
    send(topics, lines(source, 6), {source: 2})
    whole = exactly_once.write_exactly_once
    crashes = iter([False, True])  # the second micro-batch of all, which is the first of the second sub-topology

    def write(*arguments: Any, **named: Any) -> None:
        whole(*arguments, **named)
        if next(crashes, False):
            raise JesenskaError("the driver ends here.")

    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "write_exactly_once", write)
        with pytest.raises(StreamsError, match="the driver ends here"):
            application.run(topology)
    application.run(topology)
    found = written(topics, sink, 2, **{"kafka.isolation.level": "read_committed"})
    assert {key: [value for value, _ in values] for key, values in found.items()} == {
        key: [value for value, _ in values] for key, values in expected(topology, lines(source, 6), sink).items()
    }


def test_a_function_that_fails_is_told_in_a_sentence(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source = topics.create(1)
    builder = StreamsBuilder()
    builder.stream(source, **STRINGS).map_values(lambda text: int(text)).to(source + "-out", value=Serdes.int())
    errors: list[StreamsError] = []
    application = Application(spark, topics, tmp_path, f"fails-{source}")
    send(topics, [(source, b"a", b"one", 1)], {source: 1})
    streams = application.streams(builder.build())
    streams.set_uncaught_exception_handler(errors.append)
    with pytest.raises(
        StreamsError,
        match=rf"test_kafka_streams.py, line \d+: KSTREAM-MAPVALUES-0000000001 raised ValueError .* {source}-0, offset "
        rf"0: mend",
    ):
        streams.process_available()
    assert streams.state() is State.ERROR
    assert (
        len(errors) == 1 and "\n" not in str(errors[0]) and str(errors[0]).endswith("or leave such records out before.")
    )


def test_what_cannot_run_is_said_before_anything_runs(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    one, two = topics.create(1), topics.create(2)
    application = Application(spark, topics, tmp_path, f"refused-{one}")
    builder = StreamsBuilder()
    builder.stream(one, **STRINGS).join(builder.table(two, **STRINGS), lambda left, right: left).to("out")
    with pytest.raises(StreamsError, match=f"{one} has 1 and {two} has 2|{two} has 2 and {one} has 1"):
        application.run(builder.build())
    with pytest.raises(StreamsError, match="the topic not-there, which the application reads, does not exist"):
        application.run(word_count("not-there", "out"))
    with pytest.raises(SettingError, match=r"bootstrap\.servers is not set"):
        KafkaStreams(builder.build(), {"application.id": "x"})
    not_built: Any = builder
    with pytest.raises(StreamsError, match="KafkaStreams takes a Topology, and not a StreamsBuilder"):
        KafkaStreams(not_built, {"application.id": "x", "bootstrap.servers": "localhost:9092"})
    with pytest.raises(StreamsError, match="cannot be pickled"):
        lock = threading.Lock()
        other = StreamsBuilder()
        other.stream(one, **STRINGS).filter(lambda key, value: lock.locked()).to("out")
        application.run(other.build())


def test_explain_says_why_neither_way_before_the_engine_fits(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source = topics.create(1)
    builder = StreamsBuilder()
    seen = builder.stream(source, **STRINGS).peek(lambda key, value: None, name="look")
    seen.group_by_key().windowed_by(TimeWindows(5)).count(name="counted")
    with Application(spark, topics, tmp_path, f"explained-{source}").streams(builder.build()) as streams:
        told = streams.explain()
    assert (
        "the engine, record by record, since look has no form for columns, and counted is not one of the simple steps"
        in told
    )


def test_a_changed_topology_or_a_lost_state_is_refused(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source = topics.create(1)
    application = Application(spark, topics, tmp_path, f"changed-{source}")
    send(topics, lines(source), {source: 1})
    builder = StreamsBuilder()
    builder.stream(source, **STRINGS).group_by_key().count().to_stream().to(f"{source}-out", value=Serdes.long())
    topology = builder.build()
    with application.streams(topology) as streams:
        assert streams.explain() == (
            f"Sub-topology: 0\n    reads   {source}: 1 partitions\n    steps   as columns, each step for all records "
            f"of a micro-batch at once\n"
            f"    stores  KSTREAM-AGGREGATE-STATE-STORE-0000000001\n    writes  {source}-out, at least once\n"
        )
        streams.process_available()
    assert topics.committed(f"changed-{source}")[source, 0] == 3
    with pytest.raises(StreamsError, match="was made by another topology"):
        application.run(word_count(source, f"{source}-out"))
    directory = tmp_path / f"changed-{source}"
    shutil.rmtree(directory / "0" / "stores")
    with pytest.raises(StreamsError, match="is gone, but its checkpoint says that records were already read"):
        application.run(topology)
    (directory / "topology").unlink()
    with pytest.raises(StreamsError, match="topology, which says to what the state belongs, is missing"):
        application.run(topology)


class Ticks(Processor):
    """Emits the number of records that it has seen, every tenth of a second of the clock."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.get_state_store("seen")
        context.schedule(100, PunctuationType.WALL_CLOCK_TIME, self.tell)

    def process(self, record: Record) -> None:
        self.store.put("all", (self.store.get("all") or 0) + 1)

    def tell(self, now_ms: int) -> None:
        self.context.forward(Record("all", self.store.get("all") or 0, now_ms))


def test_punctuations_on_wall_clock_time_come_without_records(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The source is a pattern here, and a partitioner chooses the partition."""
    source, sink = topics.create(1), topics.create(3)
    topology = Topology()
    topology.add_source("source", re.compile(f"{source}|{source}-no"), **STRINGS)
    topology.add_processor("ticks", Ticks, "source")
    topology.add_state_store(Stores.key_value_store("seen", key=Serdes.string(), value=Serdes.int()), "ticks")
    topology.add_sink(
        "sink",
        sink,
        "ticks",
        key=Serdes.string(),
        value=Serdes.int(),
        partitioner=lambda topic, key, value, count: min(value, count - 1),
    )
    application = Application(spark, topics, tmp_path, f"ticks-{source}")
    with application.streams(topology) as streams:
        streams.start()
        wait_until(lambda: topics.offsets(sink, 3)[0][1] > 0)
        send(topics, [(source, b"x", b"1", 1), (source, b"y", b"2", 2)], {source: 1})
        wait_until(lambda: topics.offsets(sink, 3)[2][1] > 1)
        assert streams.store("seen").get("all") == 2


def test_what_internal_topics_had_is_deleted(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    """Records of internal topics are deleted after they were read. Records that cannot be read go to the topic in the
    settings."""
    source, sink, dead = topics.create(1), topics.create(1), topics.create(1)
    topology = word_count(source, sink)
    application = Application(
        spark, topics, tmp_path, f"deletes-{source}", default_deserialization_exception_handler=dead_letter_topic(dead)
    )
    for start in (0, 3):
        send(topics, [*lines(source, 3, start), (source, b"bad", b"\xff", 2000)], {source: 1})
        application.run(topology)
    assert [value for value, _ in written(topics, dead)[b"bad"]] == [b"\xff", b"\xff"]
    (internal,) = topology.processors.internal_topics
    begin, end = topics.offsets(f"deletes-{source}-{internal}")[0]
    assert end == 22 and begin == 11
    assert last_values(written(topics, sink))[b"kafka"] == (6).to_bytes(8, "big")
