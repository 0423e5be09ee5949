"""The socket of a listener."""

from __future__ import annotations

import socket

import pytest

from jesenska.net.listener import PortTakenError, listening_socket


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_two_listeners_share_a_port_one_for_each_version_of_ip() -> None:
    with listening_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortTakenError):
            listening_socket("::", port)
        with listening_socket("::", port, only_v6=True), socket.create_connection(("::1", port), 10):
            pass
    with listening_socket("::", 0) as both, socket.create_connection(("127.0.0.1", both.getsockname()[1]), 10):
        pass
