"""Which tests a run has: all of its tier, those of the hour that are about something changed, and a sixth of the
rest."""

from __future__ import annotations

import pytest

from tests.profiles import CI, EVERYTHING, QUICK
from tests.tiers import SHARES, Commit, Hours, has_same_code, rotation, runs

NOTHING = frozenset[str]()
ABOUT = Hours("tests/hour/test_made.py", ("setup.py", "src/jesenska/records"))


@pytest.mark.parametrize(("tier", "has"), [(None, True), (QUICK, False), (CI, False), (EVERYTHING, True)])
def test_a_test_of_the_hour_runs_where_all_do_or_where_a_person_names_it(tier: str | None, has: bool) -> None:
    at = Commit(0, NOTHING)
    assert runs(ABOUT, tier, at) is has
    assert runs(None, tier, at)


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
    assert runs(ABOUT, CI, at) is has
    assert not runs(ABOUT, QUICK, at)


@pytest.mark.parametrize("count", [1, 5, 6, 8, 40])
def test_six_commits_in_a_row_have_each_test_of_the_hour_and_none_has_nothing(count: int) -> None:
    tests = [Hours(f"tests/hour/test_{number}.py", ()) for number in range(count)]
    shares = [rotation(tests, Commit(number, NOTHING)) for number in range(100, 100 + SHARES)]
    assert all(shares)
    assert frozenset().union(*shares) == set(tests)
    if count >= SHARES:
        assert sum(map(len, shares)) == count


def test_the_rotation_leaves_out_what_runs_already() -> None:
    other = Hours("tests/hour/test_other.py", ())
    at = Commit(7, frozenset(("setup.py",)))
    assert rotation([ABOUT, other], at) == {other}
    of_the_same_file = Hours(ABOUT.path, ("src",))
    assert rotation([ABOUT, of_the_same_file], at) == {of_the_same_file}
    assert rotation([ABOUT], at) == frozenset()
    assert rotation([], at) == frozenset()
    assert rotation([ABOUT], Commit(7, NOTHING)) == {ABOUT}


def test_other_docstrings_comments_and_imports_are_no_other_code() -> None:
    before = '"""A module."""\nfrom a.b import c\n\ndef f(x: int) -> int:\n    """One."""\n    return x  # as it is\n'
    assert has_same_code(
        before, before.replace("A module", "Other words").replace("One.", "Two.").replace("as it is", "unchanged")
    )
    assert has_same_code(before, before.replace("from a.b import c", "import a.d\nfrom a.b.e import c"))
    assert not has_same_code(before, before.replace("return x", "return x + 1"))
    assert not has_same_code(before, "def f(:")
