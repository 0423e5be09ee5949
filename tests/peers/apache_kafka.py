#!/usr/bin/env python3
"""A real Apache Kafka on loopback, from its released jars: the judge in tests and the rival in benchmarks.

    apache_kafka.py fetch 4.3.1                                   resolve the jars (Maven, once; about 10 s)
    apache_kafka.py streams 4.3.1                                 resolve the jar of Kafka Streams
    apache_kafka.py serve 4.3.1 --dir D [--nodes 3] [--heap 1g]   start brokers, print their addresses, stop on Ctrl-C
    apache_kafka.py serve 3.9.1 --dir D --zookeeper               ZooKeeper mode (3.9 and older)
    apache_kafka.py tool  3.9.1 kafka-topics --bootstrap-server … a Kafka tool of that release, as its script would run
                          it

or from Python:

    with ApacheKafka("4.3.1", directory, nodes=3) as kafka:
        kafka.bootstrap, kafka.pids, kafka.ready_seconds

Releases that were tried as brokers, clients and tools, all on Java 17: 0.8.2.2, 0.10.2.2, 1.0.2, 3.9.1 (serves every
protocol version from 0 up and formats v0 - v2; ZooKeeper mode too), 4.3.1. Needs Maven. Nothing here is part of
jesenska.

PEERS_JAVA_OPTIONS has further options for every JVM. Tests set SHORT_RUN there, and PEERS_CLASS_ARCHIVE=1: JVMs start
from the archive of their release's classes (JEP 350) where there is one, which takes off a third of the CPU time of a
start. A rival in a benchmark runs without either.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

CACHE = Path(os.environ.get("PEERS_CACHE", Path.home() / ".cache" / "kafka-peers"))

#: The RocksDB that Kafka Streams 3.9 needs.
ROCKSDB = "7.9.2"

#: For programs that end within minutes: Java compiles less thoroughly, which takes half of the CPU time of a start.
SHORT_RUN = "-XX:TieredStopAtLevel=1"

# Main classes by tool name: (class before 4.0, class from 4.0). One entry means the same in both.
TOOLS: dict[str, tuple[str, ...]] = {
    "kafka-topics": ("kafka.admin.TopicCommand", "org.apache.kafka.tools.TopicCommand"),
    "kafka-console-producer": ("kafka.tools.ConsoleProducer", "org.apache.kafka.tools.ConsoleProducer"),
    "kafka-console-consumer": ("kafka.tools.ConsoleConsumer", "org.apache.kafka.tools.consumer.ConsoleConsumer"),
    "kafka-simple-consumer-shell": ("kafka.tools.SimpleConsumerShell",),
    "kafka-consumer-groups": (
        "kafka.admin.ConsumerGroupCommand",
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    ),
    "kafka-configs": ("kafka.admin.ConfigCommand",),
    "kafka-delegation-tokens": (
        "kafka.admin.DelegationTokenCommand",
        "org.apache.kafka.tools.DelegationTokenCommand",
    ),
    "kafka-acls": ("kafka.admin.AclCommand", "org.apache.kafka.tools.AclCommand"),
    "kafka-reassign-partitions": (
        "kafka.admin.ReassignPartitionsCommand",
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    ),
    "kafka-leader-election": ("kafka.admin.LeaderElectionCommand", "org.apache.kafka.tools.LeaderElectionCommand"),
    "kafka-preferred-replica-election": ("kafka.admin.PreferredReplicaLeaderElectionCommand",),
    "kafka-replica-verification": (
        "kafka.tools.ReplicaVerificationTool",
        "org.apache.kafka.tools.ReplicaVerificationTool",
    ),
    "kafka-dump-log": ("kafka.tools.DumpLogSegments", "org.apache.kafka.tools.DumpLogSegments"),
    "kafka-log-dirs": ("kafka.admin.LogDirsCommand", "org.apache.kafka.tools.LogDirsCommand"),
    "kafka-get-offsets": ("kafka.tools.GetOffsetShell", "org.apache.kafka.tools.GetOffsetShell"),
    "kafka-delete-records": ("kafka.admin.DeleteRecordsCommand", "org.apache.kafka.tools.DeleteRecordsCommand"),
    "kafka-broker-api-versions": (
        "kafka.admin.BrokerApiVersionsCommand",
        "org.apache.kafka.tools.BrokerApiVersionsCommand",
    ),
    "kafka-transactions": ("org.apache.kafka.tools.TransactionsCommand",),
    "kafka-streams-application-reset": ("kafka.tools.StreamsResetter", "org.apache.kafka.tools.StreamsResetter"),
    "kafka-producer-perf-test": ("org.apache.kafka.tools.ProducerPerformance",),
    "kafka-consumer-perf-test": ("kafka.tools.ConsumerPerformance", "org.apache.kafka.tools.ConsumerPerformance"),
    "kafka-end-to-end-latency": ("kafka.tools.EndToEndLatency", "org.apache.kafka.tools.EndToEndLatency"),
    "kafka-verifiable-producer": ("org.apache.kafka.tools.VerifiableProducer",),
    "kafka-verifiable-consumer": ("org.apache.kafka.tools.VerifiableConsumer",),
    "kafka-storage": ("kafka.tools.StorageTool",),
    "kafka-server-start": ("kafka.Kafka",),
    "zookeeper-server-start": ("org.apache.zookeeper.server.quorum.QuorumPeerMain",),
}

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>peers</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>"""
DEPENDENCY = "<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version></dependency>"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def jars(version: str) -> Path:
    """The folder with every jar of that release's broker and tools, resolved through Maven if it is not there yet."""
    folder = CACHE / version
    if (folder / ".complete").exists():
        return folder
    numbers = _numbers(version)
    scala = "2.13" if numbers >= (2, 5) else "2.11"
    wanted = [("org.apache.kafka", f"kafka_{scala}", version)]
    if numbers >= (0, 10):
        wanted.append(("org.apache.kafka", "kafka-tools", version))
    if numbers >= (4, 0):
        wanted.append(("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"))
    elif numbers < (1, 0):
        wanted += [("org.slf4j", "slf4j-log4j12", "1.7.21"), ("javax.xml.bind", "jaxb-api", "2.3.1")]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        Path(work, "pom.xml").write_text(POM.format(dependencies="".join(DEPENDENCY.format(*item) for item in wanted)))
        subprocess.run(
            [
                "mvn",
                "-q",
                "-B",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={folder}",
                "-DincludeScope=runtime",
            ],
            cwd=work,
            check=True,
            stdout=sys.stderr,
            env={"MAVEN_OPTS": SHORT_RUN, **os.environ},
        )
    (folder / ".complete").touch()
    return folder


