"""Gives out producer ids, each id only once. A broker claims a block of 1000 ids by a conditional write
(compare-and-set) of the node `/latest_producer_id_block`, and gives the ids out from memory. After a crash the unused
ids of a block are lost, which does no harm: there are 2**63 ids.

If the connection ends before the result of a claim arrives, the claim may have succeeded. The next claim then takes
the following block. So ids may be skipped, but no id is given out twice."""

from __future__ import annotations

import asyncio
import logging

from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, ProducerIdBlock
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import BadVersionError, NodeExistsError, NoNodeError, TreeError

logger = logging.getLogger(__name__)

BLOCK_SIZE = 1000
LAST_PRODUCER_ID = 2**63 - 1


class ProducerIdsExhausted(Exception):
    """Raised when every producer id has been used."""


def next_block(broker_id: int, latest: ProducerIdBlock | None) -> ProducerIdBlock:
    """Returns the block of producer ids after the latest one. Raises ProducerIdsExhausted if no block is left."""
    first = 0 if latest is None else latest.last + 1
    if first > LAST_PRODUCER_ID - BLOCK_SIZE + 1:
        raise ProducerIdsExhausted("every producer id has been used")
    return ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)


class ProducerIds:
    """The producer ids that one broker gives out. It claims them in blocks."""

    __slots__ = ("_broker_id", "_claiming", "_last", "_next", "_store")

    def __init__(self, store: Store, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next, self._last = 0, -1
        self._claiming: asyncio.Task[None] | None = None

    def take(self) -> int | None:
        """Returns an unused producer id. Returns None if the block is used up; the caller must then call `claim`
        first."""
        if self._next > self._last:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    async def claim(self) -> None:
        """Claims the next block of ids. Does nothing if `take` still has ids. Raises TreeError if the store fails."""
        while self._next > self._last:
            block = await self._claim_once(self._broker_id)
            if block is not None and self._next > self._last:
                self._next, self._last = block.first, block.last

    def claim_soon(self) -> None:
        """Starts to claim the next block of ids in the background, if no claim is running. A failure is logged."""
        if self._claiming is None or self._claiming.done():
            self._claiming = asyncio.get_running_loop().create_task(self._try_to_claim())

    async def _try_to_claim(self) -> None:
        try:
            await self.claim()
        except (TreeError, ProducerIdsExhausted) as error:
            logger.warning("producers get no ids: %s", error)

    async def close(self) -> None:
        """Cancels a claim that runs in the background."""
        if self._claiming is not None:
            self._claiming.cancel()
            await asyncio.gather(self._claiming, return_exceptions=True)

    async def claim_for(self, broker_id: int) -> ProducerIdBlock:
        """Claims and returns the next block of ids for any broker. Raises TreeError if the store fails."""
        while True:
            block = await self._claim_once(broker_id)
            if block is not None:
                return block

    async def new(self) -> int:
        """Returns a producer id that was never given out before. Claims a block first if necessary."""
        while True:
            producer_id = self.take()
            if producer_id is not None:
                return producer_id
            await self.claim()

    async def _claim_once(self, broker_id: int) -> ProducerIdBlock | None:
        """Tries once to claim the next block of ids for a broker. Returns None if another broker claimed a block at
        the same time, or if the node had to be created first."""
        try:
            data, stat = await self._store.get(paths.PRODUCER_ID_BLOCK)
        except NoNodeError:
            try:
                await self._store.create(paths.PRODUCER_ID_BLOCK, None)
            except NodeExistsError:
                pass
            return None
        latest = ProducerIdBlock.decode(data) if data else None
        if latest is not None and not 0 <= latest.first <= latest.last:
            raise NodeFormatError(f"the block of producer ids from {latest.first} to {latest.last} is not valid")
        block = next_block(broker_id, latest)
        try:
            await self._store.set(paths.PRODUCER_ID_BLOCK, block.encode(), stat.version)
        except BadVersionError:
            return None
        return block
