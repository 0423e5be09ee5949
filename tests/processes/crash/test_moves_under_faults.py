"""Partitions move under load and faults (`moves_under_faults` has the rules, and is the command for long runs).

JESENSKA_SEED chooses the moves and the faults."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.testing.simulation.watches.move_watch import Expected
from tests.processes.crash.drawn_moves import Harm, Move, drawn
from tests.processes.crash.moves_under_faults import run
from tests.profiles import rounds

MOVES, FAULTS = rounds(quick=5, ci=20, everything=100), rounds(quick=2, ci=5, everything=15)
SEED = int(os.environ.get("JESENSKA_SEED", "1948"))

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300 + 20 * MOVES)]


def test_partitions_move_whatever_fails(tmp_path: Path) -> None:
    outcomes = run(tmp_path, SEED, MOVES, FAULTS, print)
    assert outcomes["begun"] >= MOVES // 2


def test_the_same_seed_draws_the_same_moves_and_faults() -> None:
    partitions = {TopicPartition("t", number): 2 for number in range(3)}
    rounds = drawn(7, 200, 30, [1, 2, 3, 4, 5], partitions)
    assert rounds == drawn(7, 200, 30, [1, 2, 3, 4, 5], partitions)
    assert rounds != drawn(8, 200, 30, [1, 2, 3, 4, 5], partitions)
    done = [step.does for steps in rounds for step in steps]
    moves = [each for each in done if isinstance(each, Move)]
    assert len(moves) == 200 and sum(isinstance(each, Harm) for each in done) == 30
    assert {len(move.target) for move in moves if move.target is not None} == {2, 3, 4}
    assert sum(move.target is None for move in moves) > 20


def test_replicas_that_nobody_has_asked_for_are_found() -> None:
    expected = Expected.settled((1, 2))
    assert expected.allows((2, 1)) and not expected.allows((1, 3))
    expected.begun((3, 4))
    assert expected.allows((3, 4)) and not expected.allows((1, 2))
    expected.begun((4, 5))  # the first may have ended meanwhile
    expected.cancelled()
    assert expected.allows((1, 2)) and expected.allows((3, 4)) and not expected.allows((4, 5))
    expected = Expected.settled((1, 2))
    expected.unsure((2, 3))  # it may arrive after the next request
    expected.begun((3, 4))
    assert expected.allows((3, 4)) and expected.allows((2, 3)) and not expected.allows((1, 2))
    expected.unsure(None)
    assert expected.allows((1, 2))
