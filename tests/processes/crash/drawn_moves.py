"""Reassignments and faults that a seed chooses (`moves_under_faults` carries them out).

A round has moves: a partition gets a new target, the same partition gets another target while it is moved, or its move
is cancelled. Faults begin between the moves and last while further moves are requested. A fault of the `controller`
hits the broker that is the controller at that moment."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jesenska.base.identifiers import TopicPartition

KILL, PAUSE, CUT_OFF = "kill", "pause", "cut off"
CONTROLLER = 0

#: Shorter than a session of the brokers and longer.
_FAULT_SECONDS = (0.1, 4.0)
_PAUSE_SECONDS = (0.0, 1.0)
_MOVES_A_ROUND = 5


class Move(NamedTuple):
    """A requested target; None cancels."""

    key: TopicPartition
    target: tuple[int, ...] | None

    def __str__(self) -> str:
        return f"{self.key} {'cancelled' if self.target is None else f'to {list(self.target)}'}"


class Harm(NamedTuple):
    """A fault of one broker, or of the CONTROLLER."""

    kind: str
    broker_id: int
    seconds: float

    def __str__(self) -> str:
        who = f"broker {self.broker_id}" if self.broker_id != CONTROLLER else "the controller"
        return f"{who}: {self.kind} for {self.seconds:g} s"


class Step(NamedTuple):
    """What is done, and the pause after it in seconds."""

    does: Move | Harm
    pause_seconds: float


def drawn(
    seed: int, moves: int, faults: int, brokers: Sequence[int], partitions: Mapping[TopicPartition, int]
) -> list[list[Step]]:
    """Draws the rounds. `partitions` has the least number of replicas of each partition that is moved."""
    chance = random.Random(seed)
    count = max(1, round(moves / _MOVES_A_ROUND))
    rounds: list[list[Step]] = [[] for _ in range(count)]
    keys = list(partitions)
    for number in range(moves):
        steps = rounds[number * count // moves]
        moved = [step.does.key for step in steps if isinstance(step.does, Move)]
        what = chance.random() if moved else 0.0
        # Mostly the last one, which is still on its way.
        key = chance.choice(keys) if what < 0.55 else chance.choice([*moved, moved[-1], moved[-1]])
        target: tuple[int, ...] | None = None
        if what < 0.75:
            target = tuple(chance.sample(list(brokers), chance.randint(partitions[key], len(brokers) - 1)))
        steps.append(Step(Move(key, target), round(chance.uniform(*_PAUSE_SECONDS), 3)))
    for number in range(faults):
        steps = rounds[number * count // max(1, faults)]
        kind = (KILL, PAUSE, CUT_OFF)[number % 3]
        broker_id = CONTROLLER if chance.random() < 0.35 else chance.choice(list(brokers))
        harm = Harm(kind, broker_id, round(chance.uniform(*_FAULT_SECONDS), 3))
        steps.insert(chance.randint(0, len(steps) - 1), Step(harm, round(chance.uniform(*_PAUSE_SECONDS), 3)))
    return rounds
