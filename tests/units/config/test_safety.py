from __future__ import annotations

import pytest

from jesenska.config.layers import BrokerConfig
from jesenska.config.safety import AUTHORIZERS, StartRefused, refusals, refuse_unsafe

REFUSED = [
    ({"zookeeper.connect": "localhost:2181", "zookeeper.ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable"),
    ({"zookeeper.connect": "localhost:2181", "zookeeper.ssl.ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable"),
    ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl"),
    ({"listeners": "ODD://:9092"}, "listeners"),
    ({"listener.security.protocol.map": "PLAINTEXT:TRUSTME"}, "listener.security.protocol.map"),
    ({"authorizer.class.name": "a.B"}, "authorizer.class.name"),
    ({"create.topic.policy.class.name": "a.B"}, "create.topic.policy.class.name"),
    ({"alter.config.policy.class.name": "a.B"}, "alter.config.policy.class.name"),
    ({"config.providers": "file"}, "config.providers"),
    ({"replica.selector.class": "a.B"}, "replica.selector.class"),
    ({"replica.selector.class": "RackAwareReplicaSelector"}, "replica.selector.class"),
    ({"process.roles": "controller", "node.id": "1"}, "process.roles"),
    (
        {"process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@a:1,2@b:1"},
        "controller.quorum.voters",
    ),
    ({"process.roles": "broker", "node.id": "1", "controller.quorum.voters": "9@a:1"}, "controller.quorum.voters"),
    (
        {"process.roles": "broker,controller", "node.id": "1", "controller.quorum.bootstrap.servers": "a:1,b:1"},
        "controller.quorum.bootstrap.servers",
    ),
    ({"remote.log.storage.system.enable": "true"}, "remote.log.storage.system.enable"),
    ({"jesenska.log.retention.policy": "hours"}, "jesenska.log.retention.policy"),
    ({"log.dirs": "/a,/b", "cordoned.log.dirs": "/a,/c"}, "cordoned.log.dirs"),
]


@pytest.mark.parametrize(("settings", "name"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_would_not_be_served_as_it_was_meant_stops_the_start(settings: dict[str, str], name: str) -> None:
    with pytest.raises(StartRefused) as caught:
        refuse_unsafe(BrokerConfig(settings))
    assert caught.value.setting == name
    sentence = str(caught.value)
    assert name in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"log.dirs": "/a, /b", "cordoned.log.dirs": "/a,/b"},
        {"cordoned.log.dirs": "*"},
        {"log.dirs": "a,b,c", "min.insync.replicas": "2", "broker.rack": "r"},
        {"zookeeper.connect": ""},
        {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"},
        {"replica.selector.class": "org.apache.kafka.common.replica.LeaderSelector"},
        {"zookeeper.connect": "localhost:2181/jesenska"},
        {"authorizer.class.name": ""},
        *({"authorizer.class.name": name} for name in AUTHORIZERS),
        {"listeners": "SSL://:9093"},
        {"listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9093"},
        {"listeners": "CLIENTS://:9092", "listener.security.protocol.map": "CLIENTS:SASL_SSL"},
        {"zookeeper.connection.timeout.ms": "18000"},
        {
            "listeners": "IN://:9092",
            "listener.security.protocol.map": "IN:PLAINTEXT",
            "inter.broker.listener.name": "IN",
        },
        {"ssl.client.auth": "none", "sasl.enabled.mechanisms": "GSSAPI", "unclean.leader.election.enable": "true"},
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        },
        {"process.roles": "broker,controller", "node.id": "1", "controller.quorum.bootstrap.servers": "localhost:9093"},
    ],
)
def test_what_is_served_as_it_was_meant_starts(settings: dict[str, str]) -> None:
    config = BrokerConfig(settings)
    refuse_unsafe(config)
    assert list(refusals(config)) == []
