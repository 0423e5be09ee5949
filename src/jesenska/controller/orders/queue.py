"""The queue of the controller's requests (orders) to one broker. Waiting requests are merged, so that a slow broker
gets only the newest state of each partition. This module sends nothing.

    put      adds an order of the controller
    take     returns the next request. One request is in flight at a time; until `done` is called, `take` returns it
             again
    done     called when the broker has answered the request

LeaderAndIsr is sent before its UpdateMetadata, so that a broker leads a partition before clients use it as leader;
StopReplica is sent last. An UpdateMetadata about brokers only is sent before all others, because Apache Kafka's
brokers do not follow a broker that they do not know to be registered. To a newly registered broker, this
UpdateMetadata contains all topics, for two reasons. A starting transaction coordinator treats an unknown topic as
deleted. And topics that were deleted while the broker was away must be removed. A topic that is created again after
its deletion waits in the next batch."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from jesenska.controller.effects import LeaderAndIsr, StopReplica, TopicPartitions, UpdateMetadata


@dataclass(slots=True)
class LeadAndFollow:
    """A LeaderAndIsr request. `numbers` are the numbers of the orders in it, which must each be answered."""

    topics: tuple[TopicPartitions, ...]
    numbers: tuple[int, ...]


@dataclass(slots=True)
class Tell:
    """An UpdateMetadata request, which always lists all brokers."""

    topics: tuple[TopicPartitions, ...]
    gone: tuple[TopicPartitions, ...]
    #: True if the request contains all existing topics.
    is_all: bool = False


@dataclass(slots=True)
class GiveUp:
    """A StopReplica request. `orders` are the merged orders, which must each be answered."""

    orders: tuple[StopReplica, ...]


Request = LeadAndFollow | Tell | GiveUp


@dataclass(slots=True)
class _Batch:
    """Orders that can be merged. A batch never contains both the deletion of a replica and an order that creates the
    replica again."""

    tells_of_brokers: bool = False
    #: True if the batch sends all topics to a newly registered broker.
    tells_all: bool = False
    topics_first: dict[str, TopicPartitions] = field(default_factory=dict)
    gone_first: dict[str, TopicPartitions] = field(default_factory=dict)
    replicas: dict[str, TopicPartitions] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    tells: bool = False
    topics: dict[str, TopicPartitions] = field(default_factory=dict)
    gone: dict[str, TopicPartitions] = field(default_factory=dict)
    given_up: list[StopReplica] = field(default_factory=list)

    def ends(self, topic: str) -> bool:
        """Returns True if the topic is deleted after this batch."""
        return topic in self.gone or any(order.topic == topic for order in self.given_up)

    def take(self) -> Request | None:
        if self.tells_of_brokers or self.tells_all:
            tells = Tell(tuple(self.topics_first.values()), tuple(self.gone_first.values()), self.tells_all)
            self.tells_of_brokers, self.tells_all, self.topics_first, self.gone_first = False, False, {}, {}
            return tells
        if self.numbers:
            leads = LeadAndFollow(tuple(self.replicas.values()), tuple(self.numbers))
            self.replicas, self.numbers = {}, []
            return leads
        if self.tells:
            tells = Tell(tuple(self.topics.values()), tuple(self.gone.values()))
            self.tells, self.topics, self.gone = False, {}, {}
            return tells
        if self.given_up:
            gives_up = GiveUp(tuple(self.given_up))
            self.given_up = []
            return gives_up
        return None


class OrderQueue:
    """The queue of the controller's requests (orders) to one broker."""

    def __init__(self) -> None:
        self._batches: deque[_Batch] = deque()
        self._under_way: Request | None = None

    @property
    def is_empty(self) -> bool:
        """Returns True if no request is in flight and no order waits."""
        return self._under_way is None and not self._batches

    def put(self, order: LeaderAndIsr | UpdateMetadata | StopReplica) -> None:
        """Adds an order after the earlier orders. An UpdateMetadata without topics only updates the list of brokers.
        An UpdateMetadata with `is_first` contains all partitions of its topics."""
        batch = self._batches[-1] if self._batches else self._new()
        if isinstance(order, StopReplica):
            batch.given_up.append(order)
            return
        if any(batch.ends(part.topic.name) for part in order.topics):
            batch = self._new()
        if isinstance(order, LeaderAndIsr):
            batch.numbers.append(order.number)
            for part in order.topics:
                batch.replicas[part.topic.name] = _newest(batch.replicas.get(part.topic.name), part)
            return
        if order.is_first:
            batch.tells_all = True
            batch.topics_first = {part.topic.name: part for part in order.topics}
            batch.gone_first = {part.topic.name: part for part in order.gone}
            for part in (*order.topics, *order.gone):
                batch.topics.pop(part.topic.name, None)
            return
        if not order.topics and not order.gone:
            batch.tells_of_brokers = True
            return
        batch.tells = True
        for part in order.gone:
            batch.topics.pop(part.topic.name, None)
            batch.gone[part.topic.name] = part
        for part in order.topics:
            batch.topics[part.topic.name] = _newest(batch.topics.get(part.topic.name), part)

    def _new(self) -> _Batch:
        self._batches.append(_Batch())
        return self._batches[-1]

    def take(self) -> Request | None:
        """Returns the request in flight, to be sent again, or else the next request. Returns None if no order
        waits."""
        while self._under_way is None and self._batches:
            self._under_way = self._batches[0].take()
            if self._under_way is None:
                self._batches.popleft()
        return self._under_way

    def done(self) -> None:
        """Removes the request in flight, because the broker has answered it."""
        self._under_way = None


def _newest(before: TopicPartitions | None, part: TopicPartitions) -> TopicPartitions:
    """Merges two orders about a topic: returns the partitions of both orders, with the newer states. If the topic was
    deleted and created again in between, only the newer order is used."""
    if before is None or before.topic.topic_id != part.topic.topic_id:
        return part
    return TopicPartitions(part.topic, tuple(dict.fromkeys((*before.numbers, *part.numbers))))