def streams_jar(version: str) -> Path:
    """The jar of that release's Kafka Streams, without RocksDB: programs keep their state in memory."""
    return _further_jar(version, "org.apache.kafka", "kafka-streams", version)


def streams_test_jars(version: str) -> list[Path]:
    """The jars with that release's TopologyTestDriver, and with RocksDB for topologies that keep their state there."""
    return [
        _further_jar(version, "org.apache.kafka", "kafka-streams-test-utils", version),
        _further_jar(version, "org.rocksdb", "rocksdbjni", ROCKSDB),
    ]


def missing_jars(version: str, *, streams: bool = False) -> bool:
    """Whether Maven has to fetch something still of what `jars` gives; `streams`: and `streams_jar` and
    `streams_test_jars`."""
    wanted = (
        [f"kafka-streams-{version}.jar", f"kafka-streams-test-utils-{version}.jar", f"rocksdbjni-{ROCKSDB}.jar"]
        if streams
        else []
    )
    return not (CACHE / version / ".complete").exists() or not all(
        (CACHE / version / "streams" / name).exists() for name in wanted
    )


def _further_jar(version: str, group: str, artifact: str, artifact_version: str) -> Path:
    """A jar that stands apart from those of the release's broker and tools."""
    folder = CACHE / version / "streams"
    jar = folder / f"{artifact}-{artifact_version}.jar"
    if not jar.exists():
        jars(version)
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            wanted = f"-Dartifact={group}:{artifact}:{artifact_version}"
            subprocess.run(
                [
                    "mvn",
                    "-q",
                    "-B",
                    "org.apache.maven.plugins:maven-dependency-plugin:copy",
                    wanted,
                    f"-DoutputDirectory={made}",
                ],
                check=True,
                stdout=sys.stderr,
                env={"MAVEN_OPTS": SHORT_RUN, **os.environ},
            )
            Path(made, jar.name).rename(jar)
    return jar


