"""Schedules of faults: drawn from a seed, kept as JSON, applied while a load runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from jesenska.testing.faults import (
    Fault,
    FaultProxy,
    Round,
    Schedule,
    ScheduleError,
    ServerFaults,
    StandsStillError,
    Target,
    apply,
    draw,
)
from jesenska.testing.faults.rounds import FAULTS, FULL_DISK, NETWORK_FAULTS, PROCESS_FAULTS
from tests.processes.testing.sleeper import Sleeper

_NAMES = ["broker-1", "broker-2", "broker-3"]


# --- drawing ---------------------------------------------------------------------------------------------------------


def test_a_seed_draws_the_same_each_time_and_another_one_something_else() -> None:
    schedules = [draw(seed, _NAMES, rounds=30, at_once=2) for seed in (1, 1, 2)]
    assert schedules[0] == schedules[1]
    assert schedules[0].rounds != schedules[2].rounds


def test_everything_that_was_asked_for_is_drawn_and_nothing_else() -> None:
    schedule = draw(
        7,
        _NAMES,
        rounds=300,
        kinds=[*FAULTS, FULL_DISK],
        at_once=2,
        seconds=(0.5, 1.5),
        steps=(10, 20),
        disk_bytes=12345,
    )
    faults = [fault for each in schedule.rounds for fault in each.faults]
    assert {fault.kind for fault in faults} == {*FAULTS, FULL_DISK}
    assert {fault.target for fault in faults} == set(_NAMES)
    assert {fault.way for fault in faults} == {"both", "to target", "to client"}
    assert {fault.amount for fault in faults if fault.kind == FULL_DISK} == {12345}
    assert all(0.5 <= fault.seconds <= 1.5 for fault in faults if fault.kind != "cut")
    assert all(fault.amount > 0 for fault in faults if fault.kind in ("delay", "limit"))
    assert all(10 <= each.steps <= 20 for each in schedule.rounds)
    assert {len(each.faults) for each in schedule.rounds} == {1, 2}
    assert all(len({fault.target for fault in each.faults}) == len(each.faults) for each in schedule.rounds)
    assert {fault.kind for each in draw(7, _NAMES, rounds=50, kinds=["kill"]).rounds for fault in each.faults} == {
        "kill"
    }


def test_a_schedule_that_was_printed_can_be_repeated() -> None:
    schedule = draw(1948, _NAMES, rounds=40, kinds=[*FAULTS, FULL_DISK], at_once=3)
    text = schedule.to_json()
    assert "\n" not in text
    assert Schedule.from_json(text) == schedule


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ScheduleError, match="There is no fault 'flood'"):
        draw(1, _NAMES, kinds=["kill", "flood"])
    with pytest.raises(ScheduleError, match="No faults are named"):
        draw(1, _NAMES, kinds=[])
    with pytest.raises(ScheduleError, match="4 faults at once need as many targets, and there are 3"):
        draw(1, _NAMES, at_once=4)


@pytest.mark.parametrize("name", ["kind", "way", "seconds", "target", "amount", None])
def test_what_is_no_schedule_is_refused(name: str | None) -> None:
    text = draw(1, _NAMES).to_json()
    if name is None:
        text = text[:-5]
    else:
        found = json.loads(text)
        found["rounds"][0]["faults"][0][name] = "x"
        if name == "target":
            del found["rounds"][0]["faults"][0]["target"]
        text = json.dumps(found)
    with pytest.raises(ScheduleError, match="This is not a schedule of faults"):
        Schedule.from_json(text)


# --- applying --------------------------------------------------------------------------------------------------------


class Counting:
    """A load that progresses by one step each time that it is asked, up to a limit. It calls `look` each time."""

    def __init__(self, look: Callable[[], None] = lambda: None, most: int = 10**9) -> None:
        self.done: list[str] = []
        self._look, self._most, self._steps = look, most, 0

    def start(self) -> None:
        self.done.append("start")

    def stop(self) -> None:
        self.done.append("stop")

    def steps(self) -> int:
        self._look()
        self._steps = min(self._most, self._steps + 1)
        return self._steps


class Targets:
    """Targets with sleeping servers and real proxies, and their states during a wait."""

    def __init__(self, opened: ExitStack) -> None:
        self.sleepers = {name: Sleeper() for name in _NAMES}
        self.proxies = {name: opened.enter_context(FaultProxy()) for name in _NAMES}
        for sleeper in self.sleepers.values():
            sleeper.start()
            opened.callback(sleeper.end)
        self.all = {name: Target(ServerFaults(self.sleepers[name]), self.proxies[name]) for name in _NAMES}
        self.waits: list[float] = []
        self.seen: list[list[tuple[bool, bool]]] = []

    def server(self, name: str) -> ServerFaults:
        found = self.all[name].server
        assert found is not None
        return found

    def wait(self, seconds: float) -> None:
        if seconds >= 0.05:
            self.waits.append(round(seconds, 3))
            self.seen.append(self.state())

    def state(self) -> list[tuple[bool, bool]]:
        """For each server: true if it runs, and true if it is paused."""
        return [(self.server(name).is_running, self.server(name).is_paused) for name in _NAMES]

    def are_well(self) -> bool:
        return self.state() == [(True, False)] * len(_NAMES)


@pytest.fixture
def targets() -> Iterator[Targets]:
    with ExitStack() as opened:
        yield Targets(opened)


def test_faults_begin_together_end_after_their_times_and_the_load_gets_on(targets: Targets) -> None:
    healthy: list[bool] = []
    load = Counting(lambda: healthy.append(targets.are_well()))
    first = Round((Fault("kill", "broker-1", 2.0), Fault("pause", "broker-3", 0.5)), 3)
    second = Round((Fault("stop", "broker-2", 1.0),), 5)
    apply(Schedule(1, (first, second)), targets.all, load, wait=targets.wait)
    assert targets.waits == [0.5, 1.5, 1.0]
    assert targets.seen == [
        [(False, False), (True, False), (True, True)],
        [(False, False), (True, False), (True, False)],
        [(True, False), (False, False), (True, False)],
    ]
    assert load.done == ["start", "stop"]
    assert targets.are_well()
    # It is looked at once before the steps of a round, and while everything is well alone.
    assert healthy == [True] * (1 + 3 + 1 + 5)
    assert len(targets.sleepers["broker-1"].done) == 3 and "ended by 9" in targets.sleepers["broker-1"].done[1]
    assert "ended by 15" in targets.sleepers["broker-2"].done[1]


@pytest.mark.parametrize("kind", [*PROCESS_FAULTS, *NETWORK_FAULTS])
def test_every_fault_is_begun_and_ended(targets: Targets, kind: str) -> None:
    done: list[str] = []
    target = targets.all["broker-1"]

    class Watched(Target):
        def begin(self, fault: Fault) -> None:
            done.append(f"begin {fault.kind}")
            target.begin(fault)

        def end(self, fault: Fault) -> None:
            done.append(f"end {fault.kind}")
            target.end(fault)

    fault = Fault(kind, "broker-1", 0.1, amount=10)
    apply(
        Schedule(1, (Round((fault,), 1),)),
        {"broker-1": Watched(target.server, target.proxy)},
        Counting(),
        wait=targets.wait,
    )
    assert done == [f"begin {kind}", f"end {kind}"]
    assert targets.are_well()


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_a_full_disk_is_a_limit_for_the_process_that_ends(targets: Targets) -> None:
    import resource

    limits: list[int] = []
    pid = targets.sleepers["broker-1"].pid

    def wait(seconds: float) -> None:
        limits.append(resource.prlimit(pid, resource.RLIMIT_FSIZE)[0])

    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    apply(
        Schedule(1, (Round((Fault(FULL_DISK, "broker-1", 1.0, amount=777),), 1),)), targets.all, Counting(), wait=wait
    )
    assert limits[0] == 777
    assert resource.prlimit(pid, resource.RLIMIT_FSIZE) == before


def test_a_load_that_stands_still_is_told_with_the_round_and_the_schedule(targets: Targets) -> None:
    schedule = Schedule(5, (Round((Fault("cut", "broker-2", 0.0),), 100),))
    load = Counting(most=40)
    sentence = r"makes no progress for 0\.05 s after round 1 \(cut of broker-2 for 0 s\): 39 of 100 steps"
    with pytest.raises(StandsStillError, match=sentence) as raised:
        apply(schedule, targets.all, load, still_seconds=0.05)
    assert raised.value.__notes__ == [f"The schedule was {schedule.to_json()}"]
    assert load.done == ["start", "stop"]


def test_faults_end_when_something_goes_wrong_meanwhile(targets: Targets) -> None:
    class OutOfPatienceError(Exception):
        pass

    def wait(seconds: float) -> None:
        assert targets.state() == [(False, False), (True, True), (True, False)]
        raise OutOfPatienceError

    load = Counting(lambda: None)
    faults = (Fault("kill", "broker-1", 5.0), Fault("pause", "broker-2", 5.0))
    with pytest.raises(OutOfPatienceError):
        apply(Schedule(1, (Round(faults, 1),)), targets.all, load, wait=wait)
    assert targets.are_well()
    assert load.done == ["start", "stop"]


def test_targets_that_do_not_fit_are_told_before_anything_is_done(targets: Targets) -> None:
    load = Counting()
    kill, cut = (
        Schedule(1, (Round((Fault("kill", "broker-1", 0.1),), 1),)),
        Schedule(1, (Round((Fault("cut", "broker-1", 0.1),), 1),)),
    )
    with pytest.raises(ScheduleError, match="names 'broker-1', which is not among the targets: broker-2"):
        apply(kill, {"broker-2": targets.all["broker-2"]}, load)
    with pytest.raises(ScheduleError, match="broker-1 has no server for the fault 'kill'"):
        apply(kill, {"broker-1": Target(None, targets.proxies["broker-1"])}, load)
    with pytest.raises(ScheduleError, match="broker-1 has no proxy for the fault 'cut'"):
        apply(cut, {"broker-1": Target(targets.server("broker-1"))}, load)
    assert load.done == []
    assert targets.are_well()
