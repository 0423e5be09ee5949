"""kafka-console-producer and kafka-console-consumer against a broker of ours: one reads the records of the other."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.records import kafka_console_consumer, kafka_console_producer
from jesenska.cli.kafka.records.console_records import RecordFormatter
from jesenska.cli.kafka.topics import kafka_topics
from jesenska.records.decode import decode_batch
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Result, Tool, tool_process

Send = Callable[..., Result]


@pytest.fixture
def send(at: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Runs the producer with these bytes as its standard input."""

    def run(topic: str, text: bytes, *arguments: str) -> Result:
        file = tmp_path / "input"
        file.write_bytes(text)
        with file.open("rb") as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            return at(kafka_console_producer.main, "--topic", topic, *arguments)

    return run


@pytest.fixture
def read(at: Tool) -> Callable[..., Result]:
    """The first `count` records of a topic, as the consumer prints them."""

    def run(topic: str, count: int, *arguments: str) -> Result:
        return at(
            kafka_console_consumer.main,
            "--topic",
            topic,
            "--from-beginning",
            "--max-messages",
            str(count),
            "--timeout-ms",
            "20000",
            *arguments,
        )

    return run


def test_lines_come_out_as_they_went_in(send: Send, read: Send) -> None:
    sent = send("console-lines", b"hello\nworld\n\r\n\xff\xfe bytes\rlast")
    assert (sent.code, sent.out, sent.err) == (0, "", "")
    printed = read("console-lines", 5, "--output", "json")
    assert [json.loads(line)["value"] for line in printed.lines] == [
        "hello",
        "world",
        "",
        {"base64": "//4gYnl0ZXM="},
        "last",
    ]
    assert printed.code == 0
    assert printed.err == "Processed a total of 5 messages\n"


def test_every_field_is_printed_in_kafkas_order(send: Send, read: Send) -> None:
    send(
        "console-fields",
        b"h1:v1,h2:NULL\tk\tv\nNULL\tNULL\tNULL\n",
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "parse.headers=true",
        "--reader-property",
        "null.marker=NULL",
    )
    wanted = [
        f"print.{name}=true" for name in ("timestamp", "partition", "offset", "headers", "key", "delivery", "epoch")
    ]
    lines = read("console-fields", 2, *(item for name in wanted for item in ("--formatter-property", name))).lines
    assert [re.sub(r"CreateTime:\d{13}", "CreateTime:T", line) for line in lines] == [
        "CreateTime:T\tPartition:0\tOffset:0\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\th1:v1,h2:null\tk\tv",
        "CreateTime:T\tPartition:0\tOffset:1\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tnull",
    ]


def test_separators_and_the_word_for_null_can_be_chosen(send: Send, read: Send) -> None:
    send("console-separators", b"a:1\tv\n", "--property", "parse.headers=true")
    properties = (
        "print.key=true",
        "print.headers=true",
        "key.separator=|",
        "line.separator=;",
        "null.literal=NIL",
        "headers.separator=+",
    )
    assert (
        read("console-separators", 1, *(item for name in properties for item in ("--property", name))).out
        == "a:1|NIL|v;"
    )


def test_values_are_shown_by_a_deserializer_and_what_it_cannot_read_can_be_skipped(send: Send, read: Send) -> None:
    send("console-long", b"12345678\nshort\n\x00\x00\x00\x00\x00\x00\x00\x07\n")
    longs = ("--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer")
    failed = read("console-long", 3, *longs)
    assert (failed.code, failed.lines) == (1, [str(int.from_bytes(b"12345678", "big"))])
    assert "console-long-0, offset 1" in failed.err
    skipped = read("console-long", 2, *longs, "--skip-message-on-error")
    assert (skipped.code, skipped.lines) == (0, [str(int.from_bytes(b"12345678", "big")), "7"])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_back(at: Tool, send: Send, read: Send, broker: BrokerProcess, codec: str) -> None:
    topic = f"console-{codec}"
    text = b"".join(b"line %d\n" % number for number in range(1000))
    assert send(topic, text, "--compression-codec", codec).code == 0
    assert read(topic, 1000).out.encode() == text
    segment = (broker.data / f"{topic}-0" / "00000000000000000000.log").read_bytes()
    assert segment[22] & 7 == ["none", "gzip", "snappy", "lz4", "zstd"].index(codec)


