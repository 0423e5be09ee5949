from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import ErrorCode
from jesenska.controller.orders.fence import OrderFence
from jesenska.controller.orders.requests import Orderer


def test_orders_of_an_older_controller_are_refused() -> None:
    fence = OrderFence()
    assert fence.admit(Orderer(1, 4), 10) is ErrorCode.NONE
    assert fence.admit(Orderer(2, 5), 10) is ErrorCode.NONE
    assert fence.admit(Orderer(1, 4), 10) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert (fence.controller_id, fence.controller_epoch) == (2, 5)


def test_orders_for_an_earlier_registration_are_refused_and_count_for_nothing() -> None:
    fence = OrderFence()
    assert fence.admit(Orderer(1, 9, 3), 4) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.controller_epoch == -1
    assert fence.admit(Orderer(1, 2, 4), 4) is ErrorCode.NONE
    assert fence.admit(Orderer(1, 2, 5), 4) is ErrorCode.NONE
    assert fence.admit(Orderer(1, 2, -1), 4) is ErrorCode.NONE


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(-1, 5), st.integers(0, 5))))
def test_the_controller_that_is_obeyed_is_never_an_older_one(orders: list[tuple[int, int, int, int]]) -> None:
    fence, newest = OrderFence(), -1
    for controller_id, controller_epoch, broker_epoch, own in orders:
        code = fence.admit(Orderer(controller_id, controller_epoch, broker_epoch), own)
        if code is ErrorCode.NONE:
            assert controller_epoch >= newest
            assert broker_epoch in (-1, *range(own, 6))
            newest = controller_epoch
        assert fence.controller_epoch == newest
