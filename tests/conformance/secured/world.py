"""What Apache Kafka's own tools make of users, access rules, quotas and delegation tokens, and what a broker does with
it, observed by requests and the same for every broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from jesenska.base.errors import ErrorCode
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.quota_administration import ANY, DEFAULT, EXACT
from jesenska.client.administration.token_administration import TokenWithHmac
from jesenska.client.client_config import client_config
from jesenska.client.cluster import Cluster
from jesenska.config.settings.client_settings import ADMIN_SETTINGS
from jesenska.security.acls import AclFilter
from jesenska.security.client_security import PlainClient, SaslClient, ScramSteps
from jesenska.security.scram import ScramClient
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from jesenska.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tests.peers.apache_kafka import free_port
from tests.peers.tools import Tools
from tests.processes.broker.secured import PLAIN, SCRAM, login
from tests.processes.broker.token_scenario import logged_in, token_login
from tests.raw_connection import ClosedByBrokerError, RawConnection
from tests.units.records.raw_batches import raw_batch, raw_record

Answer = TypeVar("Answer")
ADMIN_SECRET: Final = "admin-sEcret"
#: Kafka admits names of ASCII characters alone.
ODD: Final = "al ice/e=x"
#: The password of each user, and the mechanisms that it has one for.
PASSWORDS: Final = {"anna": "anna-sEcret", "ben": "ben-sEcret", ODD: "pä ss=wörd"}
MECHANISMS: Final = {
    "anna": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "ben": ("SCRAM-SHA-512",),
    ODD: ("SCRAM-SHA-256",),
}
TOPICS: Final = ("orders", "ordinary", "hosts", "secret")
GROUPS: Final = ("g-1", "g-denied", "h-1")
_SHA_256, _SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
_RETRIABLE: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
_SECONDS: Final = 30.0
#: The quotas that are set: the entity's flags of kafka-configs, and the settings.
_QUOTAS: Final[Sequence[tuple[Sequence[str], str]]] = (
    (("--entity-type", "users", "--entity-name", "anna"), "producer_byte_rate=1000,consumer_byte_rate=1048576"),
    (
        ("--entity-type", "users", "--entity-name", "anna", "--entity-type", "clients", "--entity-name", "c 1"),
        "request_percentage=12.5",
    ),
    (("--entity-type", "users", "--entity-name", ODD), "controller_mutation_rate=2.5"),
    (
        ("--entity-type", "users", "--entity-name", ODD, "--entity-type", "clients", "--entity-default"),
        "producer_byte_rate=70000",
    ),
    (("--entity-type", "clients", "--entity-name", "c2"), "producer_byte_rate=3000,request_percentage=200"),
    (("--entity-type", "clients", "--entity-default"), "consumer_byte_rate=4000000"),
    (("--entity-type", "users", "--entity-default"), "producer_byte_rate=5000000"),
    (
        ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-default"),
        "producer_byte_rate=6000000",
    ),
    (
        ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "c3"),
        "consumer_byte_rate=7000000",
    ),
    (("--entity-type", "ips", "--entity-name", "127.0.0.9"), "connection_creation_rate=5"),
    (("--entity-type", "ips", "--entity-default"), "connection_creation_rate=500"),
)
_ACLS: Final[Sequence[Sequence[str]]] = (
    ("--allow-principal", "User:anna", "--operation", "Read", "--operation", "Describe", "--topic", "orders"),
    (
        *("--allow-principal", "User:anna", "--operation", "Write", "--topic", "ord"),
        *("--resource-pattern-type", "prefixed"),
    ),
    ("--allow-principal", "User:ben", "--operation", "All", "--topic", "*"),
    ("--deny-principal", "User:ben", "--operation", "Write", "--topic", "orders"),
    ("--allow-principal", "User:*", "--operation", "Read", "--group", "g-", "--resource-pattern-type", "prefixed"),
    ("--deny-principal", "User:anna", "--operation", "Read", "--group", "g-denied"),
    (
        *("--allow-principal", f"User:{ODD}", "--allow-host", "127.0.0.1", "--operation", "Read"),
        *("--topic", "hosts"),
    ),
    ("--allow-principal", "User:anna", "--allow-host", "10.0.0.1", "--operation", "Read", "--topic", "hosts"),
    ("--deny-principal", "User:ben", "--deny-host", "10.0.0.1", "--operation", "Read", "--topic", "hosts"),
    ("--deny-principal", "User:ben", "--deny-host", "127.0.0.1", "--operation", "Read", "--topic", "secret"),
    (
        *("--allow-principal", "User:anna", "--operation", "Write", "--transactional-id", "tx-"),
        *("--resource-pattern-type", "prefixed"),
    ),
    ("--allow-principal", "User:ben", "--operation", "Create", "--cluster"),
    ("--allow-principal", "User:anna", "--operation", "CreateTokens", "--user-principal", "User:ben"),
)


@dataclass(frozen=True)
class Ports:
    """A broker's ports. A client needs no login at `plain`, and has no rights there."""

    plain: int = field(default_factory=free_port)
    internal: int = field(default_factory=free_port)
    client: int = field(default_factory=free_port)

    @property
    def address(self) -> str:
        """Where clients log in."""
        return f"127.0.0.1:{self.client}"


