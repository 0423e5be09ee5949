"""Decides which of the controller's requests (orders) a broker obeys: only requests of the newest controller that the
broker knows, for the broker's current registration. This module does no input or output.

Sources: KIP-380 (broker epochs); the chapter "Replication" of Kafka's documentation (controller epochs)."""

from __future__ import annotations

from typing import Final

from jesenska.base.errors import ErrorCode
from jesenska.controller.orders.requests import Orderer

#: The broker epoch in a request of a controller older than KIP-380, which does not know broker epochs.
_ANY: Final = -1


class OrderFence:
    """Decides for one broker which of the controller's requests (orders) it obeys."""

    def __init__(self) -> None:
        #: The id and epoch of the controller whose request was last obeyed; -1 before the first.
        self.controller_id = self.controller_epoch = -1

    def admit(self, orderer: Orderer, broker_epoch: int) -> ErrorCode:
        """Returns NONE if the request must be obeyed, else the error. Afterwards, requests of older controllers are
        refused. `broker_epoch` is the epoch of this broker's registration. A request for a newer registration is
        obeyed, because a controller may learn of a registration before the broker does."""
        if orderer.broker_epoch != _ANY and orderer.broker_epoch < broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if orderer.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_id, self.controller_epoch = orderer.controller_id, orderer.controller_epoch
        return ErrorCode.NONE
