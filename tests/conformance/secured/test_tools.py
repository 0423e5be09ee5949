"""Apache Kafka's tools for access rules, users and quotas print the same at this broker and at Apache Kafka, for every
flag."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need
from tests.conformance.secured import world
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.tools import Outcome, Tools
from tests.peers.zookeeper import ZooKeeper

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

_RELEASES = ("3.9.1", pytest.param("4.3.1", marks=pytest.mark.hour("src/jesenska/security")))
_ADD, _LIST, _REMOVE = "--add", "--list", "--remove"
_ANNA = ("--allow-principal", "User:anna")
_ALL_RESOURCES = (
    *("--topic", "t", "--group", "g", "--transactional-id", "x", "--delegation-token", "d"),
    *("--user-principal", "User:ben", "--cluster"),
)
#: What kafka-acls is asked, one after another.
_RULES: Sequence[Sequence[str]] = (
    (_LIST,),
    (_ADD, *_ANNA, "--topic", "t"),
    (_ADD, *_ANNA, "--topic", "t", "--operation", "Read", "--operation", "write", "--operation", "DESCRIBE"),
    (
        _ADD,
        *_ANNA,
        "--allow-principal",
        "User:ben",
        "--allow-host",
        "10.0.0.1",
        "--allow-host",
        "10.0.0.2",
        "--topic",
        "u",
    ),
    (_ADD, "--deny-principal", "User:CN=x,O=y", "--deny-host", "::1", "--operation", "All", "--topic", "*"),
    (_ADD, *_ANNA, "--topic", "pre", "--resource-pattern-type", "prefixed", "--operation", "AlterConfigs"),
    (_ADD, *_ANNA, "--topic", "pre", "--resource-pattern-type", "PREFIXED", "--operation", "DescribeConfigs"),
    (_ADD, *_ANNA, "--producer", "--topic", "p"),
    (_ADD, *_ANNA, "--producer", "--idempotent", "--topic", "p", "--transactional-id", "tx"),
    (_ADD, *_ANNA, "--consumer", "--topic", "c", "--group", "g"),
    (_ADD, *_ANNA, "--producer", "--consumer", "--topic", "pc", "--group", "g", "--resource-pattern-type", "prefixed"),
    (_ADD, *_ANNA, "--cluster", "--operation", "ClusterAction", "--operation", "IdempotentWrite"),
    (_ADD, *_ANNA, "--delegation-token", "d", "--operation", "Describe"),
    (_ADD, *_ANNA, "--user-principal", "User:ben", "--operation", "CreateTokens", "--operation", "DescribeTokens"),
    (_ADD, "--allow-principal", "User:*", "--group", "*", "--operation", "Read"),
    (_ADD, "--allow-principal", "User:al ice/é", "--topic", "odd"),
    # What is refused.
    (_ADD, *_ANNA, "--topic", "t", "--operation", "CreateTokens"),
    (_ADD, *_ANNA, "--topic", "t", "--operation", "Nothing"),
    (_ADD, *_ANNA, "--topic", "t", "--resource-pattern-type", "match"),
    (_ADD, *_ANNA, "--topic", "t", "--resource-pattern-type", "any"),
    (_ADD, "--allow-principal", "anna", "--topic", "t"),
    (_ADD, "--topic", "t"),
    (_ADD, *_ANNA),
    (_ADD, *_ANNA, "--topic", "t", "--allow-host", "10.0.0.1", "--deny-host", "10.0.0.2"),
    (_ADD, _REMOVE, *_ANNA, "--topic", "t"),
    (_ADD, *_ANNA, "--producer", "--topic", "p", "--operation", "Read"),
    (_ADD, *_ANNA, "--consumer", "--topic", "p"),
    (_ADD, *_ANNA, "--producer", "--idempotent", "--group", "g"),
    (_ADD, *_ANNA, "--cluster", "--operation", "Read"),
    # What is listed.
    (_LIST,),
    (_LIST, *_ALL_RESOURCES),
    *(
        (_LIST, "--topic", "prefix", "--resource-pattern-type", kind)
        for kind in ("literal", "prefixed", "match", "any")
    ),
    (_LIST, "--topic", "*", "--resource-pattern-type", "any"),
    (_LIST, "--topic", "*", "--resource-pattern-type", "match"),
    (_LIST, "--principal", "User:ben"),
    (_LIST, "--principal", "User:ben", "--principal", "User:nobody", "--topic", "u"),
    (_LIST, "--group", "g"),
    (_LIST, "--cluster"),
    # What is removed.
    (_REMOVE, "--force", *_ANNA, "--topic", "t", "--operation", "Read"),
    (_REMOVE, "--force", *_ANNA, "--topic", "u", "--allow-host", "10.0.0.1"),
    (_REMOVE, "--force", *_ANNA, "--producer", "--topic", "p"),
    (_REMOVE, "--force", *_ANNA, "--consumer", "--topic", "c", "--group", "g"),
    (_REMOVE, "--force", "--topic", "pre", "--resource-pattern-type", "prefixed"),
    (_REMOVE, "--force", "--topic", "odd", "--resource-pattern-type", "match"),
    (_REMOVE, "--force", "--topic", "nothing"),
    (_REMOVE, "--force", *_ALL_RESOURCES),
    (_LIST,),
)
_USER, _CLIENT, _IP = ("--entity-type", "users"), ("--entity-type", "clients"), ("--entity-type", "ips")
_NAME = "--entity-name"
#: What kafka-configs is asked.
_SETTINGS: Sequence[Sequence[str]] = (
    ("--alter", *_USER, _NAME, "u", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=of-u-sEcret]"),
    ("--alter", *_USER, _NAME, "u", "--add-config", "SCRAM-SHA-512=[password=of-u-sEcret],consumer_byte_rate=9"),
    ("--alter", *_USER, _NAME, "u", "--add-config", "SCRAM-SHA-512=[iterations=1,password=of-u-sEcret]"),
    ("--alter", *_USER, _NAME, "u", "--add-config", "SCRAM-SHA-512=[iterations=99999,password=of-u-sEcret]"),
    ("--alter", *_USER, _NAME, "u", "--add-config", "SCRAM-SHA-1=[password=of-u-sEcret]"),
    ("--alter", *_USER, "--entity-default", "--add-config", "SCRAM-SHA-512=[password=of-u-sEcret]"),
    ("--alter", *_USER, _NAME, "u", "--add-config", "producer_byte_rate=1000,request_percentage=12.5"),
    ("--alter", *_USER, _NAME, "u", "--add-config", "producer_byte_rate=1.5"),
    ("--alter", *_USER, _NAME, "u", "--add-config", "producer_byte_rate=-1"),
    ("--alter", *_USER, _NAME, "u", "--add-config", "unheard_of=1"),
    ("--alter", "--user", "u", "--client", "c", "--add-config", "consumer_byte_rate=5"),
    ("--alter", "--user", "u", "--client-defaults", "--add-config", "consumer_byte_rate=6"),
    ("--alter", "--user-defaults", "--client", "c", "--add-config", "consumer_byte_rate=7"),
    ("--alter", "--user-defaults", "--add-config", "consumer_byte_rate=8"),
    ("--alter", *_CLIENT, "--entity-default", "--add-config", "controller_mutation_rate=2.5"),
    ("--alter", "--ip", "127.0.0.1", "--add-config", "connection_creation_rate=1000"),
    ("--alter", "--ip", "not an address", "--add-config", "connection_creation_rate=1000"),
    ("--alter", "--ip-defaults", "--add-config", "connection_creation_rate=2000"),
    *(("--describe", *kind) for kind in (_USER, _CLIENT, _IP, (*_USER, *_CLIENT))),
    *(("--describe", *kind, "--entity-default") for kind in (_USER, _CLIENT, _IP)),
    ("--describe", "--user", "u"),
    ("--describe", "--user", "u", "--client", "c"),
    ("--describe", "--user", "u", *_CLIENT),
    ("--describe", "--user", "nobody"),
    ("--describe", "--all", *_USER),
    ("--alter", *_USER, _NAME, "u", "--delete-config", "SCRAM-SHA-256"),
    ("--alter", *_USER, _NAME, "u", "--delete-config", "SCRAM-SHA-256"),
    ("--alter", *_USER, _NAME, "u", "--delete-config", "producer_byte_rate,request_percentage,consumer_byte_rate"),
    ("--alter", "--user", "nobody", "--delete-config", "SCRAM-SHA-512"),
    ("--describe", *_USER),
)


class Place(NamedTuple):
    name: str
    address: str


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Place]]:
    """This broker and Apache Kafka 3.9.1."""
    need("java", "mvn")
    directory = tmp_path_factory.mktemp("tools")
    ours, theirs = world.Ports(), world.Ports()
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(directory))
        where = f"127.0.0.1:{zookeeper.port}"
        with Tools("3.9.1") as tools:
            world.make_broker_user(tools, where)
        kafka = ApacheKafka(
            "3.9.1", directory / "kafka", heap="400m", zookeeper_connect=where, settings=world.settings(theirs)
        )
        kafka.ports = [theirs.plain]
        stack.enter_context(kafka)
        # It speaks to itself with a login that nobody has given it a password for.
        alone = {"inter.broker.listener.name": "PLAIN", "super.users": "User:admin;User:ANONYMOUS"}
        stack.enter_context(BrokerProcess(directory / "ours", settings=world.settings(ours) | alone))
        yield [Place("ours", ours.address), Place("3.9.1", theirs.address)]


@pytest.fixture(scope="module", params=_RELEASES)
def tools(request: pytest.FixtureRequest) -> Iterator[Tools]:
    need("java", "mvn")
    with Tools(request.param) as made:
        yield made


def _plain(outcome: Outcome) -> tuple[int, list[str]]:
    """The exit code, and the lines in any order, without times and ports. Of an error of the broker the class remains,
    as 3.9.1 and 4.3.1 have other sentences."""
    text = re.sub(r"\[20\d\d-[^]]*\]|\(org\.apache\.[^)]*\)|:\d{4,5}\b", "", outcome.output + outcome.errors)
    text = re.sub(r"(common\.errors\.\w+: )(?!org).*", r"\1", text)
    lines = (line.strip() for line in text.splitlines() if "\tat " not in line and "'broker'" not in line)
    # The tool prints a resource's rules, and a user's quotas, in the order of a set.
    return outcome.code, sorted(" ".join(sorted(re.split(r",? ", line))) for line in lines if line)


def _differences(
    tools: Tools, places: Sequence[Place], directory: Path, tool: str, asked: Sequence[Sequence[str]]
) -> list[str]:
    config = str(world.command_config(directory, "admin"))
    found: list[str] = []
    for words in asked:
        said = {
            place.name: tools.run(tool, "--bootstrap-server", place.address, "--command-config", config, *words)
            for place in places
        }
        for outcome in said.values():
            # Where it fails the tool repeats what it was asked.
            assert not re.search(r"of-u-sEcret|stored_key|server_key|salt=", outcome.output), (words, outcome)
        ours, theirs = (_plain(said[place.name]) for place in places)
        if ours != theirs:
            found.append(f"{' '.join(words)}\n  ours:   {ours}\n  theirs: {theirs}")
    return found


def test_kafka_acls_prints_the_same(tools: Tools, places: list[Place], tmp_path: Path) -> None:
    found = _differences(tools, places, tmp_path, "kafka-acls", _RULES)
    assert not found, "\n".join(found)


def test_kafka_configs_prints_the_same_of_users_clients_and_addresses(
    tools: Tools, places: list[Place], tmp_path: Path
) -> None:
    found = _differences(tools, places, tmp_path, "kafka-configs", _SETTINGS)
    assert not found, "\n".join(found)