def settings(ports: Ports) -> dict[str, str]:
    """The settings of a broker. Brokers log in with SCRAM as the user broker."""
    opened = ",".join(f"{name.upper()}://127.0.0.1:{getattr(ports, name)}" for name in ("plain", "internal", "client"))
    between = f'{SCRAM} username="broker" password="broker-sEcret";'
    return {
        "listeners": opened,
        "advertised.listeners": opened,
        "listener.security.protocol.map": "PLAIN:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CLIENT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.mechanism.inter.broker.protocol": _SHA_512,
        "listener.name.internal.sasl.enabled.mechanisms": _SHA_512,
        "listener.name.internal.scram-sha-512.sasl.jaas.config": between,
        "listener.name.client.sasl.enabled.mechanisms": f"PLAIN,{_SHA_256},{_SHA_512}",
        "listener.name.client.plain.sasl.jaas.config": f'{PLAIN} user_admin="{ADMIN_SECRET}";',
        "listener.name.client.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        "listener.name.client.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:broker",
        "delegation.token.secret.key": "token-sEcret",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
    }


def make_broker_user(tools: Tools, zookeeper: str) -> None:
    """The user as which brokers log in, made before one runs."""
    words = ["--zookeeper", zookeeper, "--alter", "--entity-type", "users", "--entity-name", "broker"]
    done = tools.run("kafka-configs", *words, "--add-config", f"{_SHA_512}=[password=broker-sEcret]")
    assert done.code == 0, done


def command_config(directory: Path, user: str, mechanism: str = "PLAIN") -> Path:
    """The file with a user's login for a tool."""
    password = ADMIN_SECRET if user == "admin" else PASSWORDS[user]
    lines = {"security.protocol": "SASL_PLAINTEXT", **login(user, password, mechanism)}
    path = directory / f"{user.replace('/', '_')}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return path


def admin_client(address: str, work: Callable[[Admin], Awaitable[Answer]]) -> Answer:
    """The outcome of work with the administrator's client."""
    found = {"security.protocol": "SASL_PLAINTEXT", **login("admin", ADMIN_SECRET)}

    async def main() -> Answer:
        cluster = Cluster(address, client_config(ADMIN_SETTINGS, found))
        try:
            async with asyncio.timeout(_SECONDS):
                return await work(Admin(cluster))
        finally:
            await cluster.close()

    return asyncio.run(main())


