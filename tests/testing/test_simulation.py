"""The simulator: the same seed does the same, compiled and from source, and a broker with a mistake is found out. That
no seed breaks what is promised is asked in test_seeds.py.

JESENSKA_SEED says which seed is the first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_FIRST = int(os.environ.get("JESENSKA_SEED", "1"))
#: Each mistake, and the seed from which on it is looked for, a hundred seeds at most: one that is known to find it
#: soon.
_BUGS = {
    "answered_before_it_is_written": 1,
    "answered_before_it_is_synced": 1,
    "sent_again_and_written_twice": 11,
    "producers_are_forgotten_at_a_restart": 11,
    "a_commit_is_answered_before_it_is_appended": 151,
    "commits_are_replayed_backwards": 2,
    "a_torn_tail_is_kept": 1,
    "the_high_watermark_goes_back": 1,
    "a_partition_has_two_owners": 1,
    "any_generation_may_commit": 244,
    "written_out_of_order": 1,
}
#: The same of three brokers.
_CLUSTER_BUGS = {
    "committed_is_what_the_leader_has": 3,
}


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=root, env={**os.environ, **environment}, check=False, timeout=900
    )


def test_a_seed_does_the_same_each_time() -> None:
    """Compiled or from source. The last line says where the source of chance stands, which each message, each read and
    each piece of work in a thread has moved."""
    traces = []
    for seed in range(_FIRST, _FIRST + 3):
        first = _run("jesenska.testing.simulation", "--trace", str(seed))
        second = _run("jesenska.testing.simulation", "--trace", str(seed), JESENSKA_PURE="1")
        assert first.returncode == 0, first.stdout + first.stderr
        assert "the dice stand at" in first.stdout.splitlines()[-1]
        assert first.stdout == second.stdout
        traces.append(first.stdout)
    assert len(set(traces)) == len(traces)


def test_a_tree_apart_comes_and_goes_and_what_is_promised_holds() -> None:
    """The broker's session in the tree suspends, ends and is renewed. The same seed does the same, here, too. The
    second seed has faults of the tree."""
    first, second = (_run("jesenska.testing.simulation", "--tree-apart", "--trace", str(_FIRST + 1), JESENSKA_PURE=pure) for pure in ("", "1"))
    assert first.returncode == 0, first.stdout + first.stderr
    assert "the tree is" in first.stdout
    assert first.stdout == second.stdout
    many = _run("jesenska.testing.simulation", "--tree-apart", "--seed", str(_FIRST), "--schedules", "20")
    assert many.returncode == 0, many.stdout + many.stderr


def test_three_brokers_do_the_same_each_time() -> None:
    first, second = (_run("jesenska.testing.simulation", "--brokers", "3", "--trace", str(_FIRST), JESENSKA_PURE=pure) for pure in ("", "1"))
    assert first.returncode == 0, first.stdout + first.stderr
    assert "broker-2" in first.stdout
    assert first.stdout == second.stdout


@pytest.mark.parametrize("bug", _CLUSTER_BUGS)
def test_a_cluster_with_a_mistake_is_found_out(bug: str) -> None:
    done = _run("tests.testing.planted_cluster_bugs", bug, str(_CLUSTER_BUGS[bug]), "5", JESENSKA_PURE="1", PYTHONHASHSEED="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("seed ")


@pytest.mark.parametrize("bug", _BUGS)
def test_a_broker_with_a_mistake_is_found_out(bug: str) -> None:
    done = _run("tests.testing.planted_bugs", bug, str(_BUGS[bug]), JESENSKA_PURE="1", PYTHONHASHSEED="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("seed ")


def test_every_mistake_is_looked_for() -> None:
    from tests.testing.planted_bugs import BUGS

    assert list(BUGS) == list(_BUGS)
