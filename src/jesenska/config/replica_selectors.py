"""The values that `replica.selector.class` may have: the full names of Kafka's two Java classes, for which jesenska
has counterparts."""

from __future__ import annotations

from typing import Final

#: The class that lets consumers read from followers in their own rack.
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
#: The class that lets consumers read only from the leader.
LEADER: Final = "org.apache.kafka.common.replica.LeaderSelector"
REPLICA_SELECTORS: Final = (RACK_AWARE, LEADER)
