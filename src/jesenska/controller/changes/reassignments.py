"""Carries out the reassignment of partitions: moves replicas to other brokers (`controller.plans.reassignments` has
the states and the rules).

  begin      a client requests it by AlterPartitionReassignments, or a tool by the node /admin/reassign_partitions: the
             topic's node gets the adding and removing replicas; brokers with new replicas begin to fetch
  continue   each look at /admin/reassign_partitions completes what can be completed. Such a look follows each change
             of the ISR of a moving partition, each change of the registered brokers, and the start of a controller
  complete   the target's brokers get the new state, the removed replicas' brokers delete their data

A broker that is not registered when its replica is removed deletes the data when it registers again
(`broker.replicas.replica_manager`). A partition stays in /admin/reassign_partitions until it has the replicas that the
node wants, because the tools of Kafka 0.8 to 2.3 look there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from jesenska.base.errors import KafkaError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.controller.changes.change_state import Asking, ControllerState, Steps, first_of, refusal, write
from jesenska.controller.changes.leadership import Leadership
from jesenska.controller.changes.many_elections import read_again
from jesenska.controller.changes.topic_changes import TopicChanges
from jesenska.controller.context import TopicView
from jesenska.controller.effects import Get, Read, TopicPartitions
from jesenska.controller.events import AlterReassignments
from jesenska.controller.plans.branches import branching_topics
from jesenska.controller.plans.reassignments import (
    PARTITIONS_AT_ONCE,
    ReassignmentPlan,
    check_target,
    moving,
    plan_completion,
    plan_request,
    reassignment_of,
)
from jesenska.controller.plans.topics import epoch_check
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, decode_reassignment, encode_reassignment
from jesenska.metadata.tree_operations import (
    BadVersionError,
    Delete,
    MultiError,
    NoNodeError,
    Operation,
    SetData,
    TreeError,
)

#: The maximum number of times that a change is planned before it fails. A plan is made again if a leader has written
#: the state of a partition in between.
_ATTEMPTS_MAX: Final = 10

Targets = Mapping[TopicPartition, Sequence[int] | None]


class Reassignments:
    """The reassignments of one controller."""

    def __init__(self, shared: ControllerState, leadership: Leadership, topics: TopicChanges) -> None:
        self._shared = shared
        self._context = shared.context
        self._leadership = leadership
        self._topics = topics

    def alter(self, event: AlterReassignments) -> Steps:
        """Begins, changes and cancels the reassignments that a client requests. The answer is a list with an error or
        None for each request. As in Apache Kafka, each request is checked alone; if several requests for one partition
        are accepted, the last of them counts."""
        answers: list[KafkaError | None] = []
        accepted: dict[TopicPartition, Sequence[int] | None] = {}
        branching = branching_topics(self._context)
        for topic_partition, target in event.wanted:
            topic = self._context.topics.get(topic_partition.topic)
            try:
                if topic is None:
                    raise UnknownTopicOrPartitionError(f"Unable to find a topic named {topic_partition.topic}.")
                check_target(
                    self._context,
                    topic,
                    topic_partition.partition,
                    target,
                    may_change_factor=event.may_change_factor,
                    is_branching=topic.name in branching,
                )
            except KafkaError as error:
                answers.append(error)
            else:
                answers.append(None)
                accepted[topic_partition] = target
        if accepted:
            # The client's targets replace those that a tool has written.
            yield from self._take_out(accepted)
            failed = yield from self._begin(accepted, branching, may_change_factor=event.may_change_factor)
            answers = [
                answer or failed.get(topic_partition)
                for answer, (topic_partition, _) in zip(answers, event.wanted, strict=True)
            ]
        self._shared.answer(event.token, answers)

    def look(self) -> Steps:
        """Begins what a tool has written to /admin/reassign_partitions, completes what can be completed, and removes
        from the node what is done."""
        path = paths.REASSIGN_PARTITIONS
        (found,) = yield Read((Get(path, path),))
        wanted: dict[TopicPartition, tuple[int, ...]] = {}
        if found is not None:
            try:
                wanted = decode_reassignment(found[0])
            except NodeFormatError as error:
                self._shared.say("error", f"{path} cannot be read and is removed: {error}")
        new = {key: target for key, target in wanted.items() if self._target_of(key) != target}
        errors = (yield from self._begin(new, branching_topics(self._context))) if new else {}
        for topic_partition, refused in errors.items():
            self._shared.say(
                "error", f"{topic_partition} cannot get the replicas {list(new[topic_partition])}: {refused}"
            )
        yield from self._complete()
        if found is not None:
            left = {key: target for key, target in wanted.items() if self._is_under_way(key, target)}
            if left != wanted or not wanted:
                yield from self._rewrite(left, found[1])

    # --- steps -------------------------------------------------------------------------------------------------------

    def _begin(self, wanted: Targets, branching: Collection[str], *, may_change_factor: bool = True) -> Asking:
        """Begins, changes or cancels reassignments, and returns the errors of the refused partitions. `branching` are
        the topics that cannot be reassigned now (`branching_topics`)."""
        errors: dict[TopicPartition, KafkaError] = {}
        by_topic: dict[str, dict[int, Sequence[int] | None]] = {}
        for topic_partition, target in wanted.items():
            by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = target
        for name, targets in by_topic.items():
            for numbers in _pieces(sorted(targets)):
                asked = {number: targets[number] for number in numbers}

                def plan(topic: TopicView, asked: dict[int, Sequence[int] | None] = asked) -> ReassignmentPlan:
                    return plan_request(
                        self._context,
                        topic,
                        asked,
                        may_change_factor=may_change_factor,
                        is_branching=topic.name in branching,
                    )

                made: ReassignmentPlan | None = yield from self._write(name, numbers, plan)
                if made is None:
                    missing = UnknownTopicOrPartitionError(f"Unable to find a topic named {name}.")
                    errors |= {TopicPartition(name, number): missing for number in numbers}
                else:
                    errors |= {TopicPartition(name, number): error for number, error in made.errors.items()}
        return errors

    def _complete(self) -> Steps:
        """Completes the reassignments that can be completed."""
        for name, topic in list(self._context.topics.items()):
            if topic.deleting:
                continue
            for numbers in _pieces(moving(topic)):

                def plan(topic: TopicView, numbers: Sequence[int] = numbers) -> ReassignmentPlan:
                    return plan_completion(self._context, topic, numbers)

                yield from self._write(name, numbers, plan)

    def _write(self, name: str, numbers: Sequence[int], plan_of: Callable[[TopicView], ReassignmentPlan]) -> Asking:
        """Writes a plan, and sends its result to the brokers. Returns the plan; None if the topic does not exist any
        more."""
        for attempt in range(_ATTEMPTS_MAX):
            topic = self._context.topics.get(name)
            if topic is None or topic.deleting:
                return None
            plan = plan_of(topic)
            try:
                yield from write((*epoch_check(self._context), *plan.operations) if plan.operations else ())
            except (MultiError, TreeError) as error:
                refused = refusal(error)
                is_state = isinstance(refused, BadVersionError) and refused.path.startswith(paths.partitions(name))
                if not is_state or attempt == _ATTEMPTS_MAX - 1:
                    raise
                known = [number for number in numbers if number in topic.partitions]
                yield from read_again(self._context, name, known, self._leadership.written)
                continue
            yield from self._apply(plan, topic)
            return plan
        raise AssertionError("the last attempt returns or raises")

    def _apply(self, plan: ReassignmentPlan, before: TopicView) -> Steps:
        """Stores a written plan in the context, and sends it to the brokers."""
        if not plan.operations:
            return
        name = plan.topic.name
        self._context.topics[name] = plan.topic
        for level, text in _told(plan, before):
            self._shared.say(level, text)
        yield from self._topics.begin([TopicPartitions(plan.topic, plan.numbers)])
        for broker_id, numbers in plan.dropped.items():
            self._topics.stop_replicas(plan.topic, broker_id, numbers)

    # --- the node of the tools ---------------------------------------------------------------------------------------

    def _target_of(self, topic_partition: TopicPartition) -> tuple[int, ...] | None:
        """Returns the replicas that a partition has, or will have when its reassignment is complete."""
        topic = self._context.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition not in topic.node.replicas:
            return None
        return reassignment_of(topic.node, topic_partition.partition).target

    def _is_under_way(self, topic_partition: TopicPartition, target: tuple[int, ...]) -> bool:
        topic = self._context.topics.get(topic_partition.topic)
        if topic is None or topic.deleting or topic_partition.partition not in topic.node.replicas:
            return False
        current = reassignment_of(topic.node, topic_partition.partition)
        return current.is_moving and current.target == target

    def _take_out(self, accepted: Targets) -> Steps:
        """Removes partitions from /admin/reassign_partitions."""
        path = paths.REASSIGN_PARTITIONS
        (found,) = yield Read((Get(path, path),))
        if found is None:
            return
        try:
            wanted = decode_reassignment(found[0])
        except NodeFormatError:
            return  # The look that follows the creation of the node reports it.
        left = {key: target for key, target in wanted.items() if key not in accepted}
        if left != wanted:
            yield from self._rewrite(left, found[1])

    def _rewrite(self, left: Mapping[TopicPartition, tuple[int, ...]], version: int) -> Steps:
        """Writes the partitions that are left in /admin/reassign_partitions. Deletes the node if there are none."""
        path = paths.REASSIGN_PARTITIONS
        operation: Operation = SetData(path, encode_reassignment(left), version) if left else Delete(path, version)
        try:
            yield from write((operation,))
        except (MultiError, TreeError) as error:
            if not isinstance(refusal(error), NoNodeError):
                raise


def _pieces(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), PARTITIONS_AT_ONCE):
        yield numbers[start : start + PARTITIONS_AT_ONCE]


def _told(plan: ReassignmentPlan, before: TopicView) -> Iterator[tuple[str, str]]:
    """Yields the lines for the log about a plan."""
    begun, done = list[int](), list[int]()
    for number in plan.numbers:
        (begun if reassignment_of(plan.topic.node, number).is_moving else done).append(number)
    for numbers, what in ((begun, "are being moved"), (done, "have been moved")):
        if numbers:
            first = numbers[0]
            yield (
                "info",
                f"topic {plan.topic.name}: {len(numbers)} partitions ({first_of(numbers)}) {what}, such as {first} "
                f"from {list(before.node.replicas[first])} to "
                f"{list(reassignment_of(plan.topic.node, first).target)}",
            )
