from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.config.properties import PropertiesError, format_properties, parse_properties

# Pairs checked with java.util.Properties.
CASES = [
    ("a=b", {"a": "b"}),
    ("a:b", {"a": "b"}),
    ("a b", {"a": "b"}),
    ("a = b ", {"a": "b "}),
    ("  a\t=\t b", {"a": "b"}),
    ("a==b", {"a": "=b"}),
    ("a : = b", {"a": "= b"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("=b", {"": "b"}),
    ("# comment\n! another\n\n   # indented\na=1", {"a": "1"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=one,\\\n   two,\\\n\tthree", {"a": "one,two,three"}),
    ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
    ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
    ("a\\=b=c", {"a=b": "c"}),
    ("a\\ b=c", {"a b": "c"}),
    ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
    ("a=\\u0041\\u00e9", {"a": "Aé"}),
    ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
    ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
    ("a=1\\", {"a": "1"}),
    ("a=x\\\n\nb=2", {"a": "x", "b": "2"}),
    ("\\\n# still a comment\na=1", {"a": "1"}),
    ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
]


@pytest.mark.parametrize(("text", "entries"), CASES)
def test_files_are_read_as_java_reads_them(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(text) == entries


def test_bytes_are_utf8_and_otherwise_latin1() -> None:
    assert parse_properties("a=é".encode()) == {"a": "é"}
    assert parse_properties("a=é".encode("latin-1")) == {"a": "é"}
    assert parse_properties(b"\xef\xbb\xbfa=1") == {"a": "1"}


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "x=1\na=\\u 041"])
def test_a_broken_unicode_escape_names_its_line(text: str) -> None:
    with pytest.raises(PropertiesError, match=f"^Line {text.count(chr(10)) + 1} "):
        parse_properties(text)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_what_is_written_is_read_back_and_is_plain_ascii(entries: dict[str, str]) -> None:
    written = format_properties(entries, ("made by a test\nin two lines",))
    assert written.isascii()
    assert written.count("\n") == len(entries) + 1
    assert parse_properties(written) == entries
    assert parse_properties(written.encode()) == entries


@given(st.binary())
def test_any_bytes_are_entries_or_one_kind_of_error(content: bytes) -> None:
    try:
        entries = parse_properties(content)
    except PropertiesError as error:
        assert str(error).startswith("Line ")
    else:
        assert all(isinstance(key, str) and isinstance(value, str) for key, value in entries.items())
