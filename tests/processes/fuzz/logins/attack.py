"""Hostile logins against a broker process, beside a producer and a consumer that are logged in.

    python -m tests.processes.fuzz.logins.attack --logins 1000000

The broker must stay up, log no stack trace, let nobody in without the right secret and everybody with it, give back
descriptors and connections, use at most 15 MB more than after the warm-up, and go on serving the bystanders."""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from bench.figures import resident_mb

from jesenska.testing import BrokerProcess
from tests.processes.fuzz.logins.bystanders import Bystanders, Seen
from tests.processes.fuzz.logins.exchanges import Exchanges
from tests.processes.fuzz.logins.sender import send_all
from tests.processes.fuzz.logins.target import secured_target

_CHUNK: Final = 5_000
_CALM_SECONDS: Final = 4.0
GROWTH_MAX_MB: Final = 15.0
_CLOSED_WITHIN_SECONDS: Final = 15.0


class Outcome(NamedTuple):
    """What an attack has found. Times in ms, memory in MB."""

    sent: int
    seconds: float
    counts: Counter[str]
    wrong: list[str]
    tracebacks: list[str]
    calm: Seen
    attacked: Seen
    resident_mb: tuple[float, ...]
    descriptors: tuple[int, int]
    exit_code: int | None

    @property
    def grown_mb(self) -> float:
        return self.resident_mb[-1] - self.resident_mb[0]

    def lines(self) -> list[str]:
        counts = ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items()))
        return [
            f"{self.sent:,} exchanges in {self.seconds:.0f} s: {counts}",
            f"wrong outcomes: {len(self.wrong)} {self.wrong[:5]}",
            f"stack traces in the log: {len(self.tracebacks)}",
            f"bystanders without attack: {self.calm}",
            f"bystanders under attack:   {self.attacked}",
            f"memory {self.resident_mb[0]:.1f} MB after the warm-up, {self.resident_mb[-1]:.1f} at the end, "
            f"{max(self.resident_mb):.1f} at most; descriptors {self.descriptors[0]} before, {self.descriptors[1]} "
            "after",
        ]


def descriptors(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def settled(broker: BrokerProcess, wanted: int) -> int:
    """Waits until the broker has at most so many descriptors open, and returns how many it has."""
    deadline = time.monotonic() + _CLOSED_WITHIN_SECONDS
    while (found := descriptors(broker.pid)) > wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def attack(directory: Path, logins: int, seed: int = 1, *, tells: bool = False) -> Outcome:
    """Sends hostile logins, of which the first tenth is the warm-up."""
    with secured_target(directory) as (secured, target):
        broker = secured.broker
        exchanges = Exchanges(target, seed)
        counts: Counter[str] = Counter()
        wrong: list[str] = []
        resident: list[float] = []
        warm_up = min(max(logins // 10, 2_000), 50_000)
        with Bystanders(directory, secured.secured, secured.bystander_settings()) as bystanders:
            time.sleep(_CALM_SECONDS / 2)
            bystanders.seen()
            time.sleep(_CALM_SECONDS)
            calm, before = bystanders.seen(), descriptors(broker.pid)
            begun = time.monotonic()
            sent = 0
            while sent < warm_up + logins:
                following = min(sent + _CHUNK, warm_up if sent < warm_up else warm_up + logins)
                part = send_all(exchanges.make, iter(range(sent, following)), random.Random(sent))
                counts += part.counts
                wrong += part.wrong
                sent = following
                if sent >= warm_up:
                    resident.append(resident_mb(broker.pid))
                if tells:
                    print(f"{sent:,} {time.monotonic() - begun:.0f} s {resident_mb(broker.pid):.1f} MB", flush=True)
            seconds = time.monotonic() - begun
            attacked, after = bystanders.seen(), settled(broker, before)
        tracebacks = [line for line in broker.log.splitlines() if "Traceback" in line]
        return Outcome(
            sent, seconds, counts, wrong, tracebacks, calm, attacked, tuple(resident), (before, after), broker.stop()
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logins", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for line in attack(Path(directory), options.logins, options.seed, tells=True).lines():
            print(line)


if __name__ == "__main__":
    main()
