"""Requests of a user whose rights are drawn at random: the same access rules and the same request for both sides, and
the answers compared.

The worlds are built by the super user of the listener PLAINTEXT; requests come from anna, who has logged in. Before
each request all rules are replaced. A case that both sides answer before they look at a right counts as well.

    python -m tests.conformance.differential.access --cases 40 [--api N] [--seed S]

runs so many cases for each API."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from jesenska.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from jesenska.testing import BrokerProcess
from jesenska.wire.language import Message
from jesenska.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestCreation, CreateAclsResponse
from jesenska.wire.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter, DeleteAclsResponse
from jesenska.wire.registry import APIS
from tests.conformance.differential.answers import differences, plain, strings_of
from tests.conformance.differential.settings import JUDGES, OURS, THEIRS
from tests.conformance.differential.sides import Side
from tests.conformance.differential.trial import Report, Trial
from tests.peers.apache_kafka import ApacheKafka, free_port
from tests.processes.broker.token_scenario import SETTINGS
from tests.sensible_requests import BETWEEN_BROKERS

USER: Final = "anna"
_AUTHORIZERS: Final = {
    "4.3.1": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "3.9.1": "kafka.security.authorizer.AclAuthorizer",
    None: "kafka.security.authorizer.AclAuthorizer",
}
_WAIT_SECONDS: Final = 20.0
_ANY: Final = 1
_FIRST_SURROGATE: Final = 0xD800
_PRINCIPALS: Final = (*(f"User:{USER}",) * 6, "User:*", "User:*", "User:ben", "Group:x")
_HOSTS: Final = (*(WILDCARD,) * 8, "127.0.0.1", "10.0.0.1")
_KINDS: Final = (
    *(ResourceType.TOPIC,) * 5,
    *(ResourceType.GROUP,) * 3,
    *(ResourceType.CLUSTER,) * 3,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
)
Rule = tuple[ResourcePattern, AclEntry]


def drawn_rules(source: random.Random, names: list[str]) -> list[Rule]:
    """Up to eight rules: mostly for the user, and for resources that the request names. In a third of the cases the
    user may do everything that the other rules do not deny."""
    rules: list[Rule] = []
    if source.random() < 0.33:
        everything = AclEntry(f"User:{USER}", WILDCARD, AclOperation.ALL, Permission.ALLOW)
        rules += [(_pattern(kind, WILDCARD), everything) for kind in ResourceType if kind in OPERATIONS]
    for _ in range(source.choice((0, 1, 1, 2, 2, 3, 4, 6, 8))):
        kind = source.choice(_KINDS)
        operation = source.choice((AclOperation.ALL, *_operations(kind)))
        permission = Permission.ALLOW if source.random() < 0.7 else Permission.DENY
        entry = AclEntry(source.choice(_PRINCIPALS), source.choice(_HOSTS), operation, permission)
        rules.append((_drawn_pattern(kind, source, names), entry))
    return list(dict.fromkeys(rules))


def _operations(kind: ResourceType) -> list[AclOperation]:
    """The operations that 3.9.1 knows, too."""
    return [operation for operation in OPERATIONS[kind] if operation is not AclOperation.TWO_PHASE_COMMIT]


def _pattern(kind: ResourceType, name: str) -> ResourcePattern:
    return ResourcePattern(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else name)


def _drawn_pattern(kind: ResourceType, source: random.Random, names: list[str]) -> ResourcePattern:
    name = source.choice(names)
    if kind is ResourceType.USER:
        name = source.choice((f"User:{USER}", "User:ben"))
    choice = source.random()
    if kind is ResourceType.CLUSTER or choice < 0.5:
        return _pattern(kind, name)
    if choice < 0.7:
        return _pattern(kind, WILDCARD)
    if choice < 0.75:
        return ResourcePattern(kind, f"{name}x", PatternType.PREFIXED)
    return ResourcePattern(kind, name[: source.randint(1, len(name))], PatternType.PREFIXED)


class AccessTrial(Trial):
    """Cases with rules that are drawn for each of them. Every judge that serves a version is asked. A difference
    counts if no judge gives the same answer."""

    def __init__(
        self, ours: Side, judges: list[Side], seed: int = 1, label: str = "w", versions: int | None = None
    ) -> None:
        """`versions` is the number of versions of each API that are tried, the newest ones; None for all."""
        super().__init__(ours, judges, seed, label)
        self._versions = versions
        self._others: list[tuple[Side, Message]] = []

    def _judged(self, key: int) -> Iterator[tuple[Side, list[int]]]:
        judged = list(super()._judged(key))
        if self._versions is None:
            yield from judged
        elif judged:
            judge, found = judged[0]
            yield judge, found[-self._versions :]

    def _renew(self, judge: Side, key: int) -> None:
        super()._renew(judge, key)
        for other in self._judges:
            if other is not judge:
                other.renew(self._ours.world.prefix)

    def _ask(self, judge: Side, mine: Message, its: Message, version: int) -> list[tuple[str, str, str]] | None:
        differing = super()._ask(judge, mine, its, version)
        ours = self._last
        for other, request in self._others:
            other.send(request, version)
            theirs = other.receive(request, version)
            found = list(differences(plain(ours, self._ours.world, mine), plain(theirs, other.world, request)))
            if differing is not None:
                paths = {path for path, _, _ in found}
                differing = [item for item in differing if item[0] in paths]
        return differing

    def _pair(self, judge: Side, key: int, version: int, seed: str) -> tuple[Message, Message] | None:
        pair = super()._pair(judge, key, version, seed)
        if pair is None:
            return None
        named = sorted({text for text in strings_of(pair[0]) if _can_be_named(text)})
        names = [*named, *named, *self._ours.world.topics, *(group.name for group in self._ours.world.groups)]
        rules = drawn_rules(random.Random(f"rules {seed}"), [name for name in names if name])
        self._others = []
        for other in self._judges:
            if other is not judge and version in other.announced.get(key, ()):
                assert other.requests is not None
                self._others.append((other, other.requests.request(key, version, random.Random(seed))))
        for side in (*self._judges, self._ours):
            replace_rules(side, rules)
            side.settle()
        return pair


def _can_be_named(text: str) -> bool:
    """False for a name that the tree of ZooKeeper mode cannot have, and for one that means something else."""
    is_plain = text.isprintable() and max(map(ord, text), default=0) < _FIRST_SURROGATE
    return bool(text) and is_plain and "/" not in text and text not in (WILDCARD, ".", "..") and len(text) < 200


def replace_rules(side: Side, rules: list[Rule]) -> None:
    """Puts these rules in the place of all others."""
    connection = side.administration()
    every = DeleteAclsRequestFilter(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    removed = connection.ask(DeleteAclsRequest(filters=[every]), 1, DeleteAclsResponse)
    assert all(result.error_code == 0 for result in removed.filter_results), removed
    creations = [
        CreateAclsRequestCreation(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in rules
    ]
    if creations:
        made = connection.ask(CreateAclsRequest(creations=creations), 3, CreateAclsResponse)
        assert all(result.error_code == 0 for result in made.results), (rules, made)


def sides(directory: Path, stack: ExitStack, releases: tuple[str, ...] = JUDGES) -> Iterator[Side]:
    """Ours, then Apache Kafka's releases, each with an authorizer and the user's listener."""
    for release in (None, *releases):
        plain, secured, quorum = free_port(), free_port(), free_port()
        opened = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{secured}"
        settings = {
            **SETTINGS,
            "listeners": opened,
            "authorizer.class.name": _AUTHORIZERS[release],
            "super.users": "User:admin;User:ANONYMOUS",
        }
        if release is None:
            stack.enter_context(BrokerProcess(directory / "ours", settings=OURS | settings))
        else:
            settings |= {
                "advertised.listeners": opened,
                "listener.security.protocol.map": ",".join(
                    ("PLAINTEXT:PLAINTEXT", "SASL_PLAINTEXT:SASL_PLAINTEXT", "CONTROLLER:PLAINTEXT")
                ),
            }
            is_old = release.startswith("3")
            if not is_old:
                settings["listeners"] += f",CONTROLLER://127.0.0.1:{quorum}"
            kafka = ApacheKafka(
                release,
                directory / release,
                zookeeper=is_old,
                heap="512m",
                settings=THEIRS | settings,
                log_level="OFF",
            )
            kafka.ports, kafka.quorum = [plain], [quorum]
            stack.enter_context(kafka)
        yield Side(f"127.0.0.1:{plain}", release, user=USER, user_bootstrap=f"127.0.0.1:{secured}")


#: Every API that clients use.
def keys(ours: Side) -> list[int]:
    return sorted(ours.announced.keys() - set(BETWEEN_BROKERS))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.differential.access", description=__doc__)
    parser.add_argument("--cases", type=int, default=40, help="cases for each API")
    parser.add_argument("--api", type=int, action="append", help="only this key; may be given several times")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--release", action="append", help="only this release of Apache Kafka")
    options = parser.parse_args()
    reports: list[Report] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours, *judges = sides(directory, stack, tuple(options.release or JUDGES))
        trial = AccessTrial(ours, judges, options.seed, "a")
        for key in options.api or keys(ours):
            begun = time.monotonic()
            report = trial.run(key, options.cases)
            reports.append(report)
            print(
                f"{key:3} {APIS[key].name}: {report.cases:,} cases in {time.monotonic() - begun:.0f} s, "
                f"{report.differing:,} differ, {report.silent:,} without an answer of Kafka",
                flush=True,
            )
            for sign, count in report.counts.most_common():
                print(f"  {count} times: {report.found[sign]}", flush=True)
    cases, differing = (sum(getattr(report, name) for report in reports) for name in ("cases", "differing"))
    print(f"{cases:,} cases, {differing:,} differ in a way that is not known")
    return 1 if any(report.found for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
