"""Which orders a broker obeys: those of the newest controller that it has heard of, for the registration that it has
now. A decider.

Sources: KIP-380 (broker epochs); the chapter "Replication" of the documents (controller epochs)."""

from __future__ import annotations

from typing import Final

from jesenska.base.errors import ErrorCode
from jesenska.controller.orders import Orderer

#: The broker epoch of a controller that knows none, of before KIP-380.
_ANY: Final = -1


class OrderFence:
    """That of one broker."""

    def __init__(self) -> None:
        #: The controller whose orders were obeyed last; -1 before the first.
        self.controller_id = self.controller_epoch = -1

    def admit(self, orderer: Orderer, broker_epoch: int) -> ErrorCode:
        """NONE where the order is to be obeyed; then older controllers are not any more. `broker_epoch`: of this
        broker's registration. A controller may have seen a newer registration before this broker has its answer."""
        if orderer.broker_epoch != _ANY and orderer.broker_epoch < broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if orderer.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_id, self.controller_epoch = orderer.controller_id, orderer.controller_epoch
        return ErrorCode.NONE
