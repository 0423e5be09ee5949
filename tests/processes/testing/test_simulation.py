"""The simulator: the same seed does the same, compiled and from source, and a broker with a mistake is found out. That
no seed breaks what is promised is asked in test_seeds.py.

JESENSKA_SEED says which seed is the first."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.testing.simulation.coverage import FAULTS, STATES, as_table
from tests.processes.testing import planted_bugs, planted_cluster_bugs, planted_micro_batch_bugs, planted_transaction_bugs

_FIRST = int(os.environ.get("JESENSKA_SEED", "1"))
#: Each mistake, and the seed from which on it is looked for, a hundred seeds at most: one that is known to find it
#: soon.
_BUGS = {
    "answered_before_it_is_written": 1,
    "answered_before_it_is_synced": 1,
    "sent_again_and_written_twice": 6,
    "producers_are_forgotten_at_a_restart": 34,
    "a_commit_is_answered_before_it_is_appended": 30,
    "commits_are_replayed_backwards": 12,
    "a_torn_tail_is_kept": 7,
    "the_high_watermark_goes_back": 1,
    "a_partition_has_two_owners": 1,
    "any_generation_may_commit": 11,
    "written_out_of_order": 1,
    "what_is_compacted_is_not_synced": 9,
    "a_tombstone_deletes_nothing": 9,
}
#: The same of three brokers.
_CLUSTER_BUGS = {
    "committed_is_what_the_leader_has": 1,
    "cut_to_the_high_watermark": 50,
    "nothing_is_cut": 5,
    "who_crashed_is_elected": 46,
    "orders_of_anybody_are_obeyed": 29,
    "proposed_is_agreed": 48,
    "a_leader_that_was_replaced_writes_on": 16,
    "elections_are_not_fenced": 22,
    "who_was_controller_goes_on": 12,
    "metadata_of_anybody_are_taken": 29,
    "orders_for_an_earlier_life_are_obeyed": 23,
    "a_followers_epoch_is_not_asked_for": 1,
    "sent_again_is_answered_at_once": 6,
    "all_is_committed_after_a_restart": 5,
    "who_fetches_is_in_sync": 1,
    "a_new_leader_tells_what_it_knows": 10,
    "what_is_being_loaded_is_kept": 24,
    "one_in_sync_is_enough": 17,
    "too_few_in_sync_sync_nothing": 10,
}
#: The same of clients with transactions.
_TRANSACTION_BUGS = {
    "a_partition_is_not_marked": 1,
    "a_commit_is_answered_before_it_is_written": 2,
    "who_begins_gets_the_epoch_of_before": 2,
    "a_timeout_raises_no_epoch": 13,
    "all_that_is_committed_is_stable": 1,
    "an_aborted_transaction_is_not_listed": 1,
    "offsets_count_before_the_commit": 1,
    "offsets_of_an_open_transaction_are_forgotten": 2,
    "a_marker_that_is_sent_again_aborts": 13,
    "what_was_decided_is_forgotten_at_a_restart": 3,
    "nothing_is_verified": 1,
    "markers_of_groups_are_not_replayed": 1,
    "a_decision_is_carried_out_before_it_is_committed": 56,
}
#: The same of queries that write exactly once.
_MICRO_BATCH_BUGS = {
    "the_number_is_read_to_the_stable_offset": 41,
    "an_aborted_number_counts": 1,
    "an_undecided_number_counts": 1,
    "the_number_is_not_looked_for": 3,
    "a_task_is_run_a_second_time": 1,
    "tasks_write_outside_the_transaction": 1,
    "a_task_that_has_failed_is_not_missed": 1,
}
#: Seeds that are tried from there on: other code may come to the same fault a little later.
_SEEDS, _CLUSTER_SEEDS = 100, 150


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
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


def test_every_ninth_seed_compacts_and_does_the_same_each_time() -> None:
    first, second = (_run("jesenska.testing.simulation", "--trace", "9", JESENSKA_PURE=pure) for pure in ("", "1"))
    assert first.returncode == 0, first.stdout + first.stderr
    found = re.search(r"of (\d+) records with keys \[(\d+)\] are left", first.stdout)
    assert found is not None
    assert 0 < int(found[2]) < int(found[1]) // 2
    assert first.stdout == second.stdout


def test_a_tree_apart_comes_and_goes_and_what_is_promised_holds() -> None:
    """The broker's session in the tree suspends, ends and is renewed. The same seed does the same, here, too. The
    fifth seed has faults of the tree."""
    first, second = (_run("jesenska.testing.simulation", "--tree-apart", "--trace", str(_FIRST + 4), JESENSKA_PURE=pure) for pure in ("", "1"))
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


@pytest.mark.parametrize("brokers", ["1", "3"])
def test_clients_with_transactions_do_the_same_each_time(brokers: str) -> None:
    arguments = ("jesenska.testing.simulation", "--transactions", "--brokers", brokers, "--trace", str(_FIRST))
    first, second = (_run(*arguments, JESENSKA_PURE=pure) for pure in ("", "1"))
    assert first.returncode == 0, first.stdout + first.stderr
    found = re.search(r"of \d+ transactions (\d+) were committed and (\d+) aborted, (\d+) results", first.stdout)
    assert found is not None
    assert all(int(count) > 0 for count in found.groups())
    assert first.stdout == second.stdout


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
    done = _run("jesenska.testing.simulation", "--brokers", "3", "--seed", str(_FIRST), "--schedules", "2", "--coverage", "--output", "json")
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


class _Searches:
    """A process that looks for mistakes, one after the other."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.processes.testing.planted_in_children"]
        environment = {**os.environ, "JESENSKA_PURE": "1", "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=Path(__file__).parents[3], env=environment
        )

    def find(self, bug: str, first: int, seeds: int) -> tuple[int, str]:
        """The exit code of the search, and what it has printed."""
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        print(bug, first, seeds, file=asked, flush=True)
        printed = ""
        for line in answered:
            if line.startswith("exit "):
                return int(line.removeprefix("exit ")), printed
            printed += line
        pytest.fail(f"the search has ended: {printed}")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def searches() -> Iterator[_Searches]:
    made = _Searches()
    yield made
    made.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", _CLUSTER_BUGS)
