"""A flaky test is found by repetition, a reliable one is not reported, and one that hangs is ended."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.repeat import hold_back, process_tree
from tests.repeat.__main__ import main
from tests.repeat.hold_back import KINDS, Plan

ROOT = Path(__file__).parents[3]
#: Results of threads: for these some time is given, for those below they are waited for.
_FLAKY = """
import asyncio

def test_flaky():
    async def takes_time_for_an_event():
        done = []
        for number in range(4):
            asyncio.get_running_loop().run_in_executor(None, done.append, number)
            await asyncio.sleep(1)
            assert len(done) == number + 1
    asyncio.run(takes_time_for_an_event())
"""
_STEADY = """
import asyncio, threading

def test_steady():
    async def waits_for_the_event():
        for number in range(5):
            assert await asyncio.to_thread(int, str(number)) == number
    asyncio.run(waits_for_the_event())
    told = threading.Event()
    thread = threading.Thread(target=told.set)
    thread.start()
    assert told.wait(60)
    thread.join()
"""


def _written(directory: Path, text: str, name: str = "test_tiny.py") -> str:
    file = directory / name
    file.write_text(text)
    return str(file)


def _repeat(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.repeat", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


@pytest.mark.timeout(300)
def test_a_flaky_test_passes_undisturbed_and_is_found_when_it_is_held_back(tmp_path: Path) -> None:
    file = _written(tmp_path, _FLAKY + _STEADY)
    undisturbed = _repeat(file, "--times", "1", "--seed", "4")
    assert (undisturbed.returncode, undisturbed.stdout) == (0, "2 tests, seeds 4 to 4: none failed\n"), (
        undisturbed.stdout
    )
    found = _repeat(file, "--times", "3", "--seed", "4", "--hold-back", "--longest", "6")
    assert found.returncode == 1
    assert "test_flaky: failed" in found.stdout
    assert "test_steady" not in found.stdout
    assert "assert len(done) == number + 1" in found.stdout, "what was said the first time"
    assert found.stdout.splitlines()[-1].endswith("processes held back: 1 failed")
    # The command that it gives runs that test alone, with that seed.
    (again,) = [line for line in found.stdout.splitlines() if line.startswith("python -m tests.repeat")]
    once_more = _repeat(*shlex.split(again)[3:])
    assert once_more.returncode == 1
    assert f"{file}::test_flaky: failed 1 of 1 times" in once_more.stdout


def test_steady_tests_pass_when_they_are_held_back(tmp_path: Path) -> None:
    done = _repeat(_written(tmp_path, _STEADY), "--times", "3", "--seed", "10", "--hold-back", "--longest", "1")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        "1 tests, seeds 10 to 12, 3 processes held back: none failed",
    ), done.stdout


def test_one_that_hangs_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    child = (
        f"import fcntl, time; file = open({str(locked)!r}, 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True); "
        f"time.sleep(1000)"
    )
    hangs = f"""
import subprocess, sys, time
def test_hangs():
    child = subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    while True:
        try:
            time.sleep(1000)
        except KeyboardInterrupt:
            pass
