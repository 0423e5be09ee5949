"""Each API's largest legal request: the broker stays up, answers or closes, and gives its memory back. How long others
wait is measured by the command (`python -m tests.processes.fuzz.largest_requests`), since a figure of time has no
place in a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from jesenska.base.limits import REQUEST_ELEMENTS_MAX
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from tests.processes.fuzz.largest_requests import SETTINGS, trials
from tests.raw_connection import RawConnection
from tests.sensible_requests import SENSIBLE, Served

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")

#: The APIs with large arrays. The command tries all others.
_KEYS = [1, 3, 11, 15, 32]


@pytest.mark.timeout(300)
def test_the_largest_legal_requests_are_served_and_their_memory_comes_back(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        served = Served(broker)
        felt = list(trials(served, [key for key in _KEYS if key in SENSIBLE], newest_only=True))
        assert "Traceback" not in broker.log
    assert len(felt) >= 12
    worst = max(felt, key=lambda one: one.grown_mb - 4 * one.request_mb)
    # Requests of a few hundred kilobytes have objects of some megabytes, and the allocator keeps the first of those.
    assert worst.grown_mb < 4 * worst.request_mb + 10, worst
    left = max(felt, key=lambda one: one.left_mb)
    assert left.left_mb < 10, left


@pytest.mark.parametrize("api", ["fetch", "metadata"])
def test_a_request_that_names_more_than_can_exist_is_not_worked_through(broker: BrokerProcess, api: str) -> None:
    many = 5 * REQUEST_ELEMENTS_MAX
    with RawConnection(broker.bootstrap) as connection:
        if api == "fetch":
            parts = [FetchRequestPartition(partition=number) for number in range(many)]
            connection.send_frame(
                connection.frame(FetchRequest(topics=[FetchRequestTopic(topic="t", partitions=parts)]), 11)
            )
        else:
            connection.send_frame(
                connection.frame(
                    MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(many)]), 9
                )
            )
        assert connection.is_closed()
