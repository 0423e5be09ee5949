"""Brokers that come and go, and what a controller does first."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from jesenska.controller.context import TopicView
from jesenska.controller.deletions import Deletions
from jesenska.controller.desk import Desk, Steps, whole, write
from jesenska.controller.events import BrokerCame, BrokerGone, Elected, Started
from jesenska.controller.leadership import Leadership
from jesenska.controller.topic_changes import TopicChanges
from jesenska.controller.topics import epoch_check
from jesenska.metadata import paths
from jesenska.metadata.nodes import TopicNode
from jesenska.metadata.tree_operations import Operation, SetData

#: Operations of one change of the tree when many topics are touched, so that none grows without bound.
_OPERATIONS_AT_ONCE: Final = 1000


class Brokers:
    """Those of one controller."""

    def __init__(self, desk: Desk, leadership: Leadership, topics: TopicChanges, deletions: Deletions) -> None:
        self._desk = desk
        self._context = desk.context
        self._leadership = leadership
        self._topics = topics
        self._deletions = deletions

    def start(self, event: Started) -> Steps:
        """Topics get the ids that they lack."""
        for name, topic in list(self._context.topics.items()):
            if topic.topic_id is None:
                node = TopicNode(topic.node.replicas, self._desk.new_uuid(), topic.node.adding, topic.node.removing)
                (result,) = yield from write([SetData(paths.topic(name), node.encode(), topic.version)])
                assert result.stat is not None
                self._context.topics[name] = replace(topic, node=node, version=result.stat.version)
        self._desk.answer(event.token)

    def elected(self, event: Elected) -> Steps:
        """This broker is controller of another epoch, which its changes name from now on."""
        yield from ()
        self._context.controller_epoch, self._context.controller_epoch_version = event.epoch, event.epoch_version

    def came(self, event: BrokerCame) -> Steps:
        """Every partition gets the leader that it can have now; what a broker leads that has crashed begins a new
        leader epoch. The broker is told everything, the others what has changed."""
        self._context.brokers[event.broker_id] = event.node
        yield from self._deletions.broker_came(event.broker_id)
        yield from self.elect((event.broker_id,) if event.crashed else (), but=event.broker_id)
        self._topics.begin_on(event.broker_id, [whole(topic) for topic in self._context.topics.values() if not topic.deleting], event.token)

    def gone(self, event: BrokerGone) -> Steps:
        """What it led is led by another, where one can."""
        if self._context.brokers.pop(event.broker_id, None) is None:
            return
        yield from self._topics.broker_gone(event.broker_id)
        yield from self._deletions.broker_gone(event.broker_id)
        yield from self.elect()

    def elect(self, crashed: tuple[int, ...] = (), but: int | None = None) -> Steps:
        """Elections wherever one is due, many topics at a time. The broker `but` is told later."""
        changes: list[tuple[TopicView, TopicView]] = []
        operations: list[Operation] = []
        topics = [topic for topic in self._context.topics.values() if not topic.deleting]
        for topic in topics:
            partitions, needed = yield from self._leadership.elected(topic, crashed=crashed)
            if needed:
                changes.append((topic, replace(topic, partitions=partitions)))
                operations += needed
            if operations and (len(operations) >= _OPERATIONS_AT_ONCE or topic is topics[-1]):
                yield from write((*epoch_check(self._context), *operations))
                for before, after in changes:
                    changed = {number: partition for number, partition in after.partitions.items() if before.partitions.get(number) != partition}
                    self._leadership.written(after.name, changed, but)
                changes, operations = [], []