def write_whole(file: Path, text: str) -> None:
    """Writes a file that other test runs may read at the same time: they see all of it, or none."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as new:
        new.write(text)
    Path(new.name).rename(file)


def java_program(name: str = "java") -> str:
    """Where a program of the JDK is: in JAVA_HOME if that has it, else on the path."""
    at_home = Path(os.environ.get("JAVA_HOME", "/nowhere"), "bin", name)
    return str(at_home) if at_home.exists() else name


def further_options(version: str) -> list[str]:
    """What PEERS_JAVA_OPTIONS and PEERS_CLASS_ARCHIVE ask of every JVM that has this release's jars first on its class
    path."""
    options = os.environ.get("PEERS_JAVA_OPTIONS", "").split()
    if os.environ.get("PEERS_CLASS_ARCHIVE") == "1" and (archive := class_archive(version)).exists():
        # A JVM that cannot use it starts as ever, and says nothing of it.
        options += [
            "-Xshare:auto",
            "-Xlog:cds=off",
            "-Xlog:cds+dynamic=off",
            "-Xlog:class+path=off",
            f"-XX:SharedArchiveFile={archive}",
        ]
    return options


def class_archive(version: str) -> Path:
    """Where the archive of a release's classes is, or will be (`class_archive.py` makes it). Each Java has its own."""
    real = Path(shutil.which(java_program()) or java_program()).resolve()
    return CACHE / version / f"classes-{zlib.crc32(str(real).encode()):08x}.jsa"


def java_command(
    version: str,
    main_class: str,
    *arguments: str,
    heap: str = "1g",
    log_level: str = "WARN",
    java_options: Sequence[str] = (),
) -> list[str]:
    """The command line that Kafka's own start script would build: same collector and flags, and after them those of
    the environment and `java_options`."""
    folder = jars(version)
    command = [
        java_program(),
        f"-Xmx{heap}",
        f"-Xms{heap}",
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
        "-Djava.awt.headless=true",
        *further_options(version),
        *java_options,
    ]
    if _numbers(version) >= (4, 0):
        settings = folder / f"log4j2-{log_level}.yaml"
        if not settings.exists():
            write_whole(
                settings,
                "Configuration:\n  Appenders:\n    Console:\n      name: STDERR\n      target: SYSTEM_ERR\n      "
                "PatternLayout:\n"
                '        pattern: "[%d] %p %m (%c)%n"\n  Loggers:\n    Root:\n'
                f"      level: {log_level}\n      AppenderRef:\n        - ref: STDERR\n",
            )
        command.append(f"-Dlog4j2.configurationFile={settings}")
    else:
        settings = folder / f"log4j-{log_level}.properties"
        if not settings.exists():
            write_whole(
                settings,
                f"log4j.rootLogger={log_level}, stderr\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\n"
                "log4j.appender.stderr.layout=org.apache.log4j.PatternLayout\nlog4j.appender.stderr.layout.ConversionPattern=[%d] "  # noqa: E501
                "%p %m (%c)%n\n"
                "log4j.appender.stderr.Target=System.err\n",
            )
        command.append(f"-Dlog4j.configuration=file:{settings}")
    return [*command, "-cp", f"{folder}/*", main_class, *arguments]


