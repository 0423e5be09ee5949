"""The controller's reactions to brokers that register or leave, and its first work after its election."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace

from jesenska.controller.changes.change_state import Asking, ControllerState, Steps, write
from jesenska.controller.changes.deletions import Deletions
from jesenska.controller.changes.leadership import Leadership, changed_from
from jesenska.controller.changes.many_elections import ManyElections, read_again
from jesenska.controller.changes.topic_changes import TopicChanges
from jesenska.controller.context import PartitionView, TopicView
from jesenska.controller.events import BrokerCame, BrokerGone, Started
from jesenska.metadata import paths
from jesenska.metadata.nodes import TopicNode
from jesenska.metadata.tree_operations import SetData


class Brokers:
    """Handles the brokers of the cluster for one controller."""

    def __init__(
        self, shared: ControllerState, leadership: Leadership, topics: TopicChanges, deletions: Deletions
    ) -> None:
        self._shared = shared
        self._context = shared.context
        self._leadership = leadership
        self._topics = topics
        self._deletions = deletions
        #: True while the changes for brokers that registered or left are not complete.
        self.is_unsettled = False
        #: The brokers that have left, while other parts of the controller may still wait for their answers.
        self._going: dict[int, None] = {}

    def start(self, event: Started) -> Steps:
        """Gives ids to topics without an id (topics of Kafka releases before 2.8)."""
        for name, topic in list(self._context.topics.items()):
            if topic.topic_id is None:
                node = TopicNode(topic.node.replicas, self._shared.new_uuid(), topic.node.adding, topic.node.removing)
                (result,) = yield from write([SetData(paths.topic(name), node.encode(), topic.version)])
                assert result.stat is not None
                self._context.topics[name] = replace(topic, node=node, version=result.stat.version)
        self._shared.answer(event.token)

    def came(self, event: BrokerCame) -> Steps:
        """Handles a newly registered broker: elects leaders where that is possible now. A crashed broker is removed
        from every ISR that has another member. Partitions that the crashed broker leads as the only in-sync replica
        begin a new leader epoch. The new broker is sent all topics, all other brokers are sent the changes."""
        yield from self.changed((), (event,))

    def gone(self, event: BrokerGone) -> Steps:
        """Handles a broker that has left: elects other leaders for its partitions, where another replica can lead."""
        if event.broker_id in self._context.brokers:
            yield from self.changed((event.broker_id,), ())

    def changed(self, gone: Sequence[int], came: Sequence[BrokerCame]) -> Steps:
        """Handles brokers that have left, and then brokers that have registered, in one change. A broker in both lists
        has registered again. After an error this method must be called again; it then handles the brokers in `came` as
        if they had just registered."""
        self.is_unsettled = True
        try:
            yield from self._change(gone, came)
        except Exception:
            for event in came:
                self._context.broker_epochs.pop(event.broker_id, None)
            raise
        self.is_unsettled = False

    def _change(self, gone: Sequence[int], came: Sequence[BrokerCame]) -> Steps:
        context, comers = self._context, [event.broker_id for event in came]
        for broker_id in gone:
            context.brokers.pop(broker_id, None)
            context.broker_epochs.pop(broker_id, None)
            context.stopping.discard(broker_id)
            context.forget_offline(broker_id)
            self._going[broker_id] = None
        for broker_id in list(self._going):
            yield from self._topics.broker_gone(broker_id)
            yield from self._deletions.broker_gone(broker_id)
            del self._going[broker_id]
        for event in came:
            context.stopping.discard(event.broker_id)
            context.brokers[event.broker_id], context.broker_epochs[event.broker_id] = event.node, event.epoch
        if gone or came:
            # Sent first, because a broker does not follow a leader that it does not know to be registered.
            self._shared.tell_of_brokers()
        for broker_id in comers:
            yield from self._deletions.broker_came(broker_id)
        yield from self.elect({event.broker_id for event in came if event.crashed}, but=comers)
        sent = self._shared.tell_first(comers)
        if came:
            yield from self._topics.raise_internal()
        for topic in context.topics.values():
            self._shared.moves_may_end(topic)
        for event in came:
            self._topics.begin_on(event.broker_id, self._shared.all_topics(), event.token, sent)

    def elect(self, crashed: Set[int] = frozenset(), but: Collection[int] = ()) -> Steps:
        """Holds every election that is needed, and writes the results of many topics in one change of the metadata
        tree. All brokers are sent the results now, except the brokers in `but`, which get them later."""

        def plan(topic: TopicView) -> Asking:
            held = [
                number for number in topic.partitions if not crashed.isdisjoint(topic.node.replicas.get(number, ()))
            ]
            if held:
                # Before the brokers crashed, a leader may have written an ISR with them that the controller has not
                # read yet.
                yield from read_again(self._context, topic.name, held, written)
                topic = self._context.topics[topic.name]
            partitions, operations = yield from self._leadership.elected(topic, crashed=crashed)
            return changed_from(topic, partitions), operations

        def written(name: str, partitions: Mapping[int, PartitionView]) -> None:
            self._leadership.written(name, partitions, but)

        yield from ManyElections(self._context, plan, written).hold(list(self._context.topics))
