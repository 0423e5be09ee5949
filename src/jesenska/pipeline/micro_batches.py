"""The Kafka transaction of a micro-batch, without Spark. The driver begins the transaction, records the number of the
micro-batch in it, and reads the last committed micro-batch. Then it gives the tasks a ticket with which they write in
the transaction, and commits. The module `exactly_once` documents the guarantees.

The topic of micro-batches (`jesenska-spark-batches`) has a record for each micro-batch. The key is the query's name,
and the value is JSON:

    {"number": 7, "query": "<Spark's id of the query>", "ends": "<where the sources ended>", "topic": "<the target>"}

`query` is the id in the checkpoint: another checkpoint has another id, and a copy of the checkpoint has the same id.
`ends` are the end offsets of the sources as Spark stores them, a line for each source, or a SHA-256 digest of a long
text. `topic` is missing if each row names its own topic. `query` and `ends` are missing if the micro-batch was written
outside of a stream. A value of digits only is the number of a micro-batch in an older format.
"""

from __future__ import annotations

import hashlib
import json
import logging
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from jesenska.base.errors import JesenskaError, KafkaError, RequestTimedOutError, TopicAlreadyExistsError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import LATEST, list_offsets
from jesenska.client.partitioner import partition_of_key
from jesenska.client.positions import Position
from jesenska.client.producer import Producer
from jesenska.client.transactions import GroupMetadata, Transactions
from jesenska.records.batch import iter_headers
from jesenska.records.decode import ControlType, decode_batch, read_marker
from jesenska.records.header import BatchHeader

logger = logging.getLogger(__name__)

_BATCHES_PARTITIONS = 8
#: Compaction leaves out the active segment, so the segments of this topic are small. Apache Kafka 4 accepts no smaller
#: segment.bytes.
_BATCHES_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024)}
_ID_PREFIX = "jesenska-spark-"
_READ_SECONDS = 30.0
#: An `ends` text longer than this many characters is stored as a digest, so that a record does not grow with the
#: number of source partitions.
_ENDS_CHARACTERS_MAX = 16_384
_DIGEST = "sha256:"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch as it is recorded in the topic of micro-batches. An empty text means that the field is not
    known."""

    number: int
    query_id: str = ""
    ends: str = ""
    topic: str = ""

    @classmethod
    def of(cls, number: int, query_id: str, ends: str, topic: str) -> MicroBatch:
        """Returns a micro-batch. Replaces `ends` by a digest if the text is too long to be recorded."""
        return cls(number, query_id, _kept(ends), topic)

    @classmethod
    def from_bytes(cls, value: bytes) -> MicroBatch:
        """Returns the micro-batch in a record's value. Raises JesenskaError if it is not a micro-batch record."""
        try:
            if value.isdigit():
                return cls(int(value))
            known = json.loads(value)
            return cls(int(known["number"]), *(str(known.get(name, "")) for name in ("query", "ends", "topic")))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise JesenskaError(
                f"The topic of micro-batches has a record that jesenska did not write ({bytes(value[:40])!r}): "
                "set the option batches.topic to another topic."
            ) from error

    def to_bytes(self) -> bytes:
        known = {"number": self.number, "query": self.query_id, "ends": self.ends, "topic": self.topic}
        return json.dumps({name: value for name, value in known.items() if value != ""}, separators=(",", ":")).encode()

    def is_written(self, name: str, last: MicroBatch | None) -> bool:
        """Returns True if the query `name` has already written this micro-batch. `last` is the last micro-batch that
        was committed under the name.

        Raises JesenskaError if `last` belongs to another query, is a later micro-batch of the same stream, or has the
        same number but other offsets or another target topic. Spark repeats at most the last micro-batch that it has
        planned. So if the stream brings a micro-batch older than `last`, its checkpoint is an old copy."""
        if last is None:
            return False
        if self.query_id and last.query_id and self.query_id != last.query_id:
            raise JesenskaError(
                f"Micro-batch {self.number} was not written: the query name {name} belongs to a query with "
                f"another checkpoint, which has written up to micro-batch {last.number} (Spark's query id is "
                f"{last.query_id} in that checkpoint, and {self.query_id} in this query's): give this query a "
                f"name of its own, or start it with that checkpoint{last._where_to_go_on()}."
            )
        if self.query_id and (
            self.number < last.number
            or (self.number == last.number and self.ends and last.ends and self.ends != last.ends)
        ):
            raise JesenskaError(
                f"Micro-batch {self.number} was not written: the query {name} has already written up to "
                f"micro-batch {last.number}, but its checkpoint is older, for example because it was restored "
                "from a copy: restore the newest checkpoint, or start with a new checkpoint and another query "
                f"name{last._where_to_go_on()}."
            )
        if self.number == last.number and self.topic and last.topic and self.topic != last.topic:
            raise JesenskaError(
                f"Micro-batch {self.number} of the query {name} was not written to the topic {self.topic}, "
                f"because it was already written to the topic {last.topic}: if another query writes to "
                f"{last.topic}, give this query another name. If you have changed this query's topic, start it "
                f"once with {last.topic} first."
            )
        return self.number <= last.number

    def check_past(self, name: str, last: MicroBatch, ends: str, is_before_done: bool = True) -> None:
        """Raises JesenskaError if this micro-batch does not follow `last`, the last committed micro-batch. This
        happens when the checkpoint has the offsets of another query. `ends` contains the end offsets of `last` in the
        checkpoint, or is empty if the checkpoint does not have them. `is_before_done` is True if the micro-batch
        before this micro-batch is complete, or is `last`."""
        if self.query_id and ends and last.ends and _kept(ends) != last.ends:
            reason = f"micro-batch {last.number} ends at other offsets in its checkpoint"
        elif self.query_id and not is_before_done:
            reason = f"micro-batch {self.number - 1} is not done in its checkpoint and would be skipped"
        else:
            return
        raise JesenskaError(
            f"Micro-batch {self.number} was not written: the query {name} has written up to micro-batch "
            f"{last.number}, but {reason}. The checkpoint seems to have the offsets of another query: restore the "
            f"newest checkpoint, or start with a new checkpoint and another query name{last._where_to_go_on()}."
        )

    def _where_to_go_on(self) -> str:
        """Returns the part of an error message that names the offsets at which a new query continues after this
        micro-batch. Returns an empty text if the offsets are not known."""
        has_ends = self.ends.startswith("{") and "\n" not in self.ends
        return (
            f"; a new checkpoint continues after micro-batch {self.number} with startingOffsets={self.ends}"
            if has_ends
            else ""
        )