def make(tools: Tools, address: str, directory: Path) -> None:
    """Has Kafka's tools make everything."""
    where = ("--bootstrap-server", address, "--command-config", str(command_config(directory, "admin")))
    by_anna = (*where[:3], str(command_config(directory, "anna", _SHA_256)))

    def run(tool: str, *words: str, by: Sequence[str] = where) -> None:
        done = tools.run(tool, *by, *words)
        assert done.code == 0, (words, done)

    for topic in TOPICS:
        run("kafka-topics", "--create", "--topic", topic)
    for user, names in {**MECHANISMS, "gone": (_SHA_256,)}.items():
        word = PASSWORDS.get(user, "x")
        iterations = "iterations=8192," if user == "anna" else ""
        added = ",".join(f"{name}=[{iterations}password={word}]" for name in names)
        run("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", user, "--add-config", added)
    gone = ("--alter", "--entity-type", "users", "--entity-name", "gone", "--delete-config", _SHA_256)
    run("kafka-configs", *gone)
    for entity, added in _QUOTAS:
        run("kafka-configs", "--alter", *entity, "--add-config", added)
    for rule in _ACLS:
        run("kafka-acls", "--add", *rule)
    admin_client(address, _make_coordinators)
    tokens = "kafka-delegation-tokens"
    run(tokens, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:ben", by=by_anna)
    run(tokens, "--create", "--max-life-time-period", "1", by=by_anna)
    other = ("--owner-principal", "User:ben")
    run(tokens, "--create", "--max-life-time-period", "3600000", *other, by=by_anna)


async def _make_coordinators(admin: Admin) -> None:
    """Kafka makes their topics when somebody looks for a coordinator."""
    for kind in (0, 1):
        request = FindCoordinatorRequest(key="any", key_type=kind)
        while (await admin.cluster.ask_any(request, FindCoordinatorResponse, at_most=3)).error_code in _RETRIABLE:
            await asyncio.sleep(0.05)


# --- what a broker does ----------------------------------------------------------------------------------------------


def steps(user: str, mechanism: str, password: str) -> SaslClient:
    if mechanism == "PLAIN":
        return PlainClient(user, password)
    return ScramSteps(ScramClient(mechanism, user, password, "nonce"))


def error_of_login(address: str, client: SaslClient, mechanism: str) -> str:
    with logged_in(address, client, mechanism) as (_, error, _lifetime):
        return ErrorCode(error).name


def produce(connection: RawConnection, topic: str, size: int = 1) -> tuple[str, int]:
    """The error of a record of this size, and for how long the client is asked to wait."""
    part = ProduceRequestPartition(index=0, records=bytes(raw_batch(raw_record(0, value=b"x" * size), 1)))
    request = ProduceRequest(
        acks=1, timeout_ms=5000, topic_data=[ProduceRequestTopic(name=topic, partition_data=[part])]
    )
    answer = connection.ask(request, 7, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code).name, answer.throttle_time_ms


def fetch(connection: RawConnection, topic: str) -> str:
    part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 10)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchRequestTopic(topic=topic, partitions=[part])])
    answer = connection.ask(request, 11, FetchResponse)
    return ErrorCode(answer.responses[0].partitions[0].error_code).name


def _metadata(connection: RawConnection, topic: str) -> str:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return ErrorCode(connection.ask(request, 8, MetadataResponse).topics[0].error_code).name


def _offsets(connection: RawConnection, group: str) -> str:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    return _settled(lambda: connection.ask(request, 8, OffsetFetchResponse).groups[0].error_code)


def _producer_id(connection: RawConnection, name: str | None) -> str:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)
    return _settled(lambda: connection.ask(request, 1, InitProducerIdResponse).error_code)


def _create(connection: RawConnection, topic: str) -> str:
    wanted = CreateTopicsRequestTopic(name=topic, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[wanted], validate_only=True)
    return ErrorCode(connection.ask(request, 4, CreateTopicsResponse).topics[0].error_code).name


def _settled(ask: Callable[[], int]) -> str:
    """The error when the coordinator is there."""
    deadline = time.monotonic() + _SECONDS
    while (code := ask()) in _RETRIABLE and time.monotonic() < deadline:
        time.sleep(0.05)
    return ErrorCode(code).name


