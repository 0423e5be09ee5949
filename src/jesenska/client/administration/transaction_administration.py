"""Administers transactions (KIP-664): lists them, describes their state and their producers, and ends transactions
that their producers will not end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from jesenska.base.errors import (
    ErrorCode,
    InvalidRegularExpressionError,
    KafkaError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_name,
)
from jesenska.base.identifiers import TopicPartition, numbers_by_topic
from jesenska.base.re2_pattern import PatternError, Re2Pattern
from jesenska.client.administration.administration import Administration
from jesenska.client.coordinators import COORDINATOR_PASSES, TRANSACTION, find_coordinator
from jesenska.client.retries import persistently
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from jesenska.wire.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
)
from jesenska.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
)
from jesenska.wire.messages.k65_describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from jesenska.wire.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransaction,
)

#: The first versions of ListTransactions that have the filters for duration and for a pattern.
_HAS_DURATIONS, _HAS_PATTERNS = 1, 2
_LOOK_AGAIN = (*COORDINATOR_PASSES, ErrorCode.CONCURRENT_TRANSACTIONS)
_ASK_AGAIN = (*_LOOK_AGAIN, ErrorCode.NETWORK_EXCEPTION)
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    #: The id of the broker that coordinates the transaction.
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id, as its coordinator reports it. `started_ms` is -1 if no transaction is open."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer of a partition, as a replica of the partition reports it. Fields that the replica does not know are
    -1."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    #: The first offset of the producer's open transaction in the partition; -1 if no transaction is open.
    transaction_start_offset: int


class TransactionAdministration(Administration):
    """Methods for transactions, of the class `Admin`. Each method raises KafkaError if the cluster refuses or does not
    answer."""

    async def list_transactions(
        self, *, longer_than_ms: int = -1, pattern: str | None = None, producer_ids: Collection[int] = ()
    ) -> list[ListedTransaction]:
        """Returns the transactions of all coordinators that pass three filters. The transaction has been open for
        longer than `longer_than_ms` (-1: no filter). Its whole transactional id matches `pattern` (None: no filter).
        Its producer id is one of `producer_ids` (empty: no filter). If a broker does not support patterns (before
        4.1), the client applies the pattern. Raises UnsupportedVersionError if a broker does not support durations
        (before 3.8)."""
        await self.cluster.refresh([])
        brokers = sorted(self.cluster.nodes)
        answers = await asyncio.gather(
            *(self._list_transactions_of(broker, longer_than_ms, pattern, producer_ids) for broker in brokers)
        )
        return [
            ListedTransaction(item.transactional_id, broker, item.producer_id, item.transaction_state)
            for broker, answer in zip(brokers, answers, strict=True)
            for item in answer
        ]

    async def _list_transactions_of(
        self, broker: int, longer_than_ms: int, pattern: str | None, producer_ids: Collection[int]
    ) -> list[ListTransactionsResponseTransaction]:
        version = (await self.cluster.channel_of(broker)).version_for(ListTransactionsRequest)
        if longer_than_ms >= 0 and version < _HAS_DURATIONS:
            raise UnsupportedVersionError(
                f"Broker {broker} does not know for how long transactions are open: leave the filter out."
            )
        request = ListTransactionsRequest(producer_id_filters=list(producer_ids), duration_filter=longer_than_ms)
        matched_here: Re2Pattern | None = None
        if version >= _HAS_PATTERNS:
            request.transactional_id_pattern = pattern
        elif pattern:
            try:
                matched_here = Re2Pattern(pattern)
            except PatternError as error:
                raise InvalidRegularExpressionError(f"The pattern {pattern!r} cannot be matched. {error}") from error

        async def attempt() -> list[ListTransactionsResponseTransaction]:
            answer = await self.cluster.ask_broker(broker, request, ListTransactionsResponse)
            if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
                raise InvalidRegularExpressionError(
                    f"Broker {broker} does not take {pattern!r} as a regular expression: write it in RE2's syntax."
                )
            if answer.error_code != ErrorCode.NONE:
                raise KafkaError.of(
                    answer.error_code,
                    f"Broker {broker} does not list its transactions: {error_name(answer.error_code)}.",
                )
            return answer.transaction_states

        found = await persistently(self.cluster, _LOOK_AGAIN, attempt)
        return (
            found if matched_here is None else [item for item in found if matched_here.matches(item.transactional_id)]
        )

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Returns the state of a transactional id. Raises TransactionalIdNotFoundError if the coordinator does not
        know the id."""

        async def attempt() -> TransactionDescription:
            coordinator = await find_coordinator(self.cluster, transactional_id, TRANSACTION)
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            answer = await self.cluster.ask_broker(coordinator, request, DescribeTransactionsResponse)
            code = (
                answer.transaction_states[0].error_code if answer.transaction_states else ErrorCode.UNKNOWN_SERVER_ERROR
            )
            if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise TransactionalIdNotFoundError(
                    f"There is no transactional id {transactional_id}: kafka-transactions list shows those that exist."
                )
            if code != ErrorCode.NONE:
                raise KafkaError.of(
                    code,
                    f"The coordinator does not describe the transactional id {transactional_id}: {error_name(code)}.",
                )
            item = answer.transaction_states[0]
            return TransactionDescription(
                transactional_id,
                coordinator,
                item.producer_id,
                item.producer_epoch,
                item.transaction_state,
                item.transaction_timeout_ms,
                item.transaction_start_time_ms,
                tuple(
                    sorted(TopicPartition(topic.topic, number) for topic in item.topics for number in topic.partitions)
                ),
            )

        return await persistently(self.cluster, _ASK_AGAIN, attempt)

    async def describe_producers(
        self, partitions: Collection[TopicPartition], broker: int | None = None
    ) -> Mapping[TopicPartition, Sequence[ActiveProducer] | KafkaError]:
        """Returns the active producers of these partitions, or an error, for each partition. The leaders are asked, or
        the replicas on the broker `broker`."""
        found: dict[TopicPartition, Sequence[ActiveProducer] | KafkaError] = {}
        by_broker: dict[int, list[TopicPartition]] = {}
        for key in sorted(set(partitions)):
            try:
                by_broker.setdefault(
                    (await self.cluster.leader_of(key)).leader if broker is None else broker, []
                ).append(key)
            except UnknownTopicOrPartitionError as error:
                found[key] = error
        for asked, keys in by_broker.items():
            request = DescribeProducersRequest(
                topics=[
                    DescribeProducersRequestTopic(name=name, partition_indexes=numbers)
                    for name, numbers in numbers_by_topic(keys).items()
                ]
            )
            answer = await self.cluster.ask_broker(asked, request, DescribeProducersResponse)
            for topic in answer.topics:
                for item in topic.partitions:
                    key = TopicPartition(topic.name, item.partition_index)
                    if item.error_code != ErrorCode.NONE:
                        if item.error_code in _MOVED:
                            self.cluster.forget_topic(key.topic)
                        what = (
                            item.error_message
                            or f"Broker {asked} does not describe the producers of {key}: "
                            f"{error_name(item.error_code)}."
                        )
                        found[key] = KafkaError.of(item.error_code, what)
                        continue
                    found[key] = [
                        ActiveProducer(
                            one.producer_id,
                            one.producer_epoch,
                            one.coordinator_epoch,
                            one.last_sequence,
                            one.last_timestamp,
                            one.current_txn_start_offset,
                        )
                        for one in item.active_producers
                    ]
        return found

    async def abort_transaction_in_partition(
        self, key: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Writes a marker that aborts a producer's open transaction in one partition. The request goes to the
        partition's leader, not to the coordinator: it is for a transaction that no coordinator knows."""
        marker = WriteTxnMarkersRequestMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[WriteTxnMarkersRequestTopic(name=key.topic, partition_indexes=[key.partition])],
            coordinator_epoch=coordinator_epoch,
        )

        async def attempt() -> None:
            leader = (await self.cluster.leader_of(key)).leader
            answer = await self.cluster.ask_broker(
                leader, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse
            )
            codes = [item.error_code for one in answer.markers for topic in one.topics for item in topic.partitions]
            code = codes[0] if codes else ErrorCode.UNKNOWN_SERVER_ERROR
            if code in _MOVED:
                self.cluster.forget_topic(key.topic)
            if code != ErrorCode.NONE:
                raise KafkaError.of(
                    code, f"The leader of {key} writes no marker for producer {producer_id}: {error_name(code)}."
                )

        await persistently(self.cluster, _MOVED, attempt)

    async def force_terminate_transaction(self, transactional_id: str) -> None:
        """Aborts the open transaction of a transactional id and fences its producer. The client sends InitProducerId,
        as a new producer with that id does. The coordinator completes the abort soon after the call."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=int(self.cluster.request_timeout_seconds * 1000)
        )

        async def attempt() -> None:
            coordinator = await find_coordinator(self.cluster, transactional_id, TRANSACTION)
            answer = await self.cluster.ask_broker(coordinator, request, InitProducerIdResponse)
            if answer.error_code != ErrorCode.NONE:
                raise KafkaError.of(
                    answer.error_code,
                    f"The transaction of {transactional_id} is not terminated: {error_name(answer.error_code)}.",
                )

        await persistently(self.cluster, _ASK_AGAIN, attempt)