def _kept(ends: str) -> str:
    return _DIGEST + hashlib.sha256(ends.encode()).hexdigest() if len(ends) > _ENDS_CHARACTERS_MAX else ends


@dataclass(frozen=True, slots=True)
class Ticket:
    """The identifiers that a task needs to write in the driver's transaction, such as the producer id and epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_version_2: bool

    def join(self, cluster: Cluster) -> Transactions:
        """Returns a client object with which the producer of a task writes in the driver's transaction."""
        return Transactions.joined(
            cluster, self.transactional_id, (self.producer_id, self.producer_epoch), is_version_2=self.is_version_2
        )


@dataclass(frozen=True, slots=True)
class Query:
    """The query that writes, and the topic in which the numbers of its committed micro-batches are recorded.
    `counted_as` is the key of these records; if it is empty, the key is the query's name."""

    name: str
    batches_topic: str
    transaction_timeout_ms: int
    delivery_timeout_ms: int = 120_000
    counted_as: str = ""


class MicroBatchTransaction:
    """One attempt to write a micro-batch in a transaction. Its methods are called on the event loop of the cluster.
    They raise KafkaError when a request fails."""

    def __init__(self, cluster: Cluster, producer: Producer, query: Query) -> None:
        transactions = producer.transactions
        assert transactions is not None and transactions.producer is not None, "it is initialized"
        self._cluster = cluster
        self._producer = producer
        self._transactions = transactions
        self._query = query
        self._key = (query.counted_as or query.name).encode()
        #: The partition and offset at which this micro-batch's number was recorded.
        self._number: tuple[TopicPartition, int] | None = None
        producer_id, epoch = transactions.producer
        self.ticket = Ticket(transactions.transactional_id, producer_id, epoch, transactions.is_version_2)

    @classmethod
    async def begin(cls, cluster: Cluster, query: Query, random_source: Random | None = None) -> MicroBatchTransaction:
        """Starts an attempt: fences the last producer of the query's transactional id and aborts its open transaction.
        Then begins a new transaction."""
        producer = Producer(
            cluster,
            transactional_id=_ID_PREFIX + query.name,
            transaction_timeout_seconds=query.transaction_timeout_ms / 1000,
            delivery_timeout_seconds=query.delivery_timeout_ms / 1000,
            random_source=random_source,
        )
        try:
            await producer.init_transactions()
        except KafkaError:
            await producer.close(flush=False)
            raise
        producer.begin_transaction()
        return cls(cluster, producer, query)

    async def write_number(self, batch: MicroBatch) -> None:
        """Records the micro-batch's number in the transaction, with its query id, end offsets and target topic. Must
        be called before `last_batch`, which reads up to the offset of this record."""
        topic = await self._cluster.topic(self._query.batches_topic)
        partition = partition_of_key(self._key, len(topic.partitions))
        self._transactions.note_written()
        written = await (await self._producer.send(topic.name, batch.to_bytes(), self._key, partition=partition))
        self._number = TopicPartition(topic.name, partition), written.offset

    async def last_batch(self) -> MicroBatch | None:
        """Returns the last micro-batch that was committed before the number of this micro-batch was recorded. Returns
        None if no micro-batch was committed."""
        assert self._number is not None, "its number is written"
        partition, offset = self._number
        return await _read_on(self._cluster, partition, self._key, offset)

    async def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Adds offsets of a consumer group to the transaction. They become the group's committed offsets when the
        transaction is committed. `metadata` is stored with each offset."""
        positions = {key: Position(offset, -1) for key, offset in offsets.items()}
        await self._producer.send_offsets_to_transaction(positions, GroupMetadata(group_id), metadata)

    async def commit(self) -> None:
        """Commits the transaction, after all tasks have written their rows. The rows and the number become visible to
        read_committed consumers."""
        await self._producer.commit_transaction()

    async def close(self, is_committed: bool) -> None:
        """Closes the producer. If the transaction is not committed, it is aborted first. If the brokers cannot be
        reached, the next attempt to write the micro-batch aborts the transaction."""
        try:
            if not is_committed and self._transactions.may_abort:
                self._transactions.note_written()
                await self._producer.abort_transaction()
        except KafkaError as error:
            logger.info(
                "The transaction of the query %s could not be aborted now; the next attempt aborts it: %s",
                self._query.name,
                error,
            )
        finally:
            await self._producer.close(flush=False)


async def first_look(cluster: Cluster, query: Query) -> MicroBatch | None:
    """Returns the last committed micro-batch of a query, without fencing the query's producer. Returns None if no
    micro-batch was committed, or if this process has read the query's micro-batches before."""
    topic = await cluster.topic(query.batches_topic)
    name = (query.counted_as or query.name).encode()
    key = TopicPartition(topic.name, partition_of_key(name, len(topic.partitions)))
    if (key, name) in _followed.get(cluster, {}):
        return None
    end = (await list_offsets(cluster, {key: LATEST}))[key].offset
    return await _read_on(cluster, key, name, end)


