"""The command for mutations, on a project with a tiny module. Mutants that are found, survive, are named or hang are
reported."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mutations.__main__ import ROOT, in_words, run, stale
from tests.mutations.equivalents import NAMED, Equivalent, equivalents
from tests.mutations.mutation import Mutation, mutations_of
from tests.mutations.rooms import Project
from tests.mutations.trial import Outcome, Tried

PYPROJECT = """
[[tool.importlinter.contracts]]
name = "Deciders know no clock"
source_modules = ["tiny.shop.prices"]
"""
PRICES = """def fee(weight: int) -> int:
    return 2 if weight > 10 else 1


def is_free(weight: int) -> bool:
    return weight == 0


def parcels(weight: int) -> int:
    found = 0
    while True:
        if weight <= 0:
            return found
        weight -= 10
        found += 1
"""
TESTS = """import subprocess
import sys

from tiny.shop.prices import fee, parcels

def test_what_is_heavy_costs_more():
    assert (fee(1), fee(20)) == (1, 2)

def test_ten_fit_into_one():
    assert parcels(25) == 3

def test_another_process_says_what_is_free():
    subprocess.run([sys.executable, "-c", "from tiny.shop.prices import is_free; assert is_free(0)"], check=True)
"""


def _entry(line: str, change: str, function: str = "fee") -> str:
    return (
        f'[[mutation]]\nmodule = "shop/prices.py"\nfunction = "{function}"\nline = "{line}"\nchange = '
        f'"{change}"\nreason = "nobody weighs that"\n'
    )


def _project(root: Path, tests: str = TESTS) -> Project:
    for directory in ("src/tiny/shop", "tests/units/shop"):
        (root / directory).mkdir(parents=True)
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "src/tiny/__init__.py").touch()
    (root / "src/tiny/shop/__init__.py").touch()
    (root / "src/tiny/shop/prices.py").write_text(PRICES)
    (root / "tests/units/shop/test_prices.py").write_text(tests)
    return Project(root, "tiny", {})


def _outcomes(
    project: Project, named: Path, capsys: pytest.CaptureFixture[str], *arguments: str, code: int
) -> tuple[dict[tuple[int, str], tuple[str, str]], str]:
    """The outcome and its reason by line and change, and the output meanwhile."""
    assert run(project, [*arguments, "--output", "json"], named) == code
    printed, said = capsys.readouterr()
    outcomes = {
        (one["line_number"], one["change"]): (one["outcome"], one["by"]) for one in json.loads(printed)["mutations"]
    }
    return outcomes, said


@pytest.fixture
def named(tmp_path: Path) -> Path:
    path = tmp_path / "named.toml"
    path.touch()
    return path


def test_each_mutation_of_a_line_is_found_or_survives(
    tmp_path: Path, named: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes, said = _outcomes(
        _project(tmp_path / "shop"), named, capsys, "--at", "shop/prices.py:2", "--processes", "1", code=1
    )
    assert {place: outcome for place, (outcome, _) in outcomes.items()} == {
        (2, "2 if weight > 10 else 1 -> None"): "found",
        (2, "2 -> 3"): "found",
        (2, "weight > 10 -> True"): "found",
        (2, "weight > 10 -> False"): "found",
        (2, "> -> >="): "survived",
        (2, "10 -> 11"): "survived",
        (2, "1 -> 2"): "found",
    }
    assert outcomes[2, "2 -> 3"][1].endswith("test_prices.py::test_what_is_heavy_costs_more")
    assert said.splitlines()[-1] == "7 mutations: 5 found, 2 survived, 0 named"


def test_a_process_that_a_test_starts_sees_the_mutation_and_the_working_tree_does_not_change(
    tmp_path: Path, named: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = _project(tmp_path / "shop")
    before = {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()}
    outcomes, _ = _outcomes(project, named, capsys, "--at", "src/tiny/shop/prices.py:6", code=0)
    assert outcomes[6, "== -> !="] == (
        "found",
        "tests/units/shop/test_prices.py::test_another_process_says_what_is_free",
    )
    assert {path: path.read_bytes() for path in project.root.rglob("*") if path.is_file()} == before


def test_a_mutation_that_hangs_is_found(tmp_path: Path, named: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes, _ = _outcomes(
        _project(tmp_path / "shop"), named, capsys, "--at", "shop/prices.py:12", "--limit", "5", code=1
    )
    assert outcomes[12, "weight <= 0 -> False"] == ("found", "it takes longer than 5 s")


def test_a_mutation_that_is_named_does_not_count_as_a_survivor(
    tmp_path: Path, named: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named.write_text(
        _entry("return 2 if weight > 10 else 1", "> -> >=") + _entry("return 2 if weight > 10 else 1", "10 -> 11")
    )
    outcomes, said = _outcomes(_project(tmp_path / "shop"), named, capsys, "--at", "shop/prices.py:2", code=0)
    assert outcomes[2, "> -> >="] == ("named", "nobody weighs that")
    assert said.splitlines()[-1] == "7 mutations: 5 found, 0 survived, 2 named"


def test_a_name_for_nothing_is_told(tmp_path: Path, named: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named.write_text(_entry("return 3", "3 -> 4"))
    _, said = _outcomes(_project(tmp_path / "shop"), named, capsys, "--at", "shop/prices.py:6", code=0)
    assert "named.toml names a mutation that is nowhere: take out or mend shop/prices.py fee [return 3] 3 -> 4" in said


def test_tests_that_fail_without_a_mutation_are_told(
    tmp_path: Path, named: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(_project(tmp_path / "shop", "def test_it():\n    assert False, 'as ever'\n"), ["shop"], named) == 3
    said = capsys.readouterr().err
    assert "Without any mutation tests/units/shop fails; mend that first." in said
    assert "as ever" in said


def test_the_same_seed_lists_the_same_mutations_and_another_seed_others(
    tmp_path: Path, named: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = _project(tmp_path / "shop")

    def listed(*arguments: str) -> list[str]:
        assert run(project, ["shop", "--list", *arguments], named) == 0
        return capsys.readouterr().out.splitlines()

    everything = listed("--number", "0")
    assert "shop/prices.py:6 is_free [return weight == 0] == -> != (comparison)" in everything
    assert listed("--number", "5") == listed("--number", "5")
    assert set(listed("--number", "5")) < set(everything)
    assert listed("--number", "5") != listed("--number", "5", "--seed", "2")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["shops"], "No module of 'shops' decides: name one of shop."),
        (["--at", "shop/prices.py:0"], "Nothing on line 0 of shop/prices.py can be changed: --list shows what can."),
        (
            ["--at", "shop/prices.py"],
            "'shop/prices.py' names no line: write FILE:LINE, as in controller/changes/leadership.py:63.",
        ),
        (
            ["--at", "prices.py:2"],
            "There is no module 'prices.py': name it from src/tiny on, as in controller/changes/leadership.py.",
        ),
    ],
)
def test_what_is_nowhere_is_refused(
    tmp_path: Path, named: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert run(_project(tmp_path / "shop"), arguments, named) == 2
    assert sentence in capsys.readouterr().err


def test_an_interrupt_ends_the_tests_with_what_they_have_started(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    # Locked as long as a process of the test lives.
    child = (
        f"import fcntl, os, time; kept = open({str(kept)!r} + 'new', 'w'); fcntl.flock(kept, fcntl.LOCK_EX);"
        f"os.rename(kept.name, {str(kept)!r}); time.sleep(100)"
    )
    _project(
        tmp_path / "shop",
        f"import subprocess, sys\ndef test_it():\n    subprocess.run([sys.executable, '-c', {child!r}])\n",
    )
    program = (
        "import sys; from pathlib import Path; from tests.mutations import __main__ as command; from "
        "tests.mutations.rooms import Project\n"
        f"command.Project = lambda root: Project(Path({str(tmp_path / 'shop')!r}), 'tiny', {{}})\n"
        "sys.argv[1:] = ['shop']\nsys.exit(command.main())"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    deadline = time.monotonic() + 60
    while not kept.exists() and time.monotonic() < deadline and command.poll() is None:
        time.sleep(0.02)
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=60)
    assert command.returncode == 130, said
    assert kept.exists()
    with kept.open() as file:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
        else:
            raise AssertionError("a process that a test has started lives on")
    assert not list(tmp_path.glob("jesenska-mutations-*"))


# --- what can be changed -------------------------------------------------------------------------------------------


def _changes(source: str) -> set[str]:
    """All changes of a module. Each changed module is still valid Python."""
    found = mutations_of(source, "one.py")
    for mutation in found:
        compile(mutation.applied_to(source), "one.py", "exec")
    return {mutation.change for mutation in found}


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("a = b <= c", {"<= -> <"}),
        ("a = (b) not in (c)", {"not in -> in"}),
        ("a = b and c and not d", {"and -> or", "and -> or (2)", "not -> nothing"}),
        ("a = f(True, -3)", {"True -> False", "3 -> 4"}),
        ("a = [b, (c, d)]", {"b -> nothing", "(c, d) -> nothing", "c -> nothing", "d -> nothing"}),
        ("a = {b for b in c if d}", {"d -> True", "d -> False"}),
        ("a: dict[int, Callable[[b, c], d]] = f('ř', 1)", {"1 -> 2"}),
        ("a, b = c", set()),
        ("f.g(b)", {"f.g(b) -> pass"}),
        ("assert 1 < b, c", set()),
        ("__all__ = ['b', 'c']", set()),
        ("if TYPE_CHECKING:\n    f()", set()),
        ("@dataclass(frozen=True)\nclass A(B[c, d]):\n    '''Text.'''", set()),
        ("a = f'{b > 1}'", set()),
    ],
)
def test_what_is_changed_in_a_line(line: str, changes: set[str]) -> None:
    assert _changes(line) == changes


def test_what_leaves_before_the_end_is_left_out_where_that_changes_something() -> None:
    source = """def f(a):
    for b in a:
        if b:
            continue
        if c:
            break
        if d:
            return
        if e:
            continue
    if g:
        return