@cache
def _classes_of(version: str) -> frozenset[str]:
    """Paths of what is in the jars of Kafka's own."""
    held: set[str] = set()
    for jar in jars(version).glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as archive:
            held.update(archive.namelist())
    return frozenset(held)


def tool_class(version: str, name: str) -> str:
    """The main class of a tool in that release."""
    classes = TOOLS[name]
    candidates = list(classes) if _numbers(version) < (4, 0) else list(reversed(classes))
    # 3.x moved tools one by one: take the class that this release's jars hold.
    held = _classes_of(version)
    for candidate in candidates:
        if candidate.replace(".", "/") + ".class" in held or candidate.startswith("org.apache.zookeeper"):
            return candidate
    raise SystemExit(f"Apache Kafka {version} has no {name}")


def tool_command(version: str, name: str, *arguments: str, heap: str = "512m") -> list[str]:
    return java_command(version, tool_class(version, name), *arguments, heap=heap)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"exited with {process.returncode}; the end of {log}:\n{log.read_text()[-3000:]}")
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"port {port} did not open within {seconds} s; see {log}")


def wait_for_brokers(port: int, count: int, seconds: float = 60) -> None:
    """A broker opens its port before the controller has told it of itself; until then it creates no topics. Asks for
    metadata, version 0: the brokers come first in its answer."""
    request = struct.pack(">hhih4si", 3, 0, 1, 4, b"test", 0)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), 10) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                answer = connection.makefile("rb").read(12)
        except ConnectionError:
            # One that has only just opened its port may close connections still.
            time.sleep(0.05)
            continue
        if len(answer) < 12:
            raise RuntimeError(f"the broker at port {port} does not answer a Metadata request")
        if struct.unpack(">iii", answer)[2] >= count:
            return
        time.sleep(0.05)
    raise TimeoutError(f"the broker at port {port} does not know {count} brokers within {seconds} s")