def test_a_cluster_with_a_mistake_is_found_out(bug: str, searches: _Searches) -> None:
    code, printed = searches.find(bug, _CLUSTER_BUGS[bug], _CLUSTER_SEEDS)
    assert code == 0, printed
    assert printed.startswith("seed ")


@pytest.mark.parametrize("bug", _BUGS)
def test_a_broker_with_a_mistake_is_found_out(bug: str, searches: _Searches) -> None:
    code, printed = searches.find(bug, _BUGS[bug], _SEEDS)
    assert code == 0, printed
    assert printed.startswith("seed ")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", _TRANSACTION_BUGS)
def test_a_mistake_with_transactions_is_found_out(bug: str, searches: _Searches) -> None:
    code, printed = searches.find(bug, _TRANSACTION_BUGS[bug], _SEEDS)
    assert code == 0, printed
    assert printed.startswith("seed ")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", _MICRO_BATCH_BUGS)
def test_a_mistake_in_writing_exactly_once_is_found_out(bug: str, searches: _Searches) -> None:
    code, printed = searches.find(bug, _MICRO_BATCH_BUGS[bug], _SEEDS)
    assert code == 0, printed
    assert printed.startswith("seed ")


def test_every_mistake_is_looked_for() -> None:
    assert list(planted_micro_batch_bugs.BUGS) == list(_MICRO_BATCH_BUGS)
    assert list(planted_transaction_bugs.BUGS) == list(_TRANSACTION_BUGS)
    assert list(planted_bugs.BUGS) == list(_BUGS)
    assert list(planted_cluster_bugs.BUGS) == list(_CLUSTER_BUGS)
