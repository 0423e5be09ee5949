"""Which tests a run has, by tier.

    script/test quick        tests/units, ten seeds of the simulator
    script/test              these, tests/processes and tests/conformance, and a share of the hour's
    script/test everything   all of them, tests/hour and what is marked `hour` elsewhere too

A test is the hour's if its file lies below tests/hour or if it is marked `hour`. The mark can name the files that the
test is about: `hour("src/jesenska/interchange")`. Where one of them has changed lately, script/test runs the test as
if it had no mark. Of the others it runs a sixth of the files, for two minutes at most. The commit says which; where
there are fewer than six, one file.

What has changed lately is what the commits of the last four hours have changed, and what is not committed. A module
that got another name, other docstrings, comments or imports alone does not count: a module that was moved changes the
imports of many. JESENSKA_SINCE names another commit to compare
with. Without git nothing has changed, and the first sixth is taken.

JESENSKA_TESTS is the tier (quick, ci, everything); without it no test is left out, as when a person names a file.
JESENSKA_SHARE=rotation asks for the sixth alone.
"""

from __future__ import annotations

import ast
import os
import subprocess
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.profiles import CI, EVERYTHING, PROFILE

ROOT = Path(__file__).parents[1]
HOUR = "tests/hour"
SHARES = 6
#: The variable that asks for a part of the tests, and its value for the sixth of the hour's that a commit has.
SHARE, ROTATION = "JESENSKA_SHARE", "rotation"
SHARE_SECONDS = 120.0
_LATELY_SECONDS = 4 * 3600
#: The variable in which a run of several processes keeps the names of the changed files, a line each.
CHANGED = "JESENSKA_CHANGED"


@dataclass(frozen=True)
class Commit:
    """What a run of CI is about: a number that the commit gives, and the files that were changed lately."""

    number: int
    changed: frozenset[str]


@cache
def commit() -> Commit:
    """The commit of this tree. 0 and nothing changed where there is no git."""
    head = _git("rev-parse", "HEAD")
    if not head:
        return Commit(0, frozenset())
    number, known = int(head[0][:8], 16), os.environ.get(CHANGED)
    if known is not None:
        return Commit(number, frozenset(known.split("\n")))
    since = os.environ.get("JESENSKA_SINCE") or _before(head[0])
    # A line has a letter, the name that the file had, and the one that it has now where that is another.
    diff = _git("diff", "--name-status", "--find-renames=60%", since)
    names = {line.split("\t")[-1]: line.split("\t")[1] for line in diff if not line.startswith("R100")}
    changed = {name for name, before in names.items() if not _has_same_code_as(before, name, since)}
    return Commit(number, frozenset((*changed, *_git("ls-files", "--others", "--exclude-standard"))))


def _has_same_code_as(before: str, name: str, since: str) -> bool:
    """True for a file that has changed if its code is the one of the file `before` in the commit `since`."""
    path = ROOT / name
    if not name.endswith(".py") or not path.is_file():
        return False
    text = _git("show", f"{since}:{before}")
    return bool(text) and has_same_code("\n".join(text), path.read_text())


def has_same_code(before: str, after: str) -> bool:
    """True if two modules differ in docstrings, comments and imports alone."""
    try:
        return _code_of(before) == _code_of(after)
    except SyntaxError:
        return False


def _code_of(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:]
    return ast.dump(_WithoutImports().visit(tree))


class _WithoutImports(ast.NodeTransformer):
    """Takes the imports out of a tree."""

    def visit_Import(self, node: ast.Import) -> None:
        """Leaves nothing of `import`."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Leaves nothing of `from ... import`."""


def first_seed() -> int:
    """The first of the simulator's seeds: JESENSKA_SEED, or another one with each commit."""
    return int(os.environ.get("JESENSKA_SEED", "0")) or 1 + commit().number


def _before(head: str) -> str:
    made = int(_git("show", "--no-patch", "--format=%ct", head)[0])
    before = _git("rev-list", "-1", f"--before={made - _LATELY_SECONDS}", head)
    # The first commit of all is younger: it is compared with the empty tree.
    return before[0] if before else "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def _git(*arguments: str) -> list[str]:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


@dataclass(frozen=True)
class Hours:
    """What is known of a test of the hour: its file, and the files that it is about."""

    path: str
    about: tuple[str, ...]

    def has_changed(self, changed: frozenset[str]) -> bool:
        """True if the test itself or something that it is about is among the changed files."""
        return any(
            name == wanted or name.startswith(f"{wanted}/") for wanted in (self.path, *self.about) for name in changed
        )


def runs(hours: Hours | None, tier: str | None, at: Commit) -> bool:
    """Whether a run of a tier has a test: `hours` is None for one that is not the hour's."""
    if hours is None or tier in (None, EVERYTHING):
        return True
    return tier == CI and hours.has_changed(at.changed)


def rotation(tests: Sequence[Hours], at: Commit) -> frozenset[Hours]:
    """Those of the hour's tests that are the commit's share. Empty only if each of them runs anyway.

    All tests of a file are in the same share, so that what they start is started once.
    """
    left = [test for test in tests if not test.has_changed(at.changed)]
    paths = sorted({test.path for test in left})
    shares = min(SHARES, len(paths))
    return frozenset(test for test in left if paths.index(test.path) % shares == at.number % shares)


def hours_of(item: pytest.Item) -> Hours | None:
    """What makes a test one of the hour's; None if it is not."""
    path = item.path.relative_to(ROOT).as_posix() if item.path.is_relative_to(ROOT) else str(item.path)
    marks = list(item.iter_markers("hour"))
    if not marks and not path.startswith(f"{HOUR}/"):
        return None
    return Hours(path, tuple(str(about) for mark in marks for about in mark.args))


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests in `items` that this run has."""
    tier, is_rotation = os.environ.get(PROFILE), os.environ.get(SHARE) == ROTATION
    if tier is None and not is_rotation:
        return
    hours = [hours_of(item) for item in items]
    share = rotation([one for one in hours if one is not None], commit()) if is_rotation else frozenset[Hours]()
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item, one in zip(items, hours, strict=True):
        has = one in share if is_rotation else runs(one, tier, commit())
        (kept if has else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
    if is_rotation:
        # Another commit has another order, so that the limit of time cuts off other tests.
        items.sort(key=lambda item: zlib.crc32(f"{commit().number} {item.path.name}".encode()))
        config.pluginmanager.register(_Rotation(time.monotonic() + SHARE_SECONDS))


class _Rotation:
    """Skips the tests whose turn comes too late. A rotation that is left without a test has not failed."""

    def __init__(self, ends: float) -> None:
        self._ends = ends

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.monotonic() > self._ends:
            pytest.skip(f"the rotation has had its {SHARE_SECONDS:.0f} s")

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK
