"""Branches: topics that begin as a copy of another topic (the source). A new topic becomes a branch by a setting:

  jesenska.branch.of=orders                            in CreateTopics: the name of the source
  jesenska.branch.of=orders:6:9tbXHgBvRzO0K-63RUy5HQ   in the metadata tree while the branch is being created: the
                                                       first leader epoch of its partitions, and the source's id
  jesenska.branch.of=orders                            in the tree when every leader has its log: the setting
                                                       records the source, and has no further effect

With the second form, a broker creates the topic's logs from its logs of the source. With the third form, a broker
without a log begins an empty log and follows the leader, as for any topic. So after a disk is replaced, the branch is
not copied again from the source, which may have newer records.

A branch has the partitions, replicas and leaders of its source. Its first leader epoch is higher than all leader
epochs of the source, so no copied record has the epoch of a leader of the branch. At first the ISR contains only the
leader. Followers may have copied the source up to an older high watermark, and join the ISR when they have fetched the
missing records.

A leader's log contains all source records that were committed when the branch was requested; otherwise the leader has
no log. After an election or a crash, a leader may have to wait until it knows which records were committed. If a
leader has no log, the creation of the topic fails. If the controller or a leader changes while a branch is being
created, the branch has no leader until the creation is complete.

While a branch is being created, its source cannot be deleted by request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from jesenska.base.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    LeaderNotAvailableError,
    ReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)
from jesenska.base.identifiers import uuid_from_text, uuid_to_text
from jesenska.controller.context import ControllerContext, TopicView
from jesenska.controller.plans.partition_states import Change, changed
from jesenska.metadata.nodes import PartitionStateNode

BRANCH_OF = "jesenska.branch.of"
#: Internal topics of Apache Kafka. They cannot be branched, because their records are about other topics.
_NOT_BRANCHED: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
_INT32_MAX: Final = 2**31 - 1


class BranchPoint(NamedTuple):
    """The source topic of a branch (a topic that begins as a copy) that is being created."""

    source: str
    first_epoch: int
    #: The source's id.
    topic_id: UUID

    def text(self) -> str:
        return f"{self.source}:{self.first_epoch}:{uuid_to_text(self.topic_id)}"


class SourceTopic(NamedTuple):
    """The data of the source topic that a branch (a topic that begins as a copy) needs: the replicas, and the first
    states of the branch's partitions."""

    replicas: dict[int, tuple[int, ...]]
    states: dict[int, PartitionStateNode]
    point: BranchPoint


def branch_point(settings: Mapping[str, str]) -> BranchPoint | None:
    """Returns the source of a branch from the topic's settings. Returns None if the topic is not a branch that is
    being created."""
    source, _, rest = settings.get(BRANCH_OF, "").partition(":")
    epoch, _, topic_id = rest.partition(":")
    if not (epoch.isascii() and epoch.isdigit() and int(epoch) <= _INT32_MAX):
        return None
    try:
        return BranchPoint(source, int(epoch), uuid_from_text(topic_id))
    except ValueError:
        return None


def once_made(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of a branch (a topic that begins as a copy) whose creation is complete."""
    point = branch_point(settings)
    return dict(settings) if point is None else {**settings, BRANCH_OF: point.source}


def branches_under_way(view: ControllerContext, source: str) -> list[str]:
    """Returns the topics that are being created as copies (branches) of this source topic."""
    found = []
    for entity, config in view.configs.items():
        kind, _, name = entity.partition("/")
        if kind == "topics" and name in view.topics and not view.topics[name].deleting:
            point = branch_point(config.settings)
            if point is not None and point.source == source:
                found.append(name)
    return found


def branching_topics(view: ControllerContext) -> set[str]:
    """Returns the topics that are being created as copies (branches), and the source topics of these branches."""
    found: set[str] = set()
    for entity, config in view.configs.items():
        kind, _, name = entity.partition("/")
        if kind == "topics" and name in view.topics and not view.topics[name].deleting:
            point = branch_point(config.settings)
            if point is not None:
                found |= {name, point.source}
    return found


def require_not_branched(view: ControllerContext, name: str) -> None:
    """Raises InvalidRequestError if a branch (a copy) of the topic is being created. The topic cannot be deleted
    during this time."""
    for branch in branches_under_way(view, name)[:1]:
        raise InvalidRequestError(
            f"Topic '{name}' is being branched to '{branch}': delete it when that is done, or delete '{branch}' first."
        )


def source_of(
    view: ControllerContext,
    branch: str,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    assignment: Mapping[int, Sequence[int]],
) -> SourceTopic:
    """Returns the data of the source `name` that `branch` copies. Raises KafkaError if the source cannot be branched.
    Also raises KafkaError if the request asks for other numbers of partitions or replicas (-1: not given), or another
    assignment (empty: not given)."""
    if not name:
        raise InvalidConfigError(f"{BRANCH_OF} names no topic: give the name of the topic to branch.")
    for kept in (name, branch):
        if kept in _NOT_BRANCHED:
            raise InvalidRequestError(
                f"Topic '{kept}' is one of Kafka's own: it can neither be branched nor be a branch."
            )
    topic = view.topics.get(name)
    if topic is None or topic.deleting or topic.topic_id is None:
        raise UnknownTopicOrPartitionError(
            f"Topic '{branch}' cannot be a branch of '{name}', since there is no such topic."
        )
    if branch_point(view.topic_settings(name)) is not None:
        raise InvalidRequestError(f"Topic '{name}' is being branched itself: branch it when that is done.")
    if topic.node.adding or topic.node.removing:
        raise ReassignmentInProgressError(
            f"A partition reassignment is in progress for the topic '{name}': branch it when that is done."
        )
    replicas = {number: tuple(topic.node.replicas[number]) for number in sorted(topic.node.replicas)}
    _require_same(name, replicas, partitions, replication_factor, assignment)
    epoch = max(partition.state.leader_epoch for partition in topic.partitions.values()) + 1
    states = {number: _state(view, topic, number, epoch) for number in replicas}
    return SourceTopic(replicas, states, BranchPoint(name, epoch, topic.topic_id))


def _require_same(
    name: str,
    replicas: Mapping[int, tuple[int, ...]],
    partitions: int,
    replication_factor: int,
    assignment: Mapping[int, Sequence[int]],
) -> None:
    if assignment:
        if {number: tuple(brokers) for number, brokers in assignment.items()} != replicas:
            raise InvalidReplicaAssignmentError(
                f"A branch has the replicas of its source: leave the assignment out, or give that of topic '{name}'."
            )
        return
    if partitions not in (-1, len(replicas)):
        raise InvalidPartitionsError(
            f"A branch has the partitions of its source: leave their number out, or give the {len(replicas)} of "
            f"topic '{name}'."
        )
    factor = len(replicas[0]) if 0 in replicas else -1
    if replication_factor not in (-1, factor):
        raise InvalidReplicationFactorError(
            f"A branch has the replicas of its source: leave their number out, or give the {factor} of topic '{name}'."
        )


def _state(view: ControllerContext, topic: TopicView, number: int, epoch: int) -> PartitionStateNode:
    partition = topic.partitions.get(number)
    leader = -1 if partition is None else partition.state.leader
    if leader not in view.brokers:
        raise LeaderNotAvailableError(
            f"Partition {number} of topic '{topic.name}' has no leader, so it cannot be branched: start a broker "
            f"that has it."
        )
    state = PartitionStateNode(leader, epoch, (leader,), view.controller_epoch)
    return changed(Change.BRANCH, None, state, view.brokers)
