"""A program that forks Python's processes from a ready one. Such a process is like any Python, but starts faster."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jesenska.pipeline.spark import session as spark_session
from jesenska.pipeline.spark.ready_python import ReadyPython, ready_python
from tests.watched_processes import watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

Run = Callable[..., "subprocess.CompletedProcess[str]"]

_TELLS = """
import json, os, sys
if __name__ == "__main__":
    given = sys.stdin.read()
    print(json.dumps([given, sys.argv[1:], os.getcwd(), os.environ.get("SAID"), "pyspark.worker" in sys.modules, hash("word")]))
    print("aside", file=sys.stderr)
    sys.exit(7)
"""  # noqa: E501


@pytest.fixture(scope="module")
def ready() -> Iterable[ReadyPython]:
    made = ready_python()
    assert made is not None
    yield made
    made.close()


@pytest.fixture
def short() -> Iterable[Path]:
    """A directory with a path that is short enough for sockets in it. pytest's own path may be too long."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def run(ready: ReadyPython, tmp_path: Path) -> Run:
    """Runs a module of this text in its directory."""

    def of(
        text: str, *arguments: str, given: str = "", python: str = ready.program, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "program.py").write_text(text)
        command, environment = [python, "-m", "program", *arguments], {**os.environ, **variables}
        return subprocess.run(
            command, cwd=tmp_path, input=given, capture_output=True, text=True, env=environment, timeout=60, check=False
        )

    return of


def test_a_module_is_run_with_what_it_was_given_by_a_process_that_has_imported_pyspark(
    run: Run, tmp_path: Path
) -> None:
    done = run(_TELLS, "one", "two words", "", given="in\n", SAID="yes = no")
    given, arguments, directory, said, is_ready, _ = json.loads(done.stdout)
    assert (given, arguments, directory, said, is_ready) == (
        "in\n",
        ["one", "two words", ""],
        str(tmp_path),
        "yes = no",
        True,
    )
    assert (done.returncode, done.stderr) == (7, "aside\n")


def test_strings_have_the_hash_that_they_have_in_workers_of_sparks(run: Run) -> None:
    spark_has = run(_TELLS, python=sys.executable, PYTHONHASHSEED="0")
    assert json.loads(run(_TELLS).stdout)[-1] == json.loads(spark_has.stdout)[-1]


def test_random_numbers_are_others_in_each_process_and_in_those_that_it_forks(run: Run) -> None:
    text = """
import numpy, os, random
for number in range(3):
    if number == 0 or os.fork() == 0:
        print(numpy.random.random(), random.random(), flush=True)
        if number:
            os._exit(0)
    else:
        os.wait()
"""
    numbers = [line for _ in range(2) for line in run(text).stdout.split()]
    assert len(numbers) == len(set(numbers)) == 12


