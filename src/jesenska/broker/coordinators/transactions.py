"""The transactions that this broker coordinates. The transaction coordinator (`transactions.coordinator`) has a shard
for each partition of `__transaction_state` that this broker leads. `transaction_markers` sends the end markers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from jesenska.base.errors import CoordinatorNotAvailableError, ErrorCode, NotCoordinatorError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.controlling.features import Features
from jesenska.broker.coordinators.coordinated_topic import CoordinatedTopic
from jesenska.broker.coordinators.transaction_markers import TransactionMarkers
from jesenska.broker.shared_parts import SharedParts
from jesenska.config.layers import BrokerConfig
from jesenska.coordination.runtime import Tenant
from jesenska.coordination.shard import KeyValue
from jesenska.metadata.producer_ids import ProducerIds
from jesenska.metadata.store import Store
from jesenska.transactions.coordinator import TransactionCoordinator
from jesenska.transactions.events import MarkersWritten, Producer
from jesenska.transactions.records import TRANSACTIONS_TOPIC, TransactionRecord, encode_record, read_record
from jesenska.transactions.settings import TransactionSettings

#: How long a request waits, in milliseconds, until every in-sync replica has its record.
_WRITE_TIMEOUT_MS = 10_000


def transaction_settings_of(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config.integer("transaction.max.timeout.ms"),
        id_expiration_ms=config.integer("transactional.id.expiration.ms"),
        abort_interval_ms=config.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        remove_interval_ms=config.integer("transaction.remove.expired.transaction.cleanup.interval.ms"),
    )


class Transactions(CoordinatedTopic[TransactionCoordinator]):
    """The transaction coordinator of this broker, with all its shards."""

    def __init__(
        self,
        core: SharedParts,
        store: Store,
        create_topic: Callable[[str], Awaitable[None]],
        producer_ids: ProducerIds,
        features: Features,
        markers: TransactionMarkers,
    ) -> None:
        settings = transaction_settings_of(core.config)
        self._features = features
        self._markers = markers
        tenant = Tenant(
            name="transactions",
            lost="Transactional ids whose records are lost go back to what was written before.",
            new_shard=lambda: TransactionCoordinator(settings, producer_ids.take, lambda: features.transaction_version),
            encode=self._encode,
            read=read_record,
            timeout_ms=_WRITE_TIMEOUT_MS,
            acks=-1,
            carry_out=markers.send,
        )
        super().__init__(TRANSACTIONS_TOPIC, tenant, core, store, create_topic)
        markers.coordinator_epoch_of = self._runtime.epoch_of
        markers.written = self._written

    def partition_for(self, key: str) -> int:
        """Returns the number of a transactional id's partition. Raises NotCoordinatorError if there is no topic, as in
        Kafka."""
        try:
            return super().partition_for(key)
        except CoordinatorNotAvailableError as error:
            raise NotCoordinatorError from error

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns an error for each partition: NONE if the partition is in the producer's open transaction. Raises
        KafkaError if this broker is not the coordinator."""
        return self.shard_of(transactional_id).verify(transactional_id, producer, partitions)

    def _encode(self, record: TransactionRecord) -> KeyValue:
        # As in Kafka: while the cluster may contain a broker without the feature, the record version that it can read
        # is written.
        return encode_record(record, 1 if self._features.transaction_version else 0)

    def _written(self, number: int, event: MarkersWritten) -> None:
        self._runtime.tell_one(number, event)

    def _resign(self, number: int) -> None:
        self._markers.forget(number)
        super()._resign(number)
