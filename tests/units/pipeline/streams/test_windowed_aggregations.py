"""Aggregations by windows and sessions: which windows a record falls into, late records, final results. The expected
records are Apache Kafka Streams 3.9.1's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from jesenska.pipeline.streams import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    TimeWindows,
    TopologyError,
)
from tests.units.pipeline.streams.running import LONG, STRING, Row, S, append, driver_of, outcome, pipe, read

WINDOWED = Serdes.time_windowed(STRING, 10)
SESSION = Serdes.session_windowed(STRING)


def _rows(*rows: tuple[Any, Any, int]) -> list[Row]:
    return [("in", *row) for row in rows]


def _windowed(windows: Any) -> tuple[StreamsBuilder, Any]:
    builder = StreamsBuilder()
    return builder, builder.stream("in", **S).group_by_key().windowed_by(windows)


def test_a_record_falls_into_every_hopping_window_that_is_open_and_late_ones_are_dropped() -> None:
    builder, windowed = _windowed(TimeWindows(10, advance=5, grace=15))
    windowed.aggregate("", append, store="kept", value=STRING).to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(driver, _rows(("a", "x", 12), ("a", "y", 3), ("a", "z", 40), ("a", "l", 20)))
        assert read(driver, key=WINDOWED) == [
            (("a", 5, 15), "+x", 12),
            (("a", 10, 20), "+x", 12),
            (("a", 0, 10), "+y", 3),
            (("a", 35, 45), "+z", 40),
            (("a", 40, 50), "+z", 40),
            (("a", 20, 30), "+l", 20),
        ]
        assert driver.dropped_records == 1
        assert driver.get_window_store("kept").fetch("a", 35) == "+z"
        assert driver.get_window_store("kept").fetch("a", 0, 100) == [(20, "+l"), (35, "+z"), (40, "+z")]


def test_lengths_of_time_may_be_timedeltas() -> None:
    windows = TimeWindows(timedelta(seconds=1), advance=timedelta(milliseconds=500), grace=timedelta(minutes=1))
    assert (windows.size_ms, windows.advance_ms, windows.grace_ms) == (1000, 500, 60_000)


def test_a_windowed_count_takes_null_values_and_no_null_keys() -> None:
    builder, windowed = _windowed(TimeWindows(10))
    windowed.count().to_stream().to("out")
    assert outcome(builder, _rows(("a", None, 1), (None, "x", 2)), key=WINDOWED, value=LONG) == [(("a", 0, 10), 1, 1)]


def test_sliding_windows_are_opened_for_each_set_of_records_that_are_near() -> None:
    builder, windowed = _windowed(SlidingWindows(10, grace=15))
    windowed.aggregate("", append, store="kept", value=STRING).to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(
            driver, _rows(("a", "x", 20), ("a", "y", 25), ("a", "z", 22), ("a", "w", 31), ("a", "v", 30), ("a", "u", 5))
        )
        got = [(key[1], value, timestamp) for key, value, timestamp in read(driver, key=WINDOWED)]
        assert got == [
            (10, "+x", 20),
            (21, "+y", 25),
            (15, "+x+y", 25),
            (21, "+y+z", 25),
            (15, "+x+y+z", 25),
            (12, "+x+z", 22),
            (23, "+y", 25),
            (23, "+y+w", 31),
            (21, "+y+z+w", 31),
            (26, "+w", 31),
            (26, "+w+v", 31),
            (23, "+y+w+v", 31),
            (21, "+y+z+w+v", 31),
            (20, "+x+y+z+v", 30),
            (31, "+w", 31),
        ]
        assert driver.dropped_records == 1


def test_early_records_share_the_sliding_window_that_begins_at_zero() -> None:
    builder, windowed = _windowed(SlidingWindows(10, grace=50))
    windowed.count().to_stream().to("out")
    got = outcome(builder, _rows(("a", "x", 4), ("a", "y", 8), ("a", "z", 2)), key=WINDOWED, value=LONG)
    assert got == [
        (("a", 0, 10), 1, 4),
        (("a", 5, 15), 1, 8),
        (("a", 0, 10), 2, 8),
        (("a", 3, 13), 2, 8),
        (("a", 0, 10), 3, 8),
    ]


def test_a_record_merges_the_sessions_that_it_touches() -> None:
    builder, windowed = _windowed(SessionWindows(5, grace=15))
    windowed.aggregate(
        "", append, lambda key, left, right: f"{left}|{right}", store="kept", value=STRING
    ).to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(
            driver,
            _rows(
                ("a", "x", 10),
                ("a", "y", 20),
                ("a", "z", 15),
                ("a", "w", 14),
                ("a", "u", 100),
                ("a", "t", 15),
                ("a", "s", 105),
            ),
        )
        assert read(driver, key=SESSION) == [
            (("a", 10, 10), "+x", 10),
            (("a", 20, 20), "+y", 20),
            (("a", 10, 10), None, 10),
            (("a", 20, 20), None, 20),
            (("a", 10, 20), "|+x|+y+z", 20),
            (("a", 10, 20), None, 20),
            (("a", 10, 20), "||+x|+y+z+w", 20),
            (("a", 100, 100), "+u", 100),
            (("a", 100, 100), None, 100),
            (("a", 100, 105), "|+u+s", 105),
        ]
        assert driver.dropped_records == 1
        assert [(session.window.start, value) for session, value in driver.get_session_store("kept").all()] == [
            (100, "|+u+s")
        ]


def test_a_record_at_the_time_of_a_session_of_one_updates_it_in_its_place() -> None:
    builder, windowed = _windowed(SessionWindows(5))
    windowed.count().to_stream().to("out")
    assert outcome(builder, _rows(("a", "x", 10), ("a", "y", 10)), key=SESSION, value=LONG) == [
        (("a", 10, 10), 1, 10),
        (("a", 10, 10), 2, 10),
    ]


def test_a_session_is_late_when_it_ends_before_stream_time_minus_gap_and_grace() -> None:
    builder, windowed = _windowed(SessionWindows(5, grace=3))
    windowed.count().to_stream().to("out")
    got = outcome(builder, _rows(("a", "x", 100), ("a", "y", 91), ("a", "z", 92)), key=SESSION, value=LONG)
    assert got == [(("a", 100, 100), 1, 100), (("a", 92, 92), 1, 92)]


def test_sessions_are_counted_and_reduced_without_a_merger() -> None:
    rows = _rows(("a", "x", 10), ("a", "y", 20), ("a", "z", 15))
    builder, windowed = _windowed(SessionWindows(5, grace=15))
    windowed.count().to_stream().to("out")
    assert outcome(builder, rows, key=SESSION, value=LONG)[-1] == (("a", 10, 20), 3, 20)
    builder, windowed = _windowed(SessionWindows(5, grace=15))
    windowed.reduce(lambda aggregate, value: f"{aggregate}{value}").to_stream().to("out")
    assert outcome(builder, rows, key=SESSION)[-1] == (("a", 10, 20), "xyz", 20)


# Results that are held back


def test_suppress_gives_one_result_for_each_window_when_it_is_closed() -> None:
    builder, windowed = _windowed(TimeWindows(10, advance=5, grace=5))
    windowed.aggregate("", append, value=STRING).suppress(Suppressed.until_window_closes()).to_stream().to("out")
    got = outcome(
        builder, _rows(("b", "x", 1), ("a", "x", 2), ("a", "y", 7), ("b", "z", 13), ("a", "w", 30)), key=WINDOWED
    )
    assert got == [
        (("a", 0, 10), "+x+y", 7),
        (("b", 0, 10), "+x", 1),
        (("a", 5, 15), "+y", 7),
        (("b", 5, 15), "+z", 13),
        (("b", 10, 20), "+z", 13),
    ]


def test_suppress_by_time_gives_the_last_update_of_a_key_some_time_after_the_first() -> None:
    builder = StreamsBuilder()
    builder.table("in", **S).suppress(Suppressed.until_time_limit(10)).to_stream().to("out")
    rows = [
        ("a", "1", 0),
        ("b", "1", 1),
        ("a", "2", 5),
        ("c", "1", 9),
        ("c", "2", 10),
        ("c", "3", 11),
        ("b", None, 12),
        ("c", "4", 40),
    ]
    assert outcome(builder, _rows(*rows)) == [("a", "2", 5), ("b", "1", 1), ("c", "4", 40), ("b", None, 12)]


def test_whoever_looks_a_suppressed_table_up_sees_what_it_has_let_go() -> None:
    builder = StreamsBuilder()
    held_back = builder.table("in", **S).suppress(Suppressed.until_time_limit(10))
    builder.stream("s", **S).left_join(held_back, lambda left, right: f"{left}{right}").to("out", **S)
    rows: list[Row] = [("in", "a", "1", 0), ("s", "a", "x", 1), ("in", "b", "1", 20), ("s", "a", "y", 21)]
    rows += [("in", "a", "2", 22), ("in", "a", "3", 23), ("s", "a", "z", 24)]
    assert outcome(builder, rows) == [("a", "xNone", 1), ("a", "y1", 21), ("a", "z1", 24)]


def test_a_full_buffer_lets_the_oldest_update_go_or_stops_the_application() -> None:
    builder = StreamsBuilder()
    early = BufferConfig(max_records=2, emit_early_when_full=True)
    builder.table("in", **S).suppress(Suppressed.until_time_limit(1000, early)).to_stream().to("out")
    assert outcome(builder, _rows(("a", "1", 0), ("b", "2", 1), ("c", "3", 2))) == [("a", "1", 0)]
    builder = StreamsBuilder()
    builder.table("in", **S).suppress(Suppressed.until_time_limit(1000, early.shut_down_when_full())).to_stream().to(
        "out"
    )
    with pytest.raises(StreamsError, match=r"holds 3 records and \d+ bytes, more than it may"):
        outcome(builder, _rows(("a", "1", 0), ("b", "2", 1), ("c", "3", 2)))


def test_until_window_closes_needs_windows() -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match="until_window_closes needs a windowed table"):
        builder.table("in", **S).suppress(Suppressed.until_window_closes())


@pytest.mark.parametrize("windows", [TimeWindows(10), TimeWindows(10, advance=5, grace=3)])
def test_results_on_window_close_are_final_and_none_is_lost(windows: TimeWindows) -> None:
    builder, windowed = _windowed(windows)
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).aggregate("", append, value=STRING).to_stream().to("out")
    rows = _rows(("a", "x", 1), ("a", "y", 12), ("b", "z", 13), ("a", "w", 24), ("a", "v", 500))
    got = outcome(builder, rows, key=WINDOWED)
    final: dict[Any, str] = {}
    for _, key, value, timestamp in rows:
        for window in windows.windows_for(timestamp):
            if window.end <= 500 - windows.grace_ms:
                final[key, window.start, window.end] = final.get((key, window.start, window.end), "") + f"+{value}"
    assert {key: value for key, value, _ in got} == final
    assert len(got) == len(final)


def test_sessions_on_close_are_final() -> None:
    builder, windowed = _windowed(SessionWindows(5, grace=3))
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count().to_stream().to("out")
    got = outcome(
        builder, _rows(("a", "x", 1), ("a", "y", 4), ("b", "z", 20), ("a", "w", 100)), key=SESSION, value=LONG
    )
    assert got == [(("a", 1, 4), 2, 4), (("b", 20, 20), 1, 20)]


def test_a_session_on_close_that_is_out_of_retention_grows_no_more() -> None:
    builder, windowed = _windowed(SessionWindows(5, grace=0))
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).aggregate(
        "", append, lambda key, left, right: left + right, value=STRING
    ).to_stream().to("out")
    # The session at 10 ends at the end of the store's retention: it is returned unchanged; the late record makes
    # another one.
    got = outcome(builder, _rows(("a", "x", 10), ("b", "y", 15), ("a", "z", 11), ("b", "end", 100)), key=SESSION)
    assert got == [(("a", 10, 10), "+x", 10), (("a", 11, 11), "+z", 11), (("b", 15, 15), "+y", 15)]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: TimeWindows(0), "the size of a window is 0 ms: give at least 1 ms"),
        (lambda: TimeWindows(10, advance=11), "the advance is at most the size"),
        (lambda: TimeWindows(10, grace=-1), "the grace of a window is -1 ms"),
        (lambda: SessionWindows(0), "the inactivity gap of a session is 0 ms"),
        (lambda: TimeWindows("10"), "'10', which is not a length of time"),  # type: ignore[arg-type]
        (lambda: _windowed(TimeWindows(10, grace=5))[1].count(retention=14), "give at least 15 ms"),
        (lambda: _windowed(5), "windowed_by takes TimeWindows, SlidingWindows or SessionWindows"),
        (
            lambda: Suppressed.until_window_closes(BufferConfig(1, emit_early_when_full=True)),
            "a final result cannot be emitted early",
        ),
    ],
)
def test_windows_that_cannot_be_are_refused(make: Any, sentence: str) -> None:
    with pytest.raises(TopologyError, match=sentence):
        make()


# Windowed tables as tables


@pytest.mark.parametrize(
    "windows", [TimeWindows(10, grace=100), SessionWindows(3, grace=100), SlidingWindows(9, grace=100)], ids=str
)
def test_a_windowed_table_is_grouped_anew_with_its_old_values(windows: Any) -> None:
    """After any number of changes of a window, the sum over all windows of a key is the sum of their last values."""
    builder, windowed = _windowed(windows)
    counts = windowed.count()
    grouped = counts.group_by(lambda windowed, count: (windowed.key, count), key=STRING, value=LONG)
    grouped.reduce(lambda aggregate, value: aggregate + value, lambda aggregate, value: aggregate - value, store="sums")
    counts.to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(driver, _rows(("a", "x", 1), ("a", "y", 4), ("b", "z", 5), ("a", "w", 2), ("a", "v", 40), ("a", "u", 6)))
        key = SESSION if isinstance(windows, SessionWindows) else WINDOWED
        last = {key: value for key, value, _ in read(driver, key=key, value=LONG)}
        sums = {name: sum(value or 0 for (key, *_), value in last.items() if key == name) for name in "ab"}
        assert dict(driver.get_key_value_store("sums").all()) == sums


@pytest.mark.parametrize("windows", [TimeWindows(10), SessionWindows(5)], ids=str)
def test_windowed_tables_are_joined_by_key_and_window(windows: Any) -> None:
    builder = StreamsBuilder()
    tables = [builder.stream(topic, **S).group_by_key().windowed_by(windows).count() for topic in ("in", "other")]
    tables[0].left_join(tables[1], lambda left, right: f"{left}/{right}").to_stream().to("out", value=STRING)
    rows: list[Row] = [("in", "a", "x", 1), ("other", "a", "x", 1), ("other", "a", "y", 20)]
    serde = Serdes.session_windowed(STRING) if isinstance(windows, SessionWindows) else WINDOWED
    assert [(key[0], key[1], value) for key, value, _ in outcome(builder, rows, key=serde)] == [
        ("a", 1 if isinstance(windows, SessionWindows) else 0, "1/None"),
        ("a", 1 if isinstance(windows, SessionWindows) else 0, "1/1"),
    ]


def test_kafkas_ways_to_make_windows_are_there() -> None:
    assert str(TimeWindows.of_size_with_no_grace(10)) == "TimeWindows(size=10, advance=10, grace=0)"
    assert str(TimeWindows.of_size_and_grace(10, 5).advance_by(2)) == "TimeWindows(size=10, advance=2, grace=5)"
    assert str(SlidingWindows.of_time_difference_with_no_grace(10)) == "SlidingWindows(time_difference=10, grace=0)"
    assert str(SlidingWindows.of_time_difference_and_grace(10, 5)) == "SlidingWindows(time_difference=10, grace=5)"
    assert str(SessionWindows.of_inactivity_gap_with_no_grace(10)) == "SessionWindows(inactivity_gap=10, grace=0)"
    assert str(SessionWindows.of_inactivity_gap_and_grace(10, 5)) == "SessionWindows(inactivity_gap=10, grace=5)"
    assert str(JoinWindows.of_time_difference_with_no_grace(10)) == "JoinWindows(before=10, after=10, grace=0)"
    assert str(JoinWindows.of_time_difference_and_grace(10, 5).after(3)) == "JoinWindows(before=10, after=3, grace=5)"
    limited = Suppressed.until_time_limit(5, BufferConfig.unbounded().with_logging_disabled()).with_name("held")
    assert (limited.name, limited.buffer.logging, limited.wait_ms) == ("held", False, 5)
