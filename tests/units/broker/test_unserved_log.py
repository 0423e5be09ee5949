from __future__ import annotations

import logging
import struct

import pytest

from jesenska.broker.requests.unserved_log import REMEMBERED_MAX, UnservedRequests


def _frame(client_id: bytes, size: int | None = None) -> memoryview:
    return memoryview(struct.pack(">hhih", 77, 0, 1, len(client_id) if size is None else size) + client_id)


def test_clients_beyond_what_is_remembered_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    requests = UnservedRequests()
    for number in range(REMEMBERED_MAX + 50):
        requests.tell("10.0.0.1", _frame(b"client %d" % number), 77, 0)
    assert len(caplog.records) == REMEMBERED_MAX


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        (_frame(b"x" * 5000), repr("x" * 100)),
        (_frame(b"a\nb\x1b[31m"), r"'a\nb\x1b[31m'"),
        (_frame(b"\xff\xfe"), "''"),
        (_frame(b"cut", 30000), "''"),
        (_frame(b"", -1), "''"),
    ],
)
def test_a_client_id_from_the_network_cannot_break_a_line_of_the_log(
    caplog: pytest.LogCaptureFixture, frame: memoryview, shown: str
) -> None:
    caplog.set_level(logging.INFO)
    UnservedRequests().tell("10.0.0.1", frame, 77, 0)
    assert caplog.messages[0].startswith(f"client {shown} at 10.0.0.1 asked for")
