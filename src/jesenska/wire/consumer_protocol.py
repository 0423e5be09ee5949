"""The consumer protocol: the subscriptions and assignments that consumers of a group exchange inside JoinGroup and
SyncGroup. The broker passes these bytes on; it decodes only the topics of a subscription.

Each message begins with its version, an INT16. Newer versions only add fields at the end. So a reader decodes the
fields that it knows and ignores the bytes after them."""

from __future__ import annotations

from collections.abc import Sequence
from struct import error as StructError

from jesenska.base.identifiers import TopicPartition, numbers_by_topic
from jesenska.wire.codec import MalformedMessageError, decoder, encode
from jesenska.wire.language import BYTES, INT32, STRING, Array, Message, Struct, field

_SUBSCRIPTION_WRITTEN = 3
_ASSIGNMENT_WRITTEN = 1


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: str = field(STRING, since=1)
    partitions: list[int] = field(Array(INT32), since=1)


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    topics: list[str] = field(Array(STRING))
    user_data: memoryview | bytes | None = field(BYTES, nullable=0, default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = field(
        Array(ConsumerProtocolSubscriptionTopicPartition), since=1, ignorable=True
    )
    generation_id: int = field(INT32, since=2, default=-1, ignorable=True)
    rack_id: str | None = field(STRING, since=3, nullable=3, default=None, ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = field(
        Array(ConsumerProtocolAssignmentTopicPartition)
    )
    user_data: memoryview | bytes | None = field(BYTES, nullable=0, default=None)


def encode_subscription(
    topics: Sequence[str], owned: Sequence[TopicPartition], generation: int, user_data: bytes | None = None
) -> bytes:
    """Returns an encoded subscription of a group member: its topics, the partitions that it owns, and the generation
    in which it got them."""
    message = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in numbers_by_topic(owned).items()
        ],
        generation_id=generation,
    )
    return _SUBSCRIPTION_WRITTEN.to_bytes(2, "big") + encode(message, _SUBSCRIPTION_WRITTEN)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Returns the subscription in `data`. Raises MalformedMessageError if the bytes are not a subscription."""
    found = _decode(ConsumerProtocolSubscription, data)
    assert isinstance(found, ConsumerProtocolSubscription)
    return found


def decode_subscribed_topics(data: bytes) -> list[str]:
    """Returns the topics of an encoded subscription. The bytes are read as version 0, with whose fields every later
    version begins; the version number is ignored. Raises MalformedMessageError if the topics or the user data are
    incomplete."""
    found = _decode(ConsumerProtocolSubscription, bytes(2) + data[2:] if len(data) >= 2 else data)
    assert isinstance(found, ConsumerProtocolSubscription)
    return found.topics


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in numbers_by_topic(partitions).items()
        ]
    )
    return _ASSIGNMENT_WRITTEN.to_bytes(2, "big") + encode(message, _ASSIGNMENT_WRITTEN)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Returns the assigned partitions; an empty list for empty bytes, which a member without partitions gets. Raises
    MalformedMessageError for malformed bytes."""
    if not data:
        return []
    return [
        TopicPartition(item.topic, number)
        for item in decode_assignment_message(data).assigned_partitions
        for number in item.partitions
    ]


def decode_assignment_message(data: bytes) -> ConsumerProtocolAssignment:
    """Returns the assignment in `data`, with its user data. Raises MalformedMessageError if the bytes are not an
    assignment."""
    found = _decode(ConsumerProtocolAssignment, data)
    assert isinstance(found, ConsumerProtocolAssignment)
    return found


def owned_of(subscription: ConsumerProtocolSubscription) -> list[TopicPartition]:
    return [TopicPartition(item.topic, number) for item in subscription.owned_partitions for number in item.partitions]


def _decode(kind: type[Message], data: bytes) -> object:
    if len(data) < 2:
        raise MalformedMessageError(f"{kind.__name__} ends inside its version")
    version = min(int.from_bytes(data[:2], "big", signed=True), kind.versions[1])
    if version < 0:
        raise MalformedMessageError(f"{kind.__name__} has the version {version}")
    view = memoryview(data)[2:]
    try:
        return decoder(kind, version)(view, 0, len(view))[0]
    except (StructError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"{kind.__name__}: {error}") from error