class ApacheKafka:
    """Brokers (and, in ZooKeeper mode, one ZooKeeper) on loopback; ended by stop() or at the end of the with block."""

    def __init__(
        self,
        version: str,
        directory: str | Path,
        *,
        nodes: int = 1,
        zookeeper: bool = False,
        heap: str = "1g",
        settings: dict[str, str] | None = None,
        log_level: str = "WARN",
        zookeeper_connect: str | None = None,
        first_id: int = 0,
        java_options: Sequence[str] = (),
        tick_ms: int = 1000,
    ) -> None:
        """`zookeeper_connect` joins an existing ensemble (with chroot if wanted) instead of starting one; `first_id`
        is the first broker's id; `java_options` are for the brokers' JVMs; `tick_ms` is the own ZooKeeper's tickTime,
        at whole ones of which it ends sessions."""
        self.version, self.directory, self.nodes, self.first_id = version, Path(directory).absolute(), nodes, first_id
        self.zookeeper = zookeeper or zookeeper_connect is not None or _numbers(version) < (3, 3)
        self.heap, self.settings, self.log_level = heap, settings or {}, log_level
        self.processes: list[subprocess.Popen[bytes]] = []
        self.brokers: list[subprocess.Popen[bytes]] = []
        self.ports: list[int] = []
        self.quorum: list[int] = []
        self.zookeeper_connect = zookeeper_connect
        self.java_options = java_options
        self.tick_ms = tick_ms
        self.own_zookeeper = False
        self.ready_seconds = 0.0

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.brokers]

    def start(self) -> ApacheKafka:
        jars(self.version)
        self.directory.mkdir(parents=True, exist_ok=True)
        # A second start keeps its addresses and data.
        self.ports = self.ports or [free_port() for _ in range(self.nodes)]
        if self.zookeeper and (self.zookeeper_connect is None or self.own_zookeeper):
            self._start_zookeeper()
        begun = time.monotonic()
        self.quorum = self.quorum or [free_port() for _ in range(self.nodes)]
        cluster = self._cluster_id()
        for node in range(self.nodes):
            self._start_broker(node, self.quorum, cluster)
        for port, broker, node in zip(self.ports, self.brokers, range(self.nodes), strict=True):
            wait_for_port(port, broker, self.directory / f"broker-{node}.log")
        self.ready_seconds = time.monotonic() - begun
        if _numbers(self.version) >= (0, 10):  # older ones know of no broker before there is a topic
            for port in self.ports:
                wait_for_brokers(port, self.nodes)
        return self

    def _cluster_id(self) -> str:
        kept = self.directory / "cluster-id"
        if not kept.exists():
            # Never a "-" in front: an argument.
            kept.write_text(urlsafe_b64encode(b"\x01" + uuid.uuid4().bytes[1:]).decode().rstrip("="))
        return kept.read_text()

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, cwd=self.directory
            )
        self.processes.append(process)
        return process

    def _start_zookeeper(self) -> None:
        kept = self.directory / "zookeeper-port"
        if not kept.exists():
            kept.write_text(str(free_port()))
        port = int(kept.read_text())
        (self.directory / "zookeeper.properties").write_text(
            f"dataDir={self.directory}/zookeeper\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            f"tickTime={self.tick_ms}\n"
        )
        process = self._spawn(
            "zookeeper",
            java_command(
                self.version,
                TOOLS["zookeeper-server-start"][0],
                str(self.directory / "zookeeper.properties"),
                heap="256m",
            ),
        )
        wait_for_port(port, process, self.directory / "zookeeper.log")
        self.zookeeper_connect = f"127.0.0.1:{port}"
        self.own_zookeeper = True

    def _start_broker(self, node: int, quorum: list[int], cluster: str) -> None:
        port, data = self.ports[node], self.directory / f"data-{node}"
        internal = str(min(3, self.nodes))
        settings = {
            "log.dirs": str(data),
            "offsets.topic.replication.factor": internal,
            "transaction.state.log.replication.factor": internal,
            "transaction.state.log.min.isr": str(min(2, self.nodes)),
            "group.initial.rebalance.delay.ms": "0",
        }
        if _numbers(self.version) >= (4, 0):
            settings |= {
                "share.coordinator.state.topic.replication.factor": internal,
                "share.coordinator.state.topic.min.isr": str(min(2, self.nodes)),
            }
        if self.zookeeper:
            settings |= {"broker.id": str(self.first_id + node), "zookeeper.connect": str(self.zookeeper_connect)}
            settings |= (
                {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
                if _numbers(self.version) >= (0, 9)
                else {"host.name": "127.0.0.1", "port": str(port)}
            )
        else:
            voters = ",".join(f"{index}@127.0.0.1:{voter}" for index, voter in enumerate(quorum))
            settings |= {
                "process.roles": "broker,controller",
                "node.id": str(node),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{quorum[node]}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            }
        settings |= self.settings
        properties = self.directory / f"broker-{node}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not self.zookeeper:
            self._format(node, cluster, properties, [Path(name) for name in settings["log.dirs"].split(",")])
        command = java_command(
            self.version,
            "kafka.Kafka",
            str(properties),
            heap=self.heap,
            log_level=self.log_level,
            java_options=self.java_options,
        )
        self.brokers.append(self._spawn(f"broker-{node}", command))

    def _format(self, node: int, cluster: str, properties: Path, directories: Sequence[Path]) -> None:
        """Has Kafka's tool format what has no format yet. Where JVMs may start from an archive the tool has done so
        once, and later directories are copies with ids of their own: a JVM less for each."""
        if all((directory / "meta.properties").exists() for directory in directories):
            return
        kept = CACHE / self.version / "formatted"
        are_new = not any(directory.exists() for directory in directories)
        if are_new and os.environ.get("PEERS_CLASS_ARCHIVE") == "1" and kept.exists():
            for directory in directories:
                shutil.copytree(kept, directory)
                ids = {
                    "node.id": str(node),
                    "cluster.id": cluster,
                    "directory.id": urlsafe_b64encode(b"\x01" + uuid.uuid4().bytes[1:]).decode().rstrip("="),
                }
                meta = directory / "meta.properties"
                lines = [line.partition("=") for line in meta.read_text().splitlines()]
                meta.write_text("".join(f"{key}{equals}{ids.get(key, value)}\n" for key, equals, value in lines))
            return
        subprocess.run(
            java_command(
                self.version,
                "kafka.tools.StorageTool",
                "format",
                "-t",
                cluster,
                "-c",
                str(properties),
                "--ignore-formatted",
                heap="128m",
            ),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        if are_new and not kept.exists():
            with tempfile.TemporaryDirectory(dir=kept.parent) as made:
                new = shutil.copytree(directories[0], Path(made, "formatted"))
                # Another test run may have been first.
                with suppress(OSError):
                    new.rename(kept)

    def tool(self, name: str, *arguments: str, **run_options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            tool_command(self.version, name, *arguments), text=True, capture_output=True, check=False, **run_options
        )

    def stop(self) -> None:
        """Asks for a clean shutdown (brokers before ZooKeeper) and ends what has not stopped within 30 s."""
        others = [process for process in self.processes if process not in self.brokers]
        for group in (self.brokers, others):
            for process in group:
                process.terminate()
            for process in group:
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self.processes.clear()
        self.brokers.clear()

    def kill(self) -> None:
        """kill -9 for every process; start() brings them back on the same data and addresses."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes.clear()
        self.brokers.clear()

    def __enter__(self) -> ApacheKafka:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser("fetch")
    fetch.add_argument("version")
    streams = commands.add_parser("streams")
    streams.add_argument("version")
    streams.add_argument("--test-driver", action="store_true", help="the jars of its TopologyTestDriver, too")
    serve = commands.add_parser("serve")
    serve.add_argument("version")
    serve.add_argument("--dir", required=True)
    serve.add_argument("--nodes", type=int, default=1)
    serve.add_argument("--heap", default="1g")
    serve.add_argument("--zookeeper", action="store_true", help="ZooKeeper mode, with a ZooKeeper started here")
    serve.add_argument("--zookeeper-connect", help="ZooKeeper mode, joining this ensemble")
    serve.add_argument("--first-id", type=int, default=0)
    serve.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    tool = commands.add_parser("tool")
    tool.add_argument("version")
    tool.add_argument("name", choices=sorted(TOOLS))
    tool.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not re.fullmatch(r"\d+(\.\d+)+", options.version):
        parser.error(f"not a version: {options.version}")
    if options.command == "fetch":
        print(jars(options.version))
    elif options.command == "streams":
        for jar in (streams_jar(options.version), *(streams_test_jars(options.version) if options.test_driver else ())):
            print(jar)
    elif options.command == "tool":
        return subprocess.run(tool_command(options.version, options.name, *options.arguments), check=False).returncode
    else:
        settings = dict(item.split("=", 1) for item in options.set)
        with ApacheKafka(
            options.version,
            options.dir,
            nodes=options.nodes,
            zookeeper=options.zookeeper,
            heap=options.heap,
            settings=settings,
            zookeeper_connect=options.zookeeper_connect,
            first_id=options.first_id,
        ) as kafka:
            print(
                f"ready in {kafka.ready_seconds:.1f} s: {kafka.bootstrap}"
                + (f" (ZooKeeper {kafka.zookeeper_connect})" if kafka.zookeeper_connect else ""),
                flush=True,
            )
            try:
                signal.sigwait({signal.SIGINT, signal.SIGTERM})
            except KeyboardInterrupt:
                pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
