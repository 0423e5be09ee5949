"""What administrators' programs ask, with the programs: Apache Kafka's tools of 3.9.1 and 4.3.1, kafka-python and
confluent-kafka. Each sentence that is expected is what the same program prints of Apache Kafka of its own release."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need_modules
from tests.old_requests import create
from tests.peers.tools import Outcome, Tools
from tests.raw_connection import RawConnection

need_modules("kafka", "confluent_kafka")

import confluent_kafka  # noqa: E402
import confluent_kafka.admin as confluent  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.admin as kafka_python
    from kafka import TopicPartition
    from kafka.errors import SecurityDisabledError

pytestmark = pytest.mark.conformance

_TOPIC = "administrated"
_BROKER = "1"


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("administrators") / "data", settings={"broker.id": _BROKER}) as running:
        with RawConnection(running.bootstrap) as connection:
            create(connection, _TOPIC)
        yield running.bootstrap


class Shell:
    """A release's tools, pointed at the broker."""

    def __init__(self, tools: Tools, bootstrap: str) -> None:
        self._tools, self._bootstrap = tools, bootstrap

    def ask(self, tool: str, *arguments: str) -> Outcome:
        return self._tools.run(tool, "--bootstrap-server", self._bootstrap, *arguments)

    def __call__(self, tool: str, *arguments: str) -> list[str]:
        outcome = self.ask(tool, *arguments)
        assert outcome.code == 0, outcome
        return outcome.lines


@pytest.fixture
def shell(tools: Tools, bootstrap: str) -> Shell:
    return Shell(tools, bootstrap)


def test_kafka_log_dirs_names_each_partition(shell: Shell) -> None:
    (broker,) = json.loads(shell("kafka-log-dirs", "--describe", "--topic-list", _TOPIC)[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert (broker["broker"], directory["error"]) == (1, None)
    assert directory["partitions"] == [{"partition": f"{_TOPIC}-0", "size": 0, "offsetLag": 0, "isFuture": False}]


@pytest.mark.parametrize("kind", ["preferred", "unclean"])
def test_kafka_leader_election_finds_a_leader_elected(shell: Shell, kind: str) -> None:
    said = shell("kafka-leader-election", "--election-type", kind, "--topic", _TOPIC, "--partition", "0")
    assert said == [f"Valid replica already elected for partitions {_TOPIC}-0"]
    assert shell("kafka-leader-election", "--election-type", kind, "--all-topic-partitions") == []


def test_kafka_reassign_partitions_finds_none_on_the_move(shell: Shell) -> None:
    assert shell("kafka-reassign-partitions", "--list") == ["No partition reassignments found."]


def test_kafka_acls_is_told_that_there_is_no_authorizer(shell: Shell) -> None:
    outcome = shell.ask("kafka-acls", "--list")
    assert "SecurityDisabledException: No Authorizer is configured on the broker" in outcome.output + outcome.errors


def test_kafka_configs_describes_and_changes_a_logger(shell: Shell) -> None:
    entity = ("--entity-type", "broker-loggers", "--entity-name", _BROKER)
    logger = "jesenska.broker.controlling.controller_client"
    shell("kafka-configs", "--alter", *entity, "--add-config", f"{logger}=DEBUG")
    assert f"  {logger}=DEBUG sensitive=false synonyms={{}}" in shell("kafka-configs", "--describe", *entity)
    shell("kafka-configs", "--alter", *entity, "--delete-config", logger)
    assert f"  {logger}=INFO sensitive=false synonyms={{}}" in shell("kafka-configs", "--describe", *entity)
    refused = shell.ask("kafka-configs", "--alter", *entity, "--add-config", "jesenska.nothing=DEBUG")
    assert refused.code != 0
    assert "jesenska.nothing" in refused.output + refused.errors


@pytest.mark.parametrize("kind", ["users", "clients", "ips"])
def test_kafka_configs_finds_no_quotas(shell: Shell, kind: str) -> None:
    assert shell("kafka-configs", "--describe", "--entity-type", kind) == []


def test_kafka_transactions_finds_none(shell: Shell) -> None:
    assert [line.split() for line in shell("kafka-transactions", "list")] == [
        ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    ]
    assert len(shell("kafka-transactions", "describe-producers", "--topic", _TOPIC, "--partition", "0")) == 1


def test_kafka_python_is_answered(bootstrap: str) -> None:
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=bootstrap)
    partition = TopicPartition(_TOPIC, 0)
    try:
        (broker,) = admin.describe_log_dirs()
        assert [topic["name"] for topic in broker["log_dirs"][0]["topics"]] == [_TOPIC]
        assert admin.list_partition_reassignments() == {}
        assert admin.alter_partition_reassignments({partition: [1]}) == {partition: None}
        assert admin.describe_user_scram_credentials() == {}
        assert admin.describe_producers([partition])[partition].active_producers == []
        assert admin.list_transactions() == {1: []}
        assert admin.list_config_resources() == {"topic": [_TOPIC], "broker": [_BROKER], "broker_logger": [_BROKER]}
        (level,) = admin.describe_features().items()
        assert (level[0], level[1]["supported"], level[1]["finalized"]) == ("transaction.version", (0, 2), (2, 2))
        anything = kafka_python.ResourcePatternFilter(
            kafka_python.ResourceType.ANY, None, kafka_python.ACLResourcePatternType.ANY
        )
        every_rule = kafka_python.ACLFilter(
            None, "*", kafka_python.ACLOperation.ANY, kafka_python.ACLPermissionType.ANY, anything
        )
        with pytest.raises(SecurityDisabledError):
            admin.describe_acls(every_rule)
    finally:
        admin.close()


def test_confluent_kafka_is_answered(bootstrap: str) -> None:
    admin = confluent.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    everybody = admin.describe_user_scram_credentials()
    assert isinstance(everybody, Future)
    assert everybody.result(30) == {}
    partition = confluent_kafka.TopicPartition(_TOPIC, 0)
    elected = admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, [partition]).result(30)
    assert [error.code() for error in elected.values()] == [confluent_kafka.KafkaError.ELECTION_NOT_NEEDED]
