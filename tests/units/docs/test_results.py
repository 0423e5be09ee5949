"""The table of benchmarks is short, and each figure has its source."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "bench" / "RESULTS.md"
_LINES_MAX = 200
#: Letters and digits, so that a large figure is not taken for one.
_COMMIT = re.compile(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,8}\b")
_COMMAND = re.compile(r"`[^`]*?python (?:-m )?([\w./]+)[^`]*`")


def sections(text: str) -> dict[str, str]:
    """Returns the text below each heading of the second level."""
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return dict(part.split("\n", 1) for part in parts)


def unsaid(text: str) -> list[str]:
    """Returns the missing parts of sections: a command of an existing file, and a commit."""
    missing = []
    for heading, below in sections(text).items():
        named = [name if "/" in name else name.replace(".", "/") for name in _COMMAND.findall(below)]
        if not any((ROOT / name).exists() or (ROOT / f"{name}.py").exists() for name in named):
            missing.append(f"{heading}: command")
        if not _COMMIT.search(below):
            missing.append(f"{heading}: commit")
    return missing


def test_it_has_two_hundred_lines_at_most() -> None:
    assert len(DOCUMENT.read_text().splitlines()) <= _LINES_MAX


def test_each_section_names_its_command_and_its_commit() -> None:
    text = DOCUMENT.read_text()
    assert len(sections(text)) > 5
    assert unsaid(text) == []


def test_every_command_is_there_to_be_run() -> None:
    gone = []
    for name in _COMMAND.findall(DOCUMENT.read_text()):
        path = ROOT / (name if "/" in name else name.replace(".", "/"))
        if name != "pytest" and not (path.exists() or path.with_suffix(".py").exists()):
            gone.append(name)
    assert gone == []


def test_a_section_without_command_or_commit_is_found() -> None:
    good = "# Results\n\n## One\n\n`python -m bench.broker_bench`, commit 4d7cc67\n\n"
    assert unsaid(good) == []
    assert unsaid(good + "## Two\n\n5,000,000 records, 2026-11-22, 1015228 a second\n") == [
        "Two: command",
        "Two: commit",
    ]
    assert unsaid(good + "## Two\n\n`python -m bench.gone_bench`, 5,000,000 records\n") == [
        "Two: command",
        "Two: commit",
    ]
