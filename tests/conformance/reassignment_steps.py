"""The steps of kafka-reassign-partitions that are asked of Apache Kafka's tool and of ours, on clusters of either
system. A step is one call of a tool; its outcome is the exit code and the lines on stdout."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, TOPIC, ConfigChange
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from tests.cluster.cluster import until
from tests.cluster.view import view_of
from tests.processes.cli.groups import ask

TOOL = "kafka-reassign-partitions"
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_OF_CLUSTER = re.compile(r"TopicId: \S+|Configs: \S*")
#: Apache Kafka's tool forgets a line break here.
_WITHOUT_BREAK = re.compile(r"^(None of the specified partition moves are active\.)(Clearing .*)$", re.MULTILINE)
_LOG_DIRS = re.compile(r'"log_dirs":\[[^]]*\]')


class Said(NamedTuple):
    """The exit code of a tool, and what it has printed on stdout."""

    code: int
    output: str


Run = Callable[[str, Sequence[str]], Said]


@dataclass
class Steps:
    """A cluster of three brokers 0 to 2 with the directories a and b, and a tool that is asked about it."""

    bootstrap: str
    #: The directory of the brokers' log directories `broker-N/a` and `broker-N/b`.
    data: Path
    files: Path
    run: Run
    prefix: str

    def topic(self, name: str, placed: Sequence[Sequence[int]], *, megabytes: int = 0) -> str:
        """A new topic. With records, partition 0 has so many megabytes."""
        topic = f"{self.prefix}-{name}"

        async def work(cluster: Cluster) -> None:
            assert await Admin(cluster).create_topics([NewTopic(topic, assignment=placed)]) == {topic: None}
            async with Producer(cluster, acks=-1) as producer:
                for _ in range(megabytes * 100):
                    await producer.send(topic, os.urandom(10_000), partition=0)

        ask(self, work)
        return topic

    def plan(self, *items: tuple[str, int, Sequence[int]], log_dirs: Sequence[str] = ()) -> str:
        """A file with these targets; `log_dirs` are those of the first."""
        partitions: list[dict[str, Any]] = [
            {"topic": topic, "partition": number, "replicas": list(replicas)} for topic, number, replicas in items
        ]
        if log_dirs:
            partitions[0]["log_dirs"] = list(log_dirs)
        return self.file({"version": 1, "partitions": partitions})

    def file(self, content: Any) -> str:
        path = self.files / f"{len(list(self.files.iterdir()))}.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def __call__(self, *arguments: object, tool: str = TOOL) -> tuple[int, list[str]]:
        said = self.run(tool, ["--bootstrap-server", self.bootstrap, *map(str, arguments)])
        return said.code, self.lines(said.output)

    def lines(self, output: str) -> list[str]:
        """The lines without the names of this cluster. The topics of a list are sorted: Kafka's tool has no order."""
        text = _WITHOUT_BREAK.sub(r"\1\n\2", output).replace(str(self.data), "DATA").replace(f"{self.prefix}-", "")
        found = [line.rstrip() for line in _OF_CLUSTER.sub("-", text).splitlines()]
        while found and not found[-1]:
            found.pop()
        return [_sorted(line) for line in found]

    def ongoing(self) -> set[TopicPartition]:
        async def work(cluster: Cluster) -> set[TopicPartition]:
            return set(await Admin(cluster).list_reassignments())

        return ask(self, work)

    def until_quiet(self, but: Collection[TopicPartition] = ()) -> None:
        """Returns when no reassignment is under way, but these."""
        until(lambda: self.ongoing() == set(but), "a reassignment does not end")

    def until_placed(self, *placed: tuple[str, int, Sequence[int]]) -> None:
        """Returns when all brokers tell their clients that partitions have these replicas."""

        def is_so() -> bool:
            views = [view_of(address) for address in self.bootstrap.split(",")]
            return all(
                view.of(topic, number).replicas == tuple(replicas)
                for view in views
                for topic, number, replicas in placed
            )

        until(is_so, f"not all brokers know of {placed}")

    def rates(self) -> list[dict[str, str]]:
        """The throttles of the brokers."""

        async def work(cluster: Cluster) -> list[dict[str, str]]:
            found = []
            for broker_id in range(3):
                configs = await Admin(cluster).describe_configs(BROKER, str(broker_id))
                known = {item.name: item.value for item in configs}
                found.append(
                    {name: known[name] or "" for name in _RATES if known.get(name) not in (None, str(2**63 - 1))}
                )
            return found

        return ask(self, work)

    def until_rates(self, wanted: int | None) -> None:
        """Returns when all brokers have this throttle; None means no throttle."""
        settings = {} if wanted is None else dict.fromkeys(_RATES, str(wanted))
        until(lambda: self.rates() == [settings] * 3, f"the throttles of the brokers are not {wanted}")

    def crawl(self, topic: str) -> None:
        """Throttles the followers of a topic so much that no move with records ends."""

        async def work(cluster: Cluster) -> None:
            admin = Admin(cluster)
            await admin.alter_configs(TOPIC, topic, [ConfigChange("follower.replication.throttled.replicas", "*")])
            for broker_id in range(3):
                await admin.alter_configs(BROKER, str(broker_id), [ConfigChange(_RATES[1], "1000")])

        ask(self, work)


def _sorted(line: str) -> str:
    found = re.match(r"(Clearing topic-level throttles on topics )(.*)", line)
    return line if found is None else found[1] + ",".join(sorted(found[2].split(",")))


