"""Prose is read in narrow windows: docstrings, comments and documents keep below 120 columns. Sentences begin with
their subject."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
COLUMNS_MAX = 119
#: A reader meets the subject first.
OPENINGS = re.compile(r"(What|Who|Whom|Whose|Where|Whether|Whoever)\b")
#: Words that have a usual one in their place: any, again or new, no one, that.
WORDS = re.compile(r"\b(whoever|anew|nobody|whom)\b", re.IGNORECASE)


def long_lines_of_python(source: str) -> Iterator[int]:
    """Yields the numbers of lines of docstrings and comments that are too long. Comments for tools (`noqa`, `type:`)
    do not count."""
    lines = source.split("\n")
    long = [line for line in lines if len(line) > COLUMNS_MAX]
    if not long:
        return
    # Reading tokens takes most of the time, so it is done only if a comment may be among the long lines.
    tokens = tokenize.generate_tokens(io.StringIO(source).readline) if any("#" in line for line in long) else ()
    for token in tokens:
        if (
            token.type == tokenize.COMMENT
            and token.end[1] > COLUMNS_MAX
            and not token.string.startswith(("# noqa", "# type:"))
        ):
            yield token.start[0]
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and ast.get_docstring(node) is not None
        ):
            docstring = node.body[0]
            assert docstring.end_lineno is not None
            yield from (
                number
                for number in range(docstring.lineno, docstring.end_lineno + 1)
                if len(lines[number - 1]) > COLUMNS_MAX
            )


def docstrings_of(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings of a module with the lines on which they begin."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield node.body[0].lineno, docstring


def test_docstrings_begin_with_their_subject_and_have_the_usual_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {docstring[:40]}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line, docstring in docstrings_of(path.read_text())
        if OPENINGS.match(docstring) or WORDS.search(docstring)
    ]
    assert not found


def test_a_riddle_is_found() -> None:
    source = '"""Whoever waits."""\ndef f(): "Where it is."\nclass C: "A log is made anew."\nx = "Who"\n'
    texts = [text for _, text in docstrings_of(source)]
    assert [bool(OPENINGS.match(text) or WORDS.search(text)) for text in texts] == [True, True, True]
    assert not OPENINGS.match("Whole batches.")
    assert not WORDS.search("The newest log.")


def long_lines_of_markdown(text: str) -> Iterator[int]:
    """Yields the numbers of lines that are too long, except rows of tables, quoted code, and single words."""
    is_code = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            is_code = not is_code
        if not is_code and len(line) > COLUMNS_MAX and not line.startswith(("|", "    ")) and " " in line.strip("-* "):
            yield number


def test_docstrings_and_comments_are_below_120_columns() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("src", "tests", "bench")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number in long_lines_of_python(path.read_text())
    ]
    assert not found


def test_documents_are_below_120_columns() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "RESULTS.md"]
    assert len(documents) > 8
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in documents
        for number in long_lines_of_markdown(path.read_text())
    ]
    assert not found


def test_what_is_too_long_is_found() -> None:
    long = "word " * 30
    assert list(long_lines_of_python(f'"""{long}"""\n')) == [1]
    assert list(long_lines_of_python(f"x = 1  # {long}\n")) == [1]
    assert not list(long_lines_of_python(f"x = '{long}'  # noqa: {long}\n"))
    assert list(long_lines_of_markdown(f"{long}\n| {long} |\n```\n{long}\n```\n- {long}\n")) == [1, 6]
