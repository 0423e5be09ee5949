"""`jesenska up -n N`: the settings of each broker, the refusals, and a cluster of processes that are killed, stopped,
and started again."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from jesenska.base.errors import JesenskaError
from jesenska.cli import jesenska
from jesenska.cli.kafka.cluster import kafka_server_stop
from jesenska.cli.kafka.records import kafka_console_consumer
from jesenska.cli.kafka.topics import kafka_topics
from jesenska.cli.shared.configuration import broker_config
from jesenska.cli.shared.log_lines import LogFile
from jesenska.cli.shared.several_directories import (
    broker_directory,
    brokers_with_data,
    refuse_directory_of_one,
    refuse_directory_of_several,
    tree_directory,
)
from jesenska.cli.shared.stopping import lock_holder
from jesenska.cli.supervision.reserved_port import ReservedPort
from jesenska.cli.supervision.up_options import add_up, announcement, broker_defaults, refuse_ports, warn_if_open
from jesenska.cli.supervision.up_several import command_of, flags_of, left_out, ports_for
from jesenska.client.cluster import Cluster
from jesenska.config.layers import BrokerConfig
from jesenska.log.disk.meta_properties import FILE_NAME as META_PROPERTIES
from jesenska.metadata.journal import METADATA_FILE
from jesenska.net.listener import PortTakenError, listening_socket
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Tool
from tests.several_brokers import SECONDS, SeveralBrokers
from tests.watched_processes import watched


def options_of(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_up(parser)
    parser.add_argument("--debug", action="store_true")
    return parser.parse_args(words)


# --- what is decided -------------------------------------------------------------------------------------------------


def settings_by_command(options: argparse.Namespace, number: int, port: int) -> BrokerConfig:
    """The configuration that a broker reads from its command line."""
    command = command_of(options, number, port, "127.0.0.1:7")
    found: dict[str, list[str]] = {"--default": [], "--override": [], "--flag": []}
    for flag, word in pairwise(command):
        if flag in found:
            found[flag].append(word)
    defaults, flags = (dict(word.split("=", 1) for word in found[name]) for name in ("--default", "--flag"))
    return broker_config(defaults=defaults, overrides=found["--override"], environment={}, flags=flags)


def test_brokers_are_told_apart_by_number_port_and_directory() -> None:
    options = options_of("-n", "3", "--host", "::1", "--data", "some/where")
    for number, port in ((1, 9092), (2, 9093), (3, 40000)):
        config = settings_by_command(options, number, port)
        assert config.integer("broker.id") == number
        assert config.string("listeners") == f"PLAINTEXT://[::1]:{port}"
        assert config.string("log.dirs") == f"some/where/broker-{number}"
        assert config.string("zookeeper.connect") == "127.0.0.1:7"
    assert flags_of(options_of("-n", "2", "--host", "0.0.0.0"), 1, 9092, "")["listeners"] == "PLAINTEXT://:9092"


@pytest.mark.parametrize(("brokers", "copies", "in_sync"), [(1, 1, 1), (2, 2, 2), (3, 3, 2), (5, 3, 2)])
def test_there_are_as_many_copies_as_brokers_and_three_at_most(brokers: int, copies: int, in_sync: int) -> None:
    config = BrokerConfig(broker_defaults(brokers))
    for name in (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
    ):
        assert config.integer(name) == copies
    assert config.integer("transaction.state.log.min.isr") == in_sync
    assert config.integer("min.insync.replicas") == 1


def test_an_override_beats_what_several_brokers_have_by_default() -> None:
    options = options_of("-n", "2", "--override", "default.replication.factor=1", "--override", "num.partitions=7")
    for number in (1, 2):
        config = settings_by_command(options, number, 9092)
        assert (config.integer("default.replication.factor"), config.integer("num.partitions")) == (1, 7)
        assert config.integer("offsets.topic.replication.factor") == 2


def test_the_announcement_has_all_brokers_in_every_command() -> None:
    told = announcement(["127.0.0.1:9092", "[::1]:9093"], "some/where", "127.0.0.1:2181")
    first, empty, *commands = told.splitlines()
    assert first == "jesenska is up at 127.0.0.1:9092,[::1]:9093 (2 brokers, data in some/where; Ctrl-C stops them)"
    assert empty == ""
    assert [command.split()[0] for command in commands] == [
        "kafka-topics",
        "kafka-console-producer",
        "kafka-console-consumer",
        "zookeeper-shell",
    ]
    assert all(" --bootstrap-server 127.0.0.1:9092,[::1]:9093 " in command for command in commands[:3])
    assert commands[3] == "  zookeeper-shell 127.0.0.1:2181 ls /brokers/topics"
    told = announcement(["127.0.0.1:9092"], "a b", "127.0.0.1:2181", "a b/login")
    login = "KAFKA_OPTS=-Djava.security.auth.login.config='a b/login'"
    assert told.splitlines()[-1] == f"  {login} zookeeper-shell 127.0.0.1:2181 ls /brokers/topics"
    assert (
        announcement(["127.0.0.1:9092"], "data", None).splitlines()[0]
        == "jesenska is up at 127.0.0.1:9092 (data in data; Ctrl-C stops it)"
    )


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-n", "0"], "'0' is not a number of brokers: write a number from 1 to 32"),
        (["-n", "33"], "'33' is not a number of brokers"),
        (["--brokers", "three"], "'three' is not a number of brokers"),
        (["-n", "-3"], "-n"),
        (
            ["-n", "3", "--port", "65534"],
            "3 brokers from port 65534 on would need port 65536, and 65535 is the last one: give a smaller --port.",
        ),
        (["-n", "3", "--port", "2180", "--zookeeper-port", "2182"], "cannot both have port 2182"),
        (["-n", "2", "--zookeeper-port", "9093"], "cannot both have port 9093"),
        (
            ["-n", "3", "--override", "broker.id=7"],
            "broker.id=7 cannot be the same for 3 brokers: leave it out, up numbers its brokers from 1 on.",
        ),
        (["-n", "3", "--override", "node.id=7"], "node.id=7 cannot be the same for 3 brokers"),
        (
            ["-n", "3", "--override", "listeners=PLAINTEXT://:1"],
            "listeners=PLAINTEXT://:1 cannot be the same for 3 brokers: leave it out, --host and --port",
        ),
        (["-n", "3", "--override", "port=1"], "port=1 cannot be the same"),
        (
            ["-n", "3", "--override", "advertised.listeners=PLAINTEXT://a:1"],
            "advertised.listeners=PLAINTEXT://a:1 cannot be the same",
        ),
        (
            ["-n", "3", "--override", "log.dirs=a"],
            "log.dirs=a cannot be the same for 3 brokers: leave it out, --data names",
        ),
        (["-n", "3", "--override", "log.dir=a"], "log.dir=a cannot be the same"),
        (
            ["-n", "3", "--override", "zookeeper.connect=a:1"],
            "zookeeper.connect=a:1 cannot be the same for 3 brokers: leave it out, up keeps",
        ),
        (["-n", "3", "--override", "jesenska.zookeeper.listener=:1"], "--zookeeper-port says where"),
        (["-n", "3", "--override", "num.partitions"], "--override takes name=value"),
        (["-n", "3", "--override", "num.partitions=many"], "Invalid value many for configuration num.partitions"),
        (["-n", "3", "--override", "authorizer.class.name=a"], "authorizer.class.name=a names a Java class"),
    ],
)
def test_what_cannot_be_is_told_in_one_sentence_and_nothing_is_made(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = tool(jesenska.main, "up", *words)
    assert (result.code, result.out) == (1, "")
    assert says in result.err
    assert len(result.err.splitlines()) == 1
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "words",
    [
        ["--port", "0", "--zookeeper-port", "2"],
        ["--port", "5000", "--zookeeper-port", "0"],
        ["--zookeeper-port", "9095"],
    ],
)
def test_ports_that_all_can_have_are_not_refused(words: list[str]) -> None:
    refuse_ports(options_of("-n", "3", *words))


def test_the_environment_cannot_say_for_all_what_each_has_of_its_own(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BROKER_ID", "7")
    assert "broker.id=7 cannot be the same for 2 brokers" in tool(jesenska.main, "up", "-n", "2").err


def of_several(data: Path, *numbers: int) -> None:
    for number in numbers:
        broker_directory(data, number).mkdir(parents=True)
        (broker_directory(data, number) / META_PROPERTIES).touch()


@pytest.mark.parametrize("name", [METADATA_FILE, META_PROPERTIES])
def test_data_of_one_broker_and_of_several_are_not_mixed(tool: Tool, tmp_path: Path, name: str) -> None:
    one, several, neither = tmp_path / "one", tmp_path / "several", tmp_path / "neither"
    for directory in (one, neither / "broker-1"):
        directory.mkdir(parents=True)
    (one / name).touch()
    of_several(several, 1, 2, 4)
    result = tool(jesenska.main, "up", "-n", "3", "--data", str(one))
    assert (result.code, result.err) == (
        1,
        f"jesenska: {one} has the data of a single broker: start it without -n, or name another directory with "
        f"--data.\n",
    )
    result = tool(jesenska.main, "up", "--data", str(several))
    assert (result.code, result.err) == (
        1,
        f"jesenska: {several} has the data of 3 brokers: start them with -n 4, or name another directory with "
        f"--data.\n",
    )
    for directory in (several, neither, tmp_path / "missing"):
        refuse_directory_of_one(directory)
    for directory in (one, neither, tmp_path / "missing"):
        refuse_directory_of_several(directory)


def test_brokers_that_have_data_and_are_not_started_are_named(tmp_path: Path) -> None:
    of_several(tmp_path, 1, 2, 3, 12)
    (tmp_path / "broker-4").mkdir()  # it was never started
    assert brokers_with_data(tmp_path) == [1, 2, 3, 12]
    assert not left_out(tmp_path, 12)
    assert left_out(tmp_path, 3) == (
        f"Broker 12 has data in {tmp_path} and is not started: partitions that no other brokers have copies of have "
        f"no leader until up runs with -n 12 again."
    )
    assert left_out(tmp_path, 2).startswith(f"Brokers 3, 12 have data in {tmp_path} and are not started: ")
    assert not left_out(tmp_path / "missing", 1)


# --- ports -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def three_free_ports() -> int:
    """The first of three consecutive ports that were free a moment ago."""
    for _ in range(1000):
        with ExitStack() as kept:
            first = kept.enter_context(closing(ReservedPort("127.0.0.1", 0))).port
            try:
                for port in (first + 1, first + 2):
                    kept.enter_context(closing(ReservedPort("127.0.0.1", port)))
            except (PortTakenError, OverflowError):
                continue
            return first
    raise AssertionError("the system has no three free ports in a row")


def test_ports_follow_each_other_unless_one_is_taken(three_free_ports: int, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-n", "3", "--port", str(three_free_ports)]
    with ExitStack() as kept:
        assert ports_for(options_of(*words), kept) == [three_free_ports + index for index in range(3)]
    taken = three_free_ports + 1
    with listening_socket("127.0.0.1", taken), ExitStack() as kept:
        with pytest.raises(JesenskaError) as refused:
            ports_for(options_of(*words), kept)
        assert str(refused.value) == (
            f"Port {taken} is taken by another process, perhaps another broker: stop that process, choose other "
            f"ports with --port, or add --any-port."
        )
    with listening_socket("127.0.0.1", taken), ExitStack() as kept:
        first, other, last = ports_for(options_of(*words, "--any-port"), kept)
        assert (first, last) == (three_free_ports, three_free_ports + 2)
        assert other not in range(three_free_ports, three_free_ports + 3)
    assert capsys.readouterr().err == f"Port {taken} is taken; using another one.\n"
    with ExitStack() as kept:
        assert len({*ports_for(options_of("-n", "32", "--port", "0"), kept), 0}) == 33


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", ""])
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is found and not kept")
def test_a_kept_port_is_given_to_nobody_and_can_be_listened_at(host: str) -> None:
    try:
        kept = ReservedPort(host, 0)
    except JesenskaError:
        pytest.skip(f"this machine has no {host}")
    with closing(kept):
        local = host or "127.0.0.1"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((local, kept.port), SECONDS)
        with listening_socket(host, kept.port) as listening, socket.create_connection((local, kept.port), SECONDS):
            assert listening.getsockname()[1] == kept.port
            with pytest.raises(PortTakenError):
                ReservedPort(host, kept.port)
        # It was listened at, and is kept all the same.
        with (
            socket.socket(socket.AF_INET6 if ":" in local else socket.AF_INET) as other,
            pytest.raises(OSError, match="in use"),
        ):
            other.bind((local, kept.port))


def test_a_log_file_that_was_renamed_is_opened_anew(tmp_path: Path) -> None:
    with closing(LogFile(str(tmp_path / "log"))) as file:
        file.write("one\n")
        file.flush()
        (tmp_path / "log").rename(tmp_path / "log.1")
        file.write("two\n")
    assert ((tmp_path / "log.1").read_text(), (tmp_path / "log").read_text()) == ("one\n", "two\n")


# --- processes -------------------------------------------------------------------------------------------------------


async def until(condition: Callable[[], bool], cluster: Cluster) -> None:
    """Asks the cluster repeatedly until this is true of its answers."""
    async with asyncio.timeout(SECONDS):
        while not condition():
            await cluster.refresh(None)
            await asyncio.sleep(0.05)


def wait_for_brokers(bootstrap: str, count: int) -> dict[int, int]:
    """The ports of the brokers by their ids, as the first of these reports them, when it knows this number of
    brokers."""

    async def ask() -> dict[int, int]:
        cluster = Cluster(bootstrap.split(",")[0])
        try:
            await until(lambda: len(cluster.nodes) == count, cluster)
            return {node.broker_id: node.port for node in cluster.nodes.values()}
        finally:
            await cluster.close()

    return asyncio.run(ask())


def wait_for_leaders(bootstrap: str, topic: str, in_sync: int) -> None:
    """Returns when each partition of a topic has a leader and this number of in-sync replicas."""

    async def ask() -> None:
        cluster = Cluster(bootstrap)
        try:

            def is_led() -> bool:
                found = cluster.known(topic)
                return found is not None and all(
                    one.leader >= 0 and len(one.in_sync_replicas) >= in_sync for one in found.partitions
                )

            await until(is_led, cluster)
        finally:
            await cluster.close()

    asyncio.run(ask())


def produce(bootstrap: str, topic: str, *lines: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "jesenska.cli.kafka.records.kafka_console_producer",
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--sync",
        ],
        input="".join(f"{line}\n" for line in lines),
        text=True,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def consume(tool: Tool, bootstrap: str, topic: str, count: int) -> list[str]:
    words = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", str(int(SECONDS * 1000)))
    return tool(kafka_console_consumer.main, "--bootstrap-server", bootstrap, "--topic", topic, *words).lines


@contextmanager
def ended_with(brokers: SeveralBrokers) -> Iterator[dict[str, int]]:
    """The processes of a running cluster. All of them must have ended at the end of the block."""
    processes = brokers.processes()
    with watched(*processes.values(), seconds=SECONDS) as have_ended:
        yield processes
        assert have_ended()


def test_three_brokers_are_one_cluster_and_keep_what_they_have(tool: Tool, tmp_path: Path) -> None:
    with SeveralBrokers(tmp_path / "data", 3) as brokers:
        with ended_with(brokers) as processes:
            assert sorted(processes) == ["broker 1", "broker 2", "broker 3", "tree"]
            ports = [int(address.rpartition(":")[2]) for address in brokers.bootstrap.split(",")]
            assert wait_for_brokers(brokers.bootstrap, 3) == dict(zip((1, 2, 3), ports, strict=True))
            made = tool(
                kafka_topics.main,
                "--bootstrap-server",
                brokers.bootstrap,
                "--create",
                "--topic",
                "kept",
                "--partitions",
                "3",
            )
            assert made.code == 0, made.err
            wait_for_leaders(brokers.bootstrap, "kept", in_sync=3)
            produce(brokers.bootstrap, "kept", "one", "two", "three")
            status = tool(
                jesenska.main,
                "status",
                "--bootstrap-server",
                brokers.bootstrap,
                "--data",
                str(brokers.data),
                "--output",
                "json",
            )
            assert status.code == 0, status.err
            told = json.loads(status.out)
            assert (told["brokers"], told["process"]) == (3, brokers.pid)
            assert told["memory_mb"] > 4 * 10  # five processes, each of which has more than 10
            again = tool(jesenska.main, "up", "-n", "3", "--port", "0", "--data", str(brokers.data))
            assert (again.code, again.err) == (
                1,
                f"jesenska: The directory {brokers.data} is in use by process {brokers.pid}: "
                "stop that process with kafka-server-stop, or name another directory with --data.\n",
            )
            assert brokers.stop() == 0
        assert not re.search(r"Traceback|ERROR|SIGKILL|starts again", brokers.log)
        assert all((broker_directory(brokers.data, number) / ".kafka_cleanshutdown").exists() for number in (1, 2, 3))
        assert (tree_directory(brokers.data) / METADATA_FILE).exists()
        # On other ports, with all that was there.
        brokers.start()
        with ended_with(brokers):
            wait_for_brokers(brokers.bootstrap, 3)
            wait_for_leaders(brokers.bootstrap, "kept", in_sync=3)
            assert sorted(consume(tool, brokers.bootstrap, "kept", 3)) == ["one", "three", "two"]
            brokers.stop()


def test_a_broker_that_is_killed_is_back_at_its_port_and_the_others_stay(tmp_path: Path) -> None:
    with SeveralBrokers(tmp_path / "data", 3) as brokers:
        before = wait_for_brokers(brokers.bootstrap, 3)
        processes = brokers.processes()
        for number in (2, 1):
            os.kill(brokers.processes()[f"broker {number}"], signal.SIGKILL)
            brokers.wait_until_said(f"broker {number} was ended by SIGKILL; it starts again at once.\n", SECONDS)
            brokers.wait_until_said(f"broker {number} is up again.\n", SECONDS)
        # Each of them names all three, at the same ports as before.
        for address in brokers.bootstrap.split(","):
            assert wait_for_brokers(address, 3) == before
        again = brokers.processes()
        assert {name for name in processes if again[name] != processes[name]} == {"broker 1", "broker 2"}


def test_nobody_is_left_when_up_is_killed(tmp_path: Path) -> None:
    with SeveralBrokers(tmp_path / "data", 2) as brokers:
        with ended_with(brokers):
            brokers.kill()
        # The files of the old processes are no obstacle.
        brokers.start()
        with ended_with(brokers):
            assert brokers.stop() == 0


def test_nobody_is_left_when_the_parent_of_up_has_ended(tmp_path: Path) -> None:
    with SeveralBrokers(tmp_path / "data", 2) as brokers, ended_with(brokers):
        brokers.orphan()
        assert brokers.wait(SECONDS) == 0


def test_a_second_interrupt_ends_them_at_once(tmp_path: Path) -> None:
    with SeveralBrokers(tmp_path / "data", 2) as brokers, ended_with(brokers) as processes:
        for process in processes.values():
            os.kill(process, signal.SIGSTOP)  # so that none of them stops
        os.kill(brokers.pid, signal.SIGINT)
        brokers.wait_until_said("Stopping 2 brokers and their tree; a second Ctrl-C ends them at once.\n", SECONDS)
        os.kill(brokers.pid, signal.SIGINT)
        assert brokers.wait(SECONDS) == 1


def test_the_directory_names_who_is_to_be_stopped(tool: Tool, tmp_path: Path) -> None:
    with SeveralBrokers(tmp_path / "data", 2) as brokers, ended_with(brokers):
        stopped = tool(kafka_server_stop.main, "--data", str(brokers.data))
        assert (stopped.code, stopped.out) == (0, f"Stopped process {brokers.pid}, the broker of {brokers.data}.\n")
        assert brokers.wait(SECONDS) == 0
        assert lock_holder(brokers.data) is None


def test_more_brokers_join_and_those_that_are_left_out_are_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for count in (2, 3, 2):
        with SeveralBrokers(data, count) as brokers:
            assert sorted(wait_for_brokers(brokers.bootstrap, count)) == [1, 2, 3][:count]
            assert brokers.stop() == 0
    assert left_out(data, 2) in brokers.log


def test_every_broker_writes_its_figures(tmp_path: Path) -> None:
    with SeveralBrokers(tmp_path / "data", 2) as brokers:
        os.kill(brokers.pid, signal.SIGUSR1)
        for number in (1, 2):
            brokers.wait_until_said(f'broker {number}: figures {{"', SECONDS)


def test_the_tree_is_served_to_zookeepers_clients(tmp_path: Path) -> None:
    with SeveralBrokers(tmp_path / "data", 2, "--zookeeper-port", "0") as brokers:
        found = re.search(r"KAFKA_OPTS=(\S+) zookeeper-shell (\S+) ls /brokers/topics", brokers.log)
        assert found is not None
        done = subprocess.run(
            [sys.executable, "-m", "jesenska.cli.zookeeper.zookeeper_shell", found[2], "ls", "/brokers/ids"],
            text=True, capture_output=True, timeout=SECONDS, check=False, env={**os.environ, "KAFKA_OPTS": found[1]},
        )  # fmt: skip
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[1, 2]"), done.stderr


def test_as_json_every_broker_logs_objects_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with SeveralBrokers(
        tmp_path / "data", 2, "--log-format", "json", "--log-level", "info", "--log-file", str(file)
    ) as brokers:
        assert brokers.stop() == 0
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["process"] for line in told} == {"broker 1", "broker 2"}
    assert all(
        "is ready" in " ".join(line["message"] for line in told if line["process"] == f"broker {number}")
        for number in (1, 2)
    )
    assert [line for line in brokers.log.splitlines() if line.startswith("{")] == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_broker_that_cannot_start_ends_the_start(tmp_path: Path, number: int) -> None:
    data = tmp_path / "data"
    data.mkdir()
    broker_directory(data, number).write_text("no directory")
    done = subprocess.run(
        [sys.executable, "-m", "jesenska", "up", "-n", "2", "--port", "0", "--data", str(data)],
        text=True, capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"jesenska: Broker {number} did not start: ")
    assert str(broker_directory(data, number)) in told
    assert "starts again" not in done.stderr
    # Both have no compiled code, which is reported once.
    assert done.stderr.count("The compiled ") <= 1
    assert all(
        lock_holder(directory) is None for directory in (data, tree_directory(data), broker_directory(data, 3 - number))
    )


def test_one_broker_does_not_start_on_the_data_of_several_that_run(tool: Tool, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "one") as alone:
        refused = tool(jesenska.main, "up", "-n", "2", "--port", "0", "--data", str(alone.data))
        assert (refused.code, "has the data of a single broker" in refused.err) == (1, True)


@pytest.mark.parametrize(
    ("host", "warns"), [(None, False), ("127.0.0.1", False), ("localhost", False), ("::1", False), ("0.0.0.0", True)]
)
def test_a_broker_that_other_machines_reach_says_that_everyone_may_do_everything(
    host: str | None, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_if_open(options_of(*(() if host is None else ("--host", host))))
    assert ("jesenska init DIR --secure" in capsys.readouterr().err) is warns
