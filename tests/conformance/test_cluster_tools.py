"""Tools for clusters of several brokers, Apache Kafka's and ours, one after the other: kafka-leader-election,
kafka-preferred-replica-election, kafka-replica-verification and kafka-log-dirs say the same and end with the same
code, of two brokers of Apache Kafka and of one of ours.

What they say on stdout is compared, without times and in order. On stderr Kafka's print stacks, ours a sentence."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster, PartitionInfo
from jesenska.client.producer import Producer
from jesenska.records.batch import iter_headers
from jesenska.records.header import CRC_OFFSET
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka, tool_command
from tests.peers.tools import Outcome, Tools
from tests.processes.cli.groups import ask
from tests.tool_modules import module_of_tool

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

_SECONDS = 90.0
#: Leaders stay where they are until somebody asks.
_SETTINGS = {"auto.leader.rebalance.enable": "false", "offsets.topic.num.partitions": "1"}


@dataclass
class Place:
    """A cluster. `kafka` is None where it is a broker of ours, which is alone."""

    bootstrap: str
    kafka: ApacheKafka | None

    @property
    def replicas(self) -> int:
        return 1 if self.kafka is None else 2

    def topic(self, name: str, partitions: int = 1) -> str:
        """A new topic with a replica on each broker, with leaders."""

        async def work(cluster: Cluster) -> None:
            errors = await Admin(cluster).create_topics([NewTopic(name, partitions, self.replicas)])
            assert errors == {name: None}

        ask(self, work)
        self.until(
            name,
            lambda partition: partition.leader >= 0 and len(partition.in_sync_replicas) == self.replicas,
            range(partitions),
        )
        return name

    def until(self, topic: str, is_so: Callable[[PartitionInfo], bool], numbers: Sequence[int] = (0,)) -> None:
        """Returns when the metadata of each broker say it of these partitions."""
        for address in self.bootstrap.split(","):
            ask(Place(address, None), lambda cluster: _until(cluster, topic, is_so, numbers))

    def partition(self, topic: str, number: int = 0) -> PartitionInfo:
        async def work(cluster: Cluster) -> PartitionInfo:
            return (await cluster.topics())[topic].partitions[number]

        return ask(self, work)

    def prefer_another(self, topic: str) -> int:
        """Makes the replica that does not lead partition 0 the preferred one, and gives its broker's id."""
        now = self.partition(topic)
        wanted = (*(broker for broker in now.replicas if broker != now.leader), now.leader)

        async def work(cluster: Cluster) -> None:
            moved = AlterPartitionReassignmentsRequestPartition(partition_index=0, replicas=list(wanted))
            request = AlterPartitionReassignmentsRequest(
                topics=[AlterPartitionReassignmentsRequestTopic(name=topic, partitions=[moved])]
            )
            answer = await cluster.ask_controller(request, AlterPartitionReassignmentsResponse)
            assert (
                answer.error_code,
                [item.error_code for found in answer.responses for item in found.partitions],
            ) in [(0, []), (0, [0])]

        ask(self, work)
        self.until(topic, lambda partition: partition.replicas == wanted and partition.leader == now.leader)
        return wanted[0]

    def fill(self, topic: str, count: int) -> None:
        """Adds records to partition 0, each in a batch of its own."""

        async def work(cluster: Cluster) -> None:
            async with Producer(cluster, acks=-1) as producer:
                for number in range(count):
                    await (await producer.send(topic, b"value %d" % number, partition=0))

        ask(self, work)


async def _until(cluster: Cluster, topic: str, is_so: Callable[[PartitionInfo], bool], numbers: Sequence[int]) -> None:
    while True:
        found = (await cluster.topics()).get(topic)
        partitions = () if found is None else found.partitions
        if len(partitions) > max(numbers) and all(is_so(partitions[number]) for number in numbers):
            return
        await asyncio.sleep(0.05)


#: What 3.9.1 and older are asked about.
_OLDER = pytest.mark.hour("src/jesenska/cli/kafka/cluster", "src/jesenska/cli/kafka/topics/topics_in_tree.py")


