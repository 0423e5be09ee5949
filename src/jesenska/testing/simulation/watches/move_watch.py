"""Checks moves of partitions to other brokers (reassignments) at each write of a topic's node to the metadata tree.

complete      when a move to other replicas ends, each replica that is new is in the ISR, and so is each replica of
              the target whose broker the controller knows to be registered
expected      at the end each partition has the replicas of its last target, or after a cancellation those from before
              (`Expected`)"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from jesenska.base.identifiers import TopicPartition
from jesenska.controller.plans.reassignments import reassignment_of
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.nodes import PartitionStateNode, TopicNode
from jesenska.metadata.tree_operations import DataSet, NodeCreated, NodeDeleted, Transaction
from jesenska.testing.simulation.churn import CHURNED
from jesenska.testing.simulation.watches.history import ViolationError

_TOPICS = paths.TOPICS + "/"

Replicas = tuple[int, ...]


@dataclass(slots=True)
class Expected:
    """The replicas that a partition may have when its moves have ended, and the replicas to which a cancellation may
    lead. There may be several origins, because it is unknown whether an earlier move had ended. A request without a
    response may also be carried out after later requests."""

    may_have: set[Replicas]
    origins: set[Replicas]
    _late: set[Replicas] = field(default_factory=set)
    _is_cancelled_late: bool = False

    @classmethod
    def settled(cls, replicas: Replicas) -> Expected:
        return cls({replicas}, {replicas})

    def begun(self, target: Replicas) -> None:
        """Records that a target was accepted."""
        self.origins |= self.may_have
        self.may_have = {target} | self._late
        self._may_be_cancelled()

    def cancelled(self) -> None:
        """Records that a cancellation was accepted."""
        self.may_have = self.origins | self._late

    def unsure(self, target: Replicas | None) -> None:
        """Records that a request may be carried out, now or later. None is a cancellation."""
        if target is None:
            self._is_cancelled_late = True
            self._may_be_cancelled()
        else:
            self.origins |= self.may_have
            self._late.add(target)
            self.may_have.add(target)

    def _may_be_cancelled(self) -> None:
        if self._is_cancelled_late:
            self.may_have |= self.origins

    def allows(self, replicas: Collection[int]) -> bool:
        """Returns True if the partition may have these replicas. Their order is not compared: after a cancellation the
        replicas that were also in the target come first."""
        return any(set(replicas) == set(one) for one in self.may_have)


class MoveWatch:
    """Checks the moves of one simulation. `live` returns the brokers of a partition that the present controller knows
    to be registered."""

    def __init__(self, live: Callable[[TopicPartition], Collection[int]]) -> None:
        self._live = live
        self._violation: ViolationError | None = None
        #: The topics in the tree, except the topic that is repeatedly created and deleted.
        self.nodes: dict[str, TopicNode] = {}
        #: The number of moves that have ended with other replicas.
        self.completed = 0

    def tree_is(self, tree: EmbeddedTree) -> None:
        """Records the topics of a metadata tree that is about to be served."""
        self.nodes = {
            name: TopicNode.decode(node.data)
            for path, node in tree.tree.walk()
            if (name := _topic_of(path)) is not None and node.data is not None
        }
        tree.on_commit(self._committed)

    def look(self) -> None:
        """Raises ViolationError if an invariant was violated."""
        if self._violation is not None:
            raise self._violation

    def replicas_of(self, topic_partition: TopicPartition) -> Replicas:
        return self.nodes[topic_partition.topic].replicas[topic_partition.partition]

    def _committed(self, transaction: Transaction) -> None:
        written = {
            change.path: change.data for change in transaction.changes if isinstance(change, NodeCreated | DataSet)
        }
        for change in transaction.changes:
            if isinstance(change, NodeDeleted) and (name := _topic_of(change.path)) is not None:
                self.nodes.pop(name, None)
        for path, data in written.items():
            name = _topic_of(path)
            if name is None or data is None:
                continue
            before, after = self.nodes.get(name), TopicNode.decode(data)
            self.nodes[name] = after
            for number in () if before is None else before.replicas.keys() & after.replicas.keys():
                assert before is not None
                state = written.get(paths.partition_state(name, number))
                if state is not None:
                    self._judge(TopicPartition(name, number), before, after, PartitionStateNode.decode(state))

    def _judge(
        self, topic_partition: TopicPartition, before: TopicNode, after: TopicNode, state: PartitionStateNode
    ) -> None:
        """Checks a change of a partition's replicas."""
        then, now = (
            reassignment_of(before, topic_partition.partition),
            reassignment_of(after, topic_partition.partition),
        )
        replicas = set(now.replicas)
        # A controller adds replicas to an internal topic without a move, if more brokers are registered.
        is_raised = not then.is_moving and replicas > set(then.replicas)
        if now.is_moving or is_raised or replicas == set(then.origin):
            return
        self.completed += 1
        needed = (replicas - set(then.origin)) | (replicas & set(self._live(topic_partition)))
        if lacking := sorted(needed - set(state.isr)):
            self._violation = self._violation or ViolationError(
                f"the move of {topic_partition} from {list(then.origin)} to {list(now.replicas)} is complete, and the "
                f"brokers {lacking} are not in sync"
            )


def _topic_of(path: str) -> str | None:
    """Returns the topic whose node has this path. Returns None for other nodes."""
    if not path.startswith(_TOPICS):
        return None
    name = path[len(_TOPICS) :]
    return None if "/" in name or name == CHURNED else name
