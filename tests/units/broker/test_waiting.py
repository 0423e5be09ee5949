from __future__ import annotations

import asyncio

from jesenska.broker.waiting import WaitingRoom


class _Waiter:
    def __init__(self, *, complete: bool = True) -> None:
        self.complete = complete
        self.asked = 0
        self.expired = asyncio.Event()

    def try_complete(self) -> bool:
        self.asked += 1
        return self.complete

    def end(self) -> None:
        self.expire()

    def expire(self) -> None:
        self.expired.set()


def test_many_events_in_one_turn_ask_a_waiter_once() -> None:
    async def scenario() -> None:
        room = WaitingRoom(asyncio.get_running_loop())
        waiter = _Waiter(complete=False)
        room.add(waiter, ["a"], 60)
        for _ in range(10):
            room.notify("a")
        room.notify("b")
        await asyncio.sleep(0)
        assert waiter.asked == 1
        room.close()

    asyncio.run(scenario())


def test_a_completed_waiter_is_forgotten_by_every_key() -> None:
    async def scenario() -> None:
        room = WaitingRoom(asyncio.get_running_loop())
        waiter = _Waiter()
        room.add(waiter, ["a", "b"], 60)
        room.notify("a")
        room.notify("b")
        await asyncio.sleep(0)
        assert waiter.asked == 1
        assert len(room) == 0
        room.close()
        assert not waiter.expired.is_set()

    asyncio.run(scenario())


def test_waiters_expire_in_the_order_of_their_deadlines_and_not_before() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        room = WaitingRoom(loop)
        late, early = _Waiter(), _Waiter()
        room.add(late, ["a"], 60)
        room.add(early, ["a"], 0.01)
        await asyncio.wait_for(early.expired.wait(), 10)
        assert not late.expired.is_set()
        assert len(room) == 1
        room.close()
        assert late.expired.is_set()

    asyncio.run(scenario())


def test_a_withdrawn_waiter_is_neither_asked_nor_expired() -> None:
    async def scenario() -> None:
        room = WaitingRoom(asyncio.get_running_loop())
        waiter = _Waiter()
        withdraw = room.add(waiter, ["a"], 0.001)
        other = _Waiter()
        room.add(other, ["b"], 0.005)
        withdraw()
        room.notify("a")
        await asyncio.wait_for(other.expired.wait(), 10)
        assert waiter.asked == 0
        assert not waiter.expired.is_set()
        room.close()

    asyncio.run(scenario())


def test_the_heap_of_deadlines_does_not_keep_what_was_completed() -> None:
    async def scenario() -> None:
        room = WaitingRoom(asyncio.get_running_loop())
        for _ in range(5000):
            room.add(_Waiter(), ["a"], 3600)
            room.notify("a")
            await asyncio.sleep(0)
        assert len(room._deadlines) < 3000
        room.close()

    asyncio.run(scenario())
