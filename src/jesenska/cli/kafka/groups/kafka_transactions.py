"""kafka-transactions: shows the transactions of the cluster and the producers of the transactions, and aborts hanging
transactions (KIP-664). Commands, flags and tables are those of Apache Kafka 4.3.1's tool; `--output json` prints a
list of objects with the same names.

A transaction hangs if it is open in a partition but not known to its coordinator. Then read_committed consumers cannot
read records after its start. `find-hanging` finds transactions that have been open for longer than the limit, and asks
the coordinators about them. `abort` ends a transaction in one partition.

Differs from Kafka's tool: transactions are sorted by name, and partitions are sorted. An unknown topic is reported
immediately, while Kafka's tool repeats the request for a minute."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from jesenska.base.errors import ErrorCode, JesenskaError, KafkaError, TransactionalIdNotFoundError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    add_commands,
    add_output,
    cluster_of,
    print_json,
    require_bootstrap,
    run_async,
    telling,
)
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.transaction_administration import ActiveProducer
from jesenska.client.cluster import Cluster

_MINUTE_MS = 60_000
_DEFAULT_MAX_TIMEOUT_MINUTES = 15
#: The number of minutes for which a transaction that has ended may still appear open in a partition.
_GRACE_MINUTES = 5

_LIST = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIBE = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
_PRODUCERS = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_HANGING = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)

Row = tuple[object, ...]


def _parser() -> Parser:
    parser = Parser("kafka-transactions", "Shows the transactions of the cluster, and ends those that hang.")
    add_bootstrap(parser)
    add_output(parser)
    command = add_commands(parser)
    one = command("list", "List transactions.", _list)
    one.add_argument(
        "--duration-filter",
        type=int,
        default=-1,
        metavar="MS",
        help="Only transactions that are open for longer (default: all).",
    )
    one.add_argument(
        "--transactional-id-pattern", metavar="PATTERN", help="Only names that this regular expression matches."
    )
    one = command("describe", "Describe the state of a transactional id.", _describe)
    one.add_argument("--transactional-id", required=True, metavar="ID")
    one = command(
        "describe-producers", "Describe the producers that a replica of a partition knows.", _describe_producers
    )
    one.add_argument("--broker-id", type=int, metavar="N", help="The replica at this broker (default: the leader).")
    one.add_argument("--topic", required=True)
    one.add_argument("--partition", type=int, required=True, metavar="N")
    one = command("abort", "Abort a transaction that hangs, in one partition.", _abort)
    one.add_argument("--topic", required=True)
    one.add_argument("--partition", type=int, required=True, metavar="N")
    one.add_argument("--start-offset", type=int, metavar="OFFSET", help="The first offset of the transaction.")
    for name in ("--producer-id", "--producer-epoch", "--coordinator-epoch"):
        one.add_argument(name, type=int, metavar="N", help="In place of the offset, for brokers before 3.0: all three.")
    one = command("find-hanging", "Find transactions that hang.", _find_hanging)
    one.add_argument("--broker-id", type=int, metavar="N", help="Look at the partitions that this broker leads.")
    one.add_argument(
        "--max-transaction-timeout",
        type=int,
        default=_DEFAULT_MAX_TIMEOUT_MINUTES,
        metavar="MINUTES",
        help="No transaction may be open for longer (default: 15).",
    )
    one.add_argument("--topic", help="Look at this topic (required if --partition is given).")
    one.add_argument("--partition", type=int, metavar="N")
    one = command(
        "forceTerminateTransaction",
        "Abort the open transaction of a transactional id, and fence its producer.",
        _force_terminate,
    )
    one.add_argument("--transactionalId", dest="transactional_id", required=True, metavar="ID")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    require_bootstrap(parser, options)
    async with cluster_of(options) as cluster, telling("Waiting for the brokers"):
        work: Work = options.work
        table = await work(Admin(cluster), options)
    if table is not None:
        _print(options, *table)
    return 0


@dataclass(frozen=True)
class _Open:
    """A transaction that is open in a partition, with its producer."""

    key: TopicPartition
    producer: ActiveProducer


Table = tuple[Sequence[str], Sequence[Row]]
Work = Callable[[Admin, argparse.Namespace], Awaitable[Table | None]]


async def _list(admin: Admin, options: argparse.Namespace) -> Table:
    found = await admin.list_transactions(
        longer_than_ms=options.duration_filter, pattern=options.transactional_id_pattern
    )
    found.sort(key=lambda item: (item.transactional_id, item.coordinator))
    return _LIST, [(item.transactional_id, item.coordinator, item.producer_id, item.state) for item in found]


async def _describe(admin: Admin, options: argparse.Namespace) -> Table:
    item = await admin.describe_transaction(options.transactional_id)
    started = item.started_ms if item.started_ms >= 0 else None
    duration = None if started is None else admin.cluster.clock.now_ms() - started
    partitions = ",".join(map(str, item.partitions))
    return _DESCRIBE, [
        (
            item.coordinator,
            item.transactional_id,
            item.producer_id,
            item.producer_epoch,
            item.state,
            item.timeout_ms,
            started,
            duration,
            partitions,
        )
    ]


async def _describe_producers(admin: Admin, options: argparse.Namespace) -> Table:
    producers = await _producers_of(admin, TopicPartition(options.topic, options.partition), options.broker_id)
    return _PRODUCERS, [
        (
            item.producer_id,
            item.producer_epoch,
            item.coordinator_epoch,
            item.last_sequence,
            item.last_timestamp_ms,
            item.transaction_start_offset if item.transaction_start_offset >= 0 else None,
        )
        for item in sorted(producers, key=lambda item: item.producer_id)
    ]


async def _producers_of(admin: Admin, key: TopicPartition, broker: int | None = None) -> Sequence[ActiveProducer]:
    found = (await admin.describe_producers([key], broker))[key]
    if isinstance(found, KafkaError):
        raise found
    return found


async def _abort(admin: Admin, options: argparse.Namespace) -> None:
    key = TopicPartition(options.topic, options.partition)
    producer = options.producer_id, options.producer_epoch, options.coordinator_epoch
    if options.start_offset is None:
        if any(number is None for number in producer):
            raise JesenskaError(
                "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above)"
                " or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)."
            )
    else:
        found = [
            item for item in await _producers_of(admin, key) if item.transaction_start_offset == options.start_offset
        ]
        if not found:
            raise JesenskaError(
                f"Could not find any open transactions starting at offset {options.start_offset} on partition {key}."
            )
        producer = found[0].producer_id, found[0].producer_epoch, max(0, found[0].coordinator_epoch)
    await admin.abort_transaction_in_partition(key, *producer)


async def _find_hanging(admin: Admin, options: argparse.Namespace) -> Table:
    if options.topic is None and options.broker_id is None:
        raise JesenskaError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search."
        )
    if options.partition is not None and options.topic is None:
        raise JesenskaError("The --partition argument requires --topic.")
    now_ms = admin.cluster.clock.now_ms()
    longest_ms = (options.max_transaction_timeout + _GRACE_MINUTES) * _MINUTE_MS
    old = [
        _Open(key, producer)
        for key, producers in (
            await admin.describe_producers(await _partitions(admin.cluster, options), options.broker_id)
        ).items()
        if not isinstance(producers, KafkaError)
        for producer in producers
        if producer.transaction_start_offset >= 0 and now_ms - producer.last_timestamp_ms > longest_ms
    ]
    hanging = sorted(await _unknown_to_coordinators(admin, old), key=lambda item: (item.key, item.producer.producer_id))
    return _HANGING, [
        (
            item.key.topic,
            item.key.partition,
            item.producer.producer_id,
            item.producer.producer_epoch,
            item.producer.coordinator_epoch,
            item.producer.transaction_start_offset,
            item.producer.last_timestamp_ms,
            (now_ms - item.producer.last_timestamp_ms) // _MINUTE_MS,
        )
        for item in hanging
    ]


async def _partitions(cluster: Cluster, options: argparse.Namespace) -> list[TopicPartition]:
    """Returns the partitions to search. --topic selects the partitions of one topic, and --broker-id the partitions
    with a replica on one broker. If both flags are given, both conditions apply."""
    topics = [await cluster.topic(options.topic)] if options.topic is not None else (await cluster.topics()).values()
    return [
        item.topic_partition
        for topic in topics
        for item in topic.partitions
        if (options.partition is None or item.topic_partition.partition == options.partition)
        and (options.broker_id is None or options.broker_id in item.replicas)
    ]


async def _unknown_to_coordinators(admin: Admin, old: Sequence[_Open]) -> list[_Open]:
    """Returns the transactions in `old` that are open in a partition, but whose coordinator does not know that they
    are open there."""
    if not old:
        return []
    listed = await admin.list_transactions(producer_ids={item.producer.producer_id for item in old})
    names = {item.producer_id: item.transactional_id for item in listed}
    known: set[tuple[int, TopicPartition]] = set()
    for name in set(names.values()):
        try:
            described = await admin.describe_transaction(name)
        except TransactionalIdNotFoundError:
            continue
        known.update((described.producer_id, key) for key in described.partitions)
    return [item for item in old if (item.producer.producer_id, item.key) not in known]


async def _force_terminate(admin: Admin, options: argparse.Namespace) -> None:
    try:
        await admin.force_terminate_transaction(options.transactional_id)
    except KafkaError as error:
        # If another client has just fenced the producer, the producer has no open transaction. So this error is
        # ignored.
        if error.code != ErrorCode.PRODUCER_FENCED:
            raise


def _print(options: argparse.Namespace, columns: Sequence[str], rows: Sequence[Row]) -> None:
    if options.output == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    lines = [columns, *(["None" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("".join(f"{cell.ljust(width)}\t" for cell, width in zip(line, widths, strict=True)))


if __name__ == "__main__":
    sys.exit(main())
