"""The values of `replica.selector.class`: Java classes for which jesenska has counterparts, by their full names, as in
Apache Kafka."""

from __future__ import annotations

from typing import Final

#: Consumers read from followers in their own rack.
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
#: Consumers read from the leader.
LEADER: Final = "org.apache.kafka.common.replica.LeaderSelector"
REPLICA_SELECTORS: Final = (RACK_AWARE, LEADER)
