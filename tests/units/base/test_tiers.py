"""Which tests a run has: all of its tier, those of the hour that are about something changed, and a sixth of the
rest."""

from __future__ import annotations

import pytest

from tests.profiles import CI, EVERYTHING, QUICK
from tests.tiers import SHARES, Commit, Hours, runs

NOTHING = frozenset[str]()
ABOUT = Hours("tests/hour/test_made.py", ("setup.py", "src/jesenska/records"))


@pytest.mark.parametrize(("tier", "has"), [(None, True), (QUICK, False), (CI, False), (EVERYTHING, True)])
def test_a_test_of_the_hour_runs_where_all_do_or_where_a_person_names_it(tier: str | None, has: bool) -> None:
    at = Commit(0, NOTHING)
    assert runs(ABOUT, tier, False, at) is has
    assert runs(None, tier, False, at)


@pytest.mark.parametrize(
    ("changed", "has"),
    [
        ("setup.py", True),
        ("src/jesenska/records/header.py", True),
        ("tests/hour/test_made.py", True),
        ("src/jesenska/records_of_old/header.py", False),
        ("setup.cfg", False),
    ],
)
def test_ci_runs_what_is_about_something_that_was_changed(changed: str, has: bool) -> None:
    at = Commit(0, frozenset((changed,)))
    assert runs(ABOUT, CI, False, at) is has
    assert not runs(ABOUT, QUICK, False, at)


def test_six_commits_in_a_row_take_each_test_of_the_hour_once() -> None:
    tests = [Hours(f"tests/hour/test_{number}.py", ()) for number in range(40)]
    taken = [test for number in range(100, 100 + SHARES) for test in tests if runs(test, CI, True, Commit(number, NOTHING))]
    assert sorted(test.path for test in taken) == sorted(test.path for test in tests)


def test_the_rotation_leaves_out_what_runs_already() -> None:
    at = Commit(ABOUT.share, frozenset(("setup.py",)))
    assert not runs(ABOUT, CI, True, at)
    assert not runs(None, CI, True, at)
    assert runs(ABOUT, CI, True, Commit(ABOUT.share, NOTHING))
