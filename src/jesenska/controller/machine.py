"""The controller of a cluster, as a machine: events in, effects out. A decider: no tree, no clock, no broker of its
own.

    handle(event, now_ms) -> effects

One change is at work at a time, in the order of the events: it waits for the tree's answers to its reads and writes
(`Done`), and for nothing else. So each plan is made from what the change before it left. Brokers answer when they can;
their answers are events like others. A look at the tree that waits for its turn already is not queued twice, since it
finds everything that was written until then.

    effects         what is wanted of the tree, of brokers, of whoever asked
    topic_changes   topics created, expanded, adopted; `deletions`: deleted
    settings        settings of topics and brokers
    brokers         brokers that come and go
    leadership      elections, ISRs
    tree_looks      what others wrote in the tree

Its state is the context (what the tree holds) and what brokers were told and have not answered. It changes when the
tree has taken a write, and not before: a controller that stops between two events has lost nothing that was
answered."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from typing import Final

from jesenska.base.errors import KafkaStorageError
from jesenska.config.layers import BrokerConfig, TopicConfig
from jesenska.controller.brokers import Brokers
from jesenska.controller.context import ControllerContext
from jesenska.controller.deletions import Deletions
from jesenska.controller.desk import Desk, Steps
from jesenska.controller.effects import Effect, Step, Wake
from jesenska.controller.events import (
    AlterBrokerSettings,
    AlterTopicSettings,
    BalanceLeaders,
    BrokerCame,
    BrokerGone,
    Change,
    CreateTopic,
    DeleteTopic,
    Done,
    Elected,
    ElectPreferred,
    ElectUncleanly,
    Event,
    ExpandTopic,
    IsrProposed,
    LeaderAndIsrDone,
    Look,
    Started,
    StopReplicaDone,
    StopWanted,
)
from jesenska.controller.leadership import Leadership
from jesenska.controller.settings import Settings
from jesenska.controller.topic_changes import TopicChanges
from jesenska.controller.tree_looks import TreeLooks
from jesenska.metadata.tree_operations import MultiError, TreeError

_FIRST_PAUSE_MS: Final = 250
_LONGEST_PAUSE_MS: Final = 30_000


class Controller:
    """One controller. `context` is what the tree held when this broker became controller; `new_uuid` and `chance` are
    chance. `several`: there may be other brokers, and they come and go as their nodes do; then `context` begins
    without any."""

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
        self._desk = desk = Desk(broker_id, context, config, new_uuid, chance)
        self.context = context
        leadership, deletions = Leadership(desk), Deletions(desk)
        topics, settings = TopicChanges(desk, leadership, deletions), Settings(desk, leadership)
        brokers = Brokers(desk, leadership, topics, deletions)
        looks = TreeLooks(desk, topics, deletions, settings, brokers, leadership, several)
        self._work: dict[type, Callable[..., Steps]] = {
            CreateTopic: topics.create, ExpandTopic: topics.expand, DeleteTopic: deletions.delete,
            AlterTopicSettings: settings.alter_topic, AlterBrokerSettings: settings.alter_broker,
            ElectUncleanly: leadership.elect_uncleanly, ElectPreferred: leadership.elect_preferred, BalanceLeaders: leadership.balance,
            StopWanted: leadership.stop_wanted, IsrProposed: leadership.isr_proposed,
            Started: brokers.start, Elected: brokers.elected, BrokerCame: brokers.came, BrokerGone: brokers.gone, Look: looks.look,
            LeaderAndIsrDone: topics.leader_and_isr_done, StopReplicaDone: deletions.stop_replica_done,
        }  # fmt: skip
        self._waiting: deque[Change | LeaderAndIsrDone | StopReplicaDone] = deque()
        self._looks_waiting: set[str] = set()
        self._at_work: Change | LeaderAndIsrDone | StopReplicaDone | None = None
        self._steps: Steps
        self._awaited = 0
        self._failures: dict[str, int] = {}

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings in force: those of its files, and over them those of the tree."""
        return self._desk.config

    def topic_config(self, name: str) -> TopicConfig:
        """A topic's settings in force."""
        return self._desk.topic_config(name)

    @property
    def is_idle(self) -> bool:
        return self._at_work is None and not self._waiting

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """What is to be done about an event; `now_ms` is a clock that nobody sets."""
        self._desk.now_ms = now_ms
        if isinstance(event, Done):
            if self._at_work is not None and event.number == self._awaited:
                self._go_on(event)
        elif isinstance(event, Look):
            if event.at not in self._looks_waiting:
                self._looks_waiting.add(event.at)
                self._waiting.append(event)
        else:
            self._waiting.append(event)
        while self._at_work is None and self._waiting:
            self._begin(self._waiting.popleft())
        return self._desk.take()

    def _begin(self, event: Change | LeaderAndIsrDone | StopReplicaDone) -> None:
        if isinstance(event, Look):
            # Before it reads: what is written meanwhile is looked at again.
            self._looks_waiting.discard(event.at)
        self._at_work = event
        self._steps = self._work[type(event)](event)
        self._go_on(Done(0))

    def _go_on(self, done: Done) -> None:
        """To the next thing that the change at work waits for, or to its end."""
        try:
            step = self._steps.throw(done.error) if done.error is not None else self._steps.send(done.outcome)
        except StopIteration:
            self._end(None, done)
        except Exception as error:
            self._end(error, done)
        else:
            self._awaited = self._desk.number()
            self._desk.put(Step(self._awaited, step))

    def _end(self, error: Exception | None, done: Done) -> None:
        event, self._at_work = self._at_work, None
        if isinstance(event, Look):
            if error is None:
                self._failures.pop(event.at, None)
            elif done.is_connected:  # else everything is looked at once it is
                self._look_again(event, error)
        elif error is None:
            return
        elif isinstance(event, (Started, BrokerCame)):
            self._desk.answer(event.token, error=error)
        elif isinstance(event, (BalanceLeaders, BrokerGone, Elected, LeaderAndIsrDone, StopReplicaDone)) or event is None:
            self._desk.say("error", f"{type(event).__name__}: not done: {error}")
        else:
            self._desk.answer(event.token, error=self._for_clients(error))

    def _look_again(self, look: Look, error: Exception) -> None:
        failures = self._failures[look.at] = self._failures.get(look.at, 0) + 1
        pause_ms = min(_FIRST_PAUSE_MS * 2 ** (failures - 1), _LONGEST_PAUSE_MS)
        self._desk.say("info", f"{look.at}: not done ({error}), tried again in {pause_ms / 1000:g} s")
        self._desk.put(Wake(pause_ms, look))

    def _for_clients(self, error: Exception) -> Exception:
        if not isinstance(error, (TreeError, MultiError)):
            return error
        self._desk.say("error", f"the metadata could not be changed: {error}")
        return KafkaStorageError(f"The metadata could not be changed: {error}")
