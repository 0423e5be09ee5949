"""Faults of processes and of disks."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jesenska.testing import BrokerProcess
from jesenska.testing.faults import NoSmallDiskError, ServerFaults, SmallDisk, limit_file_size, limited_file_size
from jesenska.testing.faults.processes import wait_until_stopped
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.processes.testing.sleeper import Sleeper
from tests.raw_connection import RawConnection


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    running = Sleeper()
    running.start()
    yield running
    running.end()


def test_a_killed_server_is_gone_until_it_is_healed(sleeper: Sleeper) -> None:
    faults, pid = ServerFaults(sleeper), sleeper.pid
    faults.kill()
    assert (faults.is_running, sleeper.done) == (False, ["start", f"ended by {signal.SIGKILL}"])
    faults.kill()
    faults.pause()
    faults.heal()
    assert faults.is_running and sleeper.pid != pid
    faults.heal()
    assert sleeper.done == ["start", f"ended by {signal.SIGKILL}", "start"]


def test_a_server_is_restarted_in_order_or_not(sleeper: Sleeper) -> None:
    faults = ServerFaults(sleeper)
    faults.restart()
    faults.restart(orderly=True)
    assert sleeper.done == ["start", f"ended by {signal.SIGKILL}", "start", f"ended by {signal.SIGTERM}", "start"]


def test_a_paused_server_can_be_stopped_in_order_and_killed(sleeper: Sleeper) -> None:
    faults = ServerFaults(sleeper)
    faults.pause()
    faults.stop()
    faults.start()
    faults.pause()
    assert (faults.is_running, faults.is_paused) == (True, True)
    faults.kill()
    assert (faults.is_running, faults.is_paused) == (False, False)
    assert sleeper.done == ["start", f"ended by {signal.SIGTERM}", "start", f"ended by {signal.SIGKILL}"]


def test_a_paused_broker_takes_connections_and_does_not_answer_until_it_goes_on(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", warm=True) as broker:
        faults = ServerFaults(broker)
        with RawConnection(broker.bootstrap) as connection:
            for _ in range(2):
                faults.pause()
                wait_until_stopped(broker.pid)
                with RawConnection(broker.bootstrap, 0.2) as other:
                    with pytest.raises(TimeoutError):
                        other.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
                    faults.heal()
                    other.socket.settimeout(20)
                    assert other.receive_frame()
                assert connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0


def test_a_process_that_is_not_there_does_not_stop(sleeper: Sleeper) -> None:
    pid = sleeper.pid
    sleeper.kill()
    with pytest.raises(ProcessLookupError):
        wait_until_stopped(pid)


_WRITES = (
    "import sys\nfor line in sys.stdin:\n    name, size = line.split()\n    try:\n        open(name, 'ab', "
    "0).write(bytes(int(size)))\n"
    + (
        "    except OSError as error:\n        print(error.strerror, flush=True)\n    else:\n        "
        "print('written', flush=True)\n"
    )
)


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_files_of_a_process_do_not_grow_beyond_a_limit(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def write(name: str, size: int) -> str:
            asked.write(f"{tmp_path / name} {size}\n")
            asked.flush()
            return answers.readline().strip()

        assert write("a", 900) == "written"
        with limited_file_size(process.pid, 1000):
            assert write("a", 100) == "written"
            assert write("a", 1) == "File too large"
            assert write("b", 1000) == "written"
        assert write("a", 1) == "written"
        limit_file_size(process.pid, 10)
        assert write("c", 10) == "written"
        assert write("c", 1) == "File too large"
        limit_file_size(process.pid, None)
        assert write("c", 1) == "written"


def test_a_small_disk_is_full_until_room_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.mkdir()
    with ExitStack() as opened:
        try:
            disk = opened.enter_context(SmallDisk(path, 1_000_000))
        except NoSmallDiskError as error:
            pytest.skip(str(error))
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (path / "file").write_bytes(bytes(4096))
        disk.free()
        (path / "file").write_bytes(bytes(4096))
        disk.fill(leaving_bytes=8192)
        (path / "other").write_bytes(bytes(4096))
        with pytest.raises(OSError, match="No space left"):
            (path / "third").write_bytes(bytes(100_000))
    assert not list(path.iterdir())
