"""A cluster of this broker and of Apache Kafka 3.9.1 on one ZooKeeper, whose brokers log in with each other: what is
changed through one of them is enforced by both, and each follows what the other leads."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.quota_administration import EXACT
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.administration.user_administration import ScramPassword
from jesenska.security.acls import AclOperation, PatternType, Permission, ResourceType
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestCreation, CreateAclsResponse
from jesenska.wire.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter, DeleteAclsResponse
from jesenska.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenRequestRenewer,
    CreateDelegationTokenResponse,
)
from jesenska.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from jesenska.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from tests.conformance.conftest import need, need_modules
from tests.conformance.disk import batches, segments
from tests.conformance.secured import world
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.tools import Tools
from tests.peers.zookeeper import ZooKeeper
from tests.processes.broker.token_scenario import logged_in, token_login
from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(240)]

need_modules("confluent_kafka")
_client: Any = importlib.import_module("confluent_kafka")

_OURS, _KAFKA = 1, 2
_BROKERS = (_OURS, _KAFKA)
#: Who is asked to change something, and who is to know of it.
_WAYS = ((_OURS, _KAFKA), (_KAFKA, _OURS))
_SHA_256, _SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
_SECONDS = 20.0
Answer = TypeVar("Answer")
_SETTINGS = {
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}


class Mixed:
    """The cluster, its ports and its brokers' data."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.zookeeper = ""
        self.ports = {number: world.Ports() for number in _BROKERS}

    def brokers(self, zookeeper: str) -> dict[int, AbstractContextManager[object]]:
        ours = {"broker.id": str(_OURS), "zookeeper.connect": zookeeper}
        kafka = ApacheKafka(
            "3.9.1",
            self.directory / "kafka",
            heap="400m",
            zookeeper_connect=zookeeper,
            first_id=_KAFKA,
            settings=world.settings(self.ports[_KAFKA]) | _SETTINGS,
        )
        kafka.ports = [self.ports[_KAFKA].plain]
        settings = world.settings(self.ports[_OURS]) | _SETTINGS | ours
        return {_OURS: BrokerProcess(self.directory / "ours", settings=settings), _KAFKA: kafka}

    def address(self, broker: int) -> str:
        return self.ports[broker].address

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(broker) for broker in _BROKERS)

    def data(self, broker: int) -> Path:
        return self.directory / "ours" if broker == _OURS else self.directory / "kafka" / "data-0"

    def log(self, broker: int, topic: str) -> bytes:
        """The batches of a topic in a broker's files. A file that is being written may end in zeros."""
        size = sum(header.size_bytes for header in batches(self.data(broker), topic))
        return b"".join(path.read_bytes() for path in segments(self.data(broker), topic))[:size]

    def administer(self, work: Callable[[Admin], Any]) -> Any:
        return world.admin_client(self.bootstrap, work)

    def create(self, name: str, *replicas: int, **configs: str) -> None:
        """A topic of one partition. Every broker knows it afterwards."""

        async def work(admin: Admin) -> None:
            made = NewTopic(
                name, assignment=[replicas], configs={key.replace("_", "."): value for key, value in configs.items()}
            )
            assert await admin.create_topics([made]) == {name: None}

        self.administer(work)
        for broker in _BROKERS:
            until(lambda at=broker: name in self.topics(at), f"broker {broker} does not know {name}")  # type: ignore[misc]

    def topics(self, broker: int) -> Mapping[str, Any]:
        async def work(admin: Admin) -> Mapping[str, Any]:
            return dict(await admin.cluster.topics())

        return world.admin_client(self.address(broker), work)

    def knows_everybody(self, broker: int) -> bool:
        async def work(admin: Admin) -> bool:
            await admin.cluster.refresh(())
            return set(admin.cluster.nodes) == set(_BROKERS)

        return world.admin_client(self.address(broker), work)


def until(is_so: Callable[[], object], otherwise: str) -> None:
    deadline = time.monotonic() + _SECONDS
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


