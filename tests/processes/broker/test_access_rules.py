"""A broker with an authorizer: what users may do, from the first rule to the last, and kafka-acls, which gives and
takes rights while they are connected."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jesenska.base.errors import (
    ErrorCode,
    InvalidConfigError,
    JesenskaError,
    NetworkException,
    TopicAuthorizationFailedError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.server import Broker
from jesenska.cli.kafka.cluster import kafka_acls
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.producer import Producer
from jesenska.config.safety import AUTHORIZERS
from jesenska.metadata import paths
from jesenska.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from jesenska.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.processes.broker.secured import PLAIN, address, cluster_at, login, secured_broker

USERS = ("admin", "anna", "ben")
_LAST_WITH_NAMES = 12


def settings_of(directory: Path, **more: str) -> dict[str, str]:
    users = " ".join(f'user_{name}="{name}-sEcret"' for name in USERS)
    return {
        "log.dirs": str(directory / "data"),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} username="admin" password="admin-sEcret" {users};',
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:other",
        "offsets.topic.num.partitions": "1",
    } | {name.replace("_", "."): value for name, value in more.items()}


def on_a_broker(directory: Path, work: Callable[[Broker], Awaitable[None]], **more: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), secured_broker(settings_of(directory, **more)) as broker:
            async with as_user(broker, "admin") as admin:
                if "t" not in await admin.topics():
                    await Admin(admin).create_topics([NewTopic("t", 1, 1), NewTopic("secret", 1, 1)])
            await work(broker)

    asyncio.run(main())


@asynccontextmanager
async def as_user(broker: Broker, user: str) -> AsyncIterator[Cluster]:
    async with cluster_at(broker, "SASL_PLAINTEXT", login(user, f"{user}-sEcret")) as cluster:
        yield cluster


class Acls:
    """kafka-acls as the super user."""

    def __init__(self, broker: Broker, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._at = address(broker, "SASL_PLAINTEXT")
        self._capsys = capsys
        self._config = directory / "admin.properties"
        lines = {"security.protocol": "SASL_PLAINTEXT", **login("admin", "admin-sEcret")}
        self._config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    async def __call__(self, *arguments: str) -> str:
        self._capsys.readouterr()
        given = ["--bootstrap-server", self._at, "--command-config", str(self._config), *arguments]
        code = await asyncio.to_thread(kafka_acls.main, given)
        captured = self._capsys.readouterr()
        assert code == 0, captured.err
        return captured.out


async def fetched(cluster: Cluster, session_id: int, epoch: int, *, names: bool = True) -> FetchResponse:
    """A fetch of t-0 that waits for nothing."""
    part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchRequestTopic(topic="t", partitions=[part])] if names else [],
    )
    return await cluster.ask_any(request, FetchResponse, at_most=_LAST_WITH_NAMES)


def errors(response: FetchResponse) -> list[int]:
    return [part.error_code for topic in response.responses for part in topic.partitions]


def test_records_go_in_and_out_for_who_may_write_and_read_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(broker: Broker) -> None:
        acls = Acls(broker, tmp_path, capsys)
        async with as_user(broker, "anna") as anna, as_user(broker, "ben") as ben:
            async with Producer(anna) as producer:
                with pytest.raises(TopicAuthorizationFailedError):
                    await (await producer.send("t", b"refused"))
            await acls("--add", "--allow-principal", "User:anna", "--producer", "--topic", "t")
            async with Producer(anna) as producer:
                await (await producer.send("t", b"allowed"))
            assert errors(await fetched(anna, 0, -1)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
            await acls("--add", "--allow-principal", "User:ben", "--consumer", "--topic", "t", "--group", "g")
            async with Consumer(ben) as consumer:
                await consumer.assign({TopicPartition("t", 0): 0})
                read: list[bytes | None] = []
                while not read:
                    read += [record.value for records in (await consumer.poll(1.0)).values() for record in records]
            assert read == [b"allowed"]

    on_a_broker(tmp_path, work)


def test_a_right_that_is_taken_counts_for_a_session_and_for_a_fetch_that_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    async def work(broker: Broker) -> None:
        acls = Acls(broker, tmp_path, capsys)
        rule = ("--allow-principal", "User:anna", "--operation", "Read", "--topic", "t")
        async with as_user(broker, "anna") as anna:
            await acls("--add", *rule)
            begun = await fetched(anna, 0, 0)
            assert errors(begun) == [ErrorCode.NONE]
            assert errors(await fetched(anna, begun.session_id, 1, names=False)) == []
            await acls("--remove", "--force", *rule)
            assert errors(await fetched(anna, begun.session_id, 2, names=False)) == refused
            await acls("--add", *rule)
            assert errors(await fetched(anna, begun.session_id, 3, names=False)) == [ErrorCode.NONE]
            waiting = FetchRequest(
                replica_id=-1,
                max_wait_ms=20_000,
                min_bytes=1,
                session_id=begun.session_id,
                session_epoch=4,
            )
            fetch = asyncio.create_task(anna.ask_any(waiting, FetchResponse, at_most=_LAST_WITH_NAMES))
            while not len(broker.waiting):
                await asyncio.sleep(0.01)
            await acls("--remove", "--force", *rule)
            async with as_user(broker, "admin") as admin, Producer(admin) as producer:
                await (await producer.send("t", b"secret"))
            assert errors(await fetch) == refused

    on_a_broker(tmp_path, work)


def test_users_see_the_topics_and_groups_that_they_may_describe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(broker: Broker) -> None:
        acls = Acls(broker, tmp_path, capsys)
        rule = ("--allow-principal", "User:anna", "--operation", "Read", "--resource-pattern-type", "prefixed")
        await acls("--add", *rule, "--group", "team-", "--topic", "t")
        async with as_user(broker, "anna") as anna, as_user(broker, "ben") as ben, as_user(broker, "admin") as admin:
            assert set(await anna.topics()) == {"t"}
            assert set(await ben.topics()) == set()
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("t", "secret", "none")])
            answer = await anna.ask_any(request, MetadataResponse, at_most=9)
            assert [(topic.name, topic.error_code) for topic in answer.topics] == [
                ("t", 0),
                ("secret", 29),
                ("none", 29),
            ]
            refused = await anna.ask_any(
                JoinGroupRequest(group_id="other", session_timeout_ms=6000), JoinGroupResponse, at_most=2
            )
            assert refused.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
            await Admin(admin).alter_group_offsets("team-a", {TopicPartition("t", 0): 0})
            await Admin(admin).alter_group_offsets("other", {TopicPartition("t", 0): 0})
            assert {group.group_id for group in await Admin(admin).list_groups()} == {"team-a", "other"}
            assert {group.group_id for group in await Admin(anna).list_groups()} == {"team-a"}
            assert await Admin(ben).list_groups() == []

    on_a_broker(tmp_path, work)


def test_topics_are_created_and_the_cluster_described_by_who_may(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(broker: Broker) -> None:
        acls = Acls(broker, tmp_path, capsys)
        async with as_user(broker, "anna") as anna:
            with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
                created = await Admin(anna).create_topics([NewTopic("new", 1, 1)])
            assert isinstance(created["new"], TopicAuthorizationFailedError)
            assert "Principal = User:anna is Denied operation = CREATE" in caplog.text
            asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
            assert (await anna.ask_any(asked, DescribeClusterResponse)).cluster_authorized_operations == 0
            await acls("--add", "--allow-principal", "User:anna", "--cluster")
            assert (await Admin(anna).create_topics([NewTopic("new", 1, 1)]))["new"] is None
            bits = (await anna.ask_any(asked, DescribeClusterResponse)).cluster_authorized_operations
            assert bits == sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))

    on_a_broker(tmp_path, work)


def test_a_client_that_has_not_authenticated_is_anonymous_and_has_its_own_rights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(broker: Broker) -> None:
        acls = Acls(broker, tmp_path, capsys)
        async with cluster_at(broker, "PLAINTEXT") as stranger:
            assert await stranger.topics() == {}
            await acls("--add", "--allow-principal", "User:*", "--operation", "Describe", "--topic", "t")
            await stranger.refresh(None)
            assert set(await stranger.topics()) == {"t"}
            await acls("--add", "--deny-principal", "User:ANONYMOUS", "--topic", "*")
            await stranger.refresh(None)
            assert set(await stranger.topics()) == set()

    on_a_broker(tmp_path, work)


def test_a_refused_producer_that_wants_no_answer_loses_its_connection(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with as_user(broker, "anna") as anna:
            channel = await anna.any_channel()
            part = ProduceRequestPartition(index=0, records=b"")
            request = ProduceRequest(
                acks=0, timeout_ms=1000, topic_data=[ProduceRequestTopic(name="t", partition_data=[part])]
            )
            with pytest.raises(NetworkException):
                await channel.send(request, 3)
                await channel.request(MetadataRequest(topics=None), MetadataResponse, timeout_seconds=20)

    on_a_broker(tmp_path, work)


def test_rules_survive_a_restart_and_stand_in_the_tree_as_kafka_writes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def give(broker: Broker) -> None:
        await Acls(broker, tmp_path, capsys)("--add", "--allow-principal", "User:anna", "--topic", "t")
        data, _ = await broker.place.store.get(f"{paths.ACLS}/Topic/t")
        assert json.loads(data) == {
            "acls": [{"principal": "User:anna", "permissionType": "Allow", "host": "*", "operation": "All"}],
            "version": 1,
        }

    async def use(broker: Broker) -> None:
        async with as_user(broker, "anna") as anna:
            assert set(await anna.topics()) == {"t"}

    on_a_broker(tmp_path, give)
    on_a_broker(tmp_path, use)


def test_without_any_rule_everyone_is_allowed_if_the_settings_say_so(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with as_user(broker, "ben") as ben:
            assert set(await ben.topics()) == {"t", "secret"}

    on_a_broker(tmp_path, work, **{"allow.everyone.if.no.acl.found": "true"})


def test_rules_that_cannot_be_added_are_refused_one_by_one(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with as_user(broker, "admin") as admin, as_user(broker, "anna") as anna:
            good = AclEntry("User:anna", "*", AclOperation.READ, Permission.ALLOW)
            topic = ResourcePattern(ResourceType.TOPIC, "t")
            wanted = [
                AclBinding(topic, good),
                AclBinding(ResourcePattern(ResourceType.CLUSTER, "another"), good),
                AclBinding(ResourcePattern(ResourceType.TOPIC, ""), good),
                AclBinding(ResourcePattern(ResourceType.GROUP, "a/b"), good),
                AclBinding(topic, good._replace(operation=AclOperation.ANY)),
                AclBinding(topic, good._replace(principal="anna")),
            ]
            found = await Admin(admin).create_acls(wanted)
            assert [None if error is None else error.code for error in found] == [
                None,
                *[ErrorCode.INVALID_REQUEST] * 5,
            ]
            assert str(found[1]) == "The only valid name for the CLUSTER resource is kafka-cluster"
            assert await Admin(admin).describe_acls(AclFilter()) == [AclBinding(topic, good)]
            refused = await Admin(anna).create_acls([AclBinding(topic, good)])
            assert [error and error.code for error in refused] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]

    on_a_broker(tmp_path, work)


@pytest.mark.parametrize("name", AUTHORIZERS)
def test_each_of_kafkas_authorizers_is_taken(tmp_path: Path, name: str) -> None:
    async def work(broker: Broker) -> None:
        async with as_user(broker, "ben") as ben:
            assert await ben.topics() == {}

    on_a_broker(tmp_path, work, **{"authorizer.class.name": name})


@pytest.mark.parametrize(
    ("setting", "error"), [({"super.users": "admin"}, InvalidConfigError)], ids=["super users without a type"]
)
def test_wrong_super_users_stop_the_start(tmp_path: Path, setting: dict[str, str], error: type[JesenskaError]) -> None:
    async def work(broker: Broker) -> None:
        raise AssertionError("it has started")

    with pytest.raises(error, match="is not a principal"):
        on_a_broker(tmp_path, work, **setting)


# --- kafka-acls ------------------------------------------------------------------------------------------------------


def test_the_tool_adds_lists_and_removes_with_kafkas_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker) -> None:
        acls = Acls(broker, tmp_path, capsys)
        clicks = "ResourcePattern(resourceType=TOPIC, name=clicks, patternType=LITERAL)"
        read = "(principal=User:anna, host=*, operation=READ, permissionType=ALLOW)"
        assert await acls("--list") == ""
        added = await acls("--add", "--allow-principal", "User:anna", "--operation", "Read", "--topic", "clicks")
        assert added == f"Adding ACLs for resource `{clicks}`: \n \t{read}\n\n"
        assert await acls("--list") == f"Current ACLs for resource `{clicks}`:\n\t{read}\n\n"
        await acls(
            *("--add", "--deny-principal", "User:*", "--deny-host", "10.0.0.9", "--topic", "cl"),
            *("--resource-pattern-type", "prefixed"),
        )
        matching = await acls("--list", "--topic", "clock", "--resource-pattern-type", "match")
        assert matching == (
            "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=cl, patternType=PREFIXED)`:\n"
            "\t(principal=User:*, host=10.0.0.9, operation=ALL, permissionType=DENY)\n\n"
        )
        of_anna = await acls("--list", "--principal", "User:anna")
        assert of_anna == f"ACLs for principal `User:anna`\nCurrent ACLs for resource `{clicks}`:\n\t{read}\n\n"
        listed = json.loads(await acls("--list", "--topic", "clicks", "--output", "json"))
        assert listed == [
            {
                "resourceType": "TOPIC",
                "name": "clicks",
                "patternType": "LITERAL",
                "principal": "User:anna",
                "host": "*",
                "operation": "READ",
                "permissionType": "ALLOW",
            }
        ]
        question = f"Are you sure you want to delete all ACLs for resource filter `{clicks}`? (y/n)\n"
        for answer, is_left in (("n\n", True), ("y\n", False)):
            monkeypatch.setattr("sys.stdin", _Lines(answer))
            assert await acls("--remove", "--topic", "clicks") == question
            assert (read in await acls("--list")) == is_left
        removed = await acls(
            "--remove", "--force", "--topic", "cl", "--resource-pattern-type", "any", "--output", "json"
        )
        assert [item["permissionType"] for item in json.loads(removed)] == ["DENY"]
        assert await acls("--list") == ""

    on_a_broker(tmp_path, work)


class _Lines:
    def __init__(self, line: str) -> None:
        self._line = line

    def readline(self) -> str:
        return self._line


def test_the_tool_gives_producers_and_consumers_what_kafkas_gives_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(broker: Broker) -> None:
        acls = Acls(broker, tmp_path, capsys)
        await acls(
            *("--add", "--allow-principal", "User:anna", "--producer", "--idempotent", "--topic", "p"),
            *("--transactional-id", "x"),
        )
        await acls("--add", "--allow-principal", "User:anna", "--consumer", "--topic", "c", "--group", "g")
        found = json.loads(await acls("--list", "--output", "json"))
        assert {(item["resourceType"], item["name"], item["operation"]) for item in found} == {
            *(("TOPIC", "p", operation) for operation in ("WRITE", "DESCRIBE", "CREATE")),
            *(("TRANSACTIONAL_ID", "x", operation) for operation in ("WRITE", "DESCRIBE")),
            ("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
            *(("TOPIC", "c", operation) for operation in ("READ", "DESCRIBE")),
            ("GROUP", "g", "READ"),
        }

    on_a_broker(tmp_path, work)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--list --remove", "Command must include exactly one action: --list, --add, --remove"),
        ("--add --topic t", "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs"),
        ("--add --allow-principal User:a", "You must provide at least one resource"),
        ("--add --allow-principal a --topic t", "expected a string in format principalType:principalName but got a"),
        ("--add --allow-principal User:a --operation Read --cluster", "ResourceType CLUSTER only supports operations"),
        ("--add --allow-principal User:a --operation Fly --topic t", "ResourceType TOPIC only supports operations"),
        ("--add --allow-principal User:a --producer --group g", "With --producer you must specify a --topic"),
        ("--add --allow-principal User:a --consumer --topic t", "With --consumer you must specify a --topic and a"),
        ("--add --allow-principal User:a --idempotent --topic t", "The --idempotent option is only available if"),
        ("--add --allow-principal User:a --topic t --resource-pattern-type any", "value of 'ANY' is not valid when"),
        ("--list --producer --topic t", 'Option "[list]" can\'t be used with option "[producer]"'),
    ],
)
def test_the_tool_refuses_what_kafkas_refuses(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        kafka_acls.main(["--bootstrap-server", "127.0.0.1:1", *arguments.split()])
    assert ended.value.code == 1
    assert said in capsys.readouterr().err
