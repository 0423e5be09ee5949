"""The state that all changes of a state machine share: the context (a copy of the metadata tree, ZooKeeper's nodes),
the effects that are not returned yet, and the numbers that match outcomes to effects.

A change is a generator of steps. The generator yields a read or a write of the tree. The outcome is sent into the
generator; an error is raised in the generator. No other change runs between two steps. Effects for which a change does
not wait are added here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from jesenska.config.layers import BrokerConfig, TopicConfig
from jesenska.controller.context import ControllerContext, TopicView
from jesenska.controller.effects import Answer, Effect, Read, Say, TopicPartitions, UpdateMetadata, Write
from jesenska.controller.plans.replica_states import ReplicaStates
from jesenska.metadata import paths
from jesenska.metadata.tree_operations import (
    BadVersionError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    Result,
    TreeError,
)

Steps = Generator[Read | Write, Any, None]
#: The steps of a change that returns a result.
Asking = Generator[Read | Write, Any, Any]
#: The errors of a write that show that another broker has changed a node since this broker read the node.
_OTHER_WAS_FASTER: Final = (BadVersionError, NodeExistsError, NoNodeError)


class Plan(Protocol):
    """The interface of a plan: operations that are written to the metadata tree together."""

    @property
    def operations(self) -> Sequence[Operation]: ...


P = TypeVar("P", bound=Plan)


class ChangeState:
    """The state that all changes of one state machine share. `config` has the settings of the broker's configuration
    files."""

    def __init__(self, broker_id: int, context: ControllerContext, config: BrokerConfig) -> None:
        self.broker_id = broker_id
        self.context = context
        self.now_ms = 0
        self._file_config = config
        #: The current settings: settings in the tree override those of the configuration files.
        self.config = config
        self._effects: list[Effect] = []
        #: The looks that follow the present change (`events.Look.at`), in order.
        self._looks: dict[str, None] = {}
        self._last_number = 0
        self.settings_changed()

    # --- effects -----------------------------------------------------------------------------------------------------

    def put(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """Returns all effects that were added since the last call."""
        taken, self._effects = self._effects, []
        return taken

    def look_later(self, at: str) -> None:
        """Causes a look at a part of the metadata tree after the present change."""
        self._looks[at] = None

    def take_looks(self) -> list[str]:
        """Returns the looks that were added since the last call."""
        taken, self._looks = list(self._looks), {}
        return taken

    def number(self) -> int:
        """Returns a new number for an effect. No other effect has this number."""
        self._last_number += 1
        return self._last_number

    def answer(self, token: int | None, value: Any = None, error: Exception | None = None) -> None:
        if token is not None:
            self.put(Answer(token, value, error))

    def say(self, level: str, text: str) -> None:
        self.put(Say(level, text))

    # --- settings ----------------------------------------------------------------------------------------------------

    def topic_config(self, name: str) -> TopicConfig:
        return TopicConfig(self.context.topic_settings(name), self.config)

    def settings_changed(self) -> None:
        """Updates `config`, because broker settings in the context have changed."""
        context = self.context
        self.config = self._file_config.with_dynamic(
            dynamic_default=context.broker_settings(None), dynamic_broker=context.broker_settings(self.broker_id)
        )


class ControllerState(ChangeState):
    """The state that all changes of one controller share. `new_uuid` returns a random id. `chance` returns a random
    number from 0 to below its argument."""

    def __init__(
        self,
        broker_id: int,
        context: ControllerContext,
        config: BrokerConfig,
        new_uuid: Callable[[], uuid.UUID],
        chance: Callable[[int], int],
    ) -> None:
        super().__init__(broker_id, context, config)
        self.replicas = ReplicaStates()
        self.new_uuid = new_uuid
        self.chance = chance

    def tell_everybody(
        self, topics: Iterable[TopicPartitions] = (), gone: Sequence[TopicPartitions] = (), but: Collection[int] = ()
    ) -> None:
        """Sends UpdateMetadata about these topics to every registered broker, except the brokers in `but`."""
        named = tuple(topics)
        if named or gone:
            for broker_id in self.context.brokers:
                if broker_id not in but:
                    self.put(UpdateMetadata(broker_id, named, tuple(gone)))

    def tell_first(self, comers: Iterable[int]) -> tuple[TopicPartitions, ...]:
        """Sends all topics (UpdateMetadata) to newly registered brokers before they lead anything, and returns these
        topics. A new broker may know topics that were deleted while it was away, so the request means that all other
        topics are deleted. The request also names the topics that are being deleted, since Apache Kafka's brokers need
        their names."""
        topics = self.all_topics()
        gone = tuple(whole(topic) for topic in self.context.topics.values() if topic.deleting)
        for broker_id in comers:
            self.put(UpdateMetadata(broker_id, topics, gone, is_first=True))
        return topics

    def all_topics(self) -> tuple[TopicPartitions, ...]:
        """Returns all partitions of every topic that is not being deleted."""
        return tuple(whole(topic) for topic in self.context.topics.values() if not topic.deleting)

    def moves_may_end(self, topic: TopicView) -> None:
        """Causes a look at the reassignments if partitions of the topic are being reassigned, because the state of a
        partition has changed."""
        if topic.node.adding or topic.node.removing:
            self.look_later(paths.REASSIGN_PARTITIONS)

    def tell_of_brokers(self) -> None:
        """Sends the list of registered brokers to every registered broker (UpdateMetadata)."""
        for broker_id in self.context.brokers:
            self.put(UpdateMetadata(broker_id))


def first_of(numbers: Sequence[object]) -> str:
    """Returns the first ten numbers as text, for a message."""
    return ", ".join(map(str, numbers[:10])) + (", …" if len(numbers) > 10 else "")


def whole(topic: TopicView) -> TopicPartitions:
    """Returns a topic with all its partitions."""
    return TopicPartitions(topic, tuple(sorted(topic.node.replicas)))


def write(operations: Sequence[Operation]) -> Generator[Read | Write, Any, tuple[Result, ...]]:
    """Writes operations to the metadata tree, and returns their results. Does nothing if there are no operations."""
    if not operations:
        return ()
    results: tuple[Result, ...] = yield Write(tuple(operations))
    return results


def write_plan(
    plan: P, make_again: Callable[[P], Generator[Read | Write, Any, P]], attempts_max: int
) -> Generator[Read | Write, Any, tuple[P, tuple[Result, ...]]]:
    """Writes a plan's operations to the metadata tree. If another broker has changed a node first, `make_again` reads
    the nodes and makes the plan again. Returns the plan that was written, and its results. After `attempts_max`
    attempts the error is raised."""
    for _ in range(attempts_max - 1):
        try:
            return plan, (yield from write(plan.operations))
        except (MultiError, TreeError) as error:
            if not isinstance(refusal(error), _OTHER_WAS_FASTER):
                raise
        plan = yield from make_again(plan)
    return plan, (yield from write(plan.operations))


def refusal(error: MultiError | TreeError) -> TreeError:
    """Returns the error of the operation that the metadata tree has refused. For a multi this is the error of the
    failed operation in it, otherwise `error` itself."""
    return error.error if isinstance(error, MultiError) else error
