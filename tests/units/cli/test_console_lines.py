"""Lines cut out of a stream, and lines taken apart, as kafka-console-producer reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.cli.kafka.records.console_lines import LineParser, LineSplitter, ParsedLine


@given(st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"x", b"\r").replace(b"y", b"\n")), max_size=12))
def test_lines_do_not_depend_on_how_the_stream_is_cut(pieces: list[bytes]) -> None:
    splitter = LineSplitter(1000)
    lines = [line for piece in pieces for line in splitter.feed(piece)] + splitter.finish()
    assert lines == b"".join(pieces).splitlines()


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 12), st.sampled_from([b"\n", b"\r", b"\r\n"])
)
def test_a_line_over_the_limit_is_told_and_not_kept(lengths: list[int], piece: int, end: bytes) -> None:
    stream = b"".join(b"a" * length + end for length in lengths)
    splitter = LineSplitter(10)
    lines = [
        line for start in range(0, len(stream), piece) for line in splitter.feed(stream[start : start + piece])
    ] + splitter.finish()
    assert lines == [b"a" * length if length <= 10 else None for length in lengths]


def test_the_bytes_of_a_line_without_end_are_bounded() -> None:
    splitter = LineSplitter(100)
    for _ in range(1000):
        assert splitter.feed(b"a" * 90) == []
    assert splitter.feed(b"end\nnext\n") == [None, b"next"]


KEYED = {"parse.key": "true"}
HEADED = {"parse.headers": "true"}


@pytest.mark.parametrize(
    ("properties", "line", "expected"),
    [
        ({}, b"k\tv", ParsedLine(None, b"k\tv", ())),
        (KEYED, b"k\tv\tw", ParsedLine(b"k", b"v\tw", ())),
        (KEYED, b"\t", ParsedLine(b"", b"", ())),
        (KEYED | {"key.separator": "::"}, b"k::v", ParsedLine(b"k", b"v", ())),
        (HEADED, b"a:1,b:2\tv", ParsedLine(None, b"v", (("a", b"1"), ("b", b"2")))),
        (HEADED | KEYED, b"a:1:2\tk\tv", ParsedLine(b"k", b"v", (("a", b"1:2"),))),
        (HEADED | KEYED | {"null.marker": "N"}, b"N\tN\tN", ParsedLine(None, None, ())),
        (HEADED | KEYED | {"null.marker": "N"}, b"a:N\tk\tv", ParsedLine(b"k", b"v", (("a", None),))),
        (KEYED | {"ignore.error": "true"}, b"no key", ParsedLine(None, b"no key", ())),
        (HEADED | {"ignore.error": "TRUE"}, b"alone\tv", ParsedLine(None, b"v", (("alone", None),))),
        ({"null.marker": ""}, b"", ParsedLine(None, None, ())),
    ],
)
def test_a_line_is_taken_apart_as_kafkas_reader_does(
    properties: dict[str, str], line: bytes, expected: ParsedLine
) -> None:
    assert LineParser(properties).parse(line, 1) == expected


@pytest.mark.parametrize(
    ("properties", "line", "says"),
    [
        (KEYED, b"no key", "No key separator found on line number 7: 'no key'"),
        (HEADED, b"no headers", "No headers delimiter found on line number 7"),
        (HEADED, b"a\tv", "No header key separator found in pair 'a' on line number 7"),
        (HEADED | {"null.marker": "N"}, b"N:1\tv", "Header keys should not be equal to the null marker"),
    ],
)
def test_a_line_that_lacks_a_separator_is_named(properties: dict[str, str], line: bytes, says: str) -> None:
    with pytest.raises(JesenskaError, match=says):
        LineParser(properties).parse(line, 7)


@pytest.mark.parametrize(
    "properties", [{"headers.delimiter": ","}, {"headers.separator": ":"}, {"null.marker": "\t"}, {"key.separator": ""}]
)
def test_properties_that_contradict_each_other_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(JesenskaError, match=r"may not be equal|is empty"):
        LineParser(properties)
