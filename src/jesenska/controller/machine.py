"""The controller of a cluster, as a state machine: it receives events and returns effects. A decider: it has no tree,
no clock and no broker.

    handle(event, now_ms) -> effects

One change is at work at a time, in the order of the events (`work`). Brokers answer when they can; their answers are
events, too.

    effects         work for the tree, orders to brokers, answers to requests
    topic_changes   topics created, expanded, adopted; `deletions`: deleted
    brokers         brokers that come and go
    leadership      elections, ISRs
    tree_looks      changes in the tree by others

Its state is the context (the content of the tree) and the orders that brokers have not answered. It changes only when
the tree has taken a write: a controller that stops between two events has lost nothing that was answered."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from jesenska.config.layers import BrokerConfig, TopicConfig
from jesenska.controller.changes.brokers import Brokers
from jesenska.controller.changes.change_machine import ChangeMachine, Work
from jesenska.controller.changes.change_state import ControllerState
from jesenska.controller.changes.deletions import Deletions
from jesenska.controller.changes.leadership import Leadership
from jesenska.controller.changes.topic_changes import TopicChanges
from jesenska.controller.changes.tree_looks import TreeLooks
from jesenska.controller.context import ControllerContext
from jesenska.controller.events import (
    BalanceLeaders,
    BrokerCame,
    BrokerGone,
    CreateTopic,
    DeleteTopic,
    ElectPreferred,
    ElectUncleanly,
    ExpandTopic,
    IsrProposed,
    LeaderAndIsrDone,
    Look,
    Started,
    StopReplicaDone,
    StopWanted,
)


class Controller(ChangeMachine):
    """One controller. `context` is the content of the tree when this broker became controller; `new_uuid` and `chance`
    are random. `several`: there may be other brokers, and they come and go with their nodes; then `context` begins
    without brokers."""

    def __init__(
        self,
        broker_id: int,
        context: ControllerContext,
        config: BrokerConfig,
        new_uuid: Callable[[], uuid.UUID],
        chance: Callable[[int], int],
        *,
        several: bool = False,
    ) -> None:
        self._shared = shared = ControllerState(broker_id, context, config, new_uuid, chance)
        self.context = context
        leadership, deletions = Leadership(shared), Deletions(shared)
        topics = TopicChanges(shared, leadership, deletions)
        brokers = Brokers(shared, leadership, topics, deletions)
        looks = TreeLooks(shared, topics, deletions, brokers, leadership, several)
        super().__init__(
            shared,
            {
                CreateTopic: topics.create,
                ExpandTopic: topics.expand,
                DeleteTopic: deletions.delete,
                ElectUncleanly: leadership.elect_uncleanly,
                ElectPreferred: leadership.elect_preferred,
                BalanceLeaders: leadership.balance,
                StopWanted: leadership.stop_wanted,
                IsrProposed: leadership.isr_proposed,
                Started: brokers.start,
                BrokerCame: brokers.came,
                BrokerGone: brokers.gone,
                Look: looks.look,
                LeaderAndIsrDone: topics.leader_and_isr_done,
                StopReplicaDone: deletions.stop_replica_done,
            },
        )

    @property
    def config(self) -> BrokerConfig:
        """The broker's current settings: settings of the tree override those of its files."""
        return self._shared.config

    def topic_config(self, name: str) -> TopicConfig:
        """Returns the current settings of a topic."""
        return self._shared.topic_config(name)

    def _error_for_client(self, event: Work, error: Exception) -> Exception:
        # The runtime of the controller gets the tree's own error for these.
        return error if isinstance(event, (Started, BrokerCame)) else super()._error_for_client(event, error)
