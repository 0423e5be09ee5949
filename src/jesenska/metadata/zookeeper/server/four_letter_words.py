"""The answers to ZooKeeper's four-letter words. A four-letter word is four bytes that a client sends in place of the
first frame. The functions turn figures into text.

The words are ruok stat srvr mntr conf cons envi isro wchs. Their fields have the names and forms of ZooKeeper 3.8,
without the fields about a JVM or a quorum. All nine are answered without a whitelist (ZooKeeper's setting
4lw.commands.whitelist), because none of them changes anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

WORDS = frozenset({b"ruok", b"stat", b"srvr", b"mntr", b"conf", b"cons", b"envi", b"isro", b"wchs"})
#: The words that are answered to clients that have not logged in, where a login is required. They do not show the
#: tree's figures, which take a pass over the whole tree.
WORDS_FOR_STRANGERS = frozenset({b"ruok", b"isro"})
#: The release of ZooKeeper whose protocol this server has. Tools check its first numbers.
ZOOKEEPER_VERSION = "3.8.4"


@dataclass(frozen=True, slots=True)
class ConnectionFigures:
    """The figures of one connection, for the words `stat` and `cons`."""

    address: str
    queued: int
    received: int
    sent: int
    session_id: int
    last_operation: str
    established_ms: int
    timeout_ms: int
    last_xid: int
    last_zxid: int
    last_latency_ms: int
    min_latency_ms: int
    average_latency_ms: int
    max_latency_ms: int


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """The figures of the whole server, for the four-letter words."""

    version: str
    connections: Sequence[ConnectionFigures]
    received: int
    sent: int
    outstanding: int
    min_latency_ms: int
    average_latency_ms: float
    max_latency_ms: int
    zxid: int
    nodes: int
    ephemerals: int
    data_bytes: int
    sessions: int
    watches: int
    watched_paths: int
    watching_connections: int
    uptime_ms: int
    configuration: Mapping[str, str]
    environment: Mapping[str, str]


def answer(word: bytes, figures_now: Callable[[], ServerFigures]) -> str:
    """Returns the text for a four-letter word. ruok and isro do not collect figures: monitors send them every few
    seconds, and collecting takes a pass over the whole tree."""
    if word == b"ruok":
        return "imok"
    if word == b"isro":
        return "rw"
    figures = figures_now()
    match word:
        case b"srvr":
            return _version(figures) + _served(figures)
        case b"stat":
            clients = "".join(f" {_brief(connection)})\n" for connection in figures.connections)
            return f"{_version(figures)}Clients:\n{clients}\n{_served(figures)}"
        case b"cons":
            return (
                "".join(f" {_brief(connection)}{_detail(connection)})\n" for connection in figures.connections) + "\n"
            )
        case b"conf":
            return _lines(figures.configuration, "=")
        case b"envi":
            return "Environment:\n" + _lines({"zookeeper.version": figures.version} | dict(figures.environment), "=")
        case b"wchs":
            return (
                f"{figures.watching_connections} connections watching {figures.watched_paths} paths\nTotal "
                f"watches:{figures.watches}\n"
            )
        case b"mntr":
            return _lines(_monitored(figures), "\t")
    raise ValueError(f"{word!r} is none of the words")


def _lines(fields: Mapping[str, object], between: str) -> str:
    return "".join(f"{name}{between}{value}\n" for name, value in fields.items())


def _version(figures: ServerFigures) -> str:
    return f"Zookeeper version: {figures.version}\n"


def _served(figures: ServerFigures) -> str:
    return (
        f"Latency min/avg/max: {figures.min_latency_ms}/{figures.average_latency_ms:.4g}/{figures.max_latency_ms}\n"
        f"Received: {figures.received}\nSent: {figures.sent}\nConnections: {len(figures.connections)}\nOutstanding: "
        f"{figures.outstanding}\n"
        f"Zxid: {figures.zxid:#x}\nMode: standalone\nNode count: {figures.nodes}\n"
    )


def _brief(connection: ConnectionFigures) -> str:
    serving = 1 if connection.session_id else 0
    return f"/{connection.address}[{serving}](queued={connection.queued},recved={connection.received},sent={connection.sent}"  # noqa: E501


def _detail(connection: ConnectionFigures) -> str:
    if not connection.session_id:
        return ""
    return (
        f",sid={connection.session_id:#x},lop={connection.last_operation},est={connection.established_ms},to={connection.timeout_ms}"
        f",lcxid={connection.last_xid & 0xFFFFFFFF:#x},lzxid={connection.last_zxid & 0xFFFFFFFFFFFFFFFF:#x},llat={connection.last_latency_ms}"  # noqa: E501
        f",minlat={connection.min_latency_ms},avglat={connection.average_latency_ms},maxlat={connection.max_latency_ms}"
    )


def _monitored(figures: ServerFigures) -> dict[str, object]:
    return {
        "zk_version": figures.version,
        "zk_server_state": "standalone",
        "zk_ephemerals_count": figures.ephemerals,
        "zk_num_alive_connections": len(figures.connections),
        "zk_avg_latency": f"{figures.average_latency_ms:.4g}",
        "zk_min_latency": figures.min_latency_ms,
        "zk_max_latency": figures.max_latency_ms,
        "zk_outstanding_requests": figures.outstanding,
        "zk_znode_count": figures.nodes,
        "zk_watch_count": figures.watches,
        "zk_global_sessions": figures.sessions,
        "zk_packets_received": figures.received,
        "zk_packets_sent": figures.sent,
        "zk_approximate_data_size": figures.data_bytes,
        "zk_uptime": figures.uptime_ms,
    }


class Figures:
    """Counts of requests and latencies, of a server or of one connection."""

    __slots__ = (
        "answered",
        "last_latency_ms",
        "max_latency_ms",
        "min_latency_ms",
        "received",
        "sent",
        "total_latency_ms",
    )

    def __init__(self) -> None:
        self.received = self.sent = self.answered = 0
        self.last_latency_ms = self.min_latency_ms = self.max_latency_ms = self.total_latency_ms = 0.0

    def answer(self, latency_ms: float) -> None:
        if latency_ms < self.min_latency_ms or not self.answered:
            self.min_latency_ms = latency_ms
        if latency_ms > self.max_latency_ms:
            self.max_latency_ms = latency_ms
        self.last_latency_ms = latency_ms
        self.total_latency_ms += latency_ms
        self.answered += 1
        self.sent += 1

    def add(self, other: Figures) -> None:
        if other.answered:
            self.min_latency_ms = (
                other.min_latency_ms if not self.answered else min(self.min_latency_ms, other.min_latency_ms)
            )
            self.max_latency_ms = max(self.max_latency_ms, other.max_latency_ms)
        self.received += other.received
        self.sent += other.sent
        self.answered += other.answered
        self.total_latency_ms += other.total_latency_ms

    @property
    def average_latency_ms(self) -> float:
        return self.total_latency_ms / self.answered if self.answered else 0.0
