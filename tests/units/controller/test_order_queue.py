"""A broker ends in the same state whether it answers at once or late: it has the newest states, in an order in which
it can carry them out; and every order is answered once."""

from __future__ import annotations

import uuid

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from jesenska.controller.context import PartitionView, TopicView
from jesenska.controller.effects import LeaderAndIsr, StopReplica, TopicPartitions, UpdateMetadata
from jesenska.controller.orders.queue import GiveUp, LeadAndFollow, OrderQueue, Request, Tell
from jesenska.metadata.nodes import PartitionStateNode, TopicNode

_NAMES = st.sampled_from(["a", "b", "c"])
PARTITIONS = 3


class Receiver:
    """A broker: the leader epochs of its replicas, and those that it reports to clients."""

    def __init__(self) -> None:
        self.replicas: dict[tuple[str, int], tuple[uuid.UUID | None, int]] = {}
        self.told: dict[tuple[str, int], int] = {}
        self.answered: list[int] = []

    def lead(self, topics: tuple[TopicPartitions, ...]) -> None:
        for topic, numbers in topics:
            self.replicas |= {
                (topic.name, number): (topic.topic_id, topic.partitions[number].state.leader_epoch)
                for number in numbers
            }

    def tell(self, topics: tuple[TopicPartitions, ...], gone: tuple[str, ...]) -> None:
        for name in gone:
            self.told = {key: epoch for key, epoch in self.told.items() if key[0] != name}
        for topic, numbers in topics:
            self.told |= {(topic.name, number): topic.partitions[number].state.leader_epoch for number in numbers}

    def give_up(self, name: str) -> None:
        self.replicas = {key: held for key, held in self.replicas.items() if key[0] != name}


