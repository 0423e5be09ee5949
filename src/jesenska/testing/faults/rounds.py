"""Rounds of faults: their kinds, targets and times, drawn from a seed; and their application while a load runs.

    schedule = draw(seed, ["broker-1", "broker-2", "broker-3"], rounds=10)
    print(schedule.to_json())
    apply(schedule, {"broker-1": Target(ServerFaults(broker), proxy), ...}, load)

A round is one or more faults on different targets that begin together. Each ends after its own time; then the load
must advance by a number of steps (records acknowledged, say) before the next round begins. So every round shows that
the cluster comes back, and a slow machine takes longer and fails no sooner.

    kill       kill -9, and a start when the fault ends
    stop       an orderly stop, and a start when the fault ends
    pause      SIGSTOP, and SIGCONT when it ends
    cut        connections through the proxy are reset; new ones are taken at once
    refuse     connections are reset and new ones refused
    hold       bytes are held, both ways or one
    delay      bytes are late by `amount` milliseconds
    limit      `amount` bytes a second go through
    full disk  no file of the process grows beyond `amount` bytes (Linux)"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from jesenska.testing.faults.disks import limit_file_size
from jesenska.testing.faults.processes import ServerFaults
from jesenska.testing.faults.proxy import FaultProxy, Way

KILL, STOP, PAUSE, CUT, REFUSE, HOLD, DELAY, LIMIT, FULL_DISK = (
    "kill",
    "stop",
    "pause",
    "cut",
    "refuse",
    "hold",
    "delay",
    "limit",
    "full disk",
)
PROCESS_FAULTS = (KILL, STOP, PAUSE)
NETWORK_FAULTS = (CUT, REFUSE, HOLD, DELAY, LIMIT)
#: The default kinds of `draw`; a full disk needs a size that fits the load, so it must be named.
FAULTS = (*PROCESS_FAULTS, *NETWORK_FAULTS)

_WAYS = {"both": Way.BOTH, "to target": Way.TO_TARGET, "to client": Way.TO_CLIENT}
#: Amounts that are drawn: milliseconds of delay, bytes a second.
_DELAY_MS = (1, 200)
_LIMIT_BYTES_PER_SECOND = (2_000, 200_000)
_LOOK_SECONDS = 0.005


class ScheduleError(ValueError):
    """A schedule that cannot be read, or does not fit the targets; one sentence."""


class StandsStillError(AssertionError):
    """The load did not advance after a round of faults."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `amount` is the milliseconds, bytes a second or bytes of kinds that have some, else 0; `way` is
    "both", "to target" or "to client"."""

    kind: str
    target: str
    seconds: float
    way: str = "both"
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """Faults that begin together, on different targets; `steps` is how far the load must advance after them."""

    faults: tuple[Fault, ...]
    steps: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """All rounds in their order. `seed` is for information."""

    seed: int
    rounds: tuple[Round, ...]

    def to_json(self) -> str:
        """One line, from which `from_json` makes the same schedule."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Returns the schedule of a line; ScheduleError if it is not one."""
        try:
            found = json.loads(text)
            rounds = tuple(
                Round(tuple(_fault(item) for item in each["faults"]), int(each["steps"])) for each in found["rounds"]
            )
            return cls(int(found["seed"]), rounds)
        except (ValueError, TypeError, KeyError) as error:
            raise ScheduleError(f"This is no schedule of faults ({error}): give the line that was printed.") from error


def _fault(found: Mapping[str, Any]) -> Fault:
    fault = Fault(
        str(found["kind"]), str(found["target"]), float(found["seconds"]), str(found["way"]), int(found["amount"])
    )
    if fault.kind not in (*FAULTS, FULL_DISK):
        raise ScheduleError(f"there is no fault {fault.kind!r}")
    if fault.way not in _WAYS:
        raise ScheduleError(f"there is no way {fault.way!r}")
    if not 0 <= fault.seconds < float("inf"):
        raise ScheduleError(f"{fault.seconds} s is no time")
    return fault


def draw(
    seed: int,
    targets: Sequence[str],
    *,
    rounds: int = 10,
    kinds: Sequence[str] = FAULTS,
    at_once: int = 1,
    seconds: tuple[float, float] = (0.05, 2.0),
    steps: tuple[int, int] = (1, 500),
    disk_bytes: int = 1_000_000,
) -> Schedule:
    """Returns a schedule that depends only on these arguments. `at_once` targets at most have a fault at a time; times
    and steps are drawn from their ranges; a full disk leaves each file `disk_bytes`."""
    unknown = [kind for kind in kinds if kind not in (*FAULTS, FULL_DISK)]
    if unknown or not kinds:
        raise ScheduleError(f"There is no fault {unknown[0]!r}." if unknown else "No faults are named.")
    if not 1 <= at_once <= len(targets):
        raise ScheduleError(f"{at_once} faults at once need as many targets, and there are {len(targets)}.")
    chance = random.Random(seed)  # noqa: S311

    def one(target: str) -> Fault:
        kind = chance.choice(kinds)
        way = chance.choice(list(_WAYS)) if kind in (HOLD, DELAY, LIMIT) else "both"
        amount = 0
        if kind == DELAY:
            amount = chance.randint(*_DELAY_MS)
        elif kind == LIMIT:
            amount = chance.randint(*_LIMIT_BYTES_PER_SECOND)
        elif kind == FULL_DISK:
            amount = disk_bytes
        return Fault(kind, target, 0.0 if kind == CUT else round(chance.uniform(*seconds), 3), way, amount)

    def each() -> Round:
        hit = chance.sample(list(targets), chance.randint(1, at_once))
        return Round(tuple(one(target) for target in hit), chance.randint(*steps))

    return Schedule(seed, tuple(each() for _ in range(rounds)))


