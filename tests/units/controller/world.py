"""A tree, brokers and a controller, connected only by a list of pending steps: the test chooses the next step."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from jesenska.base.clock import ManualClock
from jesenska.base.errors import KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Endpoint
from jesenska.controller.changes.change_machine import ChangeMachine
from jesenska.controller.context import ControllerContext, view_of
from jesenska.controller.effects import (
    Answer,
    Children,
    Effect,
    Exists,
    Get,
    GetMade,
    LeaderAndIsr,
    OffsetsForgotten,
    Read,
    Say,
    SettingsChanged,
    Step,
    StopReplica,
    UpdateMetadata,
    Wake,
)
from jesenska.controller.events import (
    EVERYTHING,
    BrokerCame,
    BrokerGone,
    Done,
    Event,
    LeaderAndIsrDone,
    Look,
    Started,
    StopReplicaDone,
)
from jesenska.controller.machine import Controller
from jesenska.controller.orders.missed_deletions import TopicsGone
from jesenska.controller.orders.requests import Metadata, Orderer
from jesenska.controller.settings import Settings
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.nodes import BrokerRegistration, PartitionStateNode
from jesenska.metadata.registration import become_controller, ensure_paths, register_broker
from jesenska.metadata.store import Store
from jesenska.metadata.tree import Multi, Tree
from jesenska.metadata.tree_operations import (
    ConnectionLossError,
    Create,
    Delete,
    MultiError,
    NoNodeError,
    Operation,
    Result,
    TreeError,
)
from jesenska.metadata.watches import Watches

NODE = BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),), 5)
CONFIG = {"num.partitions": "2"}


@dataclass
class FakeBroker:
    """One broker with its orders. Its disk accepts no new files while `full`, and renames none while `stuck`;
    `offline` partitions are in a log directory that has failed."""

    broker_id: int
    full: bool = False
    stuck: bool = False
    replicas: dict[TopicPartition, PartitionStateNode] = field(default_factory=dict)
    #: Partitions that it does not follow any more, and keeps.
    given_up: set[TopicPartition] = field(default_factory=set)
    offline: set[TopicPartition] = field(default_factory=set)
    #: Their data are lost: it makes no log for them before another broker leads.
    lost: set[TopicPartition] = field(default_factory=set)
    shown: dict[str, dict[int, PartitionStateNode]] = field(default_factory=dict)
    #: The replicas of partitions in `shown`.
    assigned: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    orders: deque[LeaderAndIsr | StopReplica | UpdateMetadata] = field(default_factory=deque)
    gone: TopicsGone = field(default_factory=TopicsGone)
    #: Replicas that it could not delete; it deletes them after it has registered again.
    undeleted: set[TopicPartition] = field(default_factory=set)
    #: Which of the controllers ordered, by the identity of the order.
    ordered_by: dict[int, Orderer] = field(default_factory=dict)

    def put(self, order: LeaderAndIsr | StopReplica | UpdateMetadata, orderer: Orderer) -> None:
        self.orders.append(order)
        self.ordered_by[id(order)] = orderer

    def do_next(self) -> Event | None:
        """Carries out the next order; returns the event for the controller."""
        order = self.orders.popleft()
        orderer = self.ordered_by.pop(id(order), Orderer(0, 0))
        if isinstance(order, LeaderAndIsr):
            without_log = set()
            for topic, numbers in order.topics:
                for number in numbers:
                    key, state = TopicPartition(topic.name, number), topic.partitions[number].state
                    if state.leader not in (-1, self.broker_id):
                        self.lost.discard(key)
                    if (key not in self.replicas and self.full) or key in self.offline or key in self.lost:
                        without_log.add(key)
                    known = self.replicas.get(key)
                    assert known is None or state.leader_epoch >= known.leader_epoch, (
                        "an old leader epoch after a newer one"
                    )
                    self.replicas[key] = state
            return LeaderAndIsrDone(order.number, self.broker_id, frozenset(without_log))
        if isinstance(order, StopReplica):
            if self.stuck:
                self.undeleted |= {TopicPartition(order.topic, number) for number in order.numbers}
                return StopReplicaDone(order.number, self.broker_id, KafkaStorageError("the disk is stuck"))
            for number in order.numbers:
                if order.delete:
                    self.replicas.pop(TopicPartition(order.topic, number), None)
                else:
                    self.given_up.add(TopicPartition(order.topic, number))
            return StopReplicaDone(order.number, self.broker_id)
        metadata = Metadata(order.topics, tuple(part.topic.name for part in order.gone), {}, {}, order.is_first)
        for name in self.gone.gone_after(orderer, metadata, list(self.shown)):
            self.shown.pop(name, None)
        for topic, numbers in order.topics:
            shown = self.shown.setdefault(topic.name, {})
            shown.update({number: topic.partitions[number].state for number in numbers})
            self.assigned |= {TopicPartition(topic.name, number): topic.node.replicas[number] for number in numbers}
        if self.gone.has_all:
            for key in list(self.replicas):
                seen = self.shown.get(key.topic, {}).get(key.partition)
                if seen is not None and seen.leader != -1 and self.broker_id not in self.assigned[key]:
                    del self.replicas[key]
        return None


class World:
    """The controller and its environment. `step` does one of the pending actions, and `settle` does all of them."""

    def __init__(
        self,
        brokers: int = 1,
        settings: dict[str, str] | None = None,
        chance: random.Random | None = None,
        context: ControllerContext | None = None,
        several: bool = False,
    ):
        async def start() -> Tree:
            embedded = EmbeddedTree.simulated(ManualClock())
            store: Store = await embedded.session()
            await ensure_paths(store)
            for number in range(brokers):
                await register_broker(store, number, NODE)
            await become_controller(store, 0, 5)
            return embedded.tree

        #: True: brokers are up or down by their nodes in the tree, and nothing else reports them.
        self.several = several
        self.chance = chance or random.Random(0)
        self.tree = asyncio.run(start())
        (self.session,) = self.tree.sessions
        self.settings = CONFIG | (settings or {})
        self.brokers = {number: FakeBroker(number) for number in range(brokers)}
        self.up = set(self.brokers)
        self.watches: Watches[tuple[ChangeMachine, str]] = Watches()
        self.steps: deque[tuple[ChangeMachine, Step]] = deque()
        self.answers: dict[int, Any] = {}
        self.said: list[str] = []
        self.told: list[Effect] = []
        self.timers: list[Wake] = []
        self.looks: deque[tuple[ChangeMachine, str]] = deque()
        self.unreachable = False
        #: True: writes are made, and the connection is lost before their outcome is heard.
        self.unheard = False
        self.controllers = 0
        self.last_token = 0
        #: Under which token a broker came last.
        self.came: dict[int, int] = {}
        self.take_over()

    def take_over(self) -> None:
        """Starts a controller from the tree; the work of the one before is lost."""
        self.controllers += 1
        self.steps.clear()
        self.timers.clear()
        self.looks.clear()
        self.watches = Watches()
        context = view_of(self.tree)
        for broker_id in list(context.brokers):
            if self.several or broker_id not in self.up:
                del context.brokers[broker_id]
        self.controller = Controller(
            0,
            context,
            BrokerConfig(self.settings),
            lambda: uuid.UUID(int=self.chance.getrandbits(128) | 1),
            lambda limit: self.chance.randrange(limit),
            several=self.several,
        )
        self.broker_settings = Settings(
            0,
            context.configs,
            BrokerConfig(self.settings),
            lambda name: any(name in self.brokers[broker_id].shown for broker_id in self.up),
        )
        self.ask(Started)
        self.bring_to(self.broker_settings, Look(paths.CONFIG_CHANGES))
        self.bring(Look(EVERYTHING if self.several else paths.CONFIG_CHANGES))

    # --- what happens ------------------------------------------------------------------------------------------------

    def ask(self, make: Callable[[int], Event]) -> int:
        """Sends an event with a new token. Returns the token."""
        self.last_token += 1
        self.bring(make(self.last_token))
        return self.last_token

    def _is_shown(self, name: str) -> bool:
        return any(name in self.brokers[broker_id].shown for broker_id in self.up)

    def ask_settings(self, make: Callable[[int], Event]) -> int:
        """Asks the component that keeps the settings of broker 0."""
        self.last_token += 1
        self.bring_to(self.broker_settings, make(self.last_token))
        return self.last_token

    def bring(self, event: Event) -> None:
        self.bring_to(self.controller, event)

    def bring_to(self, machine: ChangeMachine, event: Event) -> None:
        for effect in machine.handle(event, 0):
            self._take(machine, effect)

    def _take(self, machine: ChangeMachine, effect: Effect) -> None:
        if isinstance(effect, Step):
            assert all(other is not machine for other, _ in self.steps), "two steps at a time"
            self.steps.append((machine, effect))
        elif isinstance(effect, (LeaderAndIsr, StopReplica, UpdateMetadata)):
            # The controller may not know yet that a broker is gone, or registered again: then the order is lost.
            if effect.broker_id in self.up and self._is_for_this_registration(effect.broker_id):
                epoch = self.controller.context.broker_epochs.get(effect.broker_id, -1)
                self.brokers[effect.broker_id].put(effect, Orderer(0, self.controllers, epoch))
        elif isinstance(effect, Answer):
            assert effect.token not in self.answers, "two answers to one request"
            self.answers[effect.token] = effect.error if effect.error is not None else effect.value
        elif isinstance(effect, Say):
            self.said.append(effect.text)
        elif isinstance(effect, Wake):
            self.timers.append(effect)
        else:
            assert isinstance(effect, (SettingsChanged, OffsetsForgotten))
            self.told.append(effect)

    def _is_for_this_registration(self, broker_id: int) -> bool:
        if not self.several:
            return True
        stat = self.tree.exists(paths.broker(broker_id))
        return stat is not None and stat.czxid == self.controller.context.broker_epochs.get(broker_id)

    def come(self, broker_id: int, *, crashed: bool = False) -> int:
        """Returns the token of the answer; 0 if there is no request."""
        self.up.add(broker_id)
        if self.several:
            if self.tree.exists(paths.broker(broker_id)) is not None:
                self.write(Delete(paths.broker(broker_id)))
            self.write(Create(paths.broker(broker_id), replace(NODE, crashed=crashed).encode()))
            return 0
        if self.tree.exists(paths.broker(broker_id)) is None:
            self.write(Create(paths.broker(broker_id), NODE.encode()))
        self.came[broker_id] = self.ask(lambda token: BrokerCame(token, broker_id, NODE, crashed))
        return self.came[broker_id]

    def go(self, broker_id: int) -> None:
        self.up.discard(broker_id)
        self.brokers[broker_id].orders.clear()
        self.brokers[broker_id].shown.clear()
        self.write(Delete(paths.broker(broker_id)))
        if not self.several:
            self.bring(BrokerGone(broker_id))

    def write(self, *operations: Operation) -> tuple[Result, ...]:
        """Writes into the tree, and notifies the watchers."""
        decision = self.tree.decide(Multi(self.session, tuple(operations)), 10)
        if decision.transaction is not None:
            self.looks += [look for look, _ in self.watches.fired(decision.transaction.changes)]
        return decision.results

    def bring_everything(self) -> None:
        """The controller looks at the whole tree, and watches it."""
        self.bring(Look(EVERYTHING))

    # --- what is under way -------------------------------------------------------------------------------------------

    def under_way(self) -> list[Callable[[], None]]:
        """Each of the possible next actions."""
        found: list[Callable[[], None]] = [self._do_step] if self.steps else []
        found += [lambda broker=broker: self._do_order(broker) for broker in self.brokers.values() if broker.orders]  # type: ignore[misc]
        if self.looks:
            found.append(self._look)
        return found

    def settle(self) -> None:
        """Does all pending actions until there are no more. Timers do not fire."""
        for _ in range(100_000):
            things = self.under_way()
            if not things:
                return
            self.chance.choice(things)()
        raise AssertionError("it does not come to an end")

    def wake(self) -> None:
        """Fires all timers."""
        timers, self.timers = self.timers, []
        for timer in timers:
            self.bring(timer.event)

    def _look(self) -> None:
        machine, at = self.looks.popleft()
        self.bring_to(machine, Look(at))

    def _do_order(self, broker: FakeBroker) -> None:
        told = broker.do_next()
        if told is not None:
            self.bring(told)

    def _do_step(self) -> None:
        machine, step = self.steps.popleft()
        outcome: Any = None
        error: Exception | None = None
        try:
            if self.unreachable:
                raise ConnectionLossError("/")
            if isinstance(step.what, Read):
                outcome = tuple(self._answer(machine, asked) for asked in step.what.asked)
            else:
                outcome = self.write(*step.what.operations)
                if self.unheard:
                    raise ConnectionLossError("/")
        except (TreeError, MultiError) as raised:
            error = raised
        is_connected = not (self.unreachable or isinstance(error, ConnectionLossError))
        self.bring_to(machine, Done(step.number, outcome, error, is_connected))

    def _answer(self, machine: ChangeMachine, asked: Children | Get | Exists | GetMade) -> Any:
        if not isinstance(asked, GetMade) and asked.look is not None:
            (self.watches.watch_children if isinstance(asked, Children) else self.watches.watch_data)(
                asked.path, (machine, asked.look)
            )
        try:
            if isinstance(asked, Children):
                return self.tree.children(asked.path)[0]
            if isinstance(asked, Exists):
                stat = self.tree.exists(asked.path)
                return None if stat is None else stat.version
            data, stat = self.tree.get(asked.path)
        except NoNodeError:
            return None
        return data or b"", stat.czxid if isinstance(asked, GetMade) else stat.version

    # --- what must be so ---------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Checks the state when nothing is pending: the controller knows the content of the tree, brokers know what
        the controller knows, and each leader is allowed to lead."""
        known, held = self.controller.context, view_of(self.tree)
        assert known.topics == held.topics
        assert known.configs == held.configs
        for broker_id in self.up:
            broker = self.brokers[broker_id]
            shown = {
                name: {number: part.state for number, part in topic.partitions.items()}
                for name, topic in held.topics.items()
                if not topic.deleting
            }
            assert broker.shown == shown
            for name, topic in held.topics.items():
                for number, replicas in topic.node.replicas.items():
                    if broker_id in replicas and not topic.deleting:
                        told, written = broker.replicas[TopicPartition(name, number)], topic.partitions[number].state
                        # Only the leader, which has requested it, knows of another ISR in the same epoch.
                        assert (told.leader, told.leader_epoch) == (written.leader, written.leader_epoch)
            assert {key.topic for key in broker.replicas} <= held.topics.keys(), "data of a topic that is gone"
            for key in broker.replicas.keys() - broker.undeleted:
                assert broker_id in held.topics[key.topic].node.replicas[key.partition], "data of a moved replica"
        for topic in held.topics.values():
            for number, part in topic.partitions.items():
                leader, isr = part.state.leader, part.state.isr
                live = {
                    broker_id
                    for broker_id in self.up
                    if TopicPartition(topic.name, number) not in self.brokers[broker_id].offline
                }
                if topic.deleting:
                    continue
                # A leader stays even if other programs have written replicas without it.
                assert leader == -1 or (leader in live and leader in isr)
                assert leader != -1 or not live & set(isr) & set(topic.node.replicas[number])