"""
    left_out = [mutation.line for mutation in mutations_of(source, "one.py") if mutation.kind == "leaving"]
    assert left_out == [4, 6, 8]


def test_a_generator_stays_one() -> None:
    assert _changes("def f():\n    yield a\n    yield from ()\n") == {"yield a -> yield from ()"}


def test_a_mutation_says_where_it_is() -> None:
    (found,) = mutations_of("class A:\n    def f(self):\n        return a == b\n", "room/one.py")
    assert found == Mutation("room/one.py", "A.f", 3, "return a == b", "comparison", 43, 45, "==", "!=")
    assert in_words(Tried(found, Outcome.SURVIVED)) == "survived room/one.py:3 A.f [return a == b] == -> !="


# --- this project --------------------------------------------------------------------------------------------------


def test_all_that_this_project_names_is_there() -> None:
    assert stale(Project(ROOT), equivalents(NAMED)) == []


def test_an_entry_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "named.toml"
    path.write_text(_entry("return 1", "1 -> 2").replace("nobody weighs that", ""))
    with pytest.raises(ValueError, match=r"Entry 1 of named\.toml must have these keys"):
        equivalents(path)
    path.write_text(_entry("return 1", "1 -> 2"))
    assert equivalents(path) == [Equivalent("shop/prices.py", "fee", "return 1", "1 -> 2", "nobody weighs that")]


def test_each_room_has_tests_that_are_there() -> None:
    project = Project(ROOT)
    missing = [path for room in project.rooms() for path in project.tests_of(room) if not (ROOT / path).exists()]
    assert not missing
    assert all((project.source / file).is_file() for files in project.rooms().values() for file in files)
