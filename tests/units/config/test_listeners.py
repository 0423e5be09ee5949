from __future__ import annotations

import pytest

from jesenska.base.errors import InvalidConfigError
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Endpoint, listeners_of


def of(**settings: str) -> list[str]:
    found = listeners_of(BrokerConfig({name.replace("_", "."): value for name, value in settings.items()}))
    return [*map(str, found.opened), "|", *map(str, found.advertised), "|", found.inter_broker]


def test_without_settings_every_interface_is_listened_on() -> None:
    found = listeners_of(BrokerConfig({}))
    assert found.opened == (Endpoint("PLAINTEXT", "PLAINTEXT", "", 9092),)
    assert found.advertised == found.opened
    assert found.inter_broker == "PLAINTEXT"


def test_names_become_upper_case_and_hosts_may_be_ipv6() -> None:
    assert of(listeners="plaintext://[::1]:9092", advertised_listeners="PLAINTEXT://broker.example:19092") == [
        "PLAINTEXT://[::1]:9092", "|", "PLAINTEXT://broker.example:19092", "|", "PLAINTEXT",
    ]  # fmt: skip


def test_several_listeners_with_names_of_their_own() -> None:
    assert of(
        listeners="IN://:9092, OUT://0.0.0.0:9093",
        advertised_listeners="IN://10.0.0.1:9092,OUT://example.org:443",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
        inter_broker_listener_name="in",
    ) == ["IN://:9092", "OUT://0.0.0.0:9093", "|", "IN://10.0.0.1:9092", "OUT://example.org:443", "|", "IN"]


def test_only_some_listeners_may_be_advertised() -> None:
    assert of(
        listeners="PLAINTEXT://:9092,OUT://:9093",
        advertised_listeners="PLAINTEXT://10.0.0.1:9092",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
    )[2:] == ["|", "PLAINTEXT://10.0.0.1:9092", "|", "PLAINTEXT"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"host.name": "10.0.0.1", "port": "9093"}, ["PLAINTEXT://10.0.0.1:9093", "|", "PLAINTEXT://10.0.0.1:9093"]),
        ({"port": "9093"}, ["PLAINTEXT://:9093", "|", "PLAINTEXT://:9093"]),
        (
            {"host.name": "a", "advertised.host.name": "b", "advertised.port": "1"},
            ["PLAINTEXT://a:9092", "|", "PLAINTEXT://b:1"],
        ),
        ({"host.name": "a", "port": "7", "advertised.host.name": "b"}, ["PLAINTEXT://a:7", "|", "PLAINTEXT://b:7"]),
        ({"listeners": "PLAINTEXT://x:1", "host.name": "a", "port": "7"}, ["PLAINTEXT://x:1", "|", "PLAINTEXT://x:1"]),
        (
            {"listeners": "PLAINTEXT://x:1", "advertised.listeners": "PLAINTEXT://y:2", "advertised.host.name": "z"},
            ["PLAINTEXT://x:1", "|", "PLAINTEXT://y:2"],
        ),
        ({"host.name": "::1"}, ["PLAINTEXT://[::1]:9092", "|", "PLAINTEXT://[::1]:9092"]),
    ],
)
def test_the_older_names_mean_the_same(settings: dict[str, str], expected: list[str]) -> None:
    found = listeners_of(BrokerConfig(settings))
    assert [*map(str, found.opened), "|", *map(str, found.advertised)] == expected


def test_a_controllers_listener_of_a_raft_configuration_is_not_opened() -> None:
    found = listeners_of(
        BrokerConfig(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            }
        )
    )
    assert [item.name for item in found.opened] == ["PLAINTEXT"]
    assert [item.name for item in found.advertised] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "different name"),
        (
            {
                "listeners": "PLAINTEXT://:9092,B://:9092",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "different port",
        ),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, r"nonroutable meta-address 0\.0\.0\.0"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, r"nonroutable meta-address 0\.0\.0\.0"),
        ({"advertised.listeners": "SSL://a:1"}, "equal to or a subset"),
        ({"listeners": "PLAINTEXT:9092"}, "is not an address"),
        ({"listeners": "PLAINTEXT://a b:9092"}, "is not an address"),
        ({"listeners": "PLAINTEXT://:99999"}, "ports go from 0 to 65535"),
        ({"listeners": "PLAINTEXT://:-1"}, "ports go from 0 to 65535"),
        ({"listeners": ""}, "is empty"),
        ({"listeners": "OTHER://:9092"}, "No security protocol defined for listener OTHER"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "write NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "PLAINTEXT:QUIC"}, "write NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "A:PLAINTEXT,A:SSL"}, "twice"),
        ({"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"}, "Only one of"),
        ({"inter.broker.listener.name": "NOPE"}, "not found in listener.security.protocol.map"),
        ({"inter.broker.listener.name": "SSL"}, "must be a listener name defined in advertised.listeners"),
    ],
)
def test_what_kafka_refuses_is_refused(settings: dict[str, str], match: str) -> None:
    with pytest.raises(InvalidConfigError, match=match):
        listeners_of(BrokerConfig(settings))


def test_one_port_may_serve_one_ipv4_and_one_ipv6_address() -> None:
    found = listeners_of(
        BrokerConfig(
            {
                "listeners": "A://127.0.0.1:9092,B://[::1]:9092",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                "inter.broker.listener.name": "A",
            }
        )
    )
    assert len(found.opened) == 2


def test_ports_chosen_by_the_system_do_not_collide_and_are_told_once_they_are_known() -> None:
    found = listeners_of(
        BrokerConfig(
            {
                "listeners": "A://:0,B://127.0.0.1:0",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                "inter.broker.listener.name": "A",
            }
        )
    )
    assert [str(item) for item in found.advertise({"A": 5001, "B": 5002}, "here.example")] == [
        "A://here.example:5001",
        "B://127.0.0.1:5002",
    ]
