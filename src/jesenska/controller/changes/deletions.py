"""The deletion of topics. First, a node under /admin/delete_topics (the mark of the deletion) is written to the
metadata tree (ZooKeeper's nodes). Then every broker deletes its replicas' data. Then everything about the topic is
deleted from the tree.

The mark survives a crash of the controller: the next controller continues the deletion of marked topics (`begin`).
Replicas of brokers that have left are deleted when the brokers register again. The replicas count as deleted if an
operator declares the brokers lost (`forget_brokers`). If a broker cannot delete its data, the mark remains, and the
broker is asked again later."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from jesenska.base.errors import KafkaError, KafkaStorageError, UnknownTopicOrPartitionError
from jesenska.controller.changes.change_state import ControllerState, Steps, refusal, whole, write
from jesenska.controller.effects import OffsetsForgotten, StopReplica, Wake
from jesenska.controller.events import DeleteTopic, Look, StopReplicaDone
from jesenska.controller.plans.branches import require_not_branched
from jesenska.controller.plans.replica_states import ReplicaState
from jesenska.controller.plans.topics import forget_topic, plan_deletion, plan_deletion_end
from jesenska.metadata import paths
from jesenska.metadata.tree_operations import MultiError, NodeExistsError, TreeError

#: The pause, in milliseconds, before a broker that could not delete its data is asked again.
_AGAIN_AFTER_MS: Final = 30_000


@dataclass(slots=True)
class _Deletion:
    """A deletion in progress."""

    #: The tokens of requests that wait for the end of the deletion, each with the error to answer (None: no error).
    waiting: list[tuple[int, KafkaError | None]] = field(default_factory=list)
    #: The broker of each StopReplica that is not answered yet, by the number of the StopReplica.
    awaited: dict[int, int] = field(default_factory=dict)
    error: Exception | None = None


class Deletions:
    """The topics that one controller is deleting."""

    def __init__(self, shared: ControllerState) -> None:
        self._shared = shared
        self._context = shared.context
        self._at_work: dict[str, _Deletion] = {}
        #: Topics that are deleted without a node under /admin/delete_topics (the mark), because no client has seen
        #: them.
        self._unmarked: set[str] = set()

    def delete(self, event: DeleteTopic) -> Steps:
        """Deletes a topic because a client requests it."""
        under_way = self._at_work.get(event.name)
        if under_way is not None:
            under_way.waiting.append(
                (event.token, UnknownTopicOrPartitionError("This server does not host this topic-partition."))
            )
            return
        require_not_branched(self._context, event.name)
        try:
            yield from write(plan_deletion(self._context, event.name, self._shared.config))
        except (MultiError, TreeError) as error:
            # The error is ignored if another process has already written the node under /admin/delete_topics.
            if not isinstance(refusal(error), NodeExistsError):
                raise
        yield from self.begin(event.name, event.token)

    def begin(self, name: str, token: int | None = None, reason: KafkaError | None = None) -> Steps:
        """Deletes a topic that has a node under /admin/delete_topics. With `reason` (the error for the requester),
        deletes a topic that no client has seen yet. Does nothing if the deletion is in progress or complete."""
        if name in self._at_work or name not in self._context.topics:
            self._shared.answer(token, error=reason)
            return
        if reason is not None:
            self._unmarked.add(name)
        deletion = self._at_work[name] = _Deletion([] if token is None else [(token, reason)])
        topic = self._context.topics[name] = replace(self._context.topics[name], deleting=True)
        self._shared.tell_everybody(gone=(whole(topic),))
        for broker_id in {broker_id for replicas in topic.node.replicas.values() for broker_id in replicas}:
            self._stop_replicas(name, broker_id, deletion)
        yield from self._settle(name, deletion)

    def broker_came(self, broker_id: int) -> Steps:
        """Tells a newly registered broker to delete its replicas of topics that are being deleted. A StopReplica that
        the broker has not answered is sent again."""
        for name, topic in list(self._context.topics.items()):
            if not topic.deleting:
                continue
            deletion = self._at_work.get(name)
            if deletion is None:
                yield from self.begin(name)
            elif self._shared.replicas.of(name, broker_id) is ReplicaState.OFFLINE:
                self._stop_replicas(name, broker_id, deletion)

    def forget_brokers(self, broker_ids: Collection[int]) -> Steps:
        """Makes deletions no longer wait for these brokers, because they will never come back. If such a broker is
        registered, the deletions still wait for it, because its replicas are not OFFLINE."""
        states = self._shared.replicas
        for name, topic in list(self._context.topics.items()):
            if not topic.deleting:
                continue
            yield from self.begin(name)
            deletion = self._at_work.get(name)
            waited_for = [
                broker_id for broker_id in states.in_state(name, ReplicaState.OFFLINE) if broker_id in broker_ids
            ]
            if deletion is None or not waited_for:
                continue
            for broker_id in waited_for:
                states.move(name, broker_id, ReplicaState.DELETION_STARTED)
                states.move(name, broker_id, ReplicaState.DELETION_DONE)
            self._shared.say(
                "warning",
                f"the deletion of topic {name} continues without brokers {sorted(waited_for)}, because they were "
                "reported as lost",
            )
            yield from self._settle(name, deletion)

    def again(self) -> Steps:
        """Continues deletions in which a broker could not delete its data: sends StopReplica to this broker again."""
        for name, topic in list(self._context.topics.items()):
            if topic.deleting:
                yield from self.begin(name)

    def broker_gone(self, broker_id: int) -> Steps:
        """Stops waiting for the answers of a broker that has left."""
        for name, deletion in list(self._at_work.items()):
            lost = [number for number, waited_for in deletion.awaited.items() if waited_for == broker_id]
            for number in lost:
                del deletion.awaited[number]
                self._shared.replicas.move(name, broker_id, ReplicaState.OFFLINE)
            if lost:
                yield from self._settle(name, deletion)

    def stop_replica_done(self, event: StopReplicaDone) -> Steps:
        """Handles a broker's answer to StopReplica: the broker has deleted its data, or could not delete them."""
        found = next(
            ((name, deletion) for name, deletion in self._at_work.items() if event.number in deletion.awaited), None
        )
        if found is None:
            return
        name, deletion = found
        del deletion.awaited[event.number]
        deletion.error = deletion.error or event.error
        self._shared.replicas.move(
            name, event.broker_id, ReplicaState.DELETION_DONE if event.error is None else ReplicaState.DELETION_REFUSED
        )
        yield from self._settle(name, deletion)

    def _settle(self, name: str, deletion: _Deletion) -> Steps:
        """Does nothing until every registered broker has answered StopReplica. Then completes the deletion, or
        postpones it if a broker could not delete its data."""
        states = self._shared.replicas
        if deletion.awaited:
            return
        if states.in_state(name, ReplicaState.DELETION_REFUSED):
            self._refuse(name, deletion)
        elif states.in_state(name, ReplicaState.OFFLINE):
            # Clients no longer see the topic, so they are answered now. Replicas of brokers that have left are deleted
            # when these brokers register again.
            waiting, deletion.waiting = deletion.waiting, []
            for token, reason in waiting:
                self._shared.answer(token, error=reason)
        else:
            try:
                yield from self._end(name, deletion)
            except (MultiError, TreeError) as error:
                deletion.error = error
                self._refuse(name, deletion)

    def _stop_replicas(self, name: str, broker_id: int, deletion: _Deletion) -> None:
        numbers = tuple(
            number
            for number, replicas in sorted(self._context.topics[name].node.replicas.items())
            if broker_id in replicas
        )
        if not numbers:
            return
        states = self._shared.replicas
        if states.of(name, broker_id) is ReplicaState.DELETION_DONE:
            return
        if broker_id not in self._context.brokers:
            states.move(name, broker_id, ReplicaState.OFFLINE)
            return
        states.move(name, broker_id, ReplicaState.DELETION_STARTED)
        number = self._shared.number()
        deletion.awaited[number] = broker_id
        self._shared.put(StopReplica(number, broker_id, name, numbers))

    def _end(self, name: str, deletion: _Deletion) -> Steps:
        """Completes a deletion, because no broker has data of the topic any more."""
        # The offsets are deleted before the node under /admin/delete_topics is deleted. If the controller crashes in
        # between, the next controller completes the deletion again, with this step.
        self._shared.put(OffsetsForgotten(name))
        yield from write(plan_deletion_end(self._context, name, marked=name not in self._unmarked))
        forget_topic(self._context, name)
        self._unmarked.discard(name)
        self._shared.replicas.forget(name)
        del self._at_work[name]
        for token, reason in deletion.waiting:
            self._shared.answer(token, error=reason)

    def _refuse(self, name: str, deletion: _Deletion) -> None:
        """Postpones a deletion because a broker could not delete its data. The topic remains hidden from clients, and
        is deleted later."""
        del self._at_work[name]
        error = (
            deletion.error
            if isinstance(deletion.error, KafkaError)
            else KafkaStorageError(f"Topic {name} could not be deleted: {deletion.error}")
        )
        self._shared.say(
            "error",
            f"topic {name} is not deleted yet: {deletion.error}; it is tried again in {_AGAIN_AFTER_MS // 1000} s",
        )
        for token, reason in deletion.waiting:
            self._shared.answer(token, error=reason if isinstance(reason, KafkaStorageError) else error)
        self._shared.put(Wake(_AGAIN_AFTER_MS, Look(paths.DELETE_TOPICS)))
