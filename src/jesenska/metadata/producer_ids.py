"""Producer ids that are never handed out twice: a broker claims them in blocks of 1000 from
`/latest_producer_id_block` by compare-and-set, and hands them out from memory. After a crash the rest of a block is
lost, which costs nothing: there are 2**63 ids.

A claim whose answer got lost may have been made: the next claim then takes the block after it. So ids are skipped, and
none is given twice."""

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
    """There is no producer id left that was never used."""


def next_block(broker_id: int, latest: ProducerIdBlock | None) -> ProducerIdBlock:
    """The block that follows the latest one; ProducerIdsExhausted at the end of all ids."""
    first = 0 if latest is None else latest.last + 1
    if first > LAST_PRODUCER_ID - BLOCK_SIZE + 1:
        raise ProducerIdsExhausted("every producer id has been used")
    return ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)


class ProducerIds:
    """One broker's supply of producer ids."""

    __slots__ = ("_broker_id", "_claiming", "_last", "_next", "_store")

    def __init__(self, store: Store, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next, self._last = 0, -1
        self._claiming: asyncio.Task[None] | None = None

    def take(self) -> int | None:
        """An id at once; None where the block is used up and `claim` must come first."""
        if self._next > self._last:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    async def claim(self) -> None:
        """Claims the next block, where `take` has none left; TreeError where the store cannot."""
        while self._next > self._last:
            block = await self._claim_once(self._broker_id)
            if block is not None and self._next > self._last:
                self._next, self._last = block.first, block.last

    def claim_soon(self) -> None:
        """Has ids at hand soon, where there are none left; a failure is logged."""
        if self._claiming is None or self._claiming.done():
            self._claiming = asyncio.get_running_loop().create_task(self._try_to_claim())

    async def _try_to_claim(self) -> None:
        try:
            await self.claim()
        except (TreeError, ProducerIdsExhausted) as error:
            logger.warning("producers get no ids: %s", error)

    async def close(self) -> None:
        """Nothing is claimed any more."""
        if self._claiming is not None:
            self._claiming.cancel()
            await asyncio.gather(self._claiming, return_exceptions=True)

    async def claim_for(self, broker_id: int) -> ProducerIdBlock:
        """The next block, for another broker; TreeError where the store cannot."""
        while True:
            block = await self._claim_once(broker_id)
            if block is not None:
                return block

    async def new(self) -> int:
        """An id that was never handed out before."""
        while True:
            producer_id = self.take()
            if producer_id is not None:
                return producer_id
            await self.claim()

    async def _claim_once(self, broker_id: int) -> ProducerIdBlock | None:
        """A block for that broker, or None where another broker was faster."""
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
            raise NodeFormatError(f"the block of producer ids from {latest.first} to {latest.last} is none")
        block = next_block(broker_id, latest)
        try:
            await self._store.set(paths.PRODUCER_ID_BLOCK, block.encode(), stat.version)
        except BadVersionError:
            return None
        return block
