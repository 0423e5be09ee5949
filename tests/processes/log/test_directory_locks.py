"""A directory that is locked by one process is refused to all others, Java's brokers too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jesenska.log.directory.directory_lock import LogDirectoryError, owner_pid
from tests.units.log.test_log_directories import start


def test_second_broker_in_this_process_is_kept_out_and_does_not_break_the_lock(tmp_path: Path) -> None:
    directories = start(tmp_path)
    for _ in range(2):
        with pytest.raises(LogDirectoryError, match=f"in use by process {os.getpid()}"):
            start(tmp_path)
    assert try_lock_elsewhere(tmp_path) == "locked"
    directories.close()
    assert try_lock_elsewhere(tmp_path) == "free"


def try_lock_elsewhere(directory: Path) -> str:
    """The result of another process that locks the file as Java's FileLock does."""
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+')\n"
        "try:\n"
        "    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "    print('free')\n"
        "except OSError:\n"
        "    print('locked')\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(directory / ".lock")], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_lock_of_another_process_keeps_this_one_out(tmp_path: Path) -> None:
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "file.write('4711'); file.flush()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(LogDirectoryError, match="in use by process 4711"):
            start(tmp_path)
        assert owner_pid(tmp_path) == 4711
        other.communicate("")
    start(tmp_path).close()
