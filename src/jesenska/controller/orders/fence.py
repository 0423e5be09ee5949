"""Decides which orders a broker obeys: those of the newest controller it knows, for its current registration. A
decider.

Sources: KIP-380 (broker epochs); the chapter "Replication" of the documents (controller epochs)."""

from __future__ import annotations

from typing import Final

from jesenska.base.errors import ErrorCode
from jesenska.controller.orders.requests import Orderer

#: The broker epoch of a controller from before KIP-380, which has none.
_ANY: Final = -1


class OrderFence:
    """Decides for one broker which orders it obeys."""

    def __init__(self) -> None:
        #: The controller whose order was obeyed last; -1 before the first.
        self.controller_id = self.controller_epoch = -1

    def admit(self, orderer: Orderer, broker_epoch: int) -> ErrorCode:
        """Returns NONE if the order must be obeyed, else the error. After an order, older controllers are refused.
        `broker_epoch` is that of this broker's registration. An order for a newer registration is obeyed: a controller
        may know of it before this broker does."""
        if orderer.broker_epoch != _ANY and orderer.broker_epoch < broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if orderer.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_id, self.controller_epoch = orderer.controller_id, orderer.controller_epoch
        return ErrorCode.NONE
