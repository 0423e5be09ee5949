"""JESENSKA_TESTS chooses the amount of work of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.profiles import EXAMPLES, chosen, examples, profile, rounds

ROOT = Path(__file__).parents[2]
_COUNTING = """
from hypothesis import given, settings, strategies as some
from tests.profiles import examples

tried = {"usual": 0, "half": 0}

@given(some.integers())
def test_usual(_):
    tried["usual"] += 1

@settings(max_examples=examples(times=0.5))
@given(some.integers())
def test_half(_):
    tried["half"] += 1

def test_told():
    print(f"tried {tried['usual']} and {tried['half']}")
"""


def _run(directory: Path, asked: str | None) -> subprocess.CompletedProcess[str]:
    """Runs pytest on a file with two tests with Hypothesis, beside the conftest.py of all tests."""
    file = directory / "test_counting.py"
    file.write_text(_COUNTING)
    environment = {name: value for name, value in os.environ.items() if name != "JESENSKA_TESTS"} | (
        {} if asked is None else {"JESENSKA_TESTS": asked}
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-s",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-c",
        str(ROOT / "pyproject.toml"),
        str(file),
    ]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(("asked", "usual"), [("quick", 40), (None, 100)])
def test_hypothesis_tries_as_many_examples_as_the_profile_says(tmp_path: Path, asked: str | None, usual: int) -> None:
    done = _run(tmp_path, asked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"tried {usual} and {usual // 2}" in done.stdout


def test_a_profile_that_there_is_not_is_refused_in_one_sentence(tmp_path: Path) -> None:
    done = _run(tmp_path, "all")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert (
        done.stderr.strip()
        == "ERROR: JESENSKA_TESTS is 'all', which is no profile of the tests: set it to quick, ci or everything."
    )


def test_numbers_are_those_of_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("quick", 1), ("ci", 5), ("everything", 20)):
        monkeypatch.setenv("JESENSKA_TESTS", name)
        assert (profile(), rounds(quick=1, ci=5, everything=20), examples()) == (name, number, EXAMPLES[name])
        assert chosen(quick=["a"], ci=["b"], everything=["c"]) == [{"quick": "a", "ci": "b", "everything": "c"}[name]]
    for unsaid in ("", None):
        monkeypatch.delenv("JESENSKA_TESTS") if unsaid is None else monkeypatch.setenv("JESENSKA_TESTS", unsaid)
        assert profile() == "ci"


def test_there_is_at_least_one_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JESENSKA_TESTS", "quick")
    assert (examples(times=0.02), examples(times=0.5), examples(times=3)) == (1, 20, 120)
