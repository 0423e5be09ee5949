"""The sixth stage of a start: creates the coordinators of groups and of transactions, for the partitions that this
broker leads."""

from __future__ import annotations

from dataclasses import dataclass

from jesenska.broker.coordinators.groups import Groups
from jesenska.broker.coordinators.transaction_markers import MarkerWriter, TransactionMarkers
from jesenska.broker.coordinators.transaction_verification import TransactionVerification
from jesenska.broker.coordinators.transactions import Transactions
from jesenska.broker.shared_parts import SharedParts
from jesenska.broker.stages.control import Control
from jesenska.broker.stages.replication import Replication
from jesenska.broker.stages.tree import TreePlace


@dataclass(frozen=True, slots=True)
class Coordinators:
    groups: Groups
    transactions: Transactions
    marker_writer: MarkerWriter
    markers: TransactionMarkers
    verification: TransactionVerification

    def take_over(self) -> None:
        """Starts the coordinators' shards for the partitions that this broker leads."""
        self.groups.take_over()
        self.transactions.take_over()

    async def close(self) -> None:
        await self.groups.close()
        await self.transactions.close()
        await self.markers.close()
        await self.verification.close()


def coordinators(core: SharedParts, place: TreePlace, replication: Replication, control: Control) -> Coordinators:
    store, connect, create_topic = place.store, replication.peers.connect, control.controller.create_automatically
    groups = Groups(core, store, create_topic)
    marker_writer = MarkerWriter(core, groups)
    markers = TransactionMarkers(core, marker_writer, connect)
    transactions = Transactions(core, store, create_topic, control.producer_ids, control.features, markers)
    replication.replicas.keep(groups, transactions)
    return Coordinators(
        groups, transactions, marker_writer, markers, TransactionVerification(core, transactions, connect)
    )
