"""Windows, sessions and joins against plain arithmetic over all records: random records, in random order, none of them
late."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from jesenska.pipeline.streams import JoinWindows, Serdes, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows
from jesenska.pipeline.streams.engine.ordered import OrderedMap
from tests.units.pipeline.streams.running import STRING, Row, S, append, driver_of, outcome, pair, pipe

#: Later than any record is from another one.
ALL_THE_TIME = 1000
#: (key, time): values are numbered, so that each record can be distinguished.
_records = some.lists(some.tuples(some.sampled_from("ab"), some.integers(100, 140)), max_size=12)
_sided = some.lists(some.tuples(some.sampled_from("lr"), some.sampled_from("ab"), some.integers(100, 120)), max_size=12)


def _rows(records: list[tuple[str, int]]) -> list[Row]:
    return [("in", key, str(number), timestamp) for number, (key, timestamp) in enumerate(records)]


def _kept(windows: Any, rows: list[Row], merger: Any = None) -> dict[tuple[str, int, int], Counter[str]]:
    """The windows that are in the store at the end, with the records in each."""
    builder = StreamsBuilder()
    windowed = builder.stream("in", **S).group_by_key().windowed_by(windows)
    functions = [append] if merger is None else [append, merger]
    windowed.aggregate("", *functions, store="kept", value=STRING, retention=ALL_THE_TIME * 3)
    with driver_of(builder) as driver:
        pipe(driver, rows)
        store = driver.get_session_store("kept") if merger else driver.get_window_store("kept")
        return {
            (windowed.key, windowed.window.start, windowed.window.end): Counter(value.split("+")[1:])
            for windowed, value in store.all()
        }


@given(_records, some.integers(1, 15), some.integers(1, 15))
def test_each_hopping_window_holds_the_records_of_its_time(
    records: list[tuple[str, int]], size: int, advance: int
) -> None:
    windows = TimeWindows(size, min(advance, size), ALL_THE_TIME)
    expected: dict[tuple[str, int, int], Counter[str]] = {}
    for _, key, number, timestamp in _rows(records):
        for start in range(0, 150, windows.advance_ms):
            if start <= timestamp < start + size:
                expected.setdefault((key, start, start + size), Counter())[number] += 1
    assert _kept(windows, _rows(records)) == expected


_early = some.lists(some.tuples(some.sampled_from("ab"), some.integers(0, 30)), max_size=12)


@given(_records | _early, some.integers(0, 15))
def test_sliding_windows_are_those_that_end_or_begin_at_a_record(
    records: list[tuple[str, int]], difference: int
) -> None:
    rows = _rows(records)
    expected: dict[tuple[str, int, int], Counter[str]] = {}
    for _, key, _, timestamp in rows:
        # Windows cannot begin before time does: early records share the one that begins at 0.
        for start in (max(0, timestamp - difference), timestamp + 1):
            inside = Counter(
                number for _, other, number, at in rows if other == key and start <= at <= start + difference
            )
            if inside:
                expected[key, start, start + difference] = inside
    assert _kept(SlidingWindows(difference, ALL_THE_TIME), rows) == expected


@given(_records, some.integers(1, 10))
def test_sessions_are_the_records_that_follow_each_other_within_the_gap(
    records: list[tuple[str, int]], gap: int
) -> None:
    rows = _rows(records)
    expected: dict[tuple[str, int, int], Counter[str]] = {}
    for key in "ab":
        session: list[Row] = []
        for row in [*sorted((row for row in rows if row[1] == key), key=lambda row: row[3]), None]:
            if session and (row is None or row[3] - session[-1][3] > gap):
                expected[key, session[0][3], session[-1][3]] = Counter(str(number) for _, _, number, _ in session)
                session = []
            if row is not None:
                session.append(row)
    assert _kept(SessionWindows(gap, ALL_THE_TIME), rows, lambda key, left, right: left + right) == expected


def _joined(kind: str, windows: JoinWindows, rows: list[Row]) -> Counter[tuple[Any, Any, int]]:
    builder = StreamsBuilder()
    this, other = builder.stream("l", **S), builder.stream("r", **S)
    {"inner": this.join, "left": this.left_join, "outer": this.outer_join}[kind](other, pair, windows).to("out", **S)
    return Counter(outcome(builder, rows))


@given(_sided, some.integers(-3, 8), some.integers(0, 8), some.sampled_from(["inner", "left", "outer"]))
def test_a_join_of_streams_has_every_pair_that_is_near_enough_and_each_lone_record_once(
    records: list[tuple[str, str, int]], before: int, after: int, kind: str
) -> None:
    if before + after < 0:
        return
    if kind != "inner":
        # A record after the end of its window on stream time is joined with None at once, and may still find a
        # partner.
        records = sorted(records, key=lambda record: record[2])
    windows = JoinWindows(0, ALL_THE_TIME).after(after).before(before)
    rows = [(side, key, str(number), timestamp) for number, (side, key, timestamp) in enumerate(records)]
    left, right = ([row for row in rows if row[0] == side] for side in "lr")
    pairs = [(one, two) for one in left for two in right if one[1] == two[1] and -before <= two[3] - one[3] <= after]
    expected = Counter((one[1], f"({one[2]},{two[2]})", max(one[3], two[3])) for one, two in pairs)
    if kind != "inner":
        expected.update(
            (one[1], f"({one[2]},None)", one[3]) for one in left if not any(one is pair[0] for pair in pairs)
        )
    if kind == "outer":
        expected.update(
            (two[1], f"(None,{two[2]})", two[3]) for two in right if not any(two is pair[1] for pair in pairs)
        )
    # Much later records release those without a partner.
    closing: list[Row] = [("l", "z", "end", 10_000), ("r", "y", "end", 20_000), ("l", "x", "end", 30_000)]
    got = _joined(kind, windows, rows + closing)
    assert Counter({row: count for row, count in got.items() if row[0] in "ab"}) == expected


@given(some.lists(some.tuples(some.sampled_from(["put", "remove"]), some.integers(0, 9))))
def test_an_ordered_map_is_a_map_in_order(steps: list[tuple[str, int]]) -> None:
    ours: OrderedMap[str] = OrderedMap()
    model: dict[int, str] = {}
    for number, (step, key) in enumerate(steps):
        if step == "put":
            ours.put(key, str(number))
            model[key] = str(number)
        else:
            assert ours.remove(key) == model.pop(key, None)
        assert list(ours.items()) == sorted(model.items())
        assert list(ours.items(3, 7)) == sorted((key, value) for key, value in model.items() if 3 <= key < 7)
        assert (len(ours), ours.first()) == (len(model), min(model, default=None))


def test_windowed_keys_may_be_read_without_a_store() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **S).group_by_key().windowed_by(TimeWindows(10)).count().to_stream().to("out")
    got = outcome(builder, [("in", "a", "x", 25)], key=Serdes.time_windowed(STRING, 10), value=Serdes.long())
    assert got == [(("a", 20, 30), 1, 25)]
