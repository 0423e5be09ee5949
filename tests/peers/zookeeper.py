"""A real Apache ZooKeeper on loopback (the one of Apache Kafka 3.9.1's jars, 3.8.4), and its shell."""

from __future__ import annotations

import queue
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.peers.apache_kafka import TOOLS, free_port, java_command, wait_for_port

RELEASE = "3.9.1"


class ZooKeeper:
    """Ends with the `with` block."""

    def __init__(
        self,
        directory: Path,
        tick_ms: int = 200,
        heap: str = "128m",
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        """`settings` are further ones of its properties; `secureClientPort` without a value becomes `secure_port`."""
        self._settings = dict(settings or {})
        self._java_options = java_options
        self.secure_port = free_port()
        if "secureClientPort" in self._settings:
            self._settings["secureClientPort"] = str(self.secure_port)
        self._directory = directory
        self._tick_ms = tick_ms
        self._heap = heap
        self.port = free_port()

    def __enter__(self) -> ZooKeeper:
        settings = self._directory / "zookeeper.properties"
        settings.write_text(
            f"dataDir={self._directory}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            f"tickTime={self._tick_ms}\n4lw.commands.whitelist=*\n"
            + "".join(f"{name}={value}\n" for name, value in self._settings.items())
        )
        log = self._directory / "zookeeper.log"
        with log.open("ab") as output:
            command = java_command(
                RELEASE,
                TOOLS["zookeeper-server-start"][0],
                str(settings),
                heap=self._heap,
                java_options=self._java_options,
            )
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        try:
            wait_for_port(self.port, self._process, log)
            _wait_until_serving(self.port)
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def _wait_until_serving(port: int) -> None:
    """It listens before it serves, and who comes too early is never answered."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        said = b""
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as sock:
            sock.sendall(b"srvr")
            while more := sock.recv(4096):
                said += more
        if b"Mode: standalone" in said:
            return
        time.sleep(0.05)
    raise TimeoutError("ZooKeeper listens, but does not serve")


class Shell:
    """ZooKeeper's shell while it runs; ends with the `with` block."""

    def __init__(self, port: int) -> None:
        command = java_command(
            RELEASE,
            "org.apache.zookeeper.ZooKeeperMain",
            "-server",
            f"127.0.0.1:{port}",
            heap="128m",
            log_level="ERROR",
        )
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())

    def say(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def hear(self, text: str, seconds: float = 30) -> None:
        """Reads on to a line with that text; queue.Empty where none comes."""
        while text not in self._lines.get(timeout=seconds):
            pass

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join(30)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def shell(port: int, *commands: str, java_options: Sequence[str] = (), log_level: str = "ERROR") -> str:
    """What ZooKeeper's own shell prints for some commands."""
    command = java_command(
        RELEASE,
        "org.apache.zookeeper.ZooKeeperMain",
        "-server",
        f"127.0.0.1:{port}",
        heap="128m",
        log_level=log_level,
        java_options=java_options,
    )
    done = subprocess.run(
        command,
        input="".join(f"{line}\n" for line in (*commands, "quit")),
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr
