"""What the handlers of requests are given: the rooms of a broker, and what clients are told of it."""

from __future__ import annotations

from collections.abc import Iterator

from jesenska.base.errors import ClusterAuthorizationFailedError
from jesenska.broker.core import BrokerCore
from jesenska.broker.features import Features
from jesenska.broker.fetch_sessions import FetchSessions
from jesenska.broker.groups import Groups
from jesenska.broker.machine import Machine
from jesenska.broker.metadata_cache import BrokerNode
from jesenska.broker.order_desk import OrderDesk
from jesenska.broker.peers import Peers
from jesenska.broker.topics import Topics
from jesenska.broker.transaction_markers import MarkerWriter
from jesenska.broker.transaction_verification import TransactionVerification
from jesenska.broker.transactions import Transactions
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Endpoint
from jesenska.config.replica_selectors import RACK_AWARE
from jesenska.metadata.producer_ids import ProducerIds
from jesenska.metadata.store import Store
from jesenska.replication.isr_changes import IsrChanges
from jesenska.replication.partition import Partition
from jesenska.replication.read_replicas import nearest_follower


class Services(BrokerCore):
    """One broker, for whoever answers requests."""

    def __init__(self, config: BrokerConfig, machine: Machine) -> None:
        super().__init__(config, machine)
        slots = config.integer("max.incremental.fetch.session.cache.slots")
        self.fetch_sessions = FetchSessions(slots, lambda: self.random.randint(1, 2**31 - 1), self.waiting.notify)
        self.fetch_max_bytes = config.integer("fetch.max.bytes")
        #: Whether consumers are sent to followers in their rack.
        self.selects_by_rack = config.string("replica.selector.class") == RACK_AWARE
        #: Whether other brokers may be in the tree, whose requests among each other are served then.
        self.shares_tree = False
        #: These are set by `Broker.start`.
        self.endpoints: tuple[Endpoint, ...]
        self.peers: Peers
        self.orders: OrderDesk
        self.isr_changes: IsrChanges
        self.groups: Groups
        self.features: Features
        self.marker_writer: MarkerWriter
        self.transactions: Transactions
        self.verification: TransactionVerification
        self.store: Store
        self.topics: Topics
        self.producer_ids: ProducerIds

    @property
    def auto_create_topics(self) -> bool:
        return self.config.boolean("auto.create.topics.enable")

    def claim_producer_ids(self) -> None:
        """Has producer ids at hand soon, where there are none left."""
        raise NotImplementedError

    def require_peers(self) -> None:
        """ClusterAuthorizationFailedError where nobody can be another broker of this cluster: then whoever sends what
        brokers send each other is none."""
        if not self.shares_tree:
            raise ClusterAuthorizationFailedError("This broker has its tree for itself: there is no other broker that may ask for this.")

    def propose_isr(self, partition: Partition) -> None:
        """Has the ISR written that a partition proposes, which this broker leads."""
        self.isr_changes.propose(partition)

    def follower_near(self, rack: str, partition: Partition, offset: int, listener_name: str) -> int | None:
        """The follower that a client of that listener, who stands in that rack, is to read a partition from which this
        broker leads; None for the leader."""

        def rack_of(broker_id: int) -> str | None:
            node = self.view.brokers.get(broker_id)
            return node.rack if node is not None and listener_name in node.endpoints else None

        return nearest_follower(partition.leader, partition.readable_from(offset), rack, rack_of)

    def endpoint_for(self, listener_name: str) -> tuple[str, int]:
        """Host and port that clients of a listener use for this broker."""
        item = next((item for item in self.endpoints if item.name == listener_name), self.endpoints[0])
        return item.host, item.port

    def endpoints_for(self, listener_name: str) -> Iterator[tuple[BrokerNode, str, int]]:
        """Every broker with its host and port on a listener of that name; a broker without one is left out, as Kafka
        does."""
        for node in self.view.brokers.values():
            endpoint = node.endpoints.get(listener_name)
            if endpoint is not None:
                yield node, endpoint[0], endpoint[1]
