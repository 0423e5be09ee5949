"""Clients that ask for the new group protocol give up at once, with a word that says what is wrong, and do not try
until they time out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jesenska.testing import BrokerProcess
from tests.peers.tools import Tools

pytestmark = pytest.mark.conformance

#: Long before any client's own time-out, which is 20 seconds and more.
_AT_ONCE_SECONDS = 15.0


@contextmanager
def at_once() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < _AT_ONCE_SECONDS


def test_java_gives_up_the_new_group_protocol_at_once(tools: Tools, broker: BrokerProcess) -> None:
    client = "--consumer-property" if tools.release.startswith("3") else "--command-property"
    with at_once():
        outcome = tools.run(
            "kafka-console-consumer",
            *(
                "--bootstrap-server",
                broker.bootstrap,
                "--topic",
                "refused",
                "--timeout-ms",
                60_000,
                client,
                "group.protocol=consumer",
            ),
        )
    assert "UnsupportedVersionException" in outcome.output + outcome.errors