def test_records_with_one_key_stay_in_one_partition_and_in_order(at: Tool, send: Send, read: Send) -> None:
    at(kafka_topics.main, "--create", "--topic", "console-keys", "--partitions", "3")
    lines = [f"k{number % 5}:{number}" for number in range(200)]
    send("console-keys", "\n".join(lines).encode(), "--property", "parse.key=true", "--property", "key.separator=:")
    found: dict[str, list[tuple[int, int]]] = {}
    for line in read("console-keys", 200, "--output", "json").lines:
        record = json.loads(line)
        found.setdefault(record["key"], []).append((record["partition"], int(record["value"])))
    assert sorted(found) == ["k0", "k1", "k2", "k3", "k4"]
    for number, records in enumerate(found[key] for key in sorted(found)):
        assert len({partition for partition, _ in records}) == 1
        assert [value for _, value in records] == list(range(number, 200, 5))


def test_a_mistake_in_the_input_is_named_and_what_came_before_is_sent(send: Send, read: Send) -> None:
    sent = send(
        "console-mistake", b"a:1\nb:2\nwrong\nc:3\n", "--property", "parse.key=true", "--property", "key.separator=:"
    )
    assert sent.code == 1
    assert "No key separator found on line number 3: 'wrong'" in sent.err
    assert read("console-mistake", 2).lines == ["1", "2"]


def test_a_line_over_max_request_size_is_left_out_and_the_exit_code_says_so(send: Send, read: Send) -> None:
    sent = send(
        "console-long-line", b"first\n" + b"x" * 5000 + b"\nlast\n", "--producer-property", "max.request.size=1000"
    )
    assert sent.code == 1
    assert "Line number 2 is longer than max.request.size allows (1000 bytes)" in sent.err
    assert read("console-long-line", 2).lines == ["first", "last"]


def test_a_record_that_the_broker_refuses_makes_the_producer_fail(at: Tool, send: Send) -> None:
    at(kafka_topics.main, "--create", "--topic", "console-small", "--config", "max.message.bytes=100")
    refused = send("console-small", b"x" * 300 + b"\n")
    assert refused.code == 1
    assert "could not be delivered" in refused.err


@pytest.mark.parametrize(
    "arguments",
    [["--sync"], ["--request-required-acks", "1"], ["--batch-size", "100"], ["--request-required-acks", "0"]],
)
def test_ways_of_sending_all_deliver(send: Send, read: Send, arguments: list[str]) -> None:
    topic = "console-way" + "".join(arguments)
    assert send(topic, b"1\n2\n3\n", *arguments).code == 0
    assert read(topic, 3).lines == ["1", "2", "3"]


def test_an_offset_of_a_partition_is_where_reading_begins(at: Tool, send: Send) -> None:
    send("console-offset", b"0\n1\n2\n3\n")
    here = ("--topic", "console-offset", "--partition", "0")
    assert at(kafka_console_consumer.main, *here, "--offset", "2", "--max-messages", "2").lines == ["2", "3"]
    assert at(kafka_console_consumer.main, *here, "--offset", "earliest", "--max-messages", "1").lines == ["0"]
    ended = at(kafka_console_consumer.main, *here, "--offset", "latest", "--timeout-ms", "100")
    assert (ended.code, ended.out, ended.err) == (0, "", "Processed a total of 0 messages\n")


