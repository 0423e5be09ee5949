"""Producer ids that are never given out twice: a broker claims them in blocks of 1000 from `/latest_producer_id_block`
by compare-and-set, and gives them out from memory. After a crash the rest of a block is lost, which does no harm:
there are 2**63 ids.

If the answer to a claim is lost, the claim may have succeeded: the next claim then takes the following block. So ids
may be skipped, but no id is given out twice."""

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
    """Every producer id has been used."""


def next_block(broker_id: int, latest: ProducerIdBlock | None) -> ProducerIdBlock:
    """Returns the block after the latest one; ProducerIdsExhausted at the end of all ids."""
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
        """Returns an id at once; None if the block is used up and `claim` must come first."""
        if self._next > self._last:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    async def claim(self) -> None:
        """Claims the next block if `take` has no id left; TreeError if the store fails."""
        while self._next > self._last:
            block = await self._claim_once(self._broker_id)
            if block is not None and self._next > self._last:
                self._next, self._last = block.first, block.last

    def claim_soon(self) -> None:
        """Claims a block in the background if no id is left; a failure is logged."""
        if self._claiming is None or self._claiming.done():
            self._claiming = asyncio.get_running_loop().create_task(self._try_to_claim())

    async def _try_to_claim(self) -> None:
        try:
            await self.claim()
        except (TreeError, ProducerIdsExhausted) as error:
            logger.warning("producers get no ids: %s", error)

    async def close(self) -> None:
        """Ends a claim in the background."""
        if self._claiming is not None:
            self._claiming.cancel()
            await asyncio.gather(self._claiming, return_exceptions=True)

    async def claim_for(self, broker_id: int) -> ProducerIdBlock:
        """Claims and returns the next block for another broker; TreeError if the store fails."""
        while True:
            block = await self._claim_once(broker_id)
            if block is not None:
                return block

    async def new(self) -> int:
        """Returns an id that was never given out before."""
        while True:
            producer_id = self.take()
            if producer_id is not None:
                return producer_id
            await self.claim()

    async def _claim_once(self, broker_id: int) -> ProducerIdBlock | None:
        """Returns a block for that broker, or None if another broker was faster."""
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
