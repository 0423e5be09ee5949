from __future__ import annotations

import json
import logging
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

from jesenska.cli import jesenska
from jesenska.cli.shared.log_lines import ONCE_A_MINUTE, OnceAMinute
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Tool, heed_signals


def line(key: object | None, text: str = "the disk is full") -> logging.LogRecord:
    record = logging.LogRecord("jesenska", logging.ERROR, __file__, 1, "%s", (text,), None)
    if key is not None:
        setattr(record, ONCE_A_MINUTE, key)
    return record


def test_a_line_that_says_so_is_written_once_a_minute_for_each_of_its_values() -> None:
    now = 100.0
    once = OnceAMinute(lambda: now)
    assert [once.filter(line(None)) for _ in range(3)] == [True] * 3
    assert [once.filter(line("a")) for _ in range(3)] == [True, False, False]
    assert once.filter(line("b"))
    now += 59
    assert not once.filter(line("a"))
    now += 2
    again = line("a")
    assert once.filter(again)
    assert again.getMessage() == "the disk is full (3 lines like this were left out)"


def test_a_broker_logs_json_into_a_file_and_stops_in_order_on_a_hang_up(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "broker.json"
    command = [
        sys.executable,
        "-m",
        "jesenska",
        "up",
        "--port",
        "0",
        "--data",
        str(tmp_path / "data"),
        "--log-level",
        "info",
    ]
    command += ["--log-format", "json", "--log-file", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=heed_signals)
    try:
        assert process.stdout is not None
        assert "jesenska is up" in process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    told = [json.loads(text) for text in file.read_text().splitlines()]
    assert told
    assert all(set(item) >= {"time", "level", "logger", "message"} for item in told)


def test_a_broker_that_was_started_with_nohup_outlives_a_hang_up(tmp_path: Path, tool: Tool) -> None:
    command = ["nohup", sys.executable, "-m", "jesenska", "up", "--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"jesenska is up at (\S+)", process.stdout.readline())
            assert address is not None
            process.send_signal(signal.SIGHUP)
            assert tool(jesenska.main, "status", "--bootstrap-server", address[1]).code == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_a_broker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """The process may end in any way. Here it is killed while its broker runs."""
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom jesenska.testing import BrokerProcess\n"
        f"broker = BrokerProcess(Path({str(tmp_path / 'data')!r})).start()\nprint(broker.pid, "
        f"flush=True)\nsys.stdin.read()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        descriptor = os.pidfd_open(int(parent.stdout.readline()))
    finally:
        parent.kill()
        parent.communicate()
    try:
        assert select.select([descriptor], [], [], 20)[0], "the broker runs on"
    finally:
        os.close(descriptor)


def test_a_broker_that_nobody_stopped_ends_with_the_interpreter(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\nfrom jesenska.testing import BrokerProcess\n"
        f"broker = BrokerProcess(Path({str(tmp_path / 'data')!r})).start()\nraise SystemExit(3)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 3
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_server_can_be_stopped_and_started_again(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
        broker.stop()
        broker.start()
        after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
        assert after == before
