"""Receives the controller's requests (LeaderAndIsr, StopReplica, UpdateMetadata; here called orders) and carries them
out in the order of their arrival. The controller may be this broker or another broker.

  lead_and_follow    LeaderAndIsr: keep these replicas, and lead them or follow their leaders
  stop               StopReplica: stop replicas, and perhaps delete their data
  update_metadata    UpdateMetadata: update the metadata for clients

An order is refused if it comes from a controller that was replaced, or is for an earlier registration of this broker
(`controller.orders.fence`). `replica_manager` carries out the orders."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.replicas.replica_manager import ReplicaManager
from jesenska.controller.effects import TopicPartitions
from jesenska.controller.orders.fence import OrderFence
from jesenska.controller.orders.missed_deletions import TopicsGone
from jesenska.controller.orders.requests import Metadata, Orderer, Stop

_REFUSED: Final = {
    ErrorCode.STALE_BROKER_EPOCH: "The order is for an earlier registration of this broker.",
    ErrorCode.STALE_CONTROLLER_EPOCH: "The order is of a controller that was replaced.",
}


class OrderReceiver:
    """Receives the orders (the controller's requests) for one broker."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        #: The epoch of this broker's registration; -1 if it is not registered. `registration` sets it.
        self.broker_epoch = -1
        self._on_replicas: list[Callable[[int], Awaitable[None]]] = []
        self._replicas_epoch = -1
        self._telling: set[asyncio.Future[None]] = set()
        self._turn = asyncio.Lock()
        self._gone = TopicsGone()
        self.fence = OrderFence()
        #: True if a controller has sent metadata of topics or brokers.
        self.knows_cluster = False
        #: Set when a controller has sent this broker, since its last registration, first its replicas and then the
        #: cluster's metadata.
        self.has_replicas = asyncio.Event()

    def on_replicas(self, got_replicas: Callable[[int], Awaitable[None]]) -> None:
        """Registers `got_replicas`, which is awaited once per registration of this broker, with the broker epoch. The
        call is made after the first order that contains the replicas of this broker."""
        self._on_replicas.append(got_replicas)

    def _admit(self, orderer: Orderer) -> None:
        code = self.fence.admit(orderer, self.broker_epoch)
        if code != ErrorCode.NONE:
            raise KafkaError.of(code, _REFUSED[code])

    async def lead_and_follow(
        self, orderer: Orderer, topics: Sequence[TopicPartitions]
    ) -> dict[TopicPartition, ErrorCode]:
        """Carries out a LeaderAndIsr order. Returns an error for each replica for which the order failed. Raises
        KafkaError if the whole order is refused."""
        async with self._turn:
            self._admit(orderer)
            errors = await self._replicas.lead_and_follow(topics)
        epoch = self.broker_epoch
        if epoch >= 0 and epoch != self._replicas_epoch and orderer.broker_epoch in (-1, epoch):
            self._replicas_epoch = epoch
            for got_replicas in self._on_replicas:
                telling = asyncio.ensure_future(got_replicas(epoch))
                self._telling.add(telling)
                telling.add_done_callback(self._telling.discard)
        return errors

    async def stop(self, orderer: Orderer, stops: Sequence[Stop]) -> dict[TopicPartition, ErrorCode]:
        """Carries out a StopReplica order. Returns and raises errors as `lead_and_follow`."""
        async with self._turn:
            self._admit(orderer)
            return await self._replicas.stop(stops)

    async def update_metadata(self, orderer: Orderer, metadata: Metadata) -> None:
        """Carries out an UpdateMetadata order. Raises KafkaError if the order is refused."""
        async with self._turn:
            self._admit(orderer)
            gone = self._gone.gone_after(orderer, metadata, self._replicas.known_topics)
            await self._replicas.update_metadata(metadata._replace(gone=gone), orderer.controller_id)
            if self._gone.has_all:
                await self._replicas.delete_strays()
            else:
                await self._replicas.delete_led_strays()
        self.knows_cluster = True
        if self._replicas_epoch >= 0:
            self.has_replicas.set()

    async def close(self) -> None:
        for telling in self._telling:
            telling.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)
