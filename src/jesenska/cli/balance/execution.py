"""Carries out a balance: a few partitions at a time, throttled, until every partition has its new replicas. The moves
go on in the cluster if the tool is interrupted; the next run makes a new plan from where the replicas are then."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from jesenska.base.errors import ElectionNotNeededError, JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.reassignment.reassignment_throttles import (
    Move,
    clear_brokers,
    clear_topics,
    throttle,
)
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import PREFERRED
from jesenska.controller.plans.balance import PartitionLoad

_LOOK_SECONDS: Final = 0.3
_TELL_SECONDS: Final = 2.0

Targets = Mapping[TopicPartition, tuple[int, ...]]


class Execution:
    """The moves of one plan. `partitions` are the present loads; at most `at_once` partitions move at a time."""

    def __init__(self, admin: Admin, partitions: Sequence[PartitionLoad], at_once: int) -> None:
        self._admin = admin
        self._loads = {load.topic_partition: load for load in partitions}
        self._at_once = at_once
        self._told_at = time.monotonic()

    async def wait_for_others(self) -> None:
        """Waits until no reassignment is under way, such as one of an interrupted run."""
        while ongoing := await self._admin.list_reassignments():
            self._tell(f"Waiting for {len(ongoing)} moves that are under way, such as {min(ongoing)}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def run(self, targets: Targets, bytes_per_second: int | None) -> None:
        """Moves the partitions to their targets. Raises JesenskaError if the cluster refuses a move."""
        moves = {key: self._move(key, target) for key, target in targets.items()}
        if bytes_per_second is not None:
            await throttle(self._admin, moves, bytes_per_second)
        begun = time.monotonic()
        total = sum(self._bytes(key, target) for key, target in targets.items())
        moved = done = 0
        for wave in self._waves(targets):
            await self._begin(wave)
            while ongoing := await self._admin.list_reassignments(list(wave)):
                ended = [key for key in wave if key not in ongoing]
                now = moved + sum(self._bytes(key, wave[key]) for key in ended)
                self._tell(_progress(done + len(ended), len(targets), now, total, time.monotonic() - begun))
                await asyncio.sleep(_LOOK_SECONDS)
            done += len(wave)
            moved += sum(self._bytes(key, target) for key, target in wave.items())
        if bytes_per_second is not None:
            nodes = self._admin.cluster.nodes
            brokers = {broker_id for move in moves.values() for broker_id in move.sources | move.destinations}
            await clear_brokers(self._admin, [broker_id for broker_id in brokers if broker_id in nodes])
            await clear_topics(self._admin, {key.topic for key in targets})

    async def elect(self, targets: Targets) -> None:
        """Elects the preferred leaders of these partitions."""
        if targets:
            results = await self._admin.elect_leaders(PREFERRED, list(targets))
            failed = {
                key: error
                for key, error in results.items()
                if error is not None and not isinstance(error, ElectionNotNeededError)
            }
            for key, error in sorted(failed.items())[:1]:
                print(
                    f"{len(failed)} partitions do not have their preferred leader yet, such as {key}: {error}",
                    file=sys.stderr,
                )

    def _move(self, key: TopicPartition, target: Sequence[int]) -> Move:
        sources = frozenset(self._loads[key].replicas)
        return Move(sources, frozenset(target) - sources)

    def _bytes(self, key: TopicPartition, target: Sequence[int]) -> int:
        load = self._loads[key]
        return load.size_bytes * len(set(target) - set(load.replicas))

    def _waves(self, targets: Targets) -> Iterator[Targets]:
        """Yields the partitions that move together, those without new replicas first, then the smallest."""
        order = sorted(targets, key=lambda key: (self._bytes(key, targets[key]), key))
        free = [key for key in order if not self._bytes(key, targets[key])]
        if free:
            yield {key: targets[key] for key in free}
        rest = order[len(free) :]
        for start in range(0, len(rest), self._at_once):
            yield {key: targets[key] for key in rest[start : start + self._at_once]}

    async def _begin(self, wave: Targets) -> None:
        answers = await self._admin.alter_reassignments(wave)
        refused: dict[TopicPartition, KafkaError] = {key: error for key, error in answers.items() if error is not None}
        for key, error in sorted(refused.items())[:1]:
            raise JesenskaError(
                f"{len(refused)} moves of partitions were refused, for example the move of {key}: {error}"
            )

    def _tell(self, text: str) -> None:
        if time.monotonic() - self._told_at >= _TELL_SECONDS:
            self._told_at = time.monotonic()
            print(text, file=sys.stderr, flush=True)


def _progress(done: int, count: int, moved: int, total: int, seconds: float) -> str:
    left = f"; about {(total - moved) * seconds / moved:.0f} s left" if moved else ""
    return f"{done} of {count} partitions moved, {moved / 1e6:,.1f} of {total / 1e6:,.1f} MB{left}"
