"""Sets of tests: each file is in one set, a failure is reported, and Ctrl-C leaves no process running."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.in_sets import Runner, Set, sets, sets_of
from tests.profiles import CI, EVERYTHING, QUICK
from tests.tiers import HOUR, ROOT

_SEEDS = ("seeds", "cluster_seeds", "transaction_seeds", "access_seeds", "move_seeds")


def _holds(command: list[str], path: str) -> bool:
    """True if pytest collects this file when it is called in this way."""
    words = command[command.index("-o") + 2 :]
    left_out = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    named = [word for word in words if not word.startswith("-")] or ["tests"]
    return any(_is_in(path, name) for name in named) and not any(_is_in(path, name) for name in left_out)


def _is_in(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}/")


def _sets_of_files(tier: str) -> dict[str, list[str]]:
    """For each file of tests, the sets of a tier that collect it. The rotation collects the files that the others
    leave out."""
    commands = {
        what.name: list(what.command) for what in sets(tier) if "pytest" in what.command and what.name != "rotation"
    }
    files = [str(file.relative_to(ROOT)) for file in sorted((ROOT / "tests").rglob("test_*.py"))]
    return {path: [name for name, command in commands.items() if _holds(command, path)] for path in files}


def test_each_file_of_tests_is_in_one_set_of_everything() -> None:
    assert {path: found for path, found in _sets_of_files(EVERYTHING).items() if len(found) != 1} == {}


def test_each_file_is_in_one_set_of_ci_but_those_of_the_hour() -> None:
    assert {
        path: found for path, found in _sets_of_files(CI).items() if len(found) != 1 and not _is_in(path, HOUR)
    } == {}


def test_the_quick_ones_are_all_that_start_no_process_and_the_seeds() -> None:
    found = _sets_of_files(QUICK)
    seeds = {f"tests/processes/testing/test_{name}.py" for name in _SEEDS}
    assert {path for path, names in found.items() if names} == seeds | {
        path for path in found if _is_in(path, "tests/units")
    }
    assert all(len(names) <= 1 for names in found.values())


def test_a_room_has_a_set_of_its_own_and_one_that_is_not_there_is_named() -> None:
    (only,) = sets_of(["log", "log"])
    assert only.command[-1] == "tests/units/log"
    with pytest.raises(ValueError, match=r"has no room cellar; it has .*\blog\b"):
        sets_of(["log", "cellar"])


@pytest.mark.parametrize("words", [["slow"], ["everything", "log"], ["quick", "cellar"]])
def test_a_tier_or_room_that_is_none_is_told_in_one_sentence(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.in_sets", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def _python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_all_sets_run_and_what_a_failed_one_said_and_left_is_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fails = (
        "import sys, tempfile; open(tempfile.mkdtemp() + '/kept', 'w').close(); print('== 1 failed, 2 passed in 0.1s "
        "=='); sys.exit(1)"
    )
    runner = Runner(
        [
            Set("bad", _python(fails)),
            Set("good", _python("print('said')")),
            Set("last", _python("print('last')"), alone=True),
        ],
        2,
        tmp_path,
    )
    assert not runner.run()
    out, progress = capfd.readouterr()
    assert [line for line in out.splitlines() if not line.startswith("-----")][-1] == "last"
    assert "said" in out.splitlines()
    assert "bad: 1 failed, 2 passed, " in progress
    assert "good: passed, " in progress
    assert progress.splitlines()[-1].endswith("failed: bad")
    assert [path.name for path in (tmp_path / "bad").rglob("*") if path.is_file()] == ["kept"]
    assert not (tmp_path / "good").exists()


def test_what_is_to_run_alone_does(tmp_path: Path) -> None:
    def times(name: str) -> list[str]:
        note = f"open({str(tmp_path / 'order')!r}, 'a').write"
        return _python(f"import time; {note}('{name} begins\\n'); time.sleep(0.2); {note}('{name} ends\\n')")

    files = tmp_path / "files"
    files.mkdir()
    assert Runner([Set("a", times("a")), Set("b", times("b"), alone=True), Set("c", times("c"))], 3, files).run()
    assert (tmp_path / "order").read_text().split("\n")[:-1] == [
        "a begins",
        "a ends",
        "b begins",
        "b ends",
        "c begins",
        "c ends",
    ]


@pytest.mark.parametrize("computing", [1, 2])
def test_those_that_compute_run_beside_the_others_at_a_low_priority(tmp_path: Path, computing: int) -> None:
    names = ["a", "b", "c"][: computing + 1]

    def waits(name: str) -> list[str]:
        """Waits until all others have started, for ten seconds at most."""
        others = [str(tmp_path / other) for other in names if other != name]
        told = f"open({str(tmp_path / name)!r}, 'w').write(str(os.nice(0)))"
        return _python(
            f"import os, sys, time; {told}\nfor _ in range(1000): all(map(os.path.exists, {others})) and "
            f"sys.exit(0); time.sleep(0.01)\nsys.exit(1)"
        )

    files = tmp_path / "files"
    files.mkdir()
    assert Runner([Set(name, waits(name), computes=name != "a") for name in names], 1, files, computing).run()
    usual, *low = [int((tmp_path / name).read_text()) for name in names]
    assert all(one > usual for one in low)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_every_set_with_what_it_has_started(tmp_path: Path, number: signal.Signals) -> None:
    noted = tmp_path / "processes"
    noted.mkdir()
    # Locked as long as the process lives.
    child = (
        "import fcntl, os, time; name = str(os.getpid()); kept = open(name, 'w'); fcntl.flock(kept, fcntl.LOCK_EX);"
        f"os.rename(name, {str(noted)!r} + '/' + name); time.sleep(100)"
    )
    parent = (
        f"import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', {child!r}], "
        f"cwd={str(tmp_path)!r}); time.sleep(100)"
    )
    program = (
        "import sys; from tests import in_sets;"
        f"in_sets.sets = lambda tier: [in_sets.Set(name, [sys.executable, '-c', {parent!r}]) for name in 'ab'];"
        "sys.exit(in_sets.main([]))"
    )
    runner = subprocess.Popen(
        _python(program),
        cwd=ROOT,
        stderr=subprocess.PIPE,
        env={**os.environ, "JESENSKA_SETS": "2", "TMPDIR": str(tmp_path)},
    )
    deadline = time.monotonic() + 100
    while len(found := list(noted.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    runner.send_signal(number)
    _, said = runner.communicate(timeout=60)
    assert runner.returncode == 130
    assert number.name in said.decode()
    assert len(found) == 2
    for path in found:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
