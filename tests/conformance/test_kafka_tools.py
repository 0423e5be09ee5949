"""Apache Kafka's own tools, of 3.9.1 and 4.3.1, against the broker: what a user of either release types."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from jesenska.cli.kafka.cluster import kafka_broker_api_versions
from jesenska.cli.kafka.records import kafka_verifiable_consumer, kafka_verifiable_producer
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import WRITTEN
from tests.conformance.disk import codecs
from tests.peers.apache_kafka import tool_command
from tests.peers.tools import Outcome, Tools

pytestmark = pytest.mark.conformance

_LINES = [f"key {number}:line {number} {'again ' * 20}" for number in range(100)]


class Shell:
    """A release's tools, pointed at the broker."""

    def __init__(self, tools: Tools, broker: BrokerProcess) -> None:
        self._tools, self._broker = tools, broker
        self.release = tools.release

    def topic(self, name: str) -> str:
        return f"tools-{name}-{self.release.replace('.', '-')}"

    def ask(self, tool: str, *arguments: object, given: str = "") -> Outcome:
        return self._tools.run(tool, "--bootstrap-server", self._broker.bootstrap, *arguments, given=given)

    def __call__(self, tool: str, *arguments: object, given: str = "") -> list[str]:
        """The lines of a tool that must succeed."""
        outcome = self.ask(tool, *arguments, given=given)
        assert outcome.code == 0, outcome
        # A request that is under way when the tool ends, as that is done: Kafka's client logs that, with any broker.
        errors = [line for line in outcome.errors.splitlines() if "NetworkClient is no longer active" not in line]
        assert not any("Exception" in line for line in errors), outcome
        return outcome.lines

    def create(self, name: str, partitions: int = 1, *arguments: object) -> str:
        topic = self.topic(name)
        assert self("kafka-topics", "--create", "--topic", topic, "--partitions", partitions, *arguments) == [
            f"Created topic {topic}."
        ]
        return topic

    def consume(self, topic: str, count: int, *arguments: object) -> list[str]:
        return self(
            "kafka-console-consumer",
            "--topic",
            topic,
            "--partition",
            0,
            "--offset",
            "earliest",
            "--max-messages",
            count,
            "--timeout-ms",
            20_000,
            *arguments,
        )

    def formatted(self, *settings: str) -> list[str]:
        """Arguments for a formatter's settings, by the name that this release wants."""
        flag = "--property" if self.release.startswith("3") else "--formatter-property"
        return [word for setting in settings for word in (flag, setting)]


@pytest.fixture
def shell(tools: Tools, broker: BrokerProcess) -> Shell:
    return Shell(tools, broker)


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_records_written_in_each_codec_stand_so_on_disk_and_are_read_back(
    shell: Shell, broker: BrokerProcess, codec: Codec
) -> None:
    topic = shell.create(codec.name.lower())
    reader = "--property" if shell.release.startswith("3") else "--reader-property"
    shell(
        "kafka-console-producer",
        "--topic",
        topic,
        "--compression-codec",
        codec.name.lower(),
        reader,
        "parse.key=true",
        reader,
        "key.separator=:",
        given="\n".join(_LINES),
    )
    assert codecs(broker.data, topic) == {codec}
    assert shell.consume(topic, len(_LINES), *shell.formatted("print.key=true", "key.separator=:")) == _LINES


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_what_our_client_writes_is_read(shell: Shell, written_by_us: dict[Codec, str], codec: Codec) -> None:
    shown = shell.formatted(
        "print.key=true", "print.headers=true", "print.offset=true", "key.separator=|", "headers.separator=,"
    )
    expected = [
        f"Offset:{number}|number:{number}|{key.decode()}|{value.decode()}"
        for number, (key, value) in enumerate(WRITTEN)
    ]
    assert shell.consume(written_by_us[codec], len(WRITTEN), *shown) == expected


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(shell: Shell, acks: str) -> None:
    topic = shell.create(f"acks-{acks}")
    idempotence = "true" if acks == "all" else "false"
    flag = "--producer-property" if shell.release.startswith("3") else "--command-property"
    shell(
        "kafka-console-producer",
        "--topic",
        topic,
        "--request-required-acks",
        acks,
        flag,
        f"enable.idempotence={idempotence}",
        given="one\ntwo\n",
    )
    assert shell.consume(topic, 2) == ["one", "two"]


