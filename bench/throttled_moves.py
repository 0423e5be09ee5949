"""A partition moves to another broker under a replication throttle: how well the limit is kept.

    python -m bench.throttled_moves                           300 MB at 10 and at 20 MB/s, each side; 5 minutes
    python -m bench.throttled_moves --megabytes 50 --rates 5

Three brokers run as processes. Broker 1 has the only replica of the partition, in batches of 100 KB of random bytes,
and the partition moves to broker 2. The throttle is on the leader (leader.replication.throttled.*), on the follower,
or on both. The rate is the size of the log divided by the time from the answer to the request until the move is
complete. The exit code is 1 where a rate is not within 10 % of the limit."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.cluster import BrokerCluster

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, TOPIC, ConfigChange
from jesenska.client.cluster import Cluster

_BATCH_BYTES = 100_000
_TOLERANCE = 0.1
_LOOK_SECONDS = 0.05
_SECONDS = 900.0
#: replication.quota.window.num samples of a second, and one more.
_SAMPLES_SECONDS = 12.0
_SIDES = {"leader": ("leader",), "follower": ("follower",), "both": ("leader", "follower")}


def measured(cluster: BrokerCluster, topic: str, size_bytes: int, sides: Sequence[str], rate: int) -> float:
    """Moves a new partition of this size. Returns the rate in bytes per second."""
    cluster.create(topic, placed=[[1]])
    chance = random.Random(rate)
    for _ in range(0, size_bytes, 50 * _BATCH_BYTES):
        cluster.write(topic, [chance.randbytes(_BATCH_BYTES) for _ in range(50)])

    async def move(client: Cluster) -> float:
        admin, key = Admin(client), TopicPartition(topic, 0)
        for side in sides:
            limit = ConfigChange(f"{side}.replication.throttled.rate", str(rate))
            for broker_id in cluster.brokers:
                await admin.alter_configs(BROKER, str(broker_id), [limit])
            await admin.alter_configs(TOPIC, topic, [ConfigChange(f"{side}.replication.throttled.replicas", "*")])
        assert await admin.alter_reassignments({key: [2]}) == {key: None}
        began = time.monotonic()
        while await admin.list_reassignments([key]):  # noqa: ASYNC110 - no event tells of the end
            await asyncio.sleep(_LOOK_SECONDS)
        return time.monotonic() - began

    # As in Apache Kafka, the unused part of the last samples may be used at once: they are over by then.
    time.sleep(_SAMPLES_SECONDS)
    size = len(cluster.log_bytes(1, topic))
    return size / cluster.ask(move, _SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Moves a partition under a throttle.")
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--rates", type=float, nargs="+", default=[10.0, 20.0], help="MB/s")
    given = parser.parse_args()
    is_kept = True
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerCluster(Path(directory), session_ms=60_000, settings={"log.segment.bytes": "1000000000"}) as cluster,
    ):
        for number, rate in enumerate(given.rates):
            for name, sides in _SIDES.items():
                limit = int(rate * 1e6)
                found = measured(cluster, f"moved-{name}-{number}", given.megabytes * 1_000_000, sides, limit)
                is_kept = is_kept and abs(found / limit - 1) <= _TOLERANCE
                print(
                    f"{name:9} limit {rate:6.1f} MB/s, moved at {found / 1e6:6.2f} MB/s ({found / limit:.0%})",
                    flush=True,
                )
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