def test_a_pattern_reads_all_topics_that_it_matches(at: Tool, send: Send) -> None:
    for name in ("console-many-a", "console-many-b", "console-other"):
        send(name, name.encode())
    found = at(
        kafka_console_consumer.main,
        "--include",
        "console-many-.",
        "--from-beginning",
        "--max-messages",
        "2",
        "--timeout-ms",
        "20000",
    )
    assert sorted(found.lines) == ["console-many-a", "console-many-b"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--topic", "console-errors", "--partition", "7"], "none with the number 7"),
        (["--topic", "console-errors", "--offset", "2"], "partition is required"),
        (
            ["--topic", "console-errors", "--partition", "0", "--offset", "bla"],
            "'earliest', 'latest', or a non-negative long",
        ),
        (
            ["--topic", "console-errors", "--partition", "0", "--offset", "-3"],
            "'earliest', 'latest', or a non-negative long",
        ),
        (
            ["--topic", "console-errors", "--partition", "0", "--offset", "2", "--from-beginning"],
            "cannot be specified together",
        ),
        (["--topic", "console-errors", "--include", "x"], "Exactly one"),
        ([], "Exactly one"),
        (
            ["--topic", "console-errors", "--group", "g", "--partition", "0"],
            "Options group and partition cannot be specified together",
        ),
        (
            ["--topic", "console-errors", "--group", "g", "--consumer-property", "group.id=h"],
            "Detected group ids: 'g', 'h'",
        ),
        (["--topic", "console-errors", "--group", ""], "name is empty"),
        (
            ["--topic", "console-errors", "--group", "g", "--consumer-property", "partition.assignment.strategy=bla"],
            "names bla: use range",
        ),
        (
            ["--topic", "console-errors", "--group", "g", "--consumer-property", "heartbeat.interval.ms=45000"],
            "smaller than session.timeout.ms",
        ),
        (
            ["--topic", "console-errors", "--isolation-level", "bla"],
            "Invalid value bla for configuration isolation.level",
        ),
        (["--topic", "console-errors", "--formatter", "com.example.Mine"], "Java class"),
        (["--topic", "console-errors", "--value-deserializer", "com.example.Mine"], "Java class"),
        (
            ["--topic", "console-errors", "--from-beginning", "--consumer-property", "auto.offset.reset=latest"],
            "--from-beginning",
        ),
        (["--topic", "console-errors", "--consumer-property", "security.protocol=SSL"], "SSL"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_exit_code_1(
    at: Tool, send: Send, arguments: list[str], says: str
) -> None:
    send("console-errors", b"x\n")
    result = at(kafka_console_consumer.main, *arguments)
    assert (result.code, result.out) == (1, "")
    assert says in result.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--compression-codec", "nonsense"], "String must be one of: none, gzip, snappy, lz4, zstd"),
        (["--request-required-acks", "7"], "String must be one of: all, -1, 0, 1"),
        (["--line-reader", "com.example.Mine"], "Java class"),
        (["--property", "parse.key"], "write name=value"),
        (["--batch-size", "many"], "Invalid value many"),
        (["--producer-property", "acks=1", "--producer-property", "enable.idempotence=true"], "acks=all"),
    ],
)
def test_what_cannot_be_sent_is_one_sentence_and_exit_code_1(send: Send, arguments: list[str], says: str) -> None:
    result = send("console-unsent", b"x\n", *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert says in result.err


def test_a_topic_name_that_is_not_allowed_is_explained(send: Send) -> None:
    result = send("bad topic", b"x\n")
    assert (result.code, "'bad topic' cannot be the name of a topic" in result.err) == (1, True)


def test_an_unknown_setting_is_warned_about_with_the_nearest_name(send: Send) -> None:
    result = send("console-warned", b"x\n", "--producer-property", "lingr.ms=3")
    assert (result.code, "did you mean linger.ms?" in result.err) == (0, True)


def test_a_dead_broker_is_one_sentence(tool: Tool, send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "rb") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        for main in (kafka_console_producer.main, kafka_console_consumer.main):
            result = tool(main, "--bootstrap-server", "127.0.0.1:1", "--topic", "x")
            assert (result.code, "No broker answers at 127.0.0.1:1" in result.err) == (1, True)


def test_a_line_on_a_pipe_is_sent_while_the_pipe_stays_open(broker: BrokerProcess, read: Send) -> None:
    with tool_process(broker, "kafka_console_producer", "--topic", "console-pipe") as producer:
        assert producer.stdin is not None
        producer.stdin.write(b"first\n")
        producer.stdin.flush()
        deadline = time.monotonic() + 60  # the tool's own process has to start first
        while not (found := read("console-pipe", 1, "--timeout-ms", "300")).lines and time.monotonic() < deadline:
            assert producer.poll() is None
        assert found.lines == ["first"]
        producer.stdin.write(b"second\nthird")
        producer.stdin.close()
        assert producer.wait(30) == 0
    assert read("console-pipe", 3).lines == ["first", "second", "third"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_consumer_which_says_how_much_it_printed(
    broker: BrokerProcess, send: Send, number: signal.Signals, code: int
) -> None:
    send("console-signal", b"one\n")
    with tool_process(
        broker, "kafka_console_consumer", "--topic", "console-signal", "--from-beginning", "--max-messages", "1000"
    ) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == b"one\n"
        consumer.send_signal(number)
        assert consumer.stderr.read().startswith(b"Processed a total of ")
        assert consumer.wait(30) == code


def test_a_reader_that_goes_away_ends_the_consumer_without_complaint(broker: BrokerProcess, send: Send) -> None:
    send("console-gone", b"".join(b"line %d %s\n" % (number, b"x" * 100) for number in range(5000)))
    with tool_process(broker, "kafka_console_consumer", "--topic", "console-gone", "--from-beginning") as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline().startswith(b"line ")
        consumer.stdout.close()
        assert consumer.wait(30) == 0
        assert re.fullmatch(rb"Processed a total of \d+ messages\n", consumer.stderr.read())


def test_a_flood_of_lines_is_delivered_whole(broker: BrokerProcess, at: Tool, read: Send) -> None:
    at(kafka_topics.main, "--create", "--topic", "console-flood", "--partitions", "3")
    text = b"".join(b"%d\n" % number for number in range(300_000))
    with tool_process(broker, "kafka_console_producer", "--topic", "console-flood") as producer:
        _, said = producer.communicate(text, 60)
        assert (producer.returncode, said) == (0, b"")
    assert sorted(map(int, read("console-flood", 300_000).lines)) == list(range(300_000))


def test_kafkas_formatters_are_known_by_their_classes(send: Send, read: Send) -> None:
    send("console-formatters", b"k\tv\n", "--reader-property", "parse.key=true")
    for package in ("kafka.tools.", "org.apache.kafka.tools.consumer."):
        assert read("console-formatters", 1, "--formatter", package + "DefaultMessageFormatter").out == "v\n"
        logged = read("console-formatters", 1, "--formatter", package + "LoggingMessageFormatter")
        assert logged.out == "v\n"
        assert re.fullmatch(r"CreateTime:\d+, key:k, value:v", logged.err.splitlines()[0])
        assert read("console-formatters", 1, "--formatter", package + "NoOpMessageFormatter").out == ""


def test_the_records_of_groups_are_read_as_json(at: Tool, send: Send, read: Send) -> None:
    send("console-committed", b"one\ntwo\n")
    read("console-committed", 2, "--group", "console-formatted")

    def documents(formatter: str) -> list[dict[str, Any]]:
        arguments = (
            "--topic",
            "__consumer_offsets",
            "--from-beginning",
            "--timeout-ms",
            "1000",
            "--formatter",
            f"org.apache.kafka.tools.consumer.{formatter}",
        )
        found = [json.loads(line) for line in at(kafka_console_consumer.main, *arguments).lines]
        return [item for item in found if item["key"]["data"]["group"] == "console-formatted"]

    offsets = documents("OffsetsMessageFormatter")
    assert offsets[-1]["key"] == {
        "type": 1,
        "data": {"group": "console-formatted", "topic": "console-committed", "partition": 0},
    }
    assert (offsets[-1]["value"]["version"], offsets[-1]["value"]["data"]["offset"]) == (3, 2)
    groups = documents("GroupMetadataMessageFormatter")
    assert {item["key"]["type"] for item in groups} == {2}
    assert any(item["value"]["data"]["members"] for item in groups)


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [("Float", b"\x3d\xcc\xcc\xcd", "0.1"), ("Float", b"\x7f\x7f\xff\xff", "3.4028235E38"), ("Float", b"\x7f\x80\x00\x00", "Infinity"),  # noqa: E501
     ("Boolean", b"\x01", "true"), ("Integer", b"\xff\xff\xff\xfe", "-2"), ("Short", b"\x01\x00", "256"), ("ByteArray", b"raw", "raw")],  # noqa: E501
)  # fmt: skip
def test_a_deserializer_writes_what_javas_would(name: str, data: bytes, shown: str) -> None:
    formatter = RecordFormatter(
        {
            "value.deserializer": f"org.apache.kafka.common.serialization.{name}Deserializer",
            "value.deserializer.more": "x",
        }
    )
    (record,) = decode_batch(encode_batch([(1, None, data, ())]), 0, True)
    assert (formatter.lines(TopicPartition("t", 0), [record]), list(formatter.unknown)) == (shown.encode() + b"\n", [])


def test_a_property_that_there_is_not_is_told_with_the_one_that_was_meant(send: Send, read: Send) -> None:
    sent = send("console-properties", b"v\n", "--property", "parse.keys=true")
    assert (
        sent.err
        == "kafka-console-producer: parse.keys says nothing about how lines are read; it is ignored (did you mean "
        "parse.key?).\n"
    )
    printed = read("console-properties", 1, "--property", "print.keys=true")
    assert printed.err.splitlines()[0].endswith("it is ignored (did you mean print.key?).")


@pytest.mark.parametrize("group", [(), ("--group", "survivors")], ids=["by assignment", "in a group"])
def test_the_consumer_outlives_a_crash_of_its_broker(tmp_path: Path, tool: Tool, group: tuple[str, ...]) -> None:
    with BrokerProcess(tmp_path / "data", warm=True) as broker:
        assert (
            tool(kafka_topics.main, "--bootstrap-server", broker.bootstrap, "--create", "--topic", "outlives").code == 0
        )

        def send(line: bytes) -> None:
            with tool_process(broker, "kafka_console_producer", "--topic", "outlives") as producer:
                producer.communicate(line, timeout=60)
                assert producer.returncode == 0

        send(b"before\n")
        with tool_process(
            broker, "kafka_console_consumer", "--topic", "outlives", "--from-beginning", "--max-messages", "2", *group
        ) as consumer:
            assert consumer.stdout is not None
            assert consumer.stdout.readline() == b"before\n"
            broker.kill()
            assert consumer.stderr is not None
            assert b" cannot be reached (" in consumer.stderr.readline()
            broker.start()
            send(b"after\n")
            assert consumer.stdout.readline() == b"after\n"
            assert consumer.wait(30) == 0
