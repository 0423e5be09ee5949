"""Durations, times and files of kafka-consumer-groups --reset-offsets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.groups.offset_reset import datetime_of, duration_of, of_group, offset_of, read_file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT1S", timedelta(seconds=1)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("P2D", timedelta(days=2)),
        ("pt10m", timedelta(minutes=10)),
        ("-PT1H", timedelta(hours=-1)),
        ("PT-1H30M", timedelta(minutes=-30)),
        ("PT-0.25S", timedelta(seconds=-0.25)),
        ("+PT0S", timedelta()),
    ],
)
def test_a_duration_is_read_as_java_reads_it(text: str, expected: timedelta) -> None:
    assert duration_of(text) == expected


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "1H", "P1H", "PT1D", "P1DT", "PT1.5H", "P1Y", "PT1S2M", "PT 1S", "P99999999999D"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(JesenskaError, match="is not a duration"):
        duration_of(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:01.5", 1500),
        ("2020-02-29T12:34:56.789Z", 1582979696789),
        ("2020-02-29T12:34:56.789+0100", 1582976096789),
        ("2020-02-29T12:34:56.789-01:30", 1582985096789),
        ("2020-02-29T12:34:56+01", 1582976096000),
    ],
)
def test_a_time_is_utc_unless_it_names_its_zone(text: str, expected: int) -> None:
    assert datetime_of(text) == expected


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_every_time_is_read_to_the_millisecond(moment: datetime) -> None:
    text = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}"
    assert datetime_of(text.rjust(23, "0")) == (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2020-01-01",
        "2020-02-30T00:00:00.000",
        "2020-01-01T24:00:00",
        "2020-01-01T00:00:00 CET",
        "2020-01-01T00:00:00+99:00",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(JesenskaError, match="is not a time"):
        datetime_of(text)


@given(st.integers(-(2**70), 2**70))
def test_an_offset_fits_64_bits(number: int) -> None:
    if abs(number) < 2**63:
        assert offset_of(str(number)) == number
    else:
        with pytest.raises(JesenskaError, match="is not an offset"):
            offset_of(str(number))


def test_a_file_has_lines_with_groups_or_without(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text('a,0,5\r\n\n "b" , 1 , 7 \n')
    plain = read_file(str(file))
    assert of_group(plain, "any", only_group=True) == {TopicPartition("a", 0): 5, TopicPartition("b", 1): 7}
    with pytest.raises(JesenskaError, match="name no group"):
        of_group(plain, "any", only_group=False)
    file.write_text('"g1","a",0,5\ng2,a,0,6\n')
    grouped = read_file(str(file))
    assert of_group(grouped, "g1", only_group=False) == {TopicPartition("a", 0): 5}
    assert of_group(grouped, "g2", only_group=True) == {TopicPartition("a", 0): 6}
    assert of_group(grouped, "g3", only_group=True) == {}


@pytest.mark.parametrize(
    "line", ["a,0", "a,x,1", "a,-1,1", "a,0,x", "g,a,0,1,2", ",0,1", "a,0,99999999999999999999", "a,0,1.5", "\x00"]
)
def test_a_line_that_is_neither_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"a,0,1\n{line}\n")
    with pytest.raises(JesenskaError, match=r"line 2|is not an offset"):
        read_file(str(file))


@given(st.binary(max_size=200))
def test_no_file_is_more_than_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.mktemp("csv") / "offsets.csv"
    file.write_bytes(data)
    try:
        found = read_file(str(file))
    except JesenskaError as error:
        assert str(file) in str(error) or "is not an offset" in str(error)
    else:
        assert all(key.topic and key.partition >= 0 for offsets in found.values() for key in offsets)