# --- applying --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """The target of faults: a server, the proxy in front of it, or both."""

    server: ServerFaults | None = None
    proxy: FaultProxy | None = None

    def require(self, fault: Fault) -> None:
        """ScheduleError if the target lacks the server or proxy that the fault needs."""
        _ = self._proxy(fault) if fault.kind in NETWORK_FAULTS else self._server(fault)

    def begin(self, fault: Fault) -> None:
        """Returns when the fault is in force."""
        way = _WAYS[fault.way]
        match fault.kind:
            case "kill":
                self._server(fault).kill()
            case "stop":
                self._server(fault).stop()
            case "pause":
                self._server(fault).pause()
            case "full disk":
                limit_file_size(self._server(fault).server.pid, fault.amount)
            case "cut":
                self._proxy(fault).cut()
            case "refuse":
                self._proxy(fault).refuse()
                self._proxy(fault).cut()
            case "hold":
                self._proxy(fault).hold(way)
            case "delay":
                self._proxy(fault).delay(fault.amount, way)
            case "limit":
                self._proxy(fault).limit(fault.amount, way)

    def end(self, fault: Fault) -> None:
        """Ends the fault of `begin`; a server runs then."""
        if fault.kind in NETWORK_FAULTS:
            self._proxy(fault).pass_all()
        elif fault.kind == FULL_DISK:
            limit_file_size(self._server(fault).server.pid, None)
        else:
            self._server(fault).heal()

    def _server(self, fault: Fault) -> ServerFaults:
        if self.server is None:
            raise ScheduleError(
                f"{fault.target} has no server for the fault {fault.kind!r}: give one, or leave that kind out."
            )
        return self.server

    def _proxy(self, fault: Fault) -> FaultProxy:
        if self.proxy is None:
            raise ScheduleError(
                f"{fault.target} has no proxy for the fault {fault.kind!r}: give one, or leave that kind out."
            )
        return self.proxy


class Load(Protocol):
    """The load that runs during the faults. `start` returns when it is at work, `stop` when it has ended, with
    everything healed."""

    def start(self) -> object: ...

    def stop(self) -> object: ...

    def steps(self) -> int:
        """Returns the load's progress, a number that goes up; raises the error of a failed load."""
        ...


def apply(
    schedule: Schedule,
    targets: Mapping[str, Target],
    load: Load,
    *,
    still_seconds: float = 120.0,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Starts the load, does the rounds, and stops the load; every fault has ended then, also after an error.

    StandsStillError if the load does not advance for `still_seconds` after a round; ScheduleError, before anything is
    done, for a target that is missing or does not fit a fault. The schedule is in the notes of any exception."""
    missing = {fault.target for each in schedule.rounds for fault in each.faults} - targets.keys()
    if missing:
        raise ScheduleError(
            f"The schedule names {min(missing)!r}, which is not among the targets: {', '.join(sorted(targets))}."
        )
    for each in schedule.rounds:
        for fault in each.faults:
            targets[fault.target].require(fault)
    try:
        load.start()
        try:
            for number, each in enumerate(schedule.rounds, 1):
                _do(each, targets, wait)
                _get_on(load, each, number, still_seconds, wait)
        finally:
            load.stop()
    except BaseException as error:
        error.add_note(f"The schedule was {schedule.to_json()}")
        raise


def _do(each: Round, targets: Mapping[str, Target], wait: Callable[[float], None]) -> None:
    """One round, from the beginning of its faults to the end of the last."""
    begun: list[Fault] = []
    try:
        for fault in each.faults:
            begun.append(fault)
            targets[fault.target].begin(fault)
        passed = 0.0
        for fault in sorted(begun, key=lambda fault: fault.seconds):
            wait(fault.seconds - passed)
            passed = fault.seconds
            begun.remove(fault)
            targets[fault.target].end(fault)
    finally:
        for fault in begun:
            targets[fault.target].end(fault)


def _get_on(load: Load, each: Round, number: int, still_seconds: float, wait: Callable[[float], None]) -> None:
    before = now = load.steps()
    deadline = time.monotonic() + still_seconds
    while now < before + each.steps:
        wait(_LOOK_SECONDS)
        last, now = now, load.steps()
        if now > last:
            deadline = time.monotonic() + still_seconds
        elif time.monotonic() > deadline:
            done = ", ".join(f"{fault.kind} of {fault.target} for {fault.seconds:g} s" for fault in each.faults)
            raise StandsStillError(
                f"The load stands still for {still_seconds:g} s behind round {number} ({done}): {now - before} of "
                f"{each.steps} steps."
            )
