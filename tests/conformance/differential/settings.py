"""How the brokers are set, so that they differ in nothing that the tester does not mean: the same id, no retention by
time, groups that begin at once and stay."""

from __future__ import annotations

from typing import Final

#: Apache Kafka's releases that judge, the newest first; 3.9.1 runs in ZooKeeper mode.
JUDGES: Final = ("4.3.1", "3.9.1")
_BOTH: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.session.timeout.ms": "1800000",
    "log.retention.ms": "-1",
    "offsets.retention.check.interval.ms": "86400000",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
}
OURS: Final = {**_BOTH, "broker.id": "0"}
THEIRS: Final = {**_BOTH, "transaction.state.log.num.partitions": "5"}
