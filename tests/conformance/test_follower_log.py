"""Whatever a follower does to its log, Apache Kafka's own log (4.3.1's UnifiedLog) ends up the same: offsets, high
watermark, leader epochs, producers.

Two differences are meant. A truncation into a batch ends the log where that batch begins; Kafka's ends at the offset,
with nothing before it, until the next start. And a batch that does not follow is OFFSET_OUT_OF_RANGE; Kafka's broker
has no code for its exception.

`JESENSKA_TESTS=everything` compares a thousand logs.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from jesenska.base.errors import KafkaError, OffsetOutOfRangeError
from jesenska.log.log_config import LogConfig
from tests.conformance.conftest import need
from tests.peers.judge import Judge
from tests.profiles import rounds
from tests.units.log.follower_harness import leader_batch
from tests.units.log.log_harness import LogHarness

pytestmark = pytest.mark.conformance

_SEGMENT_BYTES = 600
_STEPS = 25
_KINDS = ["append"] * 6 + ["anew", "truncate", "truncate", "restart", "watermark", "epoch"]
_NAMES = {"ok": None, "UnexpectedAppendOffsetException": OffsetOutOfRangeError}


@pytest.fixture(scope="module")
def kafkas_log() -> Iterator[Judge]:
    need("java", "mvn")
    with Judge("4.3.1", "FollowerLog") as judge:
        yield judge


class Pair:
    """One log of ours and one of Kafka's, which are given the same."""

    def __init__(self, directory: Path, judge: Judge, seed: int) -> None:
        self.ours = LogHarness(
            directory / "ours" / "t-0", LogConfig(segment_bytes=_SEGMENT_BYTES, index_interval_bytes=100)
        )
        self.judge = judge
        self.chance = Random(seed)
        self.epoch = 0
        self.trail: list[str] = []
        judge.ask("new", directory / "kafkas" / "t-0", _SEGMENT_BYTES)

    def batch(self, offset: int) -> bytes:
        chance = self.chance
        self.epoch += chance.random() < 0.2
        producer_id = chance.choice([-1, 1, 2])
        known = self.ours.log.producers.get(producer_id)
        sequence = -1 if producer_id < 0 else 0 if known is None else known.last_sequence + 1
        # Kafka forgets producers by the time of their records.
        now_ms = int(time.time() * 1000)
        size = chance.randint(0, 60)
        return leader_batch(
            offset,
            chance.randint(1, 4),
            self.epoch,
            value_bytes=size,
            producer_id=producer_id,
            base_sequence=sequence,
            now_ms=now_ms,
        )

    def step(self) -> None:
        log, chance = self.ours.log, self.chance
        kind = chance.choice(_KINDS)
        failure: KafkaError | None = None
        if kind in ("append", "anew"):
            offset = (
                log.log_end_offset + chance.choice([0, 0, 0, 5])
                if kind == "append"
                else max(0, log.log_end_offset - chance.randint(1, 3))
            )
            batch = self.batch(offset)
            said = self._ask("append", base64.b64encode(batch).decode())
            try:
                self.ours.append_as_follower(batch)
            except KafkaError as error:
                failure = error
        elif kind == "truncate":
            offset = chance.randint(max(0, log.log_start_offset - 3), log.log_end_offset + 2)
            headers = [header for segment in log.segments for _, header in segment.headers()]
            offset = min(
                [
                    offset,
                    *(header.base_offset for header in headers if header.base_offset <= offset <= header.last_offset),
                ]
            )
            said = self._ask("truncate", offset)
            self.ours.truncate_to(offset)
        elif kind == "restart":
            offset = chance.randint(0, log.log_end_offset + 10)
            said = self._ask("restart", offset)
            self.ours.restart_at(offset)
        elif kind == "watermark":
            offset = chance.randint(log.high_watermark, log.log_end_offset)
            said = self._ask("watermark", offset)
            log.high_watermark = offset
        else:
            self.epoch += 1
            said = self._ask("epoch", self.epoch, log.log_end_offset)
            log.assign_leader_epoch(self.epoch, log.log_end_offset)
        name, _, state = said.partition(" ")
        assert (type(failure) if failure else None) == _NAMES[name], self.trail
        assert self.state() == state, self.trail

    def _ask(self, *words: object) -> str:
        self.trail.append(" ".join(map(str, words))[:60])
        return self.judge.ask(*words)

    def state(self) -> str:
        log = self.ours.log
        epochs = "".join(f"{epoch}:{offset}," for epoch, offset in log.leader_epochs.entries())
        producers = "".join(f"{entry.producer_id}:{entry.last_sequence}," for entry in sorted(log.producers.entries()))
        return f"{log.log_start_offset} {log.high_watermark} {log.log_end_offset} [{epochs}] [{producers}]"


def test_a_followers_log_is_what_kafkas_is(kafkas_log: Judge, tmp_path: Path) -> None:
    for seed in range(rounds(quick=4, ci=20, everything=100)):
        pair = Pair(tmp_path / f"{seed}", kafkas_log, seed)
        with pair.ours:
            for _ in range(_STEPS):
                pair.step()
