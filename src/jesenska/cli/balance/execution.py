"""Carries out a balance: a few partitions at a time, throttled, until every partition has its new replicas. The moves
go on in the cluster if the tool is interrupted; the next run makes a new plan from where the replicas are then."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from jesenska.base.clock import SystemClock
from jesenska.base.errors import ElectionNotNeededError, JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.reassignment.reassignment_throttles import (
    brokers_in,
    clear_brokers,
    clear_topics,
    moves_of,
    throttle,
)
from jesenska.cli.shared.tool import Telling
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import PREFERRED
from jesenska.controller.plans.balance import PartitionLoad

_LOOK_SECONDS: Final = 0.3

Targets = Mapping[TopicPartition, tuple[int, ...]]


class Execution:
    """The moves of a plan on one cluster. At most `at_once` partitions move at a time."""

    def __init__(self, admin: Admin, at_once: int) -> None:
        self._admin = admin
        self._at_once = at_once
        self._clock = SystemClock()
        self._progress = Telling()

    async def wait_for_others(self) -> None:
        """Waits until no reassignment is under way, such as one of an interrupted run."""
        while ongoing := await self._admin.list_reassignments():
            self._progress.tell(f"Waiting for {len(ongoing)} moves that are under way, such as {min(ongoing)}")
            await asyncio.sleep(_LOOK_SECONDS)

    async def run(self, partitions: Sequence[PartitionLoad], targets: Targets, bytes_per_second: int | None) -> None:
        """Moves partitions to their targets. `partitions` has the present loads. Raises JesenskaError if the cluster
        refuses a move."""
        loads = {load.topic_partition: load for load in partitions if load.topic_partition in targets}
        copied = {
            key: loads[key].size_bytes * len(set(target) - set(loads[key].replicas)) for key, target in targets.items()
        }
        moves = moves_of({key: load.replicas for key, load in loads.items()}, targets, {})
        if bytes_per_second is not None:
            await throttle(self._admin, moves, bytes_per_second)
        begun, total = self._clock.monotonic(), sum(copied.values())
        moved = done = 0
        for wave in self._waves(copied):
            await self._begin({key: targets[key] for key in wave})
            while ongoing := await self._admin.list_reassignments(wave):
                ended = [key for key in wave if key not in ongoing]
                now = moved + sum(copied[key] for key in ended)
                seconds = self._clock.monotonic() - begun
                self._progress.tell(_progress(done + len(ended), len(targets), now, total, seconds))
                await asyncio.sleep(_LOOK_SECONDS)
            done += len(wave)
            moved += sum(copied[key] for key in wave)
        if bytes_per_second is not None:
            nodes = self._admin.cluster.nodes
            await clear_brokers(self._admin, [broker_id for broker_id in brokers_in(moves) if broker_id in nodes])
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

    def _waves(self, copied: Mapping[TopicPartition, int]) -> Iterator[list[TopicPartition]]:
        """Yields the partitions that move together, those without new replicas first, then the smallest. `copied` are
        the bytes to copy."""
        order = sorted(copied, key=lambda key: (copied[key], key))
        free = [key for key in order if not copied[key]]
        if free:
            yield free
        rest = order[len(free) :]
        for start in range(0, len(rest), self._at_once):
            yield rest[start : start + self._at_once]

    async def _begin(self, wave: Targets) -> None:
        answers = await self._admin.alter_reassignments(wave)
        refused: dict[TopicPartition, KafkaError] = {key: error for key, error in answers.items() if error is not None}
        for key, error in sorted(refused.items())[:1]:
            raise JesenskaError(
                f"{len(refused)} moves of partitions were refused, for example the move of {key}: {error}"
            )


def _progress(done: int, count: int, moved: int, total: int, seconds: float) -> str:
    left = f"; about {(total - moved) * seconds / moved:.0f} s left" if moved else ""
    return f"{done} of {count} partitions moved, {moved / 1e6:,.1f} of {total / 1e6:,.1f} MB{left}"