@pytest.fixture(scope="module", params=["jesenska", pytest.param("3.9.1", marks=_OLDER), "4.3.1"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A broker of ours; two of 3.9.1 on a ZooKeeper; two of 4.3.1 in KRaft mode."""
    if request.param == "jesenska":
        broker: BrokerProcess = request.getfixturevalue("broker")
        yield Place(broker.bootstrap, None)
        return
    need("java", "mvn")
    directory = tmp_path_factory.mktemp("cluster")
    with ApacheKafka(
        request.param, directory, nodes=2, zookeeper=request.param == "3.9.1", heap="384m", settings=_SETTINGS
    ) as kafka:
        yield Place(kafka.bootstrap, kafka)


Ours = Callable[..., Outcome]


@pytest.fixture
def ours(capsys: pytest.CaptureFixture[str]) -> Ours:
    """Runs a tool of ours by the name of Kafka's script."""

    def run(name: str, *arguments: object) -> Outcome:
        capsys.readouterr()
        try:
            code = importlib.import_module(module_of_tool(name)).main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return run


_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: ")


def lines(said: str) -> list[str]:
    """What a tool said without times, each list of partitions in order, and the lines, too."""
    found = []
    for line in said.splitlines():
        text = _TIME.sub("TIME: ", line)
        head, named, partitions = text.rpartition(" for partitions ")
        found.append(head + named + ", ".join(sorted(partitions.split(", "))))
    return sorted(found)


def same(theirs: Outcome, our: Outcome) -> list[str]:
    """The lines, which are the same."""
    assert (lines(our.output), our.code) == (lines(theirs.output), theirs.code), (our, theirs)
    assert "Traceback" not in our.errors
    return lines(our.output)


def file_of(directory: Path, content: Any) -> Path:
    file = directory / "partitions.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


# --- kafka-leader-election -------------------------------------------------------------------------------------------


def test_elections_that_change_nothing_and_that_fail(place: Place, tools: Tools, ours: Ours, tmp_path: Path) -> None:
    topic = place.topic(f"led-{tools.release}", 3)
    named = file_of(
        tmp_path,
        {
            "partitions": [{"topic": topic, "partition": number} for number in (2, 0, 5)]
            + [{"topic": "never-was", "partition": 0}]
        },
    )
    asked = [
        (["--election-type", "preferred", "--topic", topic, "--partition", 1], 0),
        (["--election-type", "unclean", "--topic", topic, "--partition", 1], 0),
        (["--election-type", "PREFERRED", "--path-to-json-file", named], 1),
        (["--election-type", "unclean", "--path-to-json-file", named], 1),
    ]
    for arguments, code in asked:
        theirs, our = (
            run("kafka-leader-election", "--bootstrap-server", place.bootstrap, *arguments) for run in (tools.run, ours)
        )
        assert same(theirs, our)
        assert our.code == code


def test_the_preferred_replica_leads_again(place: Place, tools: Tools, ours: Ours) -> None:
    if place.kafka is None:
        pytest.skip("a broker of ours is alone")
    topic = place.topic(f"elected-{tools.release}")
    outcomes = []
    for run in (tools.run, ours):
        wanted = place.prefer_another(topic)
        outcomes.append(
            run(
                "kafka-leader-election",
                "--bootstrap-server",
                place.bootstrap,
                "--election-type",
                "preferred",
                "--topic",
                topic,
                "--partition",
                0,
            )
        )
        place.until(topic, lambda partition, wanted=wanted: partition.leader == wanted)  # type: ignore[misc]
    assert same(*outcomes) == [f"Successfully completed leader election (PREFERRED) for partitions {topic}-0"]


def test_all_partitions_are_gone_through(place: Place, tools: Tools, ours: Ours) -> None:
    if place.kafka is None:
        pytest.skip("a broker of ours is alone")
    topic = place.topic(f"all-{tools.release}")
    outcomes = []
    for run in (tools.run, ours):
        # What other tests have left is put right first, so that there is one to be elected.
        ours(
            "kafka-leader-election",
            "--bootstrap-server",
            place.bootstrap,
            "--election-type",
            "preferred",
            "--all-topic-partitions",
        )
        wanted = place.prefer_another(topic)
        outcomes.append(
            run(
                "kafka-leader-election",
                "--bootstrap-server",
                place.bootstrap,
                "--election-type",
                "preferred",
                "--all-topic-partitions",
            )
        )
        place.until(topic, lambda partition, wanted=wanted: partition.leader == wanted)  # type: ignore[misc]
    assert any(topic in line for line in same(*outcomes))


_ELECT = ("kafka-leader-election", "--election-type", "preferred")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("kafka-leader-election", ["--topic", "t", "--partition", 0]),
        (*_ELECT[:1], [*_ELECT[1:]]),
        ("kafka-leader-election", ["--election-type", "sideways", "--topic", "t", "--partition", 0]),
        ("kafka-leader-election", [*_ELECT[1:], "--topic", "t"]),
        ("kafka-leader-election", [*_ELECT[1:], "--topic", "t", "--partition", "zero"]),
        ("kafka-leader-election", [*_ELECT[1:], "--topic", "t", "--partition", 0, "--all-topic-partitions"]),
        ("kafka-leader-election", [*_ELECT[1:], "--all-topic-partitions", "--partition", 0]),
        ("kafka-leader-election", [*_ELECT[1:], "--path-to-json-file", "/nowhere/partitions.json"]),
        ("kafka-leader-election", [*_ELECT[1:], "--path-to-json-file", "{"]),
        ("kafka-leader-election", [*_ELECT[1:], "--path-to-json-file", "{}"]),
        ("kafka-leader-election", [*_ELECT[1:], "--path-to-json-file", '{"partitions": [{"topic": "t"}]}']),
        (
            "kafka-leader-election",
            [*_ELECT[1:], "--path-to-json-file", '{"partitions": [{"topic": "t", "partition": "0"}]}'],
        ),
        (
            "kafka-leader-election",
            [*_ELECT[1:], "--path-to-json-file", json.dumps({"partitions": [{"topic": "t", "partition": 0}] * 2})],
        ),
        ("kafka-leader-election", [*_ELECT[1:], "--topic", "t", "--partition", 0, "--nonsense"]),
        ("kafka-log-dirs", []),
        ("kafka-log-dirs", ["--describe", "--broker-list", 99]),
        ("kafka-log-dirs", ["--describe", "--broker-list", "one"]),
        ("kafka-replica-verification", ["--topics-include", "["]),
        ("kafka-replica-verification", ["--topics-include", "never-was"]),
        ("kafka-replica-verification", ["--fetch-size", "much"]),
    ],
)
def test_a_mistake_ends_alike(
    tools_4: Tools, broker: BrokerProcess, ours: Ours, tmp_path: Path, name: str, arguments: list[object]
) -> None:
    words = [file_of(tmp_path, word) if str(word).startswith("{") else word for word in arguments]
    where = "--broker-list" if name == "kafka-replica-verification" else "--bootstrap-server"
    theirs, our = (run(name, where, broker.bootstrap, *words) for run in (tools_4.run, ours))
    assert same(theirs, our) == []
    assert our.code == 1
    assert len(our.errors.splitlines()) == 1


