"""TLS connections that are opened a first and a second time: jesenska against Apache Kafka 4.3.1.

    python -m bench.tls_connections                        3 rounds of 1,000 connections in each row; 2 minutes
    python -m bench.tls_connections --rounds 1 --connections 300

Both brokers run at the same time, and the rows alternate between them. A connection is one handshake of TLS 1.3 or
1.2, an ApiVersions request with its answer, and the end; one after the other. In a row "full" each connection is a
client's first one; in a row "resumed" each client has a session of an earlier connection. Printed: ms for each
connection, as the client sees it, ms of the broker's CPU, and the share of connections that were in fact resumed."""

from __future__ import annotations

import argparse
import socket
import ssl
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from bench.brokers import KAFKA
from bench.figures import cpu
from bench.needs import kafka, require
from bench.tls_bench import Side, sides
from jesenska.wire.codec import encode
from jesenska.wire.headers import request_head
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest

_VERSIONS: Final = {"TLS 1.3": ssl.TLSVersion.TLSv1_3, "TLS 1.2": ssl.TLSVersion.TLSv1_2}
_WARM_UP: Final = 300


class Outcome(NamedTuple):
    """Milliseconds for each connection: of the client's time, and of the broker's CPU. And the share of resumed
    sessions."""

    ms: float
    cpu_ms: float
    resumed: float


def _request() -> bytes:
    body = bytes(request_head(18, 0, 1, "bench", 1)) + encode(ApiVersionsRequest(), 0)
    return len(body).to_bytes(4, "big") + body


class _Client:
    def __init__(self, side: Side, version: ssl.TLSVersion, authority: str) -> None:
        host, _, port = side.secured.rpartition(":")
        self._address = (host, int(port))
        self._context = ssl.create_default_context(cafile=authority)
        self._context.minimum_version = self._context.maximum_version = version
        self._request = _request()

    def connect(self, session: ssl.SSLSession | None = None) -> tuple[ssl.SSLSession | None, bool]:
        """Returns the session of a new connection, and True if it was resumed."""
        plain = socket.create_connection(self._address, 20)
        # As Kafka's clients do: otherwise the request of a resumed session waits for a delayed acknowledgement.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._context.wrap_socket(plain, server_hostname="localhost", session=session) as secured:
            secured.sendall(self._request)
            size = int.from_bytes(_received(secured, 4), "big")
            _received(secured, size)
            return secured.session, bool(secured.session_reused)


def _received(secured: ssl.SSLSocket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = secured.recv(size - len(found))
        if not piece:
            raise ConnectionError("the broker has closed the connection")
        found += piece
    return found


def _row(side: Side, version: ssl.TLSVersion, authority: str, connections: int, *, resumed: bool) -> Outcome:
    client = _Client(side, version, authority)
    session = client.connect()[0] if resumed else None
    before, begun, count = cpu(side.pid), time.monotonic(), 0
    for _ in range(connections):
        latest, is_resumed = client.connect(session)
        count += is_resumed
        session = latest if resumed else None
    seconds = time.monotonic() - begun
    used = cpu(side.pid).since(before).total
    return Outcome(seconds * 1000 / connections, used * 1000 / connections, count / connections)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=1000)
    options = parser.parse_args()
    require("tls_connections", kafka(KAFKA))
    found: dict[tuple[str, str], list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as directory, sides(Path(directory)) as both:
        authority = str(Path(directory) / "ca.pem")
        for side in both:
            for version in _VERSIONS.values():
                for resumed in (False, True):
                    _row(side, version, authority, _WARM_UP, resumed=resumed)
        for number in range(options.rounds):
            for name, version in _VERSIONS.items():
                for resumed in (False, True):
                    row = f"{name}, {'resumed' if resumed else 'full'}"
                    for side in both if number % 2 else both[::-1]:
                        outcome = _row(side, version, authority, options.connections, resumed=resumed)
                        found.setdefault((row, side.name), []).append(outcome)
                        print(number, row, side.name, *(f"{value:.2f}" for value in outcome), flush=True)
        _print(found, [side.name for side in both])


def _print(found: dict[tuple[str, str], list[Outcome]], names: list[str]) -> None:
    ours, theirs = names
    print(f"\n| row | {ours} ms | {theirs} ms | ratio | {ours} CPU ms | {theirs} CPU ms | ratio | resumed |")
    print("|---|---|---|---|---|---|---|---|")
    for row in dict.fromkeys(row for row, _ in found):
        times, costs, shares = (
            [statistics.median(item[place] for item in found[row, name]) for name in names] for place in range(3)
        )
        print(
            f"| {row} | {times[0]:.2f} | {times[1]:.2f} | {times[0] / times[1]:.2f} | {costs[0]:.2f} "
            f"| {costs[1]:.2f} | {costs[0] / costs[1]:.2f} | {shares[0]:.0%} and {shares[1]:.0%} |"
        )


if __name__ == "__main__":
    main()
