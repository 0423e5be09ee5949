"""Rounds of faults. The kinds, targets and times of the faults are chosen at random from a seed. The faults are
applied while a load runs.

    schedule = draw(seed, ["broker-1", "broker-2", "broker-3"], rounds=10)
    print(schedule.to_json())
    apply(schedule, {"broker-1": Target(ServerFaults(broker), proxy), ...}, load)

A round consists of one or more faults on different targets that begin together. Each fault ends after its own time.
Then the load must advance by a number of steps (for example acknowledged records) before the next round begins. So
every round checks that the cluster recovers. Steps are counted instead of seconds, so a slow machine needs more time
but causes no failure.

    kill       kill -9; the server is started again when the fault ends
    stop       an orderly stop; the server is started again when the fault ends
    pause      SIGSTOP; SIGCONT when the fault ends
    cut        connections through the proxy are reset; new connections are accepted at once
    refuse     connections are reset, and new connections are refused
    hold       the proxy forwards no bytes, in both directions or in one
    delay      the proxy forwards bytes `amount` milliseconds later
    limit      the proxy forwards `amount` bytes per second
    full disk  no file of the process can grow beyond `amount` bytes (Linux)"""

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
#: The kinds of faults that `draw` uses by default. A full disk needs a size that fits the load, so `draw` uses it only
#: if the caller names it.
FAULTS = (*PROCESS_FAULTS, *NETWORK_FAULTS)

_WAYS = {"both": Way.BOTH, "to target": Way.TO_TARGET, "to client": Way.TO_CLIENT}
#: The ranges from which amounts are chosen: delays in milliseconds, and limits in bytes per second.
_DELAY_MS = (1, 200)
_LIMIT_BYTES_PER_SECOND = (2_000, 200_000)
_LOOK_SECONDS = 0.005


class ScheduleError(ValueError):
    """The error that is raised if a schedule cannot be read, or does not fit the targets. The message is one
    sentence."""


class StandsStillError(AssertionError):
    """The error that is raised if the load did not advance after a round of faults."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. For a delay, `amount` is a number of milliseconds; for a limit, bytes per second; for a full disk,
    bytes; for all other kinds 0. `way` is the direction: "both", "to target" or "to client"."""

    kind: str
    target: str
    seconds: float
    way: str = "both"
    amount: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """Faults that begin together, on different targets. `steps` is the number of steps by which the load must advance
    after the faults have ended."""

    faults: tuple[Fault, ...]
    steps: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """All rounds in order. `seed` is the seed from which they were chosen; it is stored for information only."""

    seed: int
    rounds: tuple[Round, ...]

    def to_json(self) -> str:
        """Returns the schedule as one line of JSON, which `from_json` reads."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Returns the schedule in a line of JSON. Raises ScheduleError if the line is not a schedule."""
        try:
            found = json.loads(text)
            rounds = tuple(
                Round(tuple(_fault(item) for item in each["faults"]), int(each["steps"])) for each in found["rounds"]
            )
            return cls(int(found["seed"]), rounds)
        except (ValueError, TypeError, KeyError) as error:
            raise ScheduleError(
                f"This is not a schedule of faults ({error}): give the line that was printed."
            ) from error


def _fault(found: Mapping[str, Any]) -> Fault:
    fault = Fault(
        str(found["kind"]), str(found["target"]), float(found["seconds"]), str(found["way"]), int(found["amount"])
    )
    if fault.kind not in (*FAULTS, FULL_DISK):
        raise ScheduleError(f"there is no fault {fault.kind!r}")
    if fault.way not in _WAYS:
        raise ScheduleError(f"there is no way {fault.way!r}")
    if not 0 <= fault.seconds < float("inf"):
        raise ScheduleError(f"{fault.seconds} s is not a time")
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
    """Returns a random schedule that depends only on these arguments. At most `at_once` targets have a fault at the
    same time. Times and steps are chosen from their ranges. A full disk limits each file to `disk_bytes`."""
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
    """A target of faults: a server, the proxy in front of it, or both."""

    server: ServerFaults | None = None
    proxy: FaultProxy | None = None

    def require(self, fault: Fault) -> None:
        """Raises ScheduleError if the target does not have the server or proxy that the fault needs."""
        _ = self._proxy(fault) if fault.kind in NETWORK_FAULTS else self._server(fault)

    def begin(self, fault: Fault) -> None:
        """Begins the fault. Returns when it has taken effect."""
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
        """Ends the fault. If the fault has ended or paused the server, the server is running afterwards."""
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
    """The load that runs during the faults. `start` returns when the load is running. `stop` is called after all
    faults have ended, and returns when the load has ended."""

    def start(self) -> object: ...

    def stop(self) -> object: ...

    def steps(self) -> int:
        """Returns the load's progress: a number that increases. Raises the load's error if the load has failed."""
        ...


def apply(
    schedule: Schedule,
    targets: Mapping[str, Target],
    load: Load,
    *,
    still_seconds: float = 120.0,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Starts the load, applies all rounds, and stops the load. All faults have ended before the load is stopped, even
    after an error. Raises StandsStillError if the load does not advance for `still_seconds` after a round. If a target
    is missing or does not fit a fault, raises ScheduleError before the load is started. A note of every exception
    contains the schedule."""
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
    """Applies one round. Begins its faults, and returns when the last fault has ended."""
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
                f"The load makes no progress for {still_seconds:g} s after round {number} ({done}): {now - before} of "
                f"{each.steps} steps."
            )
