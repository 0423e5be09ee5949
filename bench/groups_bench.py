"""The time for which a broker loads a group's commits after a restart, and the delays of its other clients meanwhile.

    python -m bench.groups_bench                    1 M commits
    python -m bench.groups_bench --commits 50000

One group commits offsets of a thousand partitions again and again, as in `__consumer_offsets` between two compactions.
The broker is then killed and started again. Loading ends when OffsetFetch no longer answers
COORDINATOR_LOAD_IN_PROGRESS; meanwhile a connection asks for metadata without a pause, and its slowest answer shows
how long the loop was blocked.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.raw_connection import RawConnection

from jesenska.base.errors import ErrorCode
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse

PARTITIONS = 1000
GROUP = "bench"


def commit(broker: BrokerProcess, commits: int) -> float:
    """Commits per second."""
    with RawConnection(broker.bootstrap, 60) as connection:
        wanted = CreateTopicsRequestTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
        answer = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 5, CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE
        while (
            connection.ask(FindCoordinatorRequest(key=GROUP), 2, FindCoordinatorResponse).error_code != ErrorCode.NONE
        ):
            pass
        begun = time.monotonic()
        for turn in range(commits // PARTITIONS):
            partitions = [
                OffsetCommitRequestPartition(partition_index=index, committed_offset=turn, committed_metadata="")
                for index in range(PARTITIONS)
            ]
            request = OffsetCommitRequest(
                group_id=GROUP, topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)]
            )
            while True:
                codes = {
                    part.error_code for part in connection.ask(request, 7, OffsetCommitResponse).topics[0].partitions
                }
                if codes == {ErrorCode.NONE}:
                    break
                assert codes <= {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}, codes
        return commits / (time.monotonic() - begun)


def load(broker: BrokerProcess, expected: int) -> tuple[float, float]:
    """Seconds until the group is loaded after the broker was ready, and the slowest answer of another connection
    meanwhile, in milliseconds."""
    ended = threading.Event()
    slowest = [0.0]

    def ask_for_metadata() -> None:
        with RawConnection(broker.bootstrap, 60) as connection:
            while not ended.is_set():
                begun = time.monotonic()
                connection.ask(MetadataRequest(topics=[]), 9, MetadataResponse)
                slowest[0] = max(slowest[0], time.monotonic() - begun)

    begun = time.monotonic()
    other = threading.Thread(target=ask_for_metadata)
    other.start()
    try:
        with RawConnection(broker.bootstrap, 60) as connection:
            while True:
                answer = connection.ask(
                    OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)]),
                    8,
                    OffsetFetchResponse,
                ).groups[0]
                if answer.error_code == ErrorCode.NONE:
                    break
                assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, answer.error_code
            seconds = time.monotonic() - begun
            assert {part.committed_offset for part in answer.topics[0].partitions} == {expected}
    finally:
        ended.set()
        other.join()
    return seconds, slowest[0] * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures how fast committed offsets are loaded after a restart.")
    parser.add_argument("--commits", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory) / "data") as broker:
        rate = commit(broker, options.commits)
        print(f"{options.commits:,} commits written, {rate:,.0f} a second")
        broker.kill()
        begun = time.monotonic()
        broker.start()
        print(f"ready again {time.monotonic() - begun:.2f} s after kill -9")
        seconds, slowest_ms = load(broker, options.commits // PARTITIONS - 1)
        print(
            f"loaded {seconds:.2f} s later, {options.commits / seconds:,.0f} commits a second; slowest answer to "
            f"another client {slowest_ms:.1f} ms"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