def rights(connection: RawConnection) -> Iterator[tuple[str, Any]]:
    """What the user of a connection may do. Producing comes last, as it may be slowed down by a quota."""
    for topic in TOPICS:
        yield f"metadata of {topic}", _metadata(connection, topic)
        yield f"fetch from {topic}", fetch(connection, topic)
    for group in GROUPS:
        yield f"offsets of {group}", _offsets(connection, group)
    for name in ("tx-1", "other", None):
        yield f"producer id of {name}", _producer_id(connection, name)
    yield "create new", _create(connection, "new")
    for topic in TOPICS:
        yield f"produce to {topic}", produce(connection, topic)[0]


def logins(address: str) -> Iterator[tuple[str, Any]]:
    for user, password in PASSWORDS.items():
        for mechanism in (_SHA_256, _SHA_512):
            for word in (password, "wrong", ""):
                client = steps(user, mechanism, word)
                yield f"{user} by {mechanism} with {word!r}", error_of_login(address, client, mechanism)
    yield "gone", error_of_login(address, steps("gone", _SHA_256, "x"), _SHA_256)
    yield "admin", error_of_login(address, PlainClient("admin", ADMIN_SECRET), "PLAIN")


def tokens(address: str, known: Sequence[TokenWithHmac]) -> Iterator[tuple[str, Any]]:
    """What the user of each token gets from the topic orders. Kafka takes the login with a token that has expired, and
    closes the connection at the next request; here the login fails, as it does at Kafka when the token is removed."""
    for number, (token, hmac) in enumerate(known):
        for mechanism in (_SHA_256, _SHA_512):
            client = token_login(token.token_id, hmac, mechanism)
            with logged_in(address, client, mechanism) as (connection, error, _):
                try:
                    found = fetch(connection, "orders") if not error else "refused"
                except ClosedByBrokerError:
                    found = "refused"
            yield f"token {number} by {mechanism}", found
        wrong = token_login(token.token_id, b"wrong", _SHA_256)
        yield f"token {number} with another HMAC", error_of_login(address, wrong, _SHA_256)


def is_slowed_down(address: str) -> bool:
    """True if anna, whose quota is 1000 bytes a second, is asked to wait after 60 kB."""
    with logged_in(address, steps("anna", _SHA_512, PASSWORDS["anna"]), _SHA_512) as (connection, _, _lifetime):
        return any(produce(connection, "ordinary", 20_000)[1] > 0 for _ in range(3))


def kept(address: str) -> Mapping[str, Any]:
    """Everything that an administrator's client is told of users, rules, quotas and tokens."""

    async def work(admin: Admin) -> dict[str, Any]:
        cluster = admin.cluster
        users = await cluster.ask_controller(
            DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse
        )
        filters: Mapping[str, Mapping[str, tuple[int, str | None]]] = {
            "all": {},
            "anna": {"user": (EXACT, "anna")},
            "default user": {"user": (DEFAULT, None)},
            "any user and client": {"user": (ANY, None), "client-id": (ANY, None)},
            "any ip": {"ip": (ANY, None)},
        }
        quotas = {
            f"{name}{' strict' if strict else ''}": sorted(
                repr((sorted(entry.entity.items()), sorted(entry.quotas.items())))
                for entry in await admin.describe_client_quotas(wanted, strict=strict)
            )
            for name, wanted in filters.items()
            for strict in (False, True)
        }
        return {
            "users": sorted(
                (result.user, sorted((info.mechanism, info.iterations) for info in result.credential_infos))
                for result in users.results
            ),
            "acls": sorted(await admin.describe_acls(AclFilter())),
            "quotas": {name: repr(found) for name, found in quotas.items()},
            "tokens": sorted(await admin.describe_delegation_tokens(), key=lambda one: one.token.issued_at_ms),
        }

    return admin_client(address, work)


def observe(address: str, known: Sequence[TokenWithHmac]) -> dict[str, Any]:
    """All that a broker does, by its name."""
    found = dict(logins(address))
    for user, password in PASSWORDS.items():
        mechanism = MECHANISMS[user][0]
        with logged_in(address, steps(user, mechanism, password), mechanism) as (connection, error, _lifetime):
            if not error:
                found |= {f"{user}: {name}": answer for name, answer in rights(connection)}
    found |= dict(tokens(address, known))
    found["anna is slowed down"] = is_slowed_down(address)
    return found