def test_offsets_are_found_by_time(shell: Shell) -> None:
    topic = shell.create("times", 2)
    for line in ("one", "two", "three"):
        shell("kafka-console-producer", "--topic", topic, given=f"{line}\n" if line != "three" else "three")
    counts = [int(line.rsplit(":", 1)[1]) for line in shell("kafka-get-offsets", "--topic", topic, "--time", "-1")]
    assert sum(counts) == 3
    assert shell("kafka-get-offsets", "--topic", topic, "--time", "-2") == [f"{topic}:0:0", f"{topic}:1:0"]
    partition = counts.index(max(counts))
    stamps = [
        int(line.removeprefix("CreateTime:"))
        for line in shell(
            "kafka-console-consumer",
            "--topic",
            topic,
            "--partition",
            partition,
            "--offset",
            0,
            "--max-messages",
            counts[partition],
            *shell.formatted("print.timestamp=true", "print.value=false"),
        )
    ]
    for offset, stamp in enumerate(stamps):
        expected = stamps.index(stamp)
        assert f"{topic}:{partition}:{expected}" in shell("kafka-get-offsets", "--topic", topic, "--time", stamp), (
            offset
        )
    assert f"{topic}:{partition}:{stamps.index(max(stamps))}" in shell(
        "kafka-get-offsets", "--topic", topic, "--time", "-3"
    )


def test_settings_of_topics_and_brokers_are_changed(shell: Shell) -> None:
    topic = shell.create("configs", 1, "--config", "retention.ms=60000")
    of_topic = ("kafka-configs", "--entity-type", "topics", "--entity-name", topic)
    of_broker = ("kafka-configs", "--entity-type", "brokers", "--entity-name", "1")
    of_all = ("kafka-configs", "--entity-type", "brokers", "--entity-default")
    assert any("retention.ms=60000" in line for line in shell(*of_topic, "--describe"))
    shell(*of_topic, "--alter", "--add-config", "retention.ms=70000,cleanup.policy=[compact,delete]")
    described = "\n".join(shell(*of_topic, "--describe"))
    assert "retention.ms=70000" in described
    assert "cleanup.policy=compact,delete" in described
    shell(*of_topic, "--alter", "--delete-config", "retention.ms,cleanup.policy")
    assert shell(*of_topic, "--describe") == [f"Dynamic configs for topic {topic} are:"]
    for entity, name in ((of_broker, "DYNAMIC_BROKER_CONFIG"), (of_all, "DYNAMIC_DEFAULT_BROKER_CONFIG")):
        shell(*entity, "--alter", "--add-config", "log.cleaner.delete.retention.ms=12345678")
        assert any(f"{name}:log.cleaner.delete.retention.ms=12345678" in line for line in shell(*entity, "--describe"))
        assert any(
            f"{name}:log.cleaner.delete.retention.ms=12345678" in line
            for line in shell(*of_topic, "--describe", "--all")
        )
        shell(*entity, "--alter", "--delete-config", "log.cleaner.delete.retention.ms")
    refused = shell.ask(*of_topic, "--alter", "--add-config", "retention.ms=long")
    assert refused.code == 1
    assert "InvalidConfigurationException" in refused.output + refused.errors


def test_topics_are_described_expanded_and_deleted(shell: Shell) -> None:
    topic = shell.create("life", 2, "--config", "segment.bytes=1048576")
    described = shell("kafka-topics", "--describe", "--topic", topic)
    assert re.fullmatch(
        rf"Topic: {topic}\tTopicId: [\w-]{{22}}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: "
        rf"segment.bytes=1048576",
        described[0],
    )
    assert [re.sub(r"\s+", " ", line.strip())[: -len(" Elr: LastKnownElr:")] for line in described[1:]] == [
        f"Topic: {topic} Partition: {partition} Leader: 1 Replicas: 1 Isr: 1" for partition in range(2)
    ]
    shell("kafka-topics", "--alter", "--topic", topic, "--partitions", 5)
    assert "PartitionCount: 5" in shell("kafka-topics", "--describe", "--topic", topic)[0]
    assert shell("kafka-topics", "--describe", "--topic", topic, "--under-replicated-partitions") == []
    assert topic in shell("kafka-topics", "--list")
    shell("kafka-topics", "--delete", "--topic", topic)
    assert topic not in shell("kafka-topics", "--list")
    for arguments, word in [
        (("--delete", "--topic", topic), "does not exist as expected"),
        (("--create", "--topic", "not allowed"), "InvalidTopicException"),
        (("--create", "--topic", topic, "--replication-factor", "3"), "InvalidReplicationFactorException"),
    ]:
        refused = shell.ask("kafka-topics", *arguments)
        assert refused.code == 1
        assert word in refused.output + refused.errors