@pytest.mark.parametrize("name", ["kafka-leader-election", "kafka-log-dirs"])
def test_a_cluster_that_does_not_answer_ends_alike(tools_4: Tools, ours: Ours, tmp_path: Path, name: str) -> None:
    """Kafka's election prints that it was a time-out; ours knows at once that nobody is there."""
    quick = tmp_path / "client.properties"
    quick.write_text("default.api.timeout.ms=1000\nrequest.timeout.ms=500\n")
    arguments = [*_ELECT[1:], "--all-topic-partitions"] if name == "kafka-leader-election" else ["--describe"]
    words = ["--bootstrap-server", "127.0.0.1:1", "--command-config", quick, *arguments]
    assert (tools_4.run(name, *words).code, ours(name, *words).code) == (1, 1)


# --- kafka-log-dirs --------------------------------------------------------------------------------------------------


def test_log_directories_are_described_alike(place: Place, tools: Tools, ours: Ours) -> None:
    topic, empty = place.topic(f"sized-{tools.release}", 2), place.topic(f"empty-{tools.release}")
    place.fill(topic, 5)
    words = ["kafka-log-dirs", "--bootstrap-server", place.bootstrap, "--describe"]
    # One partition: nothing in it that Kafka's tool could put in another order.
    theirs, our = (run(*words, "--topic-list", empty) for run in (tools.run, ours))
    assert our == theirs
    assert our.code == 0
    first = 1 if place.kafka is None else 0
    for more in (
        ["--topic-list", f"{topic},{empty}"],
        ["--topic-list", "never-was"],
        ["--broker-list", first, "--topic-list", topic],
    ):
        theirs, our = (run(*words, *more) for run in (tools.run, ours))
        assert (our.code, our.lines[:2]) == (theirs.code, theirs.lines[:2])
        assert ordered(our.lines[2]) == ordered(theirs.lines[2])


