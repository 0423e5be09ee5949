"""kafka-server-start and kafka-server-stop: a broker is started, found by its directories, and stopped. Other
processes are not ended."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from jesenska.base.errors import JesenskaError
from jesenska.cli.kafka.cluster import kafka_server_start, kafka_server_stop
from jesenska.cli.kafka.topics import kafka_topics
from jesenska.cli.shared.stopping import lock_holder
from jesenska.cli.shared.tool import read_properties
from jesenska.cli.zookeeper import zookeeper_server_stop
from jesenska.testing import BrokerProcess
from jesenska.testing.tree import TreeProcess
from tests.processes.cli.conftest import Tool

#: Locks a directory as Apache Kafka does: without writing its id.
HOLD = (
    "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print('locked',flush=True); "
    "sys.stdin.read()"
)


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=3\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'one'},{tmp_path / 'two'}\n")
    return file


def test_a_broker_in_the_background_serves_and_is_stopped_by_its_configuration(
    tool: Tool, properties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "logs"))
    started = tool(
        kafka_server_start.main,
        "-daemon",
        "-name",
        "kafkaServer",
        "-loggc",
        str(properties),
        "--override",
        "num.partitions=4",
    )
    holder = lock_holder(tmp_path / "one")
    try:
        assert started.code == 0, started.err
        address = started.out.split()[4]
        assert holder is not None
        assert f"as process {holder};" in started.out
        tool(kafka_topics.main, "--bootstrap-server", address, "--create", "--topic", "made")
        described = tool(kafka_topics.main, "--bootstrap-server", address, "--describe", "--topic", "made").out
        assert "PartitionCount: 4" in described
        assert "Leader: 3" in described
        stopped = tool(kafka_server_stop.main, str(properties))
        assert (stopped.code, stopped.out) == (0, f"Stopped process {holder}, the broker of {tmp_path / 'one'}.\n")
        assert lock_holder(tmp_path / "one") is None
        assert (tmp_path / "one" / ".kafka_cleanshutdown").exists()
        holder = None
    finally:
        if holder is not None:
            os.kill(holder, signal.SIGKILL)


def test_a_broker_that_cannot_start_in_the_background_says_why(
    tool: Tool, properties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "logs"))
    result = tool(kafka_server_start.main, "-daemon", str(properties), "--override", "num.partitions=many")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "kafka-server-start: The broker did not start: Invalid value many for configuration num.partitions: Not a "
        "number of type INT "
        f"(more in {tmp_path / 'logs' / 'kafkaServer.out'}).\n"
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("listeners=SSL://127.0.0.1:0\n", "SSL"),
        ("num.partitions=many\n", "num.partitions"),
        ("zookeeper.set.acl=true\n", "zookeeper.set.acl"),
    ],
)
def test_a_configuration_that_cannot_be_served_stops_the_start(
    tool: Tool, tmp_path: Path, content: str, says: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(content + f"log.dirs={tmp_path / 'logs'}\n")
    result = tool(kafka_server_start.main, str(file))
    assert (result.code, result.out, says in result.err) == (1, "", True)
    assert not (tmp_path / "logs").exists()


def test_a_configuration_file_that_does_not_exist_is_named(tool: Tool, tmp_path: Path) -> None:
    result = tool(kafka_server_start.main, str(tmp_path / "none.properties"))
    assert (result.code, "none.properties cannot be read" in result.err) == (1, True)


def test_a_broken_configuration_file_is_named_with_the_line(tool: Tool, tmp_path: Path) -> None:
    file = tmp_path / "broken.properties"
    file.write_text("log.dirs=data\nbroker.id=\\u12\n")
    result = tool(kafka_server_start.main, str(file))
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"kafka-server-start: The configuration file {file} is not in the format of a property file: "
        "Line 2 holds \\u without four hexadecimal digits after it; write \\\\u for a backslash and a u.\n"
    )


def test_a_broken_file_of_a_client_is_named_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.properties"
    file.write_text("\nclient.id=\\uXYZW\n")
    with pytest.raises(
        JesenskaError, match=r"^The file .*/broken\.properties is not in the format of a property file: Line 2 holds "
    ):
        read_properties(str(file))


@pytest.mark.parametrize("name", [kafka_server_stop, zookeeper_server_stop])
def test_an_empty_name_of_a_directory_stops_nothing(tool: Tool, name: ModuleType) -> None:
    result = tool(name.main, "--data", "")
    assert (result.code, result.out, "argument --data: '' names no directory: write its path;" in result.err) == (
        1,
        "",
        True,
    )


@pytest.mark.parametrize("text", ["", "# log.dirs=data\n", "What is this file?\n"])
def test_a_file_that_sets_nothing_starts_no_broker(tool: Tool, tmp_path: Path, text: str) -> None:
    (tmp_path / "notes.txt").write_text(text)
    result = tool(kafka_server_start.main, str(tmp_path / "notes.txt"))
    assert (result.code, "notes.txt sets nothing that a broker knows: name a server.properties" in result.err) == (
        1,
        True,
    )


def test_a_listener_without_a_name_is_told_how_to_write_it(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("listeners 127.0.0.1:9092\n")
    result = tool(kafka_server_start.main, str(tmp_path / "server.properties"))
    assert (result.code, result.err) == (
        1,
        "kafka-server-start: listeners holds '127.0.0.1:9092', which is not an address; write NAME://host:port, as in "
        "PLAINTEXT://127.0.0.1:9092.\n",
    )


def test_an_interrupt_while_a_tool_is_still_being_read_shows_no_stack() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import jesenska.cli; raise KeyboardInterrupt"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
    done = subprocess.run(
        [sys.executable, "-c", "import jesenska.cli; raise ValueError('seen')"], capture_output=True, check=False
    )
    assert (done.returncode, b"ValueError: seen" in done.stderr) == (1, True)


def test_start_without_arguments_prints_its_options(tool: Tool) -> None:
    result = tool(kafka_server_start.main)
    assert (result.code, "-daemon" in result.err) == (1, True)


def test_stop_ends_the_broker_of_the_directory_and_waits(tool: Tool, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        process = broker.pid
        assert lock_holder(tmp_path / "data") == process
        stopped = tool(kafka_server_stop.main, "--data", str(tmp_path / "data"))
        assert (stopped.code, stopped.out) == (0, f"Stopped process {process}, the broker of {tmp_path / 'data'}.\n")
        assert lock_holder(tmp_path / "data") is None
        assert broker.stop() == 0


def test_whoever_may_read_the_lock_is_told_who_holds_it_and_others_why_not(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with BrokerProcess(tmp_path / "data", warm=True) as broker:
        open_file = os.open
        refused = os.O_RDWR

        def guarded(path: str | os.PathLike[str], flags: int, mode: int = 0o777) -> int:
            if str(path).startswith(str(tmp_path)) and flags & os.O_ACCMODE in (refused, os.O_RDWR):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return open_file(path, flags, mode)

        monkeypatch.setattr(os, "open", guarded)
        assert lock_holder(tmp_path / "data") == broker.pid
        refused = os.O_RDONLY
        result = tool(kafka_server_stop.main, "--data", str(tmp_path / "data"))
        assert (result.code, result.out) == (1, "")
        assert (
            result.err
            == f"kafka-server-stop: This user may not read {tmp_path / 'data'}: run the command as the user that "
            "runs the server, or as root.\n"
        )


@pytest.mark.parametrize("process", [BrokerProcess, TreeProcess])
def test_a_server_that_is_told_to_stop_again_and_again_has_still_stopped_in_order(
    process: type[BrokerProcess | TreeProcess], tmp_path: Path
) -> None:
    with process(tmp_path) as server:
        ended = os.pidfd_open(server.pid)
        try:
            while not select.select([ended], [], [], 0.001)[0]:
                os.kill(server.pid, signal.SIGTERM)
        finally:
            os.close(ended)
        assert server.stop() == 0


def test_stop_without_arguments_means_the_data_directory_here(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nothing = tool(kafka_server_stop.main)
    assert (nothing.code, nothing.err) == (
        1,
        "kafka-server-stop: No broker of jesenska runs on data: name its directory with --data, or its configuration "
        "file.\n",
    )
    with BrokerProcess(tmp_path / "data") as broker:
        process = broker.pid
        assert tool(kafka_server_stop.main).out == f"Stopped process {process}, the broker of data.\n"


def test_a_process_that_only_has_a_dead_brokers_id_is_left_alone(tool: Tool, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as stranger:
        (tmp_path / ".lock").write_text(f"{stranger.pid}\n")
        assert tool(kafka_server_stop.main, "--data", str(tmp_path)).code == 1
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as kafka:
            assert kafka.stdout is not None
            assert kafka.stdout.readline() == b"locked\n"
            assert tool(kafka_server_stop.main, "--data", str(tmp_path)).code == 1
            assert kafka.stdin is not None
            kafka.stdin.close()
            assert kafka.wait(30) == 0
        assert stranger.stdin is not None
        stranger.stdin.close()
        assert stranger.wait(30) == 0


def test_a_broker_that_does_not_stop_in_time_is_told(tool: Tool, tmp_path: Path) -> None:
    code = (
        "import fcntl,os,signal,sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); f=open(sys.argv[1],'w'); "
        "fcntl.lockf(f,fcntl.LOCK_EX); "
    )
    code += "f.write(str(os.getpid())); f.flush(); print('locked',flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as stubborn:
        assert stubborn.stdout is not None
        assert stubborn.stdout.readline() == b"locked\n"
        result = tool(kafka_server_stop.main, "--data", str(tmp_path), "--timeout-seconds", "0.2")
        assert (result.code, "has not stopped within 0.2 s" in result.err, str(stubborn.pid) in result.err) == (
            1,
            True,
            True,
        )
        assert stubborn.stdin is not None
        stubborn.stdin.close()
        assert stubborn.wait(30) == 0