async def make_batches_topic(cluster: Cluster, name: str) -> None:
    """Creates the topic of micro-batches if it does not exist."""
    if name in await cluster.topics():
        return
    made = await Admin(cluster).create_topics([NewTopic(name, _BATCHES_PARTITIONS, -1, _BATCHES_SETTINGS)])
    error = made[name]
    if error is not None and not isinstance(error, TopicAlreadyExistsError):
        raise error
    await cluster.topic(name, create=True)


@dataclass(slots=True)
class _Followed:
    """The recorded micro-batches of one query, as far as this process has read them."""

    position: int = 0
    #: The last committed micro-batch. None if no micro-batch was committed.
    last: MicroBatch | None = None
    #: The micro-batches whose transaction marker has not been read yet, by producer id.
    undecided: dict[int, MicroBatch] = field(default_factory=dict)

    def follow(self, data: memoryview, position: int, header: BatchHeader, name: bytes) -> None:
        """Processes one more batch of the topic of micro-batches. The batch contains a record of the query, or the
        marker that ends a transaction."""
        if header.is_control:
            batch = self.undecided.pop(header.producer_id, None)
            marker = read_marker(data[position : position + header.size_bytes])
            if (
                batch is not None
                and marker is not None
                and marker.type is ControlType.COMMIT
                and (self.last is None or batch.number >= self.last.number)
            ):
                self.last = batch
            return
        for record in decode_batch(data, position, header=header):
            if record.key is not None and bytes(record.key) == name and record.value is not None:
                if not header.is_transactional:
                    raise JesenskaError(
                        f"A record for the query {name.decode()} in the topic of micro-batches was written "
                        "without a transaction, so jesenska did not write it: delete the record."
                    )
                self.undecided[header.producer_id] = MicroBatch.from_bytes(bytes(record.value))


#: The micro-batches that this process has read so far, by cluster, partition and query.
_followed: weakref.WeakKeyDictionary[Cluster, dict[tuple[TopicPartition, bytes], _Followed]] = (
    weakref.WeakKeyDictionary()
)


async def _read_on(cluster: Cluster, key: TopicPartition, name: bytes, end: int) -> MicroBatch | None:
    """Returns the newest committed micro-batch of the query `name` below the offset `end`. Reads only the records that
    this process has not read before."""
    followed = _followed.setdefault(cluster, {}).setdefault((key, name), _Followed())
    if end < followed.position:
        raise JesenskaError(
            f"The topic of micro-batches {key.topic} has lost records: start the query with a new checkpoint and "
            "another query name, and set startingOffsets to where it is to continue."
        )
    consumer = Consumer(cluster, auto_offset_reset="earliest")
    try:
        await consumer.assign({key: followed.position})
        deadline = cluster.clock.monotonic() + _READ_SECONDS
        while (position := consumer.position(key)) < end:
            fetched = await consumer.poll_raw(1.0)
            if not fetched and cluster.clock.monotonic() > deadline:
                raise RequestTimedOutError(
                    f"The committed micro-batches in {key} could not be read from offset {position} to {end}."
                )
            for item in fetched:
                for place, header in iter_headers(item.data):
                    if followed.position <= header.last_offset < end:
                        followed.follow(item.data, place, header, name)
                followed.position = min(item.next_offset, end)
    finally:
        await consumer.close()
    return followed.last
