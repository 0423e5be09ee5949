"""The simulator: a seed has the same result each time, compiled and from source, and a broker with a mistake is found.
test_seeds.py checks that no seed breaks the promises.

JESENSKA_SEED is the first seed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.testing.simulation.watches.coverage import FAULTS, STATES, as_table
from tests.processes.testing import (
    planted_access_bugs,
    planted_bugs,
    planted_cluster_bugs,
    planted_micro_batch_bugs,
    planted_move_bugs,
    planted_transaction_bugs,
)
from tests.processes.testing.first_seeds import FIRST_SEEDS, SEEDS, Searches

_FIRST = int(os.environ.get("JESENSKA_SEED", "1"))


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, **environment},
        check=False,
        timeout=900,
    )


def test_a_seed_does_the_same_each_time() -> None:
    """Compiled or from source. The last line has the state of the random source, which each message, each read and
    each piece of work in a thread has changed."""
    traces = []
    for seed in range(_FIRST, _FIRST + 3):
        first = _run("jesenska.testing.simulation", "--trace", str(seed))
        second = _run("jesenska.testing.simulation", "--trace", str(seed), JESENSKA_PURE="1")
        assert first.returncode == 0, first.stdout + first.stderr
        assert "the dice stand at" in first.stdout.splitlines()[-1]
        assert first.stdout == second.stdout
        traces.append(first.stdout)
    assert len(set(traces)) == len(traces)


def test_every_ninth_seed_compacts_and_does_the_same_each_time() -> None:
    first, second = (_run("jesenska.testing.simulation", "--trace", "9", JESENSKA_PURE=pure) for pure in ("", "1"))
    assert first.returncode == 0, first.stdout + first.stderr
    found = re.search(r"of (\d+) records with keys \[(\d+)\] are left", first.stdout)
    assert found is not None
    assert 0 < int(found[2]) < int(found[1]) // 2
    assert first.stdout == second.stdout


@pytest.mark.timeout(300)
def test_a_tree_apart_comes_and_goes_and_what_is_promised_holds() -> None:
    """The broker's session in the tree suspends, ends and is renewed. The same seed does the same, here, too. The
    tenth seed has faults of the tree."""
    first, second = (
        _run("jesenska.testing.simulation", "--tree-apart", "--trace", str(_FIRST + 9), JESENSKA_PURE=pure)
        for pure in ("", "1")
    )
    assert first.returncode == 0, first.stdout + first.stderr
    assert "the tree is" in first.stdout
    assert first.stdout == second.stdout
    many = _run("jesenska.testing.simulation", "--tree-apart", "--seed", str(_FIRST), "--schedules", "20")
    assert many.returncode == 0, many.stdout + many.stderr


def test_three_brokers_do_the_same_each_time() -> None:
    first, second = (
        _run("jesenska.testing.simulation", "--brokers", "3", "--trace", str(_FIRST), JESENSKA_PURE=pure)
        for pure in ("", "1")
    )
    assert first.returncode == 0, first.stdout + first.stderr
    assert "broker-2" in first.stdout
    assert first.stdout == second.stdout


def test_a_tree_that_is_lost_is_built_anew_and_a_seed_does_the_same_each_time() -> None:
    """Every seventh seed of several brokers has one of the `disasters`, beginning with the fourth."""
    first, second = (
        _run("jesenska.testing.simulation", "--brokers", "3", "--trace", "11", JESENSKA_PURE=pure) for pure in ("", "1")
    )
    assert first.returncode == 0, first.stdout + first.stderr
    assert "the tree is built anew from all directories" in first.stdout
    assert first.stdout == second.stdout


@pytest.mark.parametrize("brokers", ["1", "3"])
def test_clients_with_transactions_do_the_same_each_time(brokers: str) -> None:
    arguments = ("jesenska.testing.simulation", "--transactions", "--brokers", brokers, "--trace", str(_FIRST))
    first, second = (_run(*arguments, JESENSKA_PURE=pure) for pure in ("", "1"))
    assert first.returncode == 0, first.stdout + first.stderr
    found = re.search(r"of \d+ transactions (\d+) were committed and (\d+) aborted, (\d+) results", first.stdout)
    assert found is not None
    assert all(int(count) > 0 for count in found.groups())
    assert first.stdout == second.stdout


def test_moves_of_partitions_do_the_same_each_time() -> None:
    arguments = ("jesenska.testing.simulation", "--moves", "--brokers", "4", "--trace", str(_FIRST))
    first, second = (_run(*arguments, JESENSKA_PURE=pure) for pure in ("", "1"))
    assert first.returncode == 0, first.stdout + first.stderr
    found = re.search(r"of the moves (\d+) were completed", first.stdout)
    assert found is not None
    assert int(found[1]) > 0
    assert first.stdout == second.stdout


def test_moves_need_several_brokers() -> None:
    done = _run("jesenska.testing.simulation", "--moves")
    assert done.returncode == 2
    assert "--moves needs --brokers 3 or more." in done.stderr


@pytest.mark.parametrize("brokers", ["1", "3"])
def test_queries_that_write_exactly_once_do_the_same_each_time(brokers: str) -> None:
    arguments = ("jesenska.testing.simulation", "--micro-batches", "--brokers", brokers, "--trace", str(_FIRST))
    first, second = (_run(*arguments, JESENSKA_PURE=pure) for pure in ("", "1"))
    assert first.returncode == 0, first.stdout + first.stderr
    found = re.search(r"(\d+) micro-batches are done, in (\d+) attempts", first.stdout)
    assert found is not None
    assert 0 < int(found[1]) < int(found[2])
    assert first.stdout == second.stdout


def test_faults_are_counted_by_what_the_broker_was() -> None:
    done = _run(
        "jesenska.testing.simulation",
        "--brokers",
        "3",
        "--seed",
        str(_FIRST),
        "--schedules",
        "2",
        "--coverage",
        "--output",
        "json",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["seeds"], outcome["failures"]) == (2, [])
    assert list(outcome["coverage"]) == list(STATES)
    assert all(list(cells) == list(FAULTS) for cells in outcome["coverage"].values())
    assert sum(sum(cells.values()) for cells in outcome["coverage"].values()) > 10


def test_the_table_has_a_line_for_each_state() -> None:
    lines = as_table({("leader", "pause"): 12, ("starting", "killed"): 3}).splitlines()
    assert len(lines) == 1 + len(STATES)
    assert all(fault in lines[0] for fault in FAULTS)
    assert {len(line) for line in lines} == {len(lines[0])}
    leader, starting = (next(line for line in lines if line.startswith(state)) for state in ("leader", "starting"))
    assert leader[: lines[0].index("pause") + len("pause")].endswith("12")
    assert starting.split() == ["starting", "3", *["0"] * (len(FAULTS) - 1)]


@pytest.fixture(scope="module")
def searches() -> Iterator[Searches]:
    with Searches() as made:
        yield made


def _is_found(bug: str, searches: Searches) -> None:
    """Asserts that a seed finds the mistake, with the words that it should."""
    code, printed = searches.find(bug, FIRST_SEEDS[bug], SEEDS)
    assert code == 0, printed
    assert printed.startswith("seed ")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", planted_cluster_bugs.BUGS)
def test_a_cluster_with_a_mistake_is_found_out(bug: str, searches: Searches) -> None:
    _is_found(bug, searches)


@pytest.mark.parametrize("bug", planted_bugs.BUGS)
def test_a_broker_with_a_mistake_is_found_out(bug: str, searches: Searches) -> None:
    _is_found(bug, searches)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", planted_transaction_bugs.BUGS)
def test_a_mistake_with_transactions_is_found_out(bug: str, searches: Searches) -> None:
    _is_found(bug, searches)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", planted_micro_batch_bugs.BUGS)
def test_a_mistake_in_writing_exactly_once_is_found_out(bug: str, searches: Searches) -> None:
    _is_found(bug, searches)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", planted_access_bugs.BUGS)
def test_a_mistake_with_users_and_acls_is_found_out(bug: str, searches: Searches) -> None:
    _is_found(bug, searches)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", planted_move_bugs.BUGS)
def test_a_mistake_in_moves_of_partitions_is_found_out(bug: str, searches: Searches) -> None:
    _is_found(bug, searches)


def test_every_mistake_has_a_seed_to_begin_with_and_nothing_else_has_one() -> None:
    known = [
        *planted_bugs.BUGS,
        *planted_cluster_bugs.BUGS,
        *planted_transaction_bugs.BUGS,
        *planted_micro_batch_bugs.BUGS,
        *planted_access_bugs.BUGS,
        *planted_move_bugs.BUGS,
    ]
    assert sorted(FIRST_SEEDS) == sorted(known)
