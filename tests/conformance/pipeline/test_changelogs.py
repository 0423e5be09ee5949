"""Changelog topics: Apache Kafka Streams takes over an application with what it restores from them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jesenska.base.clock import SystemClock
from jesenska.pipeline.streams import (
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    TimeWindows,
    Topology,
)
from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams.plan import Store
from jesenska.pipeline.streams_on_spark import KafkaStreams
from jesenska.pipeline.streams_on_spark.changelogs import changes, key_of, logged_stores, settings_of_topic
from jesenska.pipeline.streams_on_spark.queries.restoration import restore_partition, row_of
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work, process
from tests.conformance.conftest import need
from tests.peers.java_programs import command_of
from tests.processes.pipeline.conftest import Topics
from tests.processes.pipeline.streams_on_spark.test_kafka_streams import expected, send, wait_until, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRINGS: dict[str, Any] = {"key": Serdes.string(), "value": Serdes.string()}
DAY_MS = 86_400_000
LINES = ("all streams lead to kafka", "hello kafka streams", "join kafka summit", "all is kafka")


def words(lines: str, counts: str) -> Topology:
    """What tests/peers/StreamsTakeover.java counts."""
    builder = StreamsBuilder()
    split = builder.stream(lines, **STRINGS).flat_map_values(lambda line: line.split(" "))
    grouped = split.group_by(lambda key, word: word, name="words", **STRINGS)
    grouped.count(store="counts").to_stream().map_values(str).to(counts, **STRINGS)
    by_window = grouped.windowed_by(TimeWindows(10_000, grace=DAY_MS)).count(store="by-window").to_stream()
    by_window.map(lambda key, count: (f"{key.key}@{key.window.start}", str(count))).to(counts, **STRINGS)
    by_session = grouped.windowed_by(SessionWindows(5_000, grace=DAY_MS)).count(store="by-session").to_stream()
    by_session.map(lambda key, count: (f"{key.key}@{key.window.start}/{key.window.end}", str(count))).to(
        counts, **STRINGS
    )
    return builder.build()


def last_values(found: dict[bytes | None, list[tuple[bytes | None, int]]]) -> dict[bytes | None, bytes | None]:
    """The count that each key has in the end. Sessions that became part of others have None, or null in Java."""
    return {key: values[-1][0] for key, values in found.items() if values[-1][0] not in (b"None", b"null")}


@contextmanager
def kafka_streams(bootstrap: str, application: str, directory: Path, topics: Sequence[str]) -> Iterator[list[str]]:
    """Apache Kafka Streams 3.9.1 runs; gives what it has said until it was ready."""
    need("java", "mvn")
    command = command_of("3.9.1", "StreamsTakeover", heap="128m", log_level="ERROR", streams=True)
    arguments = [bootstrap, application, str(directory), *topics]
    with subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            said: list[str] = []
            while "ready" not in said:
                line = program.stdout.readline().strip()
                assert line and not line.startswith("error"), said
                said.append(line)
            yield said
        finally:
            program.stdin.close()
            program.wait(60)


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_kafka_streams_goes_on_with_the_counts_that_spark_has_left(
    guarantee: str, spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    lines, counts = topics.create(2), topics.create(1)
    topology, application = words(lines, counts), f"takeover-{lines}"
    begin = SystemClock().now_ms() // 10_000 * 10_000 - 100_000
    given = [(lines, b"%d" % number, LINES[number % 4].encode(), begin + 1_500 * number) for number in range(16)]
    config = {
        "application.id": application,
        "bootstrap.servers": topics.bootstrap,
        "state.dir": str(tmp_path / "spark"),
        "processing.guarantee": guarantee,
        "commit.interval.ms": 0,
    }
    with KafkaStreams(topology, config, spark=spark, with_logging=True) as streams:
        for start in (0, 4):
            send(topics, given[start : start + 4], {lines: 2})
            streams.process_available()
    assert topics.settings(f"{application}-counts-changelog")["cleanup.policy"] == "compact"
    assert topics.settings(f"{application}-by-window-changelog")["retention.ms"] == str(10_000 + 2 * DAY_MS)
    before = last_values(written(topics, counts))
    assert before == last_values(expected(topology, given[:8], counts))
    with kafka_streams(topics.bootstrap, application, tmp_path / "kafka", (lines, counts)) as said:
        restored = {line.split()[1] for line in said if line.startswith("restored") and not line.endswith(" 0")}
        assert restored == {"counts", "by-window", "by-session"}
        with (
            KafkaStreams(topology, config, spark=spark, with_logging=True) as streams,
            pytest.raises(StreamsError, match="Kafka Streams runs with this"),
        ):
            streams.process_available()
        send(topics, given[8:], {lines: 2})
        wanted = last_values(expected(topology, given, counts))
        wait_until(lambda: last_values(written(topics, counts)) == wanted)
    # And back: the state of Kafka Streams is in the changelog topics, and what is below state.dir is old.
    shutil.rmtree(tmp_path / "spark")
    send(topics, given[:4], {lines: 2})
    with KafkaStreams(topology, config, spark=spark, with_logging=True) as streams:
        streams.process_available()
        assert {key: str(count).encode() for key, count in streams.store("counts").all()} == {
            key.decode(): value
            for key, value in last_values(expected(topology, [*given, *given[:4]], counts)).items()
            if key is not None and b"@" not in key
        }
    # Nothing was counted twice: a word has each of its counts once.
    found = [
        int(value or b"0")
        for value, _ in written(topics, counts, 1, **{"kafka.isolation.level": "read_committed"})[b"kafka"]
    ]
    assert found == list(range(1, 21))


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_state_and_changelogs_go_together(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source = topics.create(1)
    builder = StreamsBuilder()
    builder.stream(source, **STRINGS).group_by_key().count(store="counts")

    def streams(directory: str, **options: Any) -> KafkaStreams:
        config = {
            "application.id": f"together-{source}",
            "bootstrap.servers": topics.bootstrap,
            "state.dir": str(tmp_path / directory),
        }
        return KafkaStreams(builder.build(), config, spark=spark, **options)

    topics.send(source, [(b"v", b"x", None, 1)])
    with streams("one", with_logging=False) as running:
        running.process_available()
    with streams("one") as running:
        running.process_available()
    with (
        streams("one", with_logging=True) as running,
        pytest.raises(StreamsError, match="was made without changelog topics"),
    ):
        running.process_available()
    # The group has offsets, but there are no changelog topics: nothing would be known of what was counted.
    with streams("two") as running, pytest.raises(StreamsError, match="has run before, but its state is not in"):
        running.process_available()


# --- without Spark ---------------------------------------------------------------------------------------------------


def work_of(topology: Topology) -> Work:
    return Work.of(
        topology,
        0,
        StreamsConfig({"application.id": "app", "default.key.serde": "string", "default.value.serde": "string"}),
        {},
    )


def table_of_letters() -> Topology:
    builder = StreamsBuilder()
    builder.table("a", **STRINGS, store="kept").to_stream().to("out")
    return builder.build()


def test_each_key_that_a_micro_batch_has_changed_is_written_once(tmp_path: Path) -> None:
    work = work_of(table_of_letters())
    process(work, 0, 0, [RawRecord("a", 0, b"x", b"1", 5), RawRecord("a", 1, b"y", b"1", 6)], tmp_path, 0)
    process(
        work,
        0,
        1,
        [RawRecord("a", 2, b"x", b"2", 7), RawRecord("a", 3, b"x", b"3", 8), RawRecord("a", 4, b"y", None, 9)],
        tmp_path,
        0,
    )
    found = [
        (output.topic, output.partition, output.key, output.value, output.timestamp)
        for output in changes(work, ["kept"], tmp_path, 0)
    ]
    assert found == [("app-kept-changelog", 0, b"x", b"3", 8), ("app-kept-changelog", 0, b"y", None, 9)]


@pytest.mark.parametrize("kind", ["key-value", "window", "session"])
def test_a_row_is_found_again_in_its_record(kind: str) -> None:
    store = Store(name="kept", kind=kind)
    for row in ((b"k", 5, 0), (b"", 2**40, 0), (b"\xff" * 30, 0, 0)):
        place = row if kind == "window" else (row[0], 9, 3) if kind == "session" else (row[0], 0, 0)
        assert row_of(store, key_of(store, *place)) == place


@pytest.mark.parametrize(("kind", "key"), [("key-value", None), ("window", b"short"), ("session", b"also short")])
def test_a_record_that_is_none_of_ours_is_named(tmp_path: Path, kind: str, key: bytes | None) -> None:
    store = Store(name="s", kind=kind, retention_ms=None if kind == "key-value" else 10)
    record = RawRecord("app-s-changelog", 7, key, b"value", 0)
    with pytest.raises(
        StreamsError,
        match="app-s-changelog-0 has a record at offset 7 that no streams application has written",
    ):
        restore_partition(tmp_path / "0.state", {"app-s-changelog": store}, iter([record]))


def test_a_partition_without_state_has_no_changes(tmp_path: Path) -> None:
    assert not changes(work_of(table_of_letters()), ["kept"], tmp_path, 3)


def test_which_stores_have_a_changelog_topic() -> None:
    builder = StreamsBuilder()
    builder.table("a", **STRINGS, store="named")
    builder.stream("b", **STRINGS).group_by_key().count(store="counts", logging=False)
    builder.global_table("c", **STRINGS, store="global")
    builder.add_state_store(Stores.key_value_store("set", **STRINGS, changelog_config={"segment.bytes": "1000000"}))
    builder.stream("d", **STRINGS).process(_Nothing, "set")
    processors = builder.build().processors
    assert set(logged_stores(processors, processors.stores, True)) == {"named", "set"}
    assert logged_stores(processors, processors.stores, False) == ("set",)
    own = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime", "segment.bytes": "1000000"}
    assert settings_of_topic(processors.stores["set"], StreamsConfig()) == own


def test_windows_stay_in_the_topic_for_as_long_as_the_settings_say() -> None:
    store = Stores.window_store("kept", retention=100, window_size=10)
    found = settings_of_topic(store, StreamsConfig({"windowstore.changelog.additional.retention.ms": 5}))
    assert (found["cleanup.policy"], found["retention.ms"]) == ("compact,delete", "105")


class _Nothing:
    def init(self, context: Any) -> None: ...

    def process(self, record: Any) -> None: ...

    def close(self) -> None: ...
