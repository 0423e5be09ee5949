"""The controller of a cluster, as a state machine: it gets events and returns effects. This module does no input or
output: it does not use the metadata tree (ZooKeeper's nodes), a clock or the network.

  handle(event, now_ms) -> effects

Changes are made one at a time, in the order of the events. Brokers answer when they can; their answers are further
events.

  effects         reads and writes of the metadata tree, requests to brokers, answers to clients
  topic_changes   topics that are created, expanded or adopted
  deletions       topics that are deleted
  brokers         brokers that register or leave
  leadership      elections, ISRs
  reassignments   replicas that move to other brokers
  tree_looks      changes of the tree by other processes

The state of the controller is the context (its copy of the tree), and the requests that brokers have not answered. The
context changes only when the tree has accepted a write. So if a controller ends between two events, no change that was
answered to a client is lost."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from jesenska.config.layers import BrokerConfig, TopicConfig
from jesenska.controller.changes.brokers import Brokers
from jesenska.controller.changes.change_machine import ChangeMachine, Work
from jesenska.controller.changes.change_state import ControllerState
from jesenska.controller.changes.deletions import Deletions
from jesenska.controller.changes.leadership import Leadership
from jesenska.controller.changes.reassignments import Reassignments
from jesenska.controller.changes.topic_changes import TopicChanges
from jesenska.controller.changes.tree_looks import TreeLooks
from jesenska.controller.context import ControllerContext
from jesenska.controller.events import (
    AlterReassignments,
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
    """The state machine of one controller. `context` is the content of the metadata tree when this broker became
    controller. `new_uuid` and `chance` return random values. With `several`, other brokers may register and leave, and
    `context` begins without brokers."""

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
        reassignments = Reassignments(shared, leadership, topics)
        looks = TreeLooks(shared, topics, deletions, brokers, leadership, reassignments, several)
        super().__init__(
            shared,
            {
                CreateTopic: topics.create,
                ExpandTopic: topics.expand,
                DeleteTopic: deletions.delete,
                ElectUncleanly: leadership.elect_uncleanly,
                ElectPreferred: leadership.elect_preferred,
                AlterReassignments: reassignments.alter,
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
        """Returns the broker's current settings: settings in the metadata tree override the settings in its
        configuration files."""
        return self._shared.config

    def topic_config(self, name: str) -> TopicConfig:
        """Returns the current settings of a topic."""
        return self._shared.topic_config(name)

    def _error_for_client(self, event: Work, error: Exception) -> Exception:
        # The requester of these two events gets the unchanged error of the metadata tree.
        return error if isinstance(event, (Started, BrokerCame)) else super()._error_for_client(event, error)