def test_records_are_deleted(shell: Shell, tmp_path: Path) -> None:
    topic = shell.create("deleted")
    shell("kafka-console-producer", "--topic", topic, given="\n".join("abcdef"))
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}))
    assert shell("kafka-delete-records", "--offset-json-file", wanted)[-1] == f"partition: {topic}-0\tlow_watermark: 4"
    assert shell.consume(topic, 2) == ["e", "f"]
    assert shell("kafka-get-offsets", "--topic", topic, "--time", "-2") == [f"{topic}:0:4"]


def test_api_versions_are_listed(shell: Shell) -> None:
    lines = "\n".join(shell("kafka-broker-api-versions"))
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: \d+\]", lines)
    assert re.search(r"Fetch\(1\): 0 to 18 \[usable: \d+\]", lines)


def test_our_tool_lists_api_versions_word_for_word(
    tools_4: Tools, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = Shell(tools_4, broker)("kafka-broker-api-versions")
    capsys.readouterr()
    assert kafka_broker_api_versions.main(["--bootstrap-server", broker.bootstrap]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines() if line] == [
        line.rstrip() for line in wanted if line
    ]


def test_our_verifiable_tools_say_what_kafkas_say(
    tools_4: Tools, broker: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Kafka's print fields in the order in which Java gives a class's methods: another one where it is from an archive.
    monkeypatch.setenv("PEERS_CLASS_ARCHIVE", "0")
    shell = Shell(tools_4, broker)
    where = ["--bootstrap-server", broker.bootstrap]
    said: list[list[dict[str, object]]] = []
    for who in ("ours", "kafkas"):
        topic, lines = shell.create(f"verifiable-{who}"), []
        producing = ["--topic", topic, "--max-messages", "20", "--value-prefix", "1", "--repeating-keys", "3"]
        consuming = ["--topic", topic, "--group-id", topic, "--max-messages", "20", "--verbose"]
        if who == "kafkas":
            # Each in a process of its own: part of what they say comes when that ends.
            for tool, arguments in (("kafka-verifiable-producer", producing), ("kafka-verifiable-consumer", consuming)):
                command = tool_command(tools_4.release, tool, *where, *arguments)
                lines += subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        else:
            capsys.readouterr()
            assert kafka_verifiable_producer.main([*where, *producing]) == 0
            assert kafka_verifiable_consumer.main([*where, *consuming]) == 0
            lines = capsys.readouterr().out.splitlines()
        events = [json.loads(line.replace(topic, "TOPIC")) for line in lines]
        said.append([event for event in events if event["name"] != "shutdown_requested"])
    # In how many requests the records travel is each client's affair, and with it the order of the lines; what they
    # look like is not.
    shapes, records = [], []
    for events in said:
        shapes.append({json.dumps({name: _shape(value) for name, value in event.items()}) for event in events})
        found = [(str(event["name"]), str(event["key"]), str(event["value"])) for event in events if "value" in event]
        records.append(sorted(found))
    assert shapes[0] == shapes[1]
    assert records[0] == records[1]
    assert len(records[0]) == 40


def _shape(value: object) -> object:
    """What a JSON value looks like, numbers aside."""
    if isinstance(value, list):
        return [_shape(value[0])]
    if isinstance(value, dict):
        return {name: _shape(inner) for name, inner in value.items()}
    return (
        "text"
        if isinstance(value, str) and value[:1].isdigit()
        else "number"
        if isinstance(value, int | float) and not isinstance(value, bool)
        else value
    )


def test_a_load_test_runs_to_its_end(shell: Shell, broker: BrokerProcess) -> None:
    topic = shell.create("load", 3)
    outcome = shell._tools.run(
        "kafka-producer-perf-test",
        "--topic",
        topic,
        "--num-records",
        20_000,
        "--record-size",
        100,
        "--throughput",
        "-1",
        "--producer-props",
        f"bootstrap.servers={broker.bootstrap}",
        "compression.type=lz4",
    )
    assert outcome.code == 0, outcome
    assert outcome.lines[-1].startswith("20000 records sent")
    assert sum(int(line.rsplit(":", 1)[1]) for line in shell("kafka-get-offsets", "--topic", topic)) == 20_000