def without_log_dirs(lines: Sequence[str]) -> list[str]:
    """The lines with "any" as the directory of each replica: where a new replica is, is chance."""
    return [_LOG_DIRS.sub(lambda found: f'"log_dirs":{found[0].count(chr(34)) // 2 - 1}', line) for line in lines]


def steps_of_a_life(at: Steps) -> list[Any]:
    """Everything about reassignments that go well, and the lines that are said about it."""
    told: list[Any] = []
    small = at.topic("small", [[0, 1], [1, 2]])
    big = at.topic("big", [[0, 1]], megabytes=3)
    on_the_move = {TopicPartition(big, 0)}

    def step(*arguments: object, tool: str = TOOL) -> None:
        code, lines = at(*arguments, tool=tool)
        told.append((code, without_log_dirs(lines)))

    step("--list")
    plan = at.plan((small, 0, [1, 2]), (small, 1, [2, 0]))
    step("--verify", "--reassignment-json-file", plan)
    step("--execute", "--reassignment-json-file", plan)
    at.until_quiet()
    at.until_placed((small, 0, [1, 2]), (small, 1, [2, 0]))
    step("--verify", "--reassignment-json-file", plan, "--preserve-throttles")
    step("--cancel", "--reassignment-json-file", plan)
    # A move that does not end.
    slow = at.plan((big, 0, [2, 0]))
    step("--execute", "--reassignment-json-file", slow, "--throttle", 1000)
    at.until_rates(1000)
    step("--list")
    step("--verify", "--reassignment-json-file", slow)
    for given in ((), ("--under-replicated-partitions",), ("--at-min-isr-partitions",)):
        step("--describe", "--topic", big, *given, tool="kafka-topics")
    # A second move, and another throttle.
    step("--execute", "--reassignment-json-file", at.plan((small, 1, [1])), "--additional")
    at.until_quiet(on_the_move)
    at.until_placed((small, 1, [1]))
    step("--execute", "--reassignment-json-file", slow, "--throttle", 2000, "--additional")
    at.until_rates(2000)
    step("--cancel", "--reassignment-json-file", slow)
    at.until_rates(None)
    step("--list")
    # A replica more, and none at the end.
    more = at.plan((big, 0, [0, 1, 2]), (small, 0, [1, 2]))
    step("--execute", "--reassignment-json-file", more, "--throttle", 1000, "--replica-alter-log-dirs-throttle", 5000)
    step("--list")
    for given in ((), ("--under-replicated-partitions",)):
        step("--describe", "--topic", big, *given, tool="kafka-topics")
    step("--cancel", "--reassignment-json-file", more, "--preserve-throttles")
    step("--verify", "--reassignment-json-file", more)
    at.until_rates(None)
    # Between directories.
    for name in "ab":
        moved = at.plan((small, 0, [1, 2]), log_dirs=[str(at.data / "broker-1" / name), "any"])
        step("--execute", "--reassignment-json-file", moved)
        until(partial(_says_done, at, moved), "a move between directories does not end")
        step("--verify", "--reassignment-json-file", moved)
        step("--cancel", "--reassignment-json-file", moved)
    return told


def _says_done(at: Steps, plan: str) -> bool:
    lines = at("--verify", "--reassignment-json-file", plan, "--preserve-throttles")[1]
    return any(line.endswith("-1 completed successfully.") for line in lines)


def mistakes(at: Steps) -> list[tuple[str, Sequence[object]]]:
    """The calls that are refused, by name."""
    topic = at.topic("mistakes", [[0, 1]])
    good = {"topic": topic, "partition": 0, "replicas": [0, 1]}

    def execute(content: Any, *more: str) -> Sequence[object]:
        return ("--execute", "--reassignment-json-file", at.file(content), *more)

    def of(*items: Any) -> dict[str, Any]:
        return {"version": 1, "partitions": list(items)}

    return [
        ("malformed", execute("{nope")),
        ("nothing", execute("")),
        ("no object", execute([])),
        ("version", execute({"version": 2, "partitions": [good]})),
        ("no partitions", execute({"version": 1})),
        ("empty list", execute(of())),
        ("no replicas", execute(of({"topic": topic, "partition": 0}))),
        ("text", execute(of(good | {"partition": "0"}))),
        ("empty replicas", execute(of(good | {"replicas": []}))),
        ("repeated replica", execute(of(good | {"replicas": [1, 1]}))),
        ("repeated partition", execute(of(good, good | {"replicas": [1, 0]}))),
        ("unknown broker", execute(of(good | {"replicas": [1, 9]}))),
        ("negative broker", execute(of(good | {"replicas": [1, -1]}))),
        ("unknown topic", execute(of(good, good | {"topic": "never-was"}))),
        ("unknown partition", execute(of(good, good | {"partition": 7}))),
        ("negative partition", execute(of(good | {"partition": -7}))),
        ("factor", execute(of(good | {"replicas": [1]}), "--disallow-replication-factor-change")),
        ("directories", execute(of(good | {"log_dirs": ["any"]}))),
        ("unknown directory", execute(of(good | {"log_dirs": ["/nope", "any"]}))),
        ("no file", ("--execute", "--reassignment-json-file", "/nope/nope.json")),
        ("no flag", ("--execute",)),
        ("two actions", ("--execute", "--verify", "--reassignment-json-file", at.file(of(good)))),
        ("no action", ("--reassignment-json-file", at.file(of(good)))),
        ("throttle of list", ("--list", "--throttle", "5")),
        ("additional verify", ("--verify", "--reassignment-json-file", at.file(of(good)), "--additional")),
        ("racks of execute", execute(of(good), "--disable-rack-aware")),
    ]