class Telling(RuleBasedStateMachine):
    """One broker that answers at once, and one that gets its orders from a queue."""

    @initialize()
    def begin(self) -> None:
        self.queue, self.prompt, self.late = OrderQueue(), Receiver(), Receiver()
        self.topics: dict[str, TopicView] = {}
        self.number = 0
        self.sent: Request | None = None

    def _part(self, name: str, numbers: set[int]) -> TopicPartitions:
        """These partitions of the topic, each in a new epoch. Adds the topic if it does not exist."""
        before = self.topics.get(name)
        if before is None:
            node = TopicNode(dict.fromkeys(range(PARTITIONS), (1,)), uuid.uuid4())
            before = TopicView(
                name,
                node,
                0,
                {number: PartitionView(PartitionStateNode(1, 0, (1,), 1)) for number in range(PARTITIONS)},
            )
        changed = {
            number: PartitionView(PartitionStateNode(1, before.partitions[number].state.leader_epoch + 1, (1,), 1))
            for number in numbers
        }
        topic = self.topics[name] = TopicView(name, before.node, 0, {**before.partitions, **changed})
        return TopicPartitions(topic, tuple(numbers))

    @rule(name=_NAMES, numbers=st.sets(st.integers(0, PARTITIONS - 1), min_size=1), tells=st.booleans())
    def change(self, name: str, numbers: set[int], tells: bool) -> None:
        part = self._part(name, numbers)
        self.number += 1
        self.queue.put(LeaderAndIsr(self.number, 1, (part,)))
        self.prompt.lead((part,))
        self.prompt.answered.append(self.number)
        if tells:
            self.queue.put(UpdateMetadata(1, (part,)))
            self.prompt.tell((part,), ())

    @rule()
    def come(self) -> None:
        """The broker has joined, and gets all topics before the partitions that it leads."""
        topics = tuple(TopicPartitions(topic, tuple(range(PARTITIONS))) for topic in self.topics.values())
        self.queue.put(UpdateMetadata(1, topics, is_first=True))
        self.prompt.tell(topics, ())

    @rule(name=_NAMES)
    def hide(self, name: str) -> None:
        """Removes the topic from the tree."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.queue.put(UpdateMetadata(1, (), (TopicPartitions(topic, (0,)),)))
            self.prompt.tell((), (name,))

    @rule(name=_NAMES)
    def delete(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        self.number += 1
        self.queue.put(UpdateMetadata(1, (), (TopicPartitions(topic, (0,)),)))
        self.queue.put(StopReplica(self.number, 1, name, (0,)))
        self.prompt.tell((), (name,))
        self.prompt.give_up(name)
        self.prompt.answered.append(self.number)

    @rule(arrives=st.booleans())
    def send(self, arrives: bool) -> None:
        request = self.queue.take()
        if self.sent is not None:
            assert request is self.sent
        self.sent = request
        if request is None or not arrives:
            return
        if isinstance(request, LeadAndFollow):
            self.late.lead(request.topics)
            self.late.answered += request.numbers
        elif isinstance(request, Tell):
            self.late.tell(request.topics, tuple(part.topic.name for part in request.gone))
        else:
            assert isinstance(request, GiveUp)
            for order in request.orders:
                self.late.give_up(order.topic)
                self.late.answered.append(order.number)
        self.sent = None
        self.queue.done()

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        while not self.queue.is_empty:
            self.send(arrives=True)
        assert self.queue.take() is None
        assert self.late.replicas == self.prompt.replicas
        # An order that was put together with later ones has their states of all its partitions.
        assert self.late.told.keys() == self.prompt.told.keys()
        for (name, number), epoch in self.late.told.items():
            assert self.prompt.told[name, number] <= epoch <= self.topics[name].partitions[number].state.leader_epoch
        assert sorted(self.late.answered) == sorted(self.prompt.answered)


TestTelling = Telling.TestCase


def _part(epoch: int, *numbers: int) -> TopicPartitions:
    partitions = {number: PartitionView(PartitionStateNode(1, epoch, (1,), 1)) for number in range(PARTITIONS)}
    return TopicPartitions(
        TopicView("t", TopicNode(dict.fromkeys(range(PARTITIONS), (1,)), uuid.UUID(int=5)), 0, partitions), numbers
    )


def test_a_broker_that_does_not_answer_is_told_the_newest_of_many_states_once() -> None:
    queue = OrderQueue()
    queue.put(LeaderAndIsr(1, 1, (_part(1, 0),)))
    under_way = queue.take()
    for epoch in range(2, 100):
        queue.put(LeaderAndIsr(epoch, 1, (_part(epoch, epoch % 2),)))
        queue.put(UpdateMetadata(1, (_part(epoch, epoch % 2),)))
    assert queue.take() is under_way
    queue.done()
    assert queue.take() == LeadAndFollow((_part(99, 0, 1),), tuple(range(2, 100)))
    queue.done()
    assert queue.take() == Tell((_part(99, 0, 1),), ())
    queue.done()
    assert queue.take() is None
    assert queue.is_empty


def test_who_has_come_is_told_of_all_topics_before_it_leads() -> None:
    queue = OrderQueue()
    every = _part(2, *range(PARTITIONS))
    queue.put(LeaderAndIsr(1, 1, (_part(1, 0),)))
    queue.put(UpdateMetadata(1, (_part(1, 0),)))
    queue.put(UpdateMetadata(1))
    queue.put(UpdateMetadata(1, (every,), is_first=True))
    queue.put(LeaderAndIsr(2, 1, (_part(2, 1),)))
    requests = []
    while (request := queue.take()) is not None:
        requests.append(request)
        queue.done()
    assert requests[0] == Tell((every,), (), is_all=True)
    assert [type(request) for request in requests] == [Tell, LeadAndFollow, Tell]
    assert requests[2] == Tell((), ()), "what was told before is not told again"


def test_who_has_come_is_told_that_there_is_no_topic_and_which_are_gone() -> None:
    queue = OrderQueue()
    queue.put(UpdateMetadata(1, (_part(1, 0),)))
    queue.put(UpdateMetadata(1, (), (_part(1, 0),), is_first=True))
    assert queue.take() == Tell((), (_part(1, 0),), is_all=True)
    queue.done()
    assert queue.take() == Tell((), ()), "it is not told after that that the topic is there"


def test_what_is_told_of_brokers_alone_is_told_once() -> None:
    queue = OrderQueue()
    for _ in range(3):
        queue.put(UpdateMetadata(1))
    assert queue.take() == Tell((), ())
    queue.done()
    assert queue.take() is None