"""
    files = [_written(tmp_path, hangs), _written(tmp_path, _STEADY, "test_other.py")]
    done = _repeat(*files, "--times", "1", "--limit", "15")
    assert done.returncode == 1
    assert f"{files[0]}::test_hangs: failed 1 of 1 times" in done.stdout
    assert "it was still at work after 15 s and was ended" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("2 tests")
    with locked.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_an_interrupt_ends_the_runs_and_tells_what_was_found(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    files = [
        _written(tmp_path, "def test_fails(): assert False\n", "test_fails.py"),
        _written(
            tmp_path,
            f"import os, time\ndef test_lasts():\n    open({str(begun)!r}, 'w').close()\n    time.sleep(1000)\n",
        ),
    ]
    command = [sys.executable, "-m", "tests.repeat", *files, "--times", "1", "--at-a-time", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as runner:
        deadline = time.monotonic() + 60
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        runner.send_signal(signal.SIGINT)
        out, error = runner.communicate(timeout=60)
    assert runner.returncode == 130
    assert "test_fails: failed 1 of 1 times" in out
    assert error == "Interrupted: 1 of 2 runs were ended or have not begun.\n"


def test_failures_that_no_test_has_told_of_are_counted(tmp_path: Path) -> None:
    files = [
        _written(tmp_path, "import os\ndef test_a(): pass\ndef test_ends(): os._exit(7)\n", "test_ends.py"),
        _written(tmp_path, "import nothing_of_that_name\n", "test_unread.py"),
    ]
    done = _repeat(*files, "--times", "1")
    assert done.returncode == 1
    assert f"{files[0]}::test_ends: failed 1 of 1 times" in done.stdout
    assert "pytest ended with 7" in done.stdout
    assert "No module named 'nothing_of_that_name'" in done.stdout


@pytest.mark.parametrize("path", ["tests/processes/repeat/test_that_is_not_there.py", "docs"])
def test_where_no_tests_are_one_sentence_says_so(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([path]) == 2
    assert capsys.readouterr().err == f"There are no tests at {path}: name directories, files or node ids of tests.\n"


def _held_back(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that is held back."""
    return {
        **os.environ,
        hold_back.SEED: "7",
        hold_back.LONGEST: "0.02",
        hold_back.NOTES: str(tmp_path / "notes"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests" / "repeat" / "hook"), str(ROOT)]),
    }


_STARTS_BROKERS = """
import sys
from pathlib import Path
from jesenska.testing import BrokerProcess

for name, warm in (("cold", False), ("warm", True), ("again", True)):
    with BrokerProcess(Path(sys.argv[1]) / name, warm=warm) as broker:
        print(broker.pid, flush=True)
"""


def test_brokers_that_a_test_starts_are_held_back_too(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _STARTS_BROKERS, str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=_held_back(tmp_path), capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stderr
    brokers = {int(line) for line in done.stdout.split()}
    assert len(brokers) == 3
    noted = {json.loads(line)["process"] for line in (tmp_path / "notes").read_text().splitlines()}
    assert brokers <= noted


def test_a_plan_with_the_same_seed_is_the_same_for_each_test() -> None:
    def drawn(plan: Plan, scope: str) -> list[float]:
        plan.begin(scope)
        return [plan.drawn_s(kind) for kind in KINDS for _ in range(200)]

    plan = Plan("1", longest_s=0.3)
    once = drawn(plan, "test_a")
    assert drawn(plan, "test_b") != once
    assert drawn(plan, "test_a") == once
    assert drawn(Plan("2", longest_s=0.3), "test_a") != once
    pauses = [seconds for seconds in once if seconds]
    assert len(once) / 20 < len(pauses) < len(once) / 2
    assert 0.001 <= min(pauses) < 0.01 and 0.2 < max(pauses) <= 0.3
    plan.begin("test_a")
    plan.forks()
    plan.forked()
    assert [plan.drawn_s(kind) for kind in KINDS for _ in range(200)] != once


def test_what_one_thread_brings_keeps_its_order_when_it_is_held_back(tmp_path: Path) -> None:
    program = """
import asyncio, threading
async def main():
    loop, come = asyncio.get_running_loop(), []
    def bring():
        for number in range(100):
            loop.call_soon_threadsafe(come.append, number)
    thread = threading.Thread(target=bring)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert come == list(range(100)), come
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=_held_back(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "notes").exists()


def test_a_process_without_the_variable_is_as_it_was(tmp_path: Path) -> None:
    environment = {name: value for name, value in _held_back(tmp_path).items() if not name.startswith(hold_back.SEED)}
    program = (
        "import sys, threading; assert not hasattr(threading.Thread.start, '__closure__') or "
        "threading.Thread.start.__closure__ is None"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=True, timeout=60)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from /proc")
def test_processes_below_are_found_in_sessions_of_their_own_too() -> None:
    program = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(flush=True); input()'], "
        "start_new_session=True)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = process_tree.below(process.pid)
        assert len(found) == 1
        assert process.pid in process_tree.below(os.getpid())
        # A process of that id that was started at another time is left alone.
        process_tree.kill(dict.fromkeys(found, "0"))
        assert process_tree.below(process.pid) == found
        process_tree.kill(found)
        process.wait(20)
    assert not process_tree.below(process.pid)
