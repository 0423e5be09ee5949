"""Runs the controller while this broker is the controller. The controller is a state machine; this module carries out
the effects that it returns:

  LeaderAndIsr, StopReplica, UpdateMetadata
                    requests of the controller to a broker. Requests to this broker are carried out one after the
                    other (`order_receiver`); requests to another broker are sent (`order_sender`)
  OffsetsForgotten  this broker deletes the stored offsets of a topic
  Answer            sent to the client after all earlier effects for this broker, so that the client finds its change
                    made
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from jesenska.base.errors import ErrorCode, KafkaError, NotControllerError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.controlling.order_sender import WITHOUT_LOG, OrderSender
from jesenska.broker.effects_runtime import EffectsRuntime
from jesenska.broker.peers import Peers
from jesenska.broker.replicas.order_receiver import OrderReceiver
from jesenska.broker.replicas.replica_manager import ReplicaManager
from jesenska.broker.shared_parts import SharedParts
from jesenska.controller.changes.change_state import refusal
from jesenska.controller.effects import Answer, Effect, LeaderAndIsr, OffsetsForgotten, StopReplica, UpdateMetadata
from jesenska.controller.events import BalanceLeaders, Event, LeaderAndIsrDone, Look, StopReplicaDone
from jesenska.controller.machine import Controller
from jesenska.controller.orders.requests import Metadata, Orderer, stops_of
from jesenska.metadata import paths
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import BadVersionError, MultiError, TreeError

logger = logging.getLogger(__name__)

#: The pause before a request of the controller to this broker is repeated after an error.
_PAUSE_SECONDS: Final = 0.3

ToBroker = LeaderAndIsr | StopReplica | UpdateMetadata


class ControllerRuntime(EffectsRuntime):
    """Runs the controller from this broker's election until another broker is controller. `fenced` is called when this
    broker learns that there is a newer controller."""

    def __init__(
        self,
        core: SharedParts,
        store: Store,
        controller: Controller,
        replicas: ReplicaManager,
        receiver: OrderReceiver,
        peers: Peers,
        change_max_bytes: int | None,
        fenced: Callable[[], None],
    ) -> None:
        super().__init__(core, store, controller, change_max_bytes)
        self.controller = controller
        self._replicas = replicas
        self._receiver = receiver
        self._peers = peers
        self._fenced = fenced
        self._orders: deque[ToBroker | OffsetsForgotten | Answer] = deque()
        self._working: asyncio.Task[None] | None = None
        #: The sender of the controller's requests to each broker, with the broker epoch for which it was created.
        self._senders: dict[int, tuple[int, OrderSender]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._balancing: asyncio.TimerHandle | None = None
        if core.config.boolean("auto.leader.rebalance.enable"):
            self._balance_later()

    def close(self) -> list[asyncio.Task[None]]:
        ending = super().close()
        if self._balancing is not None:
            self._balancing.cancel()
        if self._working is not None:
            self._working.cancel()
            ending.append(self._working)
        for _, sender in self._senders.values():
            self._end(sender)
        self._senders.clear()
        return [*ending, *self._closing]

    def _ended(self) -> Exception:
        return NotControllerError("This broker is not the controller any more.")

    def _balance_later(self) -> None:
        seconds = self._core.config.integer("leader.imbalance.check.interval.seconds")
        self._balancing = self._loop.call_later(seconds, self._balance)

    def _balance(self) -> None:
        self.submit(BalanceLeaders())
        self._balance_later()

    def _refused(self, error: Exception) -> None:
        if isinstance(error, (TreeError, MultiError)):
            refused = refusal(error)
            if isinstance(refused, BadVersionError) and refused.path == paths.CONTROLLER_EPOCH and not self._closed:
                self._fenced()

    # --- the controller's requests to brokers (orders) ---------------------------------------------------------------

    def submit(self, event: Event) -> None:
        super().submit(event)
        for broker_id, (epoch, sender) in list(self._senders.items()):
            if self.controller.context.broker_epochs.get(broker_id) != epoch:
                del self._senders[broker_id]
                self._end(sender)

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, ToBroker) and effect.broker_id != self._core.broker_id:
            self._send(effect)
            return
        assert isinstance(effect, ToBroker | OffsetsForgotten | Answer)
        self._orders.append(effect)
        if self._working is None:
            self._working = self._loop.create_task(self._work())

    def _orderer(self, broker_id: int) -> Orderer:
        context = self.controller.context
        return Orderer(self._core.broker_id, context.controller_epoch, context.broker_epochs.get(broker_id, -1))

    async def _work(self) -> None:
        """Carries out the controller's requests to this broker, in order."""
        try:
            while self._orders:
                order = self._orders.popleft()
                try:
                    if isinstance(order, Answer):
                        self._answer(order)
                    elif isinstance(order, OffsetsForgotten):
                        self._replicas.forget_offsets(order.topic)
                    else:
                        await self._carry_out_here(order)
                except Exception:
                    logger.exception("the controller's order was not carried out: %s", type(order).__name__)
        finally:
            self._working = None

    async def _carry_out_here(self, order: ToBroker) -> None:
        """Carries out a request of the controller to this broker. Repeats it after an error, as `order_sender` does
        for other brokers."""
        while True:
            try:
                await self._carry_out_once(order)
                return
            except KafkaError as error:
                logger.info("this broker could not carry out %s, and tries it again: %s", type(order).__name__, error)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _carry_out_once(self, order: ToBroker) -> None:
        orderer = self._orderer(order.broker_id)
        try:
            if isinstance(order, LeaderAndIsr):
                errors = await self._receiver.lead_and_follow(orderer, order.topics)
                without_log = frozenset(at for at, code in errors.items() if code in WITHOUT_LOG)
                self.submit(LeaderAndIsrDone(order.number, order.broker_id, without_log))
            elif isinstance(order, StopReplica):
                failed = await self._receiver.stop(orderer, stops_of(order))
                error = KafkaError.of(next(iter(failed.values())), "See the broker's log.") if failed else None
                self.submit(StopReplicaDone(order.number, order.broker_id, error))
            else:
                gone = tuple(part.topic.name for part in order.gone)
                context = self.controller.context
                keys = (TopicPartition(part.topic.name, number) for part in order.topics for number in part.numbers)
                offline = (
                    {key: tuple(context.offline[key]) for key in keys if key in context.offline}
                    if context.offline
                    else {}
                )
                await self._receiver.update_metadata(
                    orderer, Metadata(order.topics, gone, dict(context.brokers), offline, order.is_first)
                )
        except KafkaError as error:
            if error.code == ErrorCode.STALE_CONTROLLER_EPOCH:
                self._fenced()
            elif error.code == ErrorCode.STALE_BROKER_EPOCH:
                self.submit(Look(paths.BROKER_IDS))
            else:
                raise

    def _send(self, order: ToBroker) -> None:
        broker_id = order.broker_id
        node = self.controller.context.brokers.get(broker_id)
        if node is None:
            return  # the broker is down, and gets all its orders when it is up again
        orderer = self._orderer(broker_id)
        known = self._senders.get(broker_id)
        if known is not None and known[0] != orderer.broker_epoch:
            self._end(known[1])
            known = None
        if known is None:
            sender = OrderSender(
                broker_id,
                orderer,
                partial(self._peers.connect_to, node),
                lambda: self.controller.context.brokers,
                self._peers.listener_name,
                offline=lambda: self.controller.context.offline,
                answered=self.submit,
                refused=self._sender_refused,
                timeout_seconds=self._core.config.integer("controller.socket.timeout.ms") / 1000,
            )
            known = self._senders[broker_id] = orderer.broker_epoch, sender
        known[1].put(order)

    def _sender_refused(self, code: int) -> None:
        if code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._fenced()
        else:
            self.submit(Look(paths.BROKER_IDS))

    def _end(self, sender: OrderSender) -> None:
        closing = self._loop.create_task(sender.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
