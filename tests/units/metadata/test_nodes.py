"""The literals were written by a broker of 3.9.1 in ZooKeeper mode; older versions are from the documents and older
releases."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jesenska.base.identifiers import TopicPartition, uuid_from_text
from jesenska.config.listeners import Endpoint
from jesenska.metadata import nodes, paths
from jesenska.metadata.nodes import (
    BrokerRegistration,
    BrokerStarts,
    ControllerNode,
    LackingPartitions,
    NodeFormatError,
    PartitionStateNode,
    ProducerIdBlock,
    TopicNode,
)

PLAIN = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 40493)


def test_a_brokers_node_is_written_as_kafka_writes_it() -> None:
    written = (
        b'{"features":{"transaction.version":{"min_version":1,"max_version":2}},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:40493"],'
        b'"jmx_port":-1,"port":40493,"host":"127.0.0.1","version":5,"timestamp":"1795228129466"}'
    )
    node = BrokerRegistration((PLAIN,), 1795228129466)
    assert node.encode() == written
    assert BrokerRegistration.decode(written) == node


def test_a_brokers_node_with_a_rack_is_written_as_kafka_writes_it() -> None:
    written = (
        b'{"features":{"transaction.version":{"min_version":1,"max_version":2}},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:58701"],"rack":"r1",'
        b'"jmx_port":-1,"port":58701,"host":"127.0.0.1","version":5,"timestamp":"1795229577898"}'
    )
    node = BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 58701),), 1795229577898, "r1")
    assert node.encode() == written
    assert BrokerRegistration.decode(written) == node


@pytest.mark.parametrize(
    ("written", "endpoints", "rack"),
    [
        (
            b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"5"}',
            (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),),
            None,
        ),
        (
            b'{"version":2,"host":"h","port":9092,"jmx_port":9999,"timestamp":"5","endpoints":["PLAINTEXT://h:9092","SSL://h:9093"]}',
            (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092), Endpoint("SSL", "SSL", "h", 9093)),
            None,
        ),
        (
            b'{"version":3,"host":"h","port":9092,"jmx_port":9999,"timestamp":"5","endpoints":["PLAINTEXT://[::1]:9092"],"rack":"r"}',
            (Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 9092),),
            "r",
        ),
        (
            b'{"version":4,"host":null,"port":-1,"jmx_port":9999,"timestamp":"5","endpoints":["CLIENT://h:9092"],'
            b'"listener_security_protocol_map":{"CLIENT":"SSL"},"rack":"r"}',
            (Endpoint("CLIENT", "SSL", "h", 9092),),
            "r",
        ),
    ],
)
def test_brokers_of_older_releases_are_read(written: bytes, endpoints: tuple[Endpoint, ...], rack: str | None) -> None:
    assert BrokerRegistration.decode(written) == BrokerRegistration(endpoints, 5, rack, 9999)


def test_a_broker_that_crashed_says_so_in_its_node_and_others_do_not() -> None:
    node = BrokerRegistration((PLAIN,), 5, crashed=True)
    assert BrokerRegistration.decode(node.encode()) == node
    assert b"crashed" not in BrokerRegistration((PLAIN,), 5).encode()
    assert not BrokerRegistration.decode(node.encode().replace(b"true", b"1")).crashed


def test_a_broker_without_a_plaintext_listener_writes_no_host() -> None:
    value = json.loads(BrokerRegistration((Endpoint("A", "SSL", "h", 1),), 5).encode())
    assert (value["host"], value["port"]) == (None, -1)


def test_a_topics_node_is_written_as_kafka_writes_it() -> None:
    written = b'{"partitions":{"0":[0,7],"1":[7,0]},"topic_id":"MPdU18jvS5W_GfzSFGBp9A","adding_replicas":{},"removing_replicas":{},"version":3}'  # noqa: E501
    node = TopicNode({0: (0, 7), 1: (7, 0)}, uuid_from_text("MPdU18jvS5W_GfzSFGBp9A"))
    assert node.encode() == written
    assert TopicNode.decode(written) == node


def test_topics_of_older_releases_are_read() -> None:
    assert TopicNode.decode(b'{"version":1,"partitions":{"1":[2],"0":[1,2]}}') == TopicNode({1: (2,), 0: (1, 2)}, None)
    reassigned = TopicNode.decode(
        b'{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{"0":[2]},"removing_replicas":{"0":[1]}}'
    )
    assert reassigned == TopicNode({0: (1, 2)}, None, {0: (2,)}, {0: (1,)})
    assert json.loads(reassigned.encode())["version"] == 2


def test_a_partitions_state_is_written_as_kafka_writes_it() -> None:
    written = b'{"controller_epoch":1,"leader":7,"version":1,"leader_epoch":0,"isr":[7,0]}'
    node = PartitionStateNode(7, 0, (7, 0), 1)
    assert node.encode() == written
    assert PartitionStateNode.decode(written) == node


def test_the_controllers_node_is_written_as_kafka_writes_it() -> None:
    written = b'{"version":2,"brokerid":0,"timestamp":"1795227992986","kraftControllerEpoch":-1}'
    node = ControllerNode(0, 1795227992986)
    assert node.encode() == written
    assert ControllerNode.decode(written) == node
    assert ControllerNode.decode(b'{"version":1,"brokerid":3,"timestamp":"5"}') == ControllerNode(3, 5)
    assert nodes.encode_controller_epoch(1) == b"1"
    assert nodes.decode_controller_epoch(b"12") == 12


def test_the_cluster_id_is_written_as_kafka_writes_it() -> None:
    written = b'{"version":"1","id":"9lx7LL0OSN28-gKLgLHKZQ"}'
    assert nodes.encode_cluster_id("9lx7LL0OSN28-gKLgLHKZQ") == written
    assert nodes.decode_cluster_id(written) == "9lx7LL0OSN28-gKLgLHKZQ"


def test_settings_are_written_as_kafka_writes_them() -> None:
    written = b'{"version":1,"config":{"log.retention.ms":"-5","leader.replication.throttled.rate":"1000","min.insync.replicas":"2","nonsense":"7"}}'  # noqa: E501
    settings = {
        "log.retention.ms": "-5",
        "leader.replication.throttled.rate": "1000",
        "min.insync.replicas": "2",
        "nonsense": "7",
    }
    assert nodes.encode_config(settings) == written
    assert nodes.decode_config(written) == settings
    assert nodes.encode_config({}) == b'{"version":1,"config":{}}'
    assert nodes.decode_config(b"") == {}


def test_changes_of_settings_are_told_as_kafka_tells_them() -> None:
    assert nodes.encode_config_change("topics/t1") == b'{"version":2,"entity_path":"topics/t1"}'
    assert nodes.decode_config_change(b'{"version":2,"entity_path":"topics/t1"}') == "topics/t1"
    assert nodes.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"t1"}') == "topics/t1"


def test_producer_ids_features_and_work_for_the_controller_are_written_as_kafka_writes_them() -> None:
    written = b'{"version":1,"broker":0,"block_start":"0","block_end":"999"}'
    assert ProducerIdBlock(0, 0, 999).encode() == written
    assert ProducerIdBlock.decode(written) == ProducerIdBlock(0, 0, 999)
    assert nodes.encode_feature() == b'{"features":{},"version":2,"status":1}'
    at = TopicPartition("t", 1)
    assert (
        nodes.encode_reassignment({at: (1, 2)})
        == b'{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[1,2]}]}'
    )
    assert nodes.decode_reassignment(nodes.encode_reassignment({at: (1, 2)})) == {at: (1, 2)}
    assert nodes.encode_partitions([at]) == b'{"version":1,"partitions":[{"topic":"t","partition":1}]}'
    assert nodes.decode_partitions(nodes.encode_partitions([at])) == [at]
    assert nodes.decode_log_dir_event(nodes.encode_log_dir_event(3)) == 3


def test_the_starts_of_a_broker_are_read_as_they_were_written() -> None:
    one, other, start, later = (uuid.UUID(int=number) for number in (1, 2, 3, 4))
    lacking = LackingPartitions(
        {other: start}, frozenset({TopicPartition("a", 0), TopicPartition("a", 12), TopicPartition("b", 3)})
    )
    starts = BrokerStarts(
        {one: later, other: start}, (lacking, LackingPartitions({}, frozenset({TopicPartition("c", 0)})))
    )
    assert starts.encode() == (
        b'{"version":1,"directories":{"AAAAAAAAAAAAAAAAAAAAAQ":"AAAAAAAAAAAAAAAAAAAABA","AAAAAAAAAAAAAAAAAAAAAg":"AAAAAAAAAAAAAAAAAAAAAw"},'
        b'"lacking":[{"directories":{"AAAAAAAAAAAAAAAAAAAAAg":"AAAAAAAAAAAAAAAAAAAAAw"},"partitions":{"a":[0,12],"b":[3]}},'
        b'{"directories":{},"partitions":{"c":[0]}}]}'
    )
    assert BrokerStarts.decode(starts.encode()) == starts
    with pytest.raises(NodeFormatError, match="version 2"):
        BrokerStarts.decode(starts.encode().replace(b'"version":1', b'"version":2'))


def test_names_of_users_are_sanitized_as_kafka_does() -> None:
    assert paths.config("users", paths.sanitize("a b@c")) == "/config/users/a%20b%40c"
    assert paths.desanitize("a%20b%40c") == "a b@c"
    assert paths.sanitize("*") == "%2A"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
KEYS = st.sampled_from(
    [
        "directories",
        "lacking",
        "version",
        "partitions",
        "topic_id",
        "endpoints",
        "leader",
        "leader_epoch",
        "isr",
        "controller_epoch",
        "brokerid",
        "config",
        "host",
        "port",
        "broker",
        "block_start",
        "block_end",
        "timestamp",
        "jmx_port",
        "rack",
        "entity_path",
        "id",
        "adding_replicas",
        "listener_security_protocol_map",
    ]
)
DECODERS = [
    BrokerRegistration.decode,
    TopicNode.decode,
    PartitionStateNode.decode,
    ControllerNode.decode,
    ProducerIdBlock.decode,
    nodes.decode_config,
    nodes.decode_config_change,
    nodes.decode_cluster_id,
    nodes.decode_controller_epoch,
    nodes.decode_reassignment,
    nodes.decode_partitions,
    nodes.decode_log_dir_event,
    BrokerStarts.decode,
]


@example(b'{"timestamp":[null],"brokerid":0}')
@example(b'{"leader":1,"leader_epoch":0,"isr":[null],"controller_epoch":1}')
@example(b'{"version":5,"endpoints":["PLAINTEXT://h:\xc2\xb2"],"timestamp":"1"}')
@given(
    st.one_of(
        st.binary(),
        JSON.map(lambda value: json.dumps(value).encode()),
        st.dictionaries(KEYS, JSON).map(lambda value: json.dumps(value).encode()),
    )
)
def test_bytes_that_are_not_of_the_format_are_named_so_and_nothing_else(data: bytes) -> None:
    for decode in DECODERS:
        try:
            value = decode(data)
        except NodeFormatError:
            continue
        assert value is not None


_NAMES = st.none() | st.text(min_size=1, max_size=8)


@given(
    st.one_of(
        st.dictionaries(st.sampled_from(["users", "clients"]), _NAMES, min_size=1),
        st.fixed_dictionaries({"ips": st.none() | st.sampled_from(["10.0.0.1", "::1"])}),
    )
)
def test_the_entity_of_clients_is_read_back(names: dict[str, str | None]) -> None:
    entity = paths.client_entity(names)
    assert paths.is_entity(entity)
    assert paths.names_of_client_entity(entity) == names
