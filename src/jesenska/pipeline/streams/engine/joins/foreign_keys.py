"""Foreign-key joins of tables, with the messages that Kafka Streams sends between the two tables.

    this side   on a change, sends a subscription to the foreign key through the subscription topic. If the foreign key
                has changed, also ends the subscription to the old foreign key
    other side  stores the subscriptions of each foreign key. Through the response topic, answers a new subscription
                with its value, and answers all subscriptions of a foreign key whose value changes
    this side   joins the answer with its value, if the value's hash is still the same as in the subscription

Each subscription contains an instruction, which says how the other side answers:

    DELETE_KEY_NO_PROPAGATE                 no answer; the subscription is removed
    DELETE_KEY_AND_PROPAGATE                None; the subscription is removed
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE   the other side's value, or None
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE      the other side's value; no answer if there is none

The byte formats of subscriptions and answers differ from Kafka Streams' formats, since only this driver reads them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from jesenska.pipeline.streams.engine.operator import NULL_KEY, Operator
from jesenska.pipeline.streams.engine.ordered import OrderedMap
from jesenska.pipeline.streams.engine.tables import ValueGetter, value_or_none
from jesenska.pipeline.streams.plan import ForeignKeyJoin
from jesenska.pipeline.streams.records import Change, Record
from jesenska.pipeline.streams.serdes.serde import Serde


class Instruction(IntEnum):
    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3


class Subscription(NamedTuple):
    primary_key: Any
    instruction: Instruction
    hash: bytes | None


class Response(NamedTuple):
    foreign_value: Any
    hash: bytes | None


class Subscribed(NamedTuple):
    """A received subscription, with its foreign key and timestamp, which are needed for the response."""

    foreign_key: Any
    subscription: Subscription
    timestamp: int


_HASH_BYTES = 16


def _hash(value: Any, serde: Serde) -> bytes | None:
    data = serde.serialize("", value)
    return None if data is None else hashlib.blake2b(data, digest_size=_HASH_BYTES).digest()


class SubscriptionSerde(Serde):
    """The serde of the values in the subscription topic."""

    name = "subscription"

    def __init__(self, primary_key: Serde) -> None:
        self._primary_key = primary_key

    def to_bytes(self, value: Subscription) -> bytes:
        hash_ = value.hash or b""
        return struct.pack(">BB", value.instruction, len(hash_)) + hash_ + self._primary_key.to_bytes(value.primary_key)

    def from_bytes(self, data: bytes) -> Subscription:
        instruction, size = struct.unpack_from(">BB", data)
        return Subscription(
            self._primary_key.from_bytes(data[2 + size :]), Instruction(instruction), data[2 : 2 + size] or None
        )


class ResponseSerde(Serde):
    """The serde of the values in the response topic: the internal topic with the answers to subscriptions."""

    name = "response"

    def __init__(self, foreign_value: Serde) -> None:
        self._foreign_value = foreign_value

    def to_bytes(self, value: Response) -> bytes:
        hash_ = value.hash or b""
        found = None if value.foreign_value is None else self._foreign_value.to_bytes(value.foreign_value)
        return struct.pack(">B?", len(hash_), found is not None) + hash_ + (found or b"")

    def from_bytes(self, data: bytes) -> Response:
        size, is_there = struct.unpack_from(">B?", data)
        rest = data[2 + size :]
        return Response(self._foreign_value.from_bytes(rest) if is_there else None, data[2 : 2 + size] or None)


class SubscriptionStore:
    """The subscriptions of a foreign-key join, stored in memory. The key consists of the length of the foreign key's
    bytes, these bytes, and the primary key's bytes."""

    def __init__(self, foreign_key: Serde, primary_key: Serde) -> None:
        self._foreign_key, self._primary_key = foreign_key, primary_key
        self._map: OrderedMap[Subscription] = OrderedMap()

    def put(self, foreign_key: Any, subscription: Subscription) -> None:
        self._map.put(self._where(foreign_key, subscription), subscription)

    def remove(self, foreign_key: Any, subscription: Subscription) -> None:
        self._map.remove(self._where(foreign_key, subscription))

    def of(self, foreign_key: Any) -> Iterator[Subscription]:
        """Yields the subscriptions to a foreign key, sorted by the bytes of their primary keys."""
        prefix = self._prefix(foreign_key)
        for where, subscription in self._map.items(prefix):
            if not where.startswith(prefix):
                break
            yield subscription

    def approximate_num_entries(self) -> int:
        return len(self._map)

    def _prefix(self, foreign_key: Any) -> bytes:
        data = self._foreign_key.serialize("", foreign_key) or b""
        return struct.pack(">i", len(data)) + data

    def _where(self, foreign_key: Any, subscription: Subscription) -> bytes:
        return self._prefix(foreign_key) + (self._primary_key.serialize("", subscription.primary_key) or b"")