def test_an_error_is_told_as_ever(run: Run) -> None:
    done = run("1 / 0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "ZeroDivisionError" in done.stderr


def test_variables_and_directory_of_one_are_not_those_of_the_next(run: Run) -> None:
    run(_TELLS, SAID="once")
    assert json.loads(run(_TELLS).stdout)[3] is None


def test_what_is_no_module_and_a_request_that_is_too_long_are_run_as_by_any_python(
    ready: ReadyPython, run: Run
) -> None:
    done = subprocess.run([ready.program, "-c", "print(1 + 1)"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "2\n"
    given, arguments, *_, is_ready, _ = json.loads(run(_TELLS, *["x" * 100_000] * 12).stdout)
    assert (given, len(arguments), is_ready) == ("", 12, False)


def test_what_was_forked_ends_with_the_program(ready: ReadyPython, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    with subprocess.Popen([ready.program, "-m", "program"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        forked = int(process.stdout.readline())
        assert forked != process.pid
        with watched(forked) as has_ended:
            process.kill()
            assert has_ended()


def test_what_asks_and_hangs_up_at_once_does_no_harm(ready: ReadyPython, run: Run) -> None:
    for asks in (lambda _: None, lambda connection: connection.send(b"nothing")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(Path(ready.program).with_name("socket")))
            asks(connection)
    assert json.loads(run(_TELLS).stdout)[4]


def test_a_process_that_the_program_forks_ends_without_it() -> None:
    text = "import os, sys\nfrom jesenska.pipeline.spark.ready_python import ready_python\nready = ready_python()\n"
    text += "if os.fork() == 0:\n    sys.exit()\nos.wait()\nprint(ready._process.poll(), os.path.exists(ready.program))"
    assert (
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True).stdout
        == "None True\n"
    )


def test_a_program_whose_forks_are_gone_is_any_python(tmp_path: Path, run: Run) -> None:
    lone = ready_python()
    assert lone is not None
    lone._process.kill()
    lone._process.wait()
    done = run(_TELLS, "one", python=lone.program)
    assert (json.loads(done.stdout)[1], done.returncode) == (["one"], 7)
    lone.close()
    assert not Path(lone.program).parent.exists()


def test_the_process_that_forks_ends_with_the_one_that_has_started_it() -> None:
    text = "import time\nfrom jesenska.pipeline.spark.ready_python import ready_python\nready = ready_python()\n"
    text += "print(ready._process.pid, ready.program, flush=True)\ntime.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        number, program = process.stdout.readline().split()
        with watched(int(number)) as has_ended:
            process.kill()
            assert has_ended()
        assert process.stderr.read() == ""
    assert not Path(program).parent.exists()


def test_an_interrupt_from_the_keyboard_is_for_the_program_alone(run: Run) -> None:
    lone = ready_python()
    assert lone is not None
    run(_TELLS, python=lone.program)  # it has begun to fork
    os.kill(lone._process.pid, signal.SIGINT)
    assert json.loads(run(_TELLS, python=lone.program).stdout)[4]
    lone.close()


def test_there_is_none_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for interpreter in ("", "/a folder/python", f"/{'x' * 200}/python"):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", interpreter)
            assert ready_python() is None
    far = tmp_path / ("x" * 120)  # too long for a socket's address
    far.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(far))
    assert ready_python() is None
    assert not list(far.iterdir())


def test_only_a_session_whose_workers_import_the_same_has_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = object()
    monkeypatch.setattr(spark_session, "_ready", None)
    monkeypatch.setattr(spark_session, "ready_python", lambda: made)
    assert spark_session._ready_for("local[2]", {}) is made
    for master in ("local-cluster[1,1,600]", "spark://somewhere:7077", "yarn"):
        assert spark_session._ready_for(master, {}) is None
    for name in ("spark.submit.pyFiles", "spark.pyspark.python", "spark.pyspark.driver.python"):
        assert spark_session._ready_for("local[2]", {name: "x"}) is None
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert spark_session._ready_for("local[2]", {}) is None


def test_workers_of_a_session_are_forked(spark: SparkSession) -> None:
    def has_imported(_: Iterable[int]) -> Iterable[tuple[bool, str]]:
        yield (
            Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")[2].decode()
            == "jesenska.pipeline.spark.python_forks",
            os.environ["PYTHONHASHSEED"],
        )

    assert spark.sparkContext.parallelize([1], 1).mapPartitions(has_imported).collect() == [(True, "0")]
    assert spark_session.session().sparkContext.pythonExec == spark.sparkContext.pythonExec != sys.executable
    assert os.environ["PYSPARK_PYTHON"] == sys.executable == shutil.which(sys.executable)


_TELLS_FAMILIES = """
import os, socket, stat
from pathlib import Path
from jesenska.pipeline.spark import session as spark

def families(_):
    open_files = Path("/proc/self/fd")
    for name in os.listdir(open_files):
        if (open_files / name).is_socket():
            with socket.socket(fileno=os.dup(int(name))) as one:
                yield one.family.name

made = spark.session(config={**spark.SHORT_RUN, "spark.log.level": "OFF"})
print(*sorted(set(made.sparkContext.parallelize([1], 1).mapPartitions(families).collect())))
directory = Path(made.sparkContext.pythonExec).parent
print(len(str(directory)), oct(stat.S_IMODE(directory.stat().st_mode)), any(path.is_socket() and path.name != "socket" for path in directory.iterdir()))
spark.end_session(made)
"""  # noqa: E501


@pytest.mark.parametrize(("characters", "family"), [(60, "AF_UNIX"), (61, "AF_INET")])
def test_a_session_and_its_workers_speak_through_sockets_in_a_directory_of_this_users_own_unless_its_path_is_too_long(
    short: Path, characters: int, family: str
) -> None:
    far = short / ("x" * (characters - len(f"{short}//jesenska-py-12345678")))
    far.mkdir()
    environment = {**os.environ, "TMPDIR": str(far)}
    done = subprocess.run(
        [sys.executable, "-c", _TELLS_FAMILIES],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        env=environment,
    )
    assert done.stdout == f"{family}\n{characters} 0o700 {family == 'AF_UNIX'}\n"


def test_what_a_program_has_left_that_was_killed_with_its_forks_is_removed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, short: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    left, at_work, new, others = (
        short / name for name in ("jesenska-py-left", "jesenska-py-at-work", "jesenska-py-new", "others")
    )
    for directory in (left, at_work, new, others):
        directory.mkdir()
        (directory / "python").touch()
        if directory != new:
            os.utime(directory, (0, 0))
    (short / "jesenska-py-link").symlink_to(others)
    os.utime(short / "jesenska-py-link", (0, 0), follow_symlinks=False)
    descriptor = os.open(at_work, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    made = ready_python()
    assert made is not None
    assert [(directory / "python").exists() for directory in (left, at_work, new, others)] == [False, True, True, True]
    assert not left.exists()
    made.close()
    os.close(descriptor)


def test_its_directory_is_not_taken_for_an_old_one(ready: ReadyPython) -> None:
    descriptor = os.open(ready.directory, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_it_ends_with_the_session_and_the_next_session_has_another() -> None:
    text = """
from jesenska.pipeline.spark import session as spark
from pathlib import Path
for _ in range(2):
    made = spark.session(config={**spark.SHORT_RUN, "spark.log.level": "OFF"})
    ready = spark._ready
    assert made.sparkContext.pythonExec == ready.program
    spark.end_session(made)
    print(ready._process.poll() is not None, Path(ready.program).exists())
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "True False\n" * 2
