from __future__ import annotations

import socket
from pathlib import Path

import pytest

from jesenska.base.errors import InvalidConfigError
from jesenska.broker.requests.connection_limits import ConnectionLimits
from jesenska.config.layers import BrokerConfig
from jesenska.testing import BrokerProcess

API_VERSIONS_0 = bytes.fromhex("0000000a 0012 0000 00000001 0000".replace(" ", ""))


def limits(**settings: str) -> ConnectionLimits:
    return ConnectionLimits(
        BrokerConfig({name.replace("_", "."): value for name, value in settings.items()}), ["PLAINTEXT"]
    )


def test_connections_are_counted_over_all_and_by_address() -> None:
    found = limits(
        max_connections="3", max_connections_per_ip="2", max_connections_per_ip_overrides="127.0.0.9:1,[::1]:0"
    )
    assert found.refuse("127.0.0.1", 2, 1, "PLAINTEXT", 0) is None
    assert "max.connections=3" in str(found.refuse("127.0.0.1", 3, 0, "PLAINTEXT", 0))
    assert "2 connections" in str(found.refuse("127.0.0.1", 2, 2, "PLAINTEXT", 0))
    assert "1 connections" in str(found.refuse("127.0.0.9", 1, 1, "PLAINTEXT", 0))
    assert "0 connections" in str(found.refuse("::1", 0, 0, "PLAINTEXT", 0))


def test_overrides_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(InvalidConfigError, match="is not host:count"):
        limits(max_connections_per_ip_overrides="127.0.0.1")


def test_connections_are_idle_after_the_time_that_is_set_or_never() -> None:
    assert limits(connections_max_idle_ms="500").idle_before(100.0) == 99.5
    assert limits(connections_max_idle_ms="-1").idle_before(100.0) == float("-inf")


def buffers(found: ConnectionLimits, host: str) -> tuple[int, int]:
    with socket.socket() as sock:
        found.size_buffers(sock, host)
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF), sock.getsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF
        )


def test_buffers_are_the_systems_but_for_what_is_set_and_sent_on_this_machine() -> None:
    with socket.socket() as untouched, socket.socket() as sized:
        system = (
            untouched.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
            untouched.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        )
        sized.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4000)
        sized.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 5000)
        small = (
            sized.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
            sized.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        )
    there, here = "192.0.2.7", ("127.0.0.1", "::1", "::ffff:127.0.0.1")
    assert buffers(limits(), there) == buffers(limits(), "a name") == system
    local = buffers(limits(), here[0])
    assert local[0] > system[0]
    assert local[1] == system[1]
    assert [buffers(limits(), host) for host in here] == [local] * 3
    chosen = limits(socket_send_buffer_bytes="4000", socket_receive_buffer_bytes="5000")
    assert [buffers(chosen, host) for host in (there, *here)] == [small] * 4
    left = limits(socket_send_buffer_bytes="-1", socket_receive_buffer_bytes="-1")
    assert [buffers(left, host) for host in (there, *here)] == [system] * 4


def test_an_idle_connection_is_closed_and_one_over_the_limit_is_not_taken(tmp_path: Path) -> None:
    settings = {"connections.max.idle.ms": "500", "max.connections.per.ip": "2"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        first = socket.create_connection((broker.host, broker.port), 10)
        second = socket.create_connection((broker.host, broker.port), 10)
        for client in (first, second):
            client.sendall(API_VERSIONS_0)
            assert client.recv(4)
        third = socket.create_connection((broker.host, broker.port), 10)
        assert third.recv(1) == b""
        third.close()
        first.settimeout(20)
        while first.recv(4096):
            pass
        first.close()
        second.close()
    broker.wait_until_said("max.connections.per.ip")