class SendSubscriptions(Operator):
    """The processor of this side's table that sends the subscriptions after a change of the table."""

    def __init__(self, node: ForeignKeyJoin, foreign_key: Serde, value: Serde) -> None:
        self._extract = node.foreign_key.call
        self._left = node.kind == "left"
        self._foreign_key, self._value = foreign_key, value

    def process(self, record: Record) -> None:
        change: Change = record.value
        hash_ = _hash(change.new, self._value)
        before = None if change.old is None else self._extract(change.old)
        now = None if change.new is None else self._extract(change.new)
        for foreign_key, instruction in self._instructions(change, before, now):
            self.context.forward(
                Record(foreign_key, Subscription(record.key, instruction, hash_), record.timestamp, record.headers)
            )

    def _instructions(self, change: Change, before: Any, now: Any) -> Iterator[tuple[Any, Instruction]]:
        if change.old is None and change.new is None:
            return
        moved = before is not None and self._foreign_key.serialize("", before) != self._foreign_key.serialize("", now)
        if self._left:
            if moved:
                yield before, Instruction.DELETE_KEY_NO_PROPAGATE
            yield now, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
        elif before is None and now is None:
            self.context.dropped("its foreign key is null")
        elif before is None:
            yield now, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE
        elif now is None:
            yield before, Instruction.DELETE_KEY_AND_PROPAGATE
        elif moved:
            yield before, Instruction.DELETE_KEY_NO_PROPAGATE
            yield now, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
        else:
            yield now, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE


class ReceiveSubscriptions(Operator):
    """The processor of the other side's table that stores new subscriptions and removes ended subscriptions."""

    def __init__(self, store_name: str) -> None:
        self._name = store_name

    def init(self, context: Any) -> None:
        super().init(context)
        self._store: SubscriptionStore = context.get_state_store(self._name)

    def process(self, record: Record) -> None:
        subscription: Subscription = record.value
        if record.key is None:
            if subscription.instruction is not Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE:
                self.context.dropped("its foreign key is null")
                return
        elif subscription.instruction in (Instruction.DELETE_KEY_AND_PROPAGATE, Instruction.DELETE_KEY_NO_PROPAGATE):
            self._store.remove(record.key, subscription)
        else:
            self._store.put(record.key, subscription)
        self.context.forward(record.with_value(Subscribed(record.key, subscription, record.timestamp)))


class AnswerSubscriptions(Operator):
    """The processor of the other side's table that answers a received subscription."""

    def __init__(self, getter: ValueGetter) -> None:
        self._getter = getter

    def init(self, context: Any) -> None:
        super().init(context)
        self._getter.init(context)

    def process(self, record: Record) -> None:
        asked: Subscribed = record.value
        subscription = asked.subscription
        found = None if asked.foreign_key is None else self._getter.get(asked.foreign_key)
        timestamp = asked.timestamp if found is None else max(asked.timestamp, found.timestamp)
        match subscription.instruction:
            case Instruction.DELETE_KEY_NO_PROPAGATE:
                return
            case Instruction.DELETE_KEY_AND_PROPAGATE:
                value = None
            case Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE if found is None:
                return
            case _:
                value = value_or_none(found)
        self.context.forward(
            Record(subscription.primary_key, Response(value, subscription.hash), timestamp, record.headers)
        )


class AnswerChanges(Operator):
    """The processor of the other side's table that answers all subscriptions of a foreign key whose value has
    changed."""

    def __init__(self, store_name: str) -> None:
        self._name = store_name

    def init(self, context: Any) -> None:
        super().init(context)
        self._store: SubscriptionStore = context.get_state_store(self._name)

    def process(self, record: Record) -> None:
        if record.key is None:
            self.context.dropped(NULL_KEY)
            return
        for subscription in list(self._store.of(record.key)):
            answer = Response(record.value.new, subscription.hash)
            self.context.forward(Record(subscription.primary_key, answer, record.timestamp, record.headers))


class ResolveResponses(Operator):
    """The processor of this side's table that joins a response with the table's value. A response is dropped if the
    value has changed since the subscription was sent."""

    def __init__(self, getter: ValueGetter, joiner: Callable[[Any, Any], Any], left: bool, value: Serde) -> None:
        self._getter, self._joiner, self._left, self._value = getter, joiner, left, value

    def init(self, context: Any) -> None:
        super().init(context)
        self._getter.init(context)

    def process(self, record: Record) -> None:
        response: Response = record.value
        found = self._getter.get(record.key)
        if _hash(value_or_none(found), self._value) != response.hash:
            self.context.dropped("the value for which it was asked has changed meanwhile")
            return
        if response.foreign_value is None and (not self._left or found is None):
            self.context.forward(record.with_value(None))
        else:
            self.context.forward(record.with_value(self._joiner(value_or_none(found), response.foreign_value)))
