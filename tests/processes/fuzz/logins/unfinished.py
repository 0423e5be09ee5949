"""Connections that never finish their TLS handshake or their login, beside a producer and a consumer that are logged
in.

    python -m tests.processes.fuzz.logins.unfinished --connections 2000

So many connections begin a TLS handshake (they say nothing, a part of the first message, or all of it), and as many
have chosen a SASL mechanism and then send their login byte by byte. The broker must end all of them by its time
limits, give back their descriptors, and go on serving the bystanders."""

from __future__ import annotations

import argparse
import resource
import select
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.figures import resident_mb

from jesenska.base.limits import LOGIN_SECONDS, TLS_HANDSHAKE_SECONDS
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from tests.processes.fuzz.logins import records
from tests.processes.fuzz.logins.attack import descriptors, settled
from tests.processes.fuzz.logins.bystanders import Bystanders, Seen
from tests.processes.fuzz.logins.secrets import Target
from tests.processes.fuzz.logins.target import secured_target
from tests.processes.fuzz.logins.wires import frame

_CALM_SECONDS: Final = 3.0
#: The broker checks the time limit of logins once a second; a busy machine is late.
_LATE_SECONDS: Final = 15.0
_BYTE_SECONDS: Final = 0.5
#: Connections that are opened before the broker gets time to accept them.
_AT_ONCE: Final = 50


class Limits(NamedTuple):
    """The broker's time limits in seconds, and the module that is run as the broker."""

    handshake_seconds: float = TLS_HANDSHAKE_SECONDS
    login_seconds: float = LOGIN_SECONDS
    module: str = "jesenska"


class Outcome(NamedTuple):
    """What the siege has found. Times in seconds since the last connection was opened, memory in MB."""

    connections: int
    last_handshake_ended: float
    last_login_ended: float
    left: int
    grown_mb: float
    calm: Seen
    besieged: Seen
    descriptors: tuple[int, int, int]
    tracebacks: int

    def lines(self) -> list[str]:
        return [
            f"{self.connections:,} half-open TLS handshakes and {self.connections:,} logins byte by byte: the last "
            f"handshake ended after {self.last_handshake_ended:.1f} s, the last login after "
            f"{self.last_login_ended:.1f} s; {self.left} are left",
            f"bystanders alone:    {self.calm}",
            f"bystanders besieged: {self.besieged}",
            f"memory +{self.grown_mb:.1f} MB; descriptors {self.descriptors[0]} before, {self.descriptors[1]} at most, "
            f"{self.descriptors[2]} after; stack traces {self.tracebacks}",
        ]


def _connected(address: tuple[str, int], beginning: bytes) -> socket.socket:
    sock = socket.create_connection(address, 20)
    sock.sendall(beginning)
    sock.setblocking(False)
    return sock


class _Siege:
    """The open connections of one kind, and the time at which the last of them ended."""

    def __init__(self) -> None:
        self.open: dict[int, socket.socket] = {}
        self.poll = select.epoll()
        self.last_ended = 0.0

    def add(self, sock: socket.socket) -> None:
        self.open[sock.fileno()] = sock
        self.poll.register(sock.fileno(), select.EPOLLIN)

    def read(self) -> None:
        """Takes what the broker has sent, and drops the connections that it has ended."""
        for descriptor, _ in self.poll.poll(0, len(self.open) + 1):
            try:
                ended = not self.open[descriptor].recv(1 << 16)
            except OSError:
                ended = True
            if ended:
                self.drop(descriptor)

    def drop(self, descriptor: int) -> None:
        self.poll.unregister(descriptor)
        self.open.pop(descriptor).close()
        self.last_ended = time.monotonic()

    def send_a_byte(self) -> None:
        for descriptor, sock in list(self.open.items()):
            try:
                sock.send(b"\0")
            except OSError:
                self.drop(descriptor)

    def close(self) -> None:
        for sock in self.open.values():
            sock.close()
        self.poll.close()


def _begin(target: Target, connections: int, handshakes: _Siege, logins: _Siege) -> None:
    hellos = [b"".join(flight) for flight in records.hellos()]
    chosen = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    login = frame(SaslAuthenticateRequest(auth_bytes=bytes(5_000)), 1)[:20]
    for number in range(connections):
        hello = hellos[number % len(hellos)]
        beginning = (b"", hello[: len(hello) // 2], hello, hello[:3])[number % 4]
        handshakes.add(_connected(target.secured, beginning))
        logins.add(_connected(target.plain, chosen + login))
        if number % _AT_ONCE == 0:
            time.sleep(0.01)


@contextmanager
def _files(wanted: int) -> Iterator[None]:
    """Raises the limit of open files, for this process and the broker that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted:
        raise OSError(f"{wanted} open files are needed, and the system allows {hard}: raise it with ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def besiege(directory: Path, connections: int, limits: Limits) -> Outcome:
    """Opens the connections and waits for their end."""
    with _files(2 * connections + 1_000), secured_target(directory, limits.module) as (secured, target):
        broker = secured.broker
        handshakes, logins = _Siege(), _Siege()
        with Bystanders(directory, secured.secured, secured.bystander_settings()) as bystanders:
            try:
                time.sleep(_CALM_SECONDS / 2)
                bystanders.seen()
                time.sleep(_CALM_SECONDS)
                calm, before, before_mb = bystanders.seen(), descriptors(broker.pid), resident_mb(broker.pid)
                _begin(target, connections, handshakes, logins)
                begun, most, most_mb = time.monotonic(), 0, before_mb
                deadline = begun + limits.login_seconds + _LATE_SECONDS
                while (handshakes.open or logins.open) and time.monotonic() < deadline:
                    for siege in (handshakes, logins):
                        siege.read()
                    logins.send_a_byte()
                    most = max(most, descriptors(broker.pid))
                    most_mb = max(most_mb, resident_mb(broker.pid))
                    time.sleep(_BYTE_SECONDS)
                besieged, after = bystanders.seen(), settled(broker, before)
                left = len(handshakes.open) + len(logins.open)
            finally:
                handshakes.close()
                logins.close()
        return Outcome(
            connections,
            handshakes.last_ended - begun,
            logins.last_ended - begun,
            left,
            most_mb - before_mb,
            calm,
            besieged,
            (before, most, after),
            broker.log.count("Traceback"),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for line in besiege(Path(directory), options.connections, Limits()).lines():
            print(line)


if __name__ == "__main__":
    main()
