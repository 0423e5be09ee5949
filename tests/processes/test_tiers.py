"""Facts that git knows of a commit: a number, and the files that were changed in the hours before it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import tiers

_AUTHOR = {
    f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "a"), ("EMAIL", "a@b"))
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(tiers.CHANGED, raising=False)
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.delenv("JESENSKA_SINCE", raising=False)
    return tmp_path


def _git(tree: Path, *arguments: str, day: int = 0) -> str:
    date = {f"GIT_{who}_DATE": f"2026-01-{10 + day:02} 12:00:00 +0000" for who in ("AUTHOR", "COMMITTER")}
    command = ["git", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false", *arguments]
    return subprocess.run(
        command, cwd=tree, env={**os.environ, **_AUTHOR, **date}, capture_output=True, text=True, check=True
    ).stdout.strip()


def _commit(tree: Path, name: str, day: int) -> str:
    (tree / name).write_text(f"{day}")
    _git(tree, "add", "-A")
    _git(tree, "commit", "-m", name, day=day)
    return _git(tree, "rev-parse", "HEAD")


def test_what_the_last_hours_have_changed_and_what_is_not_committed(tree: Path) -> None:
    _git(tree, "init")
    _commit(tree, "old", 0)
    _commit(tree, "a day before", 2)
    _commit(tree, "just before", 4)
    _git(tree, "mv", "a day before", "with another name")
    head = _commit(tree, "the last", 4)
    (tree / "not committed").write_text("")
    found = tiers.commit.__wrapped__()
    assert found.changed == {"just before", "the last", "not committed"}
    assert found.number == int(head[:8], 16)


def test_a_commit_to_compare_with_can_be_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _git(tree, "init")
    first = _commit(tree, "old", 0)
    _commit(tree, "a day before", 2)
    _commit(tree, "the last", 4)
    monkeypatch.setenv("JESENSKA_SINCE", first)
    assert tiers.commit.__wrapped__().changed == {"a day before", "the last"}


def test_all_files_of_a_young_tree_are_new(tree: Path) -> None:
    _git(tree, "init")
    _commit(tree, "first", 0)
    _commit(tree, "second", 0)
    assert tiers.commit.__wrapped__().changed == {"first", "second"}


def test_without_git_nothing_has_changed(tree: Path) -> None:
    assert tiers.commit.__wrapped__() == tiers.Commit(0, frozenset())