@pytest.fixture(
    scope="module", params=[pytest.param(_OURS, id="led by jesenska"), pytest.param(_KAFKA, id="led by Kafka")]
)
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    """The broker that starts first is the controller."""
    need("java", "mvn")
    directory = tmp_path_factory.mktemp("mixed")
    made = Mixed(directory)
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeper(directory))
        where = f"127.0.0.1:{zookeeper.port}"
        made.zookeeper = where
        with Tools("3.9.1") as tools:
            world.make_broker_user(tools, where)
        brokers = made.brokers(where)
        first = request.param
        for number in (first, *(other for other in _BROKERS if other != first)):
            stack.enter_context(brokers[number])
        for number in _BROKERS:
            until(partial(made.knows_everybody, number), f"broker {number} does not know the other")

        async def users(admin: Admin) -> None:
            await admin.cluster.refresh(())
            assert admin.cluster.controller_id == first
            for user, names in world.MECHANISMS.items():
                passwords = {name: ScramPassword(world.PASSWORDS[user]) for name in names}
                await admin.alter_user_credentials(user, passwords)

        made.administer(users)
        for number in _BROKERS:
            made.create(f"led-{number}", number)
        yield made


def _login(mixed: Mixed, broker: int, user: str, password: str, mechanism: str = _SHA_512) -> str:
    return world.error_of_login(mixed.address(broker), world.steps(user, mechanism, password), mechanism)


def _as(mixed: Mixed, broker: int, user: str, work: Callable[[RawConnection], Answer]) -> Answer:
    """The outcome of work on a user's connection."""
    mechanism, password = ("PLAIN", world.ADMIN_SECRET) if user == "admin" else (_SHA_512, world.PASSWORDS[user])
    client = world.steps(user, mechanism, password)
    with logged_in(mixed.address(broker), client, mechanism) as (connection, error, _):
        assert error == 0
        return work(connection)


def test_users_are_known_to_both(mixed: Mixed) -> None:
    def change(mechanism: str, password: str | None) -> None:
        async def work(admin: Admin) -> None:
            given = None if password is None else ScramPassword(password, 8192)
            await admin.alter_user_credentials("newcomer", {mechanism: given})

        mixed.administer(work)

    def expect(password: str, wanted: str, mechanism: str = _SHA_512) -> None:
        for broker in _BROKERS:
            until(
                lambda at=broker: _login(mixed, at, "newcomer", password, mechanism) == wanted,  # type: ignore[misc]
                f"broker {broker}: {password} by {mechanism} does not become {wanted}",
            )

    change(_SHA_512, "first")
    expect("first", "NONE")
    expect("first", "SASL_AUTHENTICATION_FAILED", _SHA_256)
    change(_SHA_512, "second")
    expect("second", "NONE")
    expect("first", "SASL_AUTHENTICATION_FAILED")
    change(_SHA_256, "third")
    expect("third", "NONE", _SHA_256)
    change(_SHA_512, None)
    expect("second", "SASL_AUTHENTICATION_FAILED")
    expect("third", "NONE", _SHA_256)
    change(_SHA_256, None)
    expect("third", "SASL_AUTHENTICATION_FAILED", _SHA_256)


def _rule(topic: str, permission: Permission, kind: PatternType = PatternType.LITERAL) -> CreateAclsRequestCreation:
    return CreateAclsRequestCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        resource_pattern_type=kind,
        principal="User:anna",
        host="127.0.0.1",
        operation=AclOperation.WRITE,
        permission_type=permission,
    )


@pytest.mark.parametrize(("via", "at"), _WAYS)
def test_access_rules_that_one_has_made_are_enforced_by_the_other(mixed: Mixed, via: int, at: int) -> None:
    topic = f"led-{at}"

    def add(rule: CreateAclsRequestCreation) -> None:
        request = CreateAclsRequest(creations=[rule])
        answer = _as(mixed, via, "admin", lambda connection: connection.ask(request, 2, CreateAclsResponse))
        assert answer.results[0].error_code == 0

    def remove(kind: PatternType, name: str) -> None:
        wanted = DeleteAclsRequestFilter(
            resource_type_filter=ResourceType.TOPIC,
            resource_name_filter=name,
            pattern_type_filter=kind,
            principal_filter=None,
            host_filter=None,
            operation=AclOperation.ANY,
            permission_type=Permission.ANY,
        )
        request = DeleteAclsRequest(filters=[wanted])
        answer = _as(mixed, via, "admin", lambda connection: connection.ask(request, 2, DeleteAclsResponse))
        assert [acl.error_code for acl in answer.filter_results[0].matching_acls] == [0]

    def expect(wanted: str) -> None:
        # One connection: rights count for each request.
        _as(
            mixed,
            at,
            "anna",
            lambda connection: until(
                lambda: world.produce(connection, topic)[0] == wanted, f"broker {at} does not answer {wanted}"
            ),
        )

    refused = "TOPIC_AUTHORIZATION_FAILED"
    expect(refused)
    add(_rule(topic, Permission.ALLOW))
    expect("NONE")
    add(_rule("led", Permission.DENY, PatternType.PREFIXED))
    expect(refused)
    remove(PatternType.PREFIXED, "led")
    expect("NONE")
    remove(PatternType.LITERAL, topic)
    expect(refused)
    add(_rule("*", Permission.ALLOW))
    expect("NONE")
    remove(PatternType.LITERAL, "*")
    expect(refused)


def test_what_old_tools_write_into_zookeeper_is_enforced_by_both(mixed: Mixed) -> None:
    rule = ("--allow-principal", "User:ben", "--operation", "Write", "--topic", "led-", "--resource-pattern-type")
    where = ("--authorizer-properties", f"zookeeper.connect={mixed.zookeeper}")
    user = ("--zookeeper", mixed.zookeeper, "--alter", "--entity-type", "users", "--entity-name", "by-tool")

    def expect(wanted: str) -> None:
        for broker in _BROKERS:
            until(
                lambda at=broker: (  # type: ignore[misc]
                    _as(mixed, at, "ben", lambda connection: world.produce(connection, f"led-{at}")[0]) == wanted
                ),
                f"broker {broker} does not answer {wanted}",
            )

    def expect_login(wanted: str) -> None:
        for broker in _BROKERS:
            until(lambda at=broker: _login(mixed, at, "by-tool", "x") == wanted, f"broker {broker}: not {wanted}")  # type: ignore[misc]

    with Tools("3.9.1") as tools:
        assert tools.run("kafka-acls", *where, "--add", *rule, "prefixed").code == 0
        assert tools.run("kafka-configs", *user, "--add-config", f"{_SHA_512}=[password=x]").code == 0
        expect("NONE")
        expect_login("NONE")
        assert tools.run("kafka-acls", *where, "--remove", "--force", *rule, "prefixed").code == 0
        assert tools.run("kafka-configs", *user, "--delete-config", _SHA_512).code == 0
        expect("TOPIC_AUTHORIZATION_FAILED")
        expect_login("SASL_AUTHENTICATION_FAILED")


def _change_quota(mixed: Mixed, entity: Mapping[str, str | None], value: float | None) -> None:
    async def work(admin: Admin) -> None:
        await admin.alter_client_quotas([(entity, {"producer_byte_rate": value})])

    mixed.administer(work)


@pytest.mark.parametrize(
    "entity", [{"user": "admin"}, {"client-id": "raw"}, {"user": None}, {"user": "admin", "client-id": "raw"}]
)
def test_quotas_slow_clients_down_at_both(mixed: Mixed, entity: Mapping[str, str | None]) -> None:
    def waits(broker: int) -> bool:
        return _as(
            mixed,
            broker,
            "admin",
            lambda connection: any(world.produce(connection, f"led-{broker}", 20_000)[1] > 0 for _ in range(3)),
        )

    assert not any(waits(broker) for broker in _BROKERS)
    _change_quota(mixed, entity, 50_000.0)
    for broker in _BROKERS:
        until(partial(waits, broker), f"broker {broker} does not slow down {entity}")
    _change_quota(mixed, entity, None)
    for broker in _BROKERS:
        until(lambda at=broker: not waits(at), f"broker {broker} slows down {entity} still")  # type: ignore[misc]


