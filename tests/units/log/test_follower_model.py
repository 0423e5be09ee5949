"""A follower's log gets random operations (appends with gaps, truncations, new beginnings, flushes, full disks,
crashes), and is compared with a list of batches, and with a log that is opened again on the same files."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from jesenska.base.errors import KafkaError, KafkaStorageError, NotLeaderOrFollowerError, OffsetOutOfRangeError
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.leader_epochs import LeaderEpochs
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from jesenska.log.partition.follower_appends import append_as_follower
from jesenska.log.partition.leader_appends import AppendResult
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import read_log
from jesenska.log.partition.recovery import LogLoader
from jesenska.log.segments.producer_state import ProducerState
from jesenska.records.batch import iter_headers
from jesenska.records.decode import ControlMarker, ControlType, marker_record
from jesenska.records.encode import encode_batch
from jesenska.records.header import BatchHeader
from tests.profiles import examples
from tests.units.log.follower_harness import Follower
from tests.units.log.log_harness import NOW_MS
from tests.units.log.test_queue_and_disk_faults import FaultyFiles

#: Compacted, because the leader's gaps come from compaction.
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150, segment_index_bytes=400, retention_ms=-1, compact=True)
#: The weight of each operation.
_WEIGHTS = {
    "append": 6,
    "several": 2,
    "anew": 1,
    "truncate": 2,
    "restart": 1,
    "flush": 1,
    "write": 3,
    "write_all": 1,
    "sync": 1,
    "advance": 1,
}
_RARE = ("fill_the_disk", "make_room", "settle", "crash", "stop")
STEPS = st.sampled_from([*(step for step, weight in _WEIGHTS.items() for _ in range(weight)), *_RARE])


class Asked(NamedTuple):
    offset: int
    restarts: bool
    #: An append asks for it, of a batch that holds an empty log's end.
    for_append: bool = False


@dataclass
class Model:
    """The expected content of the log."""

    headers: list[BatchHeader] = field(default_factory=list)
    start: int = 0
    high_watermark: int = 0
    end: int = 0
    #: Truncations that have not ended well yet, oldest first.
    asked: list[Asked] = field(default_factory=list)

    def append(self, headers: list[BatchHeader]) -> None:
        self.headers.extend(headers)
        self.end = headers[-1].last_offset + 1

    def truncate(self, asked: Asked) -> None:
        offset = asked.offset
        if asked.restarts or (offset < self.end and offset <= self.start):
            self.headers.clear()
            self.start = self.high_watermark = self.end = offset
        elif offset < self.end:
            self.end = min([offset, *(header.base_offset for header in self.headers if header.last_offset >= offset)])
            self.headers = [header for header in self.headers if header.last_offset < self.end]
            self.high_watermark = min(self.high_watermark, self.end)

    def epochs(self) -> list[tuple[int, int]]:
        table = LeaderEpochs()
        for header in self.headers:
            if header.partition_leader_epoch > table.latest_epoch:
                table.assign(header.partition_leader_epoch, header.base_offset)
        return table.entries()

    def producers(self) -> list[tuple[int, int, int, int, int]]:
        state = ProducerState()
        for header in self.headers:
            if header.is_control:
                state.apply_marker(header, header.base_offset, ControlMarker(ControlType.COMMIT, 1), NOW_MS)
            elif header.producer_id >= 0:
                state.apply(header, header.base_offset, header.max_timestamp, NOW_MS)
        return facts(state)


def facts(state: ProducerState) -> list[tuple[int, int, int, int, int]]:
    """Returns the facts that are also in a snapshot."""
    return sorted(
        (
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in state.entries()
    )


class Run:
    def __init__(self, directory: Path, chance: Random) -> None:
        self.chance = chance
        self.directory = directory
        self.model = Model()
        self.files = FaultyFiles()
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.follower = Follower(directory, CONFIG, self.files)
        #: The recovery point on the disk is at most that.
        self.checkpoint = 0

    @property
    def log(self) -> PartitionLog:
        return self.follower.harness.log

    def batch(self, offset: int) -> bytearray:
        chance = self.chance
        if chance.random() < 0.2:
            self.epoch += 1
        count = chance.randint(1, 4)
        producer_id = chance.choice([-1, -1, 1, 2, 3])
        if producer_id == 3 and chance.random() < 0.5:
            marker = marker_record(ControlMarker(ControlType.COMMIT, 1), NOW_MS)
            return encode_batch(
                [marker],
                base_offset=offset,
                leader_epoch=self.epoch,
                producer_id=3,
                producer_epoch=0,
                is_transactional=True,
                is_control=True,
            )
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + count
        return encode_batch(
            [(NOW_MS + offset, b"key", bytes(chance.randint(0, 120)), ())] * count,
            base_offset=offset,
            leader_epoch=self.epoch,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=producer_id == 3,
        )

    def append(self, count: int, offset: int | None = None) -> None:
        at = self.log.next_offset if offset is None else offset
        data = bytearray()
        for _ in range(count):
            at += self.chance.choice([0, 0, 0, 1, 7]) if offset is None else 0
            batch = self.batch(at)
            (header,) = [header for _, header in iter_headers(batch)]
            at = header.last_offset + 1
            data += batch
        headers = [header for _, header in iter_headers(data)]
        anew = Asked(headers[0].base_offset, True, True)
        if anew.offset < self.log.next_offset:
            self.model.asked.append(anew)
        try:
            result = append_as_follower(self.log, memoryview(data), headers, NOW_MS, partial(self.appended, headers))
        except NotLeaderOrFollowerError:
            assert self.log.has_queued_appends
            self.refused(anew)
        except OffsetOutOfRangeError:
            self.refused(anew)
            assert headers[0].base_offset < self.log.next_offset
            assert headers[0].last_offset < self.log.next_offset or self.log.log_start_offset < self.log.next_offset
        except KafkaStorageError:
            assert self.files.room_bytes is not None or self.log.is_failed
            self.refused(anew)
        else:
            if result is not None:
                self.appended(headers, result)

    def refused(self, anew: Asked) -> None:
        if self.model.asked and self.model.asked[-1] is anew:
            self.model.asked.pop()

    def appended(self, headers: list[BatchHeader], outcome: AppendResult | KafkaError) -> None:
        asked = self.model.asked
        if any(each.for_append for each in asked) and not self.log.is_failed:
            while asked:
                each = asked.pop(0)
                self.model.truncate(each)
                if each.for_append:
                    break
        if isinstance(outcome, AppendResult):
            self.model.append(headers)

    def truncate(self, asked: Asked) -> None:
        self.model.asked.append(asked)
        method = self.log.restart_at if asked.restarts else self.log.truncate_to
        method(asked.offset, NOW_MS, self.truncated)

    def truncated(self, failure: KafkaError | None) -> None:
        # They end in order, and one that ends well has carried out those that did not.
        if failure is None:
            pending = len(self.log._all_truncations()._asked)
            ended, self.model.asked = (
                self.model.asked[: len(self.model.asked) - pending],
                self.model.asked[len(self.model.asked) - pending :],
            )
            for asked in ended:
                self.model.truncate(asked)

    def step(self, step: str) -> None:
        log, chance, follower = self.log, self.chance, self.follower
        if step == "append":
            self.append(1)
        elif step == "several":
            self.append(chance.randint(2, 3))
        elif step == "anew":
            self.append(1, max(0, log.next_offset - chance.randint(1, 3)))
        elif step == "truncate":
            self.truncate(Asked(chance.randint(max(0, log.log_start_offset - 2), log.next_offset + 2), False))
        elif step == "restart":
            self.truncate(Asked(chance.randint(0, log.next_offset + 20), True))
        elif step == "flush":
            log.flush()
        elif step == "write" and follower.writer.jobs:
            follower.writer.run_one()
        elif step == "write_all":
            follower.writer.run_work_first()
        elif step == "sync" and follower.flusher.jobs:
            follower.flusher.run_one()
        elif step == "advance" and not log.has_queued_appends:
            log.high_watermark = self.model.high_watermark = chance.randint(log.high_watermark, log.log_end_offset)
        elif step == "fill_the_disk":
            self.files.room_bytes = chance.choice([0, 0, 40])
        elif step == "make_room":
            self.files.room_bytes = None
        elif step == "settle":
            self.settle()
        elif step == "stop":
            self.settle()
            follower.harness.reopen()
            self.opened_anew()
        elif step == "crash":
            self.crash()
        if not self.model.asked:
            self.checkpoint = self.log.recovery_point
        assert self.log.log_start_offset <= self.log.high_watermark <= self.log.log_end_offset

    def settle(self) -> None:
        """All work ends, and everything is compared."""
        self.files.room_bytes = None
        if self.log.is_failed:
            self.truncate(Asked(self.log.log_end_offset, False))
        self.follower.settle()
        assert not self.model.asked
        self.compare()
        copy = self.directory.with_name("copy")
        shutil.copytree(self.directory, copy)
        loader = LogLoader(
            copy,
            CONFIG,
            FileLayer(),
            clean=False,
            recovery_point=self.log.recovery_point,
            log_start_offset=0,
            now_ms=NOW_MS,
        )
        found = loader.load()
        assert [header for segment in found.segments for _, header in segment.headers()] == self.model.headers
        assert found.leader_epochs.entries() == self.log.leader_epochs.entries()
        assert facts(found.producers) == facts(self.log.producers)
        assert found.next_offset == self.end_after_crash()
        for segment in found.segments:
            segment.close()
        shutil.rmtree(copy)

    def end_on_disk(self) -> int:
        """Returns the end: a log that was cut in a gap ends there, and after it is opened again, after its last
        batch."""
        last = self.model.headers[-1].last_offset + 1 if self.model.headers else 0
        return max(last, self.log.segments[-1].base_offset)

    def end_after_crash(self) -> int:
        """Returns the end after a crash: an empty segment after a gap is removed if the part before the gap was not
        fully synced, since the rest may be lost."""
        bases = [segment.base_offset for segment in self.log.segments]
        ends = [
            max([base, *(header.last_offset + 1 for _, header in segment.headers())])
            for base, segment in zip(bases, self.log.segments, strict=True)
        ]
        point = self.log.recovery_point
        while len(ends) > 1 and bases[-1] > point and ends[-1] == bases[-1] > ends[-2] >= point:
            bases.pop()
            ends.pop()
        return ends[-1]

    def compare(self) -> None:
        log, model = self.log, self.model
        model.end = max(model.end, log.segments[-1].base_offset)
        assert [header for segment in log.segments for _, header in segment.headers()] == model.headers
        assert log.log_end_offset == log.next_offset == model.end
        assert (log.log_start_offset, log.high_watermark) == (model.start, model.high_watermark)
        assert log.leader_epochs.entries() == model.epochs()
        assert facts(log.producers) == model.producers()
        for header in model.headers:
            for offset in (header.base_offset, header.last_offset):
                found = read_log(log, offset, 1)
                assert found.base_offset == header.base_offset
                assert found.region is not None
                found.region.release()

    def opened_anew(self) -> None:
        self.model.start, self.model.end = self.log.log_start_offset, self.end_on_disk()
        self.log.high_watermark = self.model.high_watermark = min(
            max(self.model.high_watermark, self.model.start), self.model.end
        )
        self.compare()

    def crash(self) -> None:
        """The process dies: work that the writer thread has not done is lost, and a truncation may be partly done."""
        before, asked = list(self.model.headers), list(self.model.asked)
        for each in asked:
            self.model.truncate(each)
        kept, new_start = len(self.model.headers), self.model.end if any(each.restarts for each in asked) else None
        failed = self.log.is_failed
        self.follower.writer.jobs.clear()
        self.follower.flusher.jobs.clear()
        self.files.room_bytes = None
        point = self.checkpoint
        close_log(self.follower.harness.log, clean=False)
        self.follower.harness.writer.flushes_in_flight = 0
        self.follower.harness.open(clean=False, recovery_point=point)
        found = [header for segment in self.log.segments for _, header in segment.headers()]
        if asked or failed:
            assert found == before[: len(found)]
            assert len(found) >= kept or new_start is not None
        else:
            assert found == before
        self.model.headers, self.model.asked = found, []
        self.opened_anew()


@settings(max_examples=examples(2), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(steps=st.lists(STEPS, max_size=60), seed=st.integers(0, 2**32))
@example(
    steps=[
        "several",
        "fill_the_disk",
        "several",
        "write",
        "fill_the_disk",
        "write",
        "write_all",
        "write",
        "several",
        "truncate",
        "append",
    ],
    seed=99999,
)
def test_a_followers_log_is_what_its_batches_say(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], seed: int
) -> None:
    run = Run(tmp_path_factory.mktemp("follower") / "t-0", Random(seed))
    for step in steps:
        run.step(step)
    run.settle()
    run.crash()
    close_log(run.log, clean=False)
