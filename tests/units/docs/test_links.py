"""Pages name files and headings that exist, and so do comments that name a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "jesenska"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
#: Pages about the code: each path that they name exists. Other pages also name files of users.
CODE_PAGES = [
    *(ROOT / "docs" / name for name in ("architecture.md", "first-change.md")),
    *sorted((ROOT / "docs" / "design").glob("*.md")),
]
#: A part of a path that a reader replaces: a room, an API's key and name.
_REPLACED = re.compile(r"ROOM|NN_name")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SOURCE_PATH = re.compile(r"\b(?:src/jesenska|tests|bench|script|examples)/[\w./-]*\w")
_QUOTED = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w./-]+\.(?:py|pyx|pxi|java|c|h|json|toml|md)")
_DIRECTORY = re.compile(r"[\w.-]+(?:/[\w.-]+)*/")
_NAMED_PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")


def without_code(text: str) -> str:
    """Returns the text without fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Returns the anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    """Yields the relative links of a page that lead nowhere."""
    for link in _LINK.findall(without_code(page.read_text())):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            yield link


@cache
def _names_of_files() -> frozenset[str]:
    roots = (PACKAGE, ROOT / "tests", ROOT / "bench", ROOT / "docs", ROOT / "examples")
    found = {path.name for root in roots for path in root.rglob("*") if path.is_file()}
    return frozenset(found | {path.name for path in ROOT.iterdir() if path.is_file()})


def exists(path: str) -> bool:
    """Returns True if a path is one of the repository or of the package; a bare name, if a file has that name. A path
    with a part that a reader replaces counts up to that part."""
    path, *replaced = _REPLACED.split(path)
    if replaced:
        return exists(path.rpartition("/")[0] + "/")
    if "/" not in path:
        return path in _names_of_files()
    return (ROOT / path).exists() or (PACKAGE / path).exists()


def missing_paths(text: str) -> Iterator[str]:
    """Yields the quoted files and directories of a page about the code that do not exist."""
    for quoted in _QUOTED.findall(without_code(text)):
        first = quoted.split(" ")[0]
        if (_FILE.fullmatch(first) or _DIRECTORY.fullmatch(first)) and not exists(first):
            yield first


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_of_the_repository_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return  # it tells of releases whose files were elsewhere
    named = set(_SOURCE_PATH.findall(page.read_text()))
    assert {path for path in named if not exists(path) and not exists(f"{path}.py")} == set()


@pytest.mark.parametrize("page", CODE_PAGES, ids=lambda page: page.name)
def test_pages_about_the_code_name_files_that_exist(page: Path) -> None:
    assert sorted(set(missing_paths(page.read_text()))) == []


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(index.read_text())}
    assert [path for path in (ROOT / "docs").rglob("*.md") if path != index and path not in linked] == []


def test_code_names_pages_that_exist() -> None:
    files = [path for folder in ("src", "tests", "bench", "script") for path in (ROOT / folder).rglob("*")]
    texts = [path for path in files if path.suffix in ("", ".py", ".pyx", ".pxi", ".sh") and path.is_file()]
    found = {
        f"{path.relative_to(ROOT)}: {named}"
        for path in [*texts, ROOT / "compiled-modules", ROOT / "setup.py", ROOT / "pyproject.toml"]
        if path != Path(__file__)
        for named in _NAMED_PAGE.findall(path.read_text(encoding="utf-8", errors="replace"))
        if not (ROOT / named).exists()
    }
    assert sorted(found) == []


def test_what_is_missing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One heading\n\n[a](gone.md) [b](#one-heading) [c](page.md#another) [d](https://example.org)\n")
    assert list(broken_links(page)) == ["gone.md", "page.md#another"]
    text = "`log/segments/segment.py` `segment.py` `log/disk/` `log/gone.py` `gone.py` `logs/`\n```\n`gone.md`\n```\n"
    assert list(missing_paths(text)) == ["log/gone.py", "gone.py", "logs/"]