def ordered(text: str) -> Any:
    """A document of kafka-log-dirs, its lists in order."""
    document = json.loads(text)
    document["brokers"].sort(key=lambda item: item["broker"])
    for broker in document["brokers"]:
        broker["logDirs"].sort(key=lambda item: item["logDir"])
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda item: item["partition"])
    return document


# --- kafka-replica-verification --------------------------------------------------------------------------------------


def verify(release: str, place: Place, topic: str) -> list[str]:
    """What Kafka's tool says of a topic up to its first report of the lag."""
    words = _verification(topic)
    if release < "3":
        words[0] = "--topic-white-list"
    command = tool_command(release, "kafka-replica-verification", "--broker-list", place.bootstrap, *words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        watch = threading.Timer(_SECONDS, process.kill)
        watch.start()
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if "max lag is" in line:
                    return lines("".join(said))
        finally:
            watch.cancel()
            process.kill()
    raise AssertionError(f"it ended, and had said only {said}")


def _verification(topic: str) -> list[str]:
    return ["--topics-include", topic, "--time", "-2", "--max-wait-ms", "100", "--report-interval-ms", "1000"]


def until_verified(place: Place, topic: str, offset: int, ours: Ours) -> None:
    """Each broker knows that everything up to there is committed."""
    words = [
        "--topics-include",
        topic,
        "--time",
        -2,
        "--max-wait-ms",
        100,
        "--report-interval-ms",
        0,
        "--reports",
        1,
        "--output",
        "json",
    ]
    ends = time.monotonic() + _SECONDS
    while True:
        assert time.monotonic() < ends, "the replicas have not become the same"
        outcome = ours("kafka-replica-verification", "--bootstrap-server", place.bootstrap, *words)
        report = json.loads(outcome.lines[-1])
        if (report["maxLag"], report["offset"]) == (0, offset):
            return


def test_replicas_that_are_the_same_are_verified_alike(place: Place, tools: Tools, ours: Ours) -> None:
    topic = place.topic(f"same-{tools.release}")
    place.fill(topic, 20)
    until_verified(place, topic, 20, ours)
    our = ours("kafka-replica-verification", "--broker-list", place.bootstrap, *_verification(topic), "--reports", 1)
    assert (our.code, our.errors) == (0, "")
    if place.kafka is None or tools.release <= place.kafka.version:
        # Kafka's tool fetches in no version but the newest of its own release: older brokers tell it nothing.
        assert lines(our.output) == verify(tools.release, place, topic)
    assert lines(our.output)[0] == f"TIME: max lag is 0 for partition {topic}-0 at offset 20 among 1 partitions"


@_OLDER
def test_replicas_that_differ_are_told_alike(ours: Ours, tmp_path: Path) -> None:
    """On the disk of one broker a batch gets another checksum, which both tools see; and one gets another value under
    the checksum that it had, which only ours does."""
    need("java", "mvn")
    # Brokers that stop together would wait for each other to take over.
    settings = _SETTINGS | {"controlled.shutdown.enable": "false"}
    with ApacheKafka("3.9.1", tmp_path, nodes=2, zookeeper=True, heap="384m", settings=settings) as kafka:
        place = Place(kafka.bootstrap, kafka)
        topic = place.topic("differing")
        place.fill(topic, 10)
        until_verified(place, topic, 10, ours)
        kafka.stop()
        file = tmp_path / "data-1" / f"{topic}-0" / f"{0:020}.log"
        data = bytearray(file.read_bytes())
        (third, header), (seventh, other) = list(iter_headers(data))[3:8:4]
        data[third + CRC_OFFSET + 3] ^= 1
        file.write_bytes(data)
        kafka.start()
        place.until(topic, lambda partition: len(partition.in_sync_replicas) == 2)
        until_lag_is_gone(place, topic, ours)
        our = ours(
            "kafka-replica-verification", "--broker-list", place.bootstrap, *_verification(topic), "--reports", 1
        )
        told = (
            f"partition {topic}-0 has unmatched checksum at offset 3; replica 0's checksum {header.crc}; replica 1's "
            f"checksum {header.crc ^ 1}"
        )
        assert our.code == 1
        assert f"TIME: {told}" in lines(our.output)
        assert lines(our.output) == verify("3.9.1", place, topic)

        kafka.stop()
        data[seventh + other.size_bytes - 2] ^= 1
        file.write_bytes(data)
        kafka.start()
        place.until(topic, lambda partition: len(partition.in_sync_replicas) == 2)
        until_lag_is_gone(place, topic, ours)
        seen = lines(
            ours(
                "kafka-replica-verification", "--broker-list", place.bootstrap, *_verification(topic), "--reports", 1
            ).output
        )
        missed = verify("3.9.1", place, topic)
        assert len(seen) == len(missed) + 1
        (more,) = set(seen) - set(missed)
        assert f"partition {topic}-0 has unmatched checksum at offset 7; replica 0's checksum {other.crc}; " in more


@_OLDER
def test_brokers_that_give_a_follower_to_nobody_but_a_debugging_consumer(ours: Ours, tmp_path: Path) -> None:
    """Releases before 2.4 are read, too."""
    need("java", "mvn")
    with ApacheKafka("1.0.2", tmp_path, nodes=2, heap="384m") as kafka, Tools("1.0.2") as tools:
        place = Place(kafka.bootstrap, kafka)
        topic = place.topic("old")
        place.fill(topic, 10)
        until_verified(place, topic, 10, ours)
        our = ours(
            "kafka-replica-verification", "--broker-list", place.bootstrap, *_verification(topic), "--reports", 1
        )
        assert (our.code, our.errors) == (0, "")
        assert lines(our.output) == [line.removesuffix(".") for line in verify("1.0.2", place, topic)]
        words = ["kafka-log-dirs", "--bootstrap-server", place.bootstrap, "--describe", "--topic-list", topic]
        theirs, our = (run(*words) for run in (tools.run, ours))
        assert (our.code, our.lines[:2]) == (theirs.code, theirs.lines[:2])
        assert ordered(our.lines[2]) == ordered(theirs.lines[2])
        refused = ours(
            "kafka-leader-election",
            "--bootstrap-server",
            place.bootstrap,
            "--election-type",
            "unclean",
            "--all-topic-partitions",
        )
        assert (refused.code, refused.output, "does not serve ElectLeaders" in refused.errors) == (1, "", True)


def until_lag_is_gone(place: Place, topic: str, ours: Ours) -> None:
    words = [*_verification(topic)[:6], "--report-interval-ms", 0, "--reports", 1, "--output", "json"]
    ends = time.monotonic() + _SECONDS
    while (
        json.loads(ours("kafka-replica-verification", "--bootstrap-server", place.bootstrap, *words).lines[-1])[
            "maxLag"
        ]
        != 0
    ):
        assert time.monotonic() < ends, "a replica is behind"


# --- kafka-preferred-replica-election --------------------------------------------------------------------------------


def test_the_tree_is_asked_alike(place: Place, ours: Ours, tmp_path: Path) -> None:
    """1.0.2's tool and ours, in the ZooKeeper of two brokers of 3.9.1: the controller does what either asks for."""
    if place.kafka is None or place.kafka.zookeeper_connect is None:
        pytest.skip("there is no ZooKeeper")
    where = ["--zookeeper", place.kafka.zookeeper_connect]
    with Tools("1.0.2") as old:
        topic = place.topic("asked")
        outcomes = []
        for run in (old.run, ours):
            named = file_of(tmp_path, {"partitions": [{"topic": topic, "partition": 0}]})
            wanted = place.prefer_another(topic)
            outcomes.append(run("kafka-preferred-replica-election", *where, "--path-to-json-file", named))
            place.until(topic, lambda partition, wanted=wanted: partition.leader == wanted)  # type: ignore[misc]
        assert same(*outcomes) == [
            (
                f"Created preferred replica election path with "
                f'{{"version":1,"partitions":[{{"topic":"{topic}","partition":0}}]}}'
            ),
            f"Successfully started preferred replica election for partitions Set({topic}-0)",
        ]
        # Ours ends with 1 where something is skipped; 1.0.2's with 0, whatever happens.
        named = file_of(tmp_path, {"partitions": [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 9}]})
        theirs, our = (
            _until_free(
                lambda run=run: run(  # type: ignore[misc]
                    "kafka-preferred-replica-election", *where, "--path-to-json-file", named
                )
            )
            for run in (old.run, ours)
        )
        assert lines(theirs.output) == lines(our.output)
        assert (theirs.code, our.code) == (0, 1)
        assert (
            f"Skipping preferred replica leader election for partition {topic}-9 since it doesn't exist." in our.lines
        )


def _until_free(run: Callable[[], Outcome]) -> Outcome:
    """Again while an election before it is under way."""
    while "currently in progress" in (outcome := run()).output + outcome.errors:
        pass
    return outcome