def test_quotas_are_told_by_both(mixed: Mixed) -> None:
    _change_quota(mixed, {"user": "ben"}, 12345)

    async def work(admin: Admin) -> str:
        return repr(await admin.describe_client_quotas({"user": (EXACT, "ben")}))

    for broker in _BROKERS:
        until(lambda at=broker: "12345" in world.admin_client(mixed.address(at), work), f"broker {broker}")  # type: ignore[misc]


@pytest.mark.parametrize(("via", "at"), _WAYS)
def test_delegation_tokens_that_one_has_made_are_taken_by_the_other(mixed: Mixed, via: int, at: int) -> None:
    renewer = CreateDelegationTokenRequestRenewer(principal_type="User", principal_name="ben")
    request = CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=600_000)
    made = _as(mixed, via, "anna", lambda connection: connection.ask(request, 2, CreateDelegationTokenResponse))
    assert made.error_code == 0

    def login(broker: int, mechanism: str) -> str:
        return world.error_of_login(
            mixed.address(broker), token_login(made.token_id, bytes(made.hmac), mechanism), mechanism
        )

    for mechanism in (_SHA_256, _SHA_512):
        for broker in _BROKERS:
            until(lambda to=broker, by=mechanism: login(to, by) == "NONE", f"broker {broker} refuses {mechanism}")  # type: ignore[misc]
    renew = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=300_000)
    renewed = _as(mixed, at, "ben", lambda connection: connection.ask(renew, 1, RenewDelegationTokenResponse))
    assert renewed.error_code == 0
    expire = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
    for user, code in (("admin", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH), ("anna", ErrorCode.NONE)):
        ended = _as(mixed, via, user, lambda connection: connection.ask(expire, 1, ExpireDelegationTokenResponse))
        assert ended.error_code == code
    for broker in _BROKERS:
        until(lambda to=broker: login(to, _SHA_256) == "SASL_AUTHENTICATION_FAILED", f"broker {broker} takes it still")  # type: ignore[misc]


def _librdkafka(mixed: Mixed) -> dict[str, object]:
    return {
        "bootstrap.servers": mixed.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": world.ADMIN_SECRET,
    }


@pytest.mark.parametrize(("leader", "follower"), _WAYS)
def test_each_follows_what_the_other_leads(mixed: Mixed, leader: int, follower: int) -> None:
    topic = f"replicated-{leader}"
    mixed.create(topic, leader, follower, min_insync_replicas="2")
    producer = _client.Producer(_librdkafka(mixed) | {"acks": "all", "batch.num.messages": 10, "linger.ms": 0})
    told: list[object] = []
    for number in range(60):
        producer.produce(topic, b"%d" % number, partition=0, on_delivery=lambda error, _: told.append(error))
        producer.poll(0)
    assert producer.flush(_SECONDS) == 0
    assert told == [None] * 60
    until(lambda: mixed.log(leader, topic) == mixed.log(follower, topic), "the logs are not equal")
    assert list(batches(mixed.data(follower), topic))[-1].last_offset == 59


def test_transactions_go_through_both(mixed: Mixed) -> None:
    """The coordinator is one of the brokers, and writes markers to the other."""
    producer = _client.Producer(_librdkafka(mixed) | {"transactional.id": "t"})
    producer.init_transactions(_SECONDS)
    for topic in ("led-1", "led-2"):
        producer.begin_transaction()
        for name in ("led-1", "led-2"):
            producer.produce(name, f"committed of {topic}".encode(), partition=0)
        producer.commit_transaction(_SECONDS)
        producer.begin_transaction()
        producer.produce(topic, b"aborted", partition=0)
        producer.flush(_SECONDS)
        producer.abort_transaction(_SECONDS)
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = _client.Consumer(_librdkafka(mixed) | settings)
    consumer.subscribe(["led-1", "led-2"])
    found: list[tuple[str, bytes]] = []

    def read() -> bool:
        message = consumer.poll(0.1)
        if (
            message is not None
            and not message.error()
            and message.value().endswith((b"of led-1", b"of led-2", b"aborted"))
        ):
            found.append((message.topic(), message.value()))
        return len(found) >= 4

    until(read, f"only {json.dumps(str(found))} can be read")
    consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(found) == [
        (topic, f"committed of {of}".encode()) for topic in ("led-1", "led-2") for of in ("led-1", "led-2")
    ]
