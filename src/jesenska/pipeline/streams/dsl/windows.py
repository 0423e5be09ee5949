"""The kinds of windows, and the rules by which updates of a table are held back.

    TimeWindows     windows of one size that begin every `advance` ms, counted from 1970: tumbling if advance equals
                    the size, hopping if it is less. A record is in size / advance windows. [start, end)
    SlidingWindows  a window for each distinct set of records that are at most `time_difference` ms apart. [start, end]
    SessionWindows  the records of a key, each at most `inactivity_gap` ms after the previous record. [start, end]
    JoinWindows     two records join if the other record is at most `before` ms older or `after` ms younger

A window is closed when stream time (the largest timestamp that the operation has seen) has passed its end by `grace`
ms. A record that would fall into a closed window is late, and is dropped from that window. Lengths of time are
milliseconds or timedeltas.

The class Suppressed says when updates of a table that were held back are forwarded. `until_window_closes` forwards one
final result for each window. `until_time_limit` forwards the last update of a key when the given time has passed since
the first update."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from jesenska.pipeline.streams.durations import Duration, milliseconds
from jesenska.pipeline.streams.kafka_names import SaysOurNames
from jesenska.pipeline.streams.locations import refused
from jesenska.pipeline.streams.records import TimeWindow


class TimeWindows(metaclass=SaysOurNames):
    """Windows of one size for aggregations, tumbling or hopping: `TimeWindows(size, advance=size, grace=0)`."""

    _INSTEAD: ClassVar[dict[str, str]] = {
        "of": "TimeWindows(…)",
        "of_size": "TimeWindows(…)",
        "grace": "TimeWindows(…, grace=…)",
    }
    __slots__ = ("advance_ms", "grace_ms", "size_ms")

    def __init__(self, size: Duration, advance: Duration | None = None, grace: Duration = 0) -> None:
        self.size_ms = milliseconds("the size of a window", size, 1)
        self.advance_ms = self.size_ms if advance is None else milliseconds("the advance of a window", advance, 1)
        self.grace_ms = milliseconds("the grace of a window", grace)
        if self.advance_ms > self.size_ms:
            raise refused(
                f"windows of {self.size_ms} ms cannot begin every {self.advance_ms} ms: the advance is at most the "
                f"size."
            )

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        return cls(size)

    @classmethod
    def of_size_and_grace(cls, size: Duration, grace: Duration) -> TimeWindows:
        return cls(size, grace=grace)

    def advance_by(self, advance: Duration) -> TimeWindows:
        return TimeWindows(self.size_ms, advance, self.grace_ms)

    @property
    def length_ms(self) -> int:
        return self.size_ms

    @property
    def shortest_retention_ms(self) -> int:
        """Returns the shortest time in ms for which a store must keep windows."""
        return self.size_ms + self.grace_ms

    def windows_for(self, timestamp: int) -> Iterator[TimeWindow]:
        """Yields the windows that contain this timestamp, the earliest first."""
        start = max(0, timestamp - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        while start <= timestamp:
            yield TimeWindow(start, start + self.size_ms)
            start += self.advance_ms

    def __repr__(self) -> str:
        return f"TimeWindows(size={self.size_ms}, advance={self.advance_ms}, grace={self.grace_ms})"


class SlidingWindows(metaclass=SaysOurNames):
    """Sliding windows for aggregations: the records in a window are at most `time_difference` apart."""

    _INSTEAD: ClassVar[dict[str, str]] = {"withTimeDifferenceAndGrace": "SlidingWindows(…, grace=…)"}
    __slots__ = ("grace_ms", "time_difference_ms")

    def __init__(self, time_difference: Duration, grace: Duration = 0) -> None:
        self.time_difference_ms = milliseconds("the time difference of a sliding window", time_difference)
        self.grace_ms = milliseconds("the grace of a sliding window", grace)

    @property
    def length_ms(self) -> int:
        return self.time_difference_ms

    @property
    def shortest_retention_ms(self) -> int:
        """Returns the shortest time in ms for which a store must keep windows."""
        return 2 * self.time_difference_ms + self.grace_ms

    @classmethod
    def of_time_difference_with_no_grace(cls, time_difference: Duration) -> SlidingWindows:
        return cls(time_difference)

    @classmethod
    def of_time_difference_and_grace(cls, time_difference: Duration, grace: Duration) -> SlidingWindows:
        return cls(time_difference, grace)

    def __repr__(self) -> str:
        return f"SlidingWindows(time_difference={self.time_difference_ms}, grace={self.grace_ms})"


class SessionWindows(metaclass=SaysOurNames):
    """Session windows for aggregations: a session ends after `inactivity_gap` without a record of its key."""

    _INSTEAD: ClassVar[dict[str, str]] = {"with_": "SessionWindows(…)", "grace": "SessionWindows(…, grace=…)"}
    __slots__ = ("grace_ms", "inactivity_gap_ms")

    def __init__(self, inactivity_gap: Duration, grace: Duration = 0) -> None:
        self.inactivity_gap_ms = milliseconds("the inactivity gap of a session", inactivity_gap, 1)
        self.grace_ms = milliseconds("the grace of a session", grace)

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, inactivity_gap: Duration) -> SessionWindows:
        return cls(inactivity_gap)

    @classmethod
    def of_inactivity_gap_and_grace(cls, inactivity_gap: Duration, grace: Duration) -> SessionWindows:
        return cls(inactivity_gap, grace)

    def __repr__(self) -> str:
        return f"SessionWindows(inactivity_gap={self.inactivity_gap_ms}, grace={self.grace_ms})"


class JoinWindows(metaclass=SaysOurNames):
    """The largest time difference of two records that join: `JoinWindows(time_difference, grace=0)`. `before` and
    `after` set separate limits for other records that are older and younger than this record. A negative limit in
    `before` means that the other record must be younger; a negative limit in `after`, that it must be older."""

    _INSTEAD: ClassVar[dict[str, str]] = {"of": "JoinWindows(…)", "grace": "JoinWindows(…, grace=…)"}
    __slots__ = ("after_ms", "before_ms", "grace_ms")

    def __init__(self, time_difference: Duration, grace: Duration = 0) -> None:
        self.before_ms = self.after_ms = milliseconds("the time difference of a join", time_difference)
        self.grace_ms = milliseconds("the grace of a join", grace)

    @classmethod
    def of_time_difference_with_no_grace(cls, time_difference: Duration) -> JoinWindows:
        return cls(time_difference)

    @classmethod
    def of_time_difference_and_grace(cls, time_difference: Duration, grace: Duration) -> JoinWindows:
        return cls(time_difference, grace)

    def before(self, time_difference: Duration) -> JoinWindows:
        """Returns the windows with a new limit for how much older than this record the other record may be."""
        return self._with(_signed("the time before", time_difference), self.after_ms)

    def after(self, time_difference: Duration) -> JoinWindows:
        """Returns the windows with a new limit for how much younger than this record the other record may be."""
        return self._with(self.before_ms, _signed("the time after", time_difference))

    def _with(self, before_ms: int, after_ms: int) -> JoinWindows:
        if before_ms + after_ms < 0:
            raise refused(
                f"a join from {-before_ms} to {after_ms} ms is never met: before and after together are at least 0."
            )
        changed = JoinWindows(0, self.grace_ms)
        changed.before_ms, changed.after_ms = before_ms, after_ms
        return changed

    @property
    def size_ms(self) -> int:
        return self.before_ms + self.after_ms

    def __repr__(self) -> str:
        return f"JoinWindows(before={self.before_ms}, after={self.after_ms}, grace={self.grace_ms})"


def _signed(what: str, duration: Duration) -> int:
    return milliseconds(what, duration, -(2**63))


class EmitStrategy(Enum):
    """The time at which a windowed aggregation forwards results: with every update, or once when the window closes."""

    ON_WINDOW_UPDATE = "on_window_update"
    ON_WINDOW_CLOSE = "on_window_close"


@dataclass(frozen=True, slots=True)
class BufferConfig:
    """The limits of the buffer of `suppress`; None means no limit. If a limit is exceeded and `emit_early_when_full`
    is True, the oldest update is forwarded. If it is False, the application stops."""

    max_records: int | None = None
    max_bytes: int | None = None
    emit_early_when_full: bool = False
    logging: bool = True

    @classmethod
    def unbounded(cls) -> BufferConfig:
        return cls()

    def shut_down_when_full(self) -> BufferConfig:
        return replace(self, emit_early_when_full=False)

    def with_logging_disabled(self) -> BufferConfig:
        return replace(self, logging=False)


@dataclass(frozen=True, slots=True)
class Suppressed(metaclass=SaysOurNames):
    """The rule by which `KTable.suppress` forwards updates. Use `until_window_closes` or `until_time_limit` to make a
    rule. `wait_ms` is the waiting time in ms. It is None for `until_window_closes`, which waits for the grace of the
    windows."""

    buffer: BufferConfig
    wait_ms: int | None
    name: str | None = None

    @classmethod
    def until_window_closes(cls, buffer: BufferConfig | None = None, *, name: str | None = None) -> Suppressed:
        """Forwards one result for each window, when the window closes. The buffer must not emit early."""
        buffer = buffer or BufferConfig.unbounded()
        if buffer.emit_early_when_full:
            raise refused(
                "a final result cannot be emitted early: give until_window_closes a buffer that shuts down when it "
                "is full, or none."
            )
        return cls(buffer, None, name)

    @classmethod
    def until_time_limit(
        cls, time_to_wait: Duration, buffer: BufferConfig | None = None, *, name: str | None = None
    ) -> Suppressed:
        """Forwards the last update of each key when `time_to_wait` of stream time has passed since the key's first
        update that was held back. Without `buffer` the number of held-back updates is not limited."""
        return cls(
            buffer or BufferConfig(emit_early_when_full=True), milliseconds("the time to wait", time_to_wait), name
        )

    def with_name(self, name: str) -> Suppressed:
        return replace(self, name=name)
