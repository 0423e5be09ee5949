"""The reasons why a setting has no effect, or no effect yet, by name, each half a sentence; and the short form in
which the tables write a row.

If a setting begins to work, only its row changes: `kafka-configs --describe`, the warning at the start and the
README's list all read the table."""

from __future__ import annotations

from jesenska.config.table import Check, Dynamic, Effect, Importance, Setting, Type, Value

Reason = tuple[Effect, str]

WORKS: Reason = (Effect.WORKS, "")


def _stored(reason: str) -> Reason:
    return (Effect.STORED, reason)


def _meaningless(reason: str) -> Reason:
    return (Effect.MEANINGLESS, reason)


TIERED = _stored("remote storage is not built yet; segments stay on local disk")
REPLICAS = _stored("replicas are not moved to other brokers, or throttled, yet")
PEERS = _stored("connections to other brokers wait as controller.socket.timeout.ms and replica.socket.timeout.ms say")
PEER_BUFFERS = _stored("the system chooses the buffers of connections between brokers")
PEER_VERSIONS = _stored("brokers agree on versions when they connect")
METRICS = _stored("metrics are not published yet")
GROUPS = _stored("consumer groups speak the classic protocol only, and this is not acted on yet")
TRANSACTIONS = _stored("transactions end in one phase, and their log is read in pieces of one size")
SECURITY = _stored("TLS, PLAIN, SCRAM and access rules work without it; what else it is for is not built yet")
ZOOKEEPER = _stored("nodes are open to everyone, and connections to ZooKeeper are plain, as yet")
STORED_PLANE = _stored("the controller's requests have no listener of their own yet")
SHARE = _stored("share groups are not built yet")
NO_FIRST_DELAY = _stored("each periodic task runs for the first time when its own interval has passed")
EVERY_ADDRESS = _stored("every address of a host is tried, one after another")
NO_RETRIES = _stored("what fails in a way that passes is tried again for as long as request.timeout.ms says")
NO_API_TIMEOUT = _stored("a call waits as long as request.timeout.ms says")
STREAMS = _stored("streams groups are not built yet")
CLIENT_GROUPS = _stored("members speak the classic protocol only")

ONE_LOOP = _meaningless("one event loop serves all connections; there are no such threads or queues")
MOVE_SAMPLES = _meaningless("each piece that is copied waits its time; no samples are kept")
NO_PURGATORY = _meaningless("an answered request leaves the waiting list at once; there is nothing to sweep")
KRAFT = _meaningless("there is no KRaft quorum; metadata live in the embedded tree or in ZooKeeper")
NO_FOLLOWERS = _meaningless("the tree is read through the session that writes it")
VOTERS = _meaningless("there is no KRaft quorum; one node is taken, several stop the start")
PLUGINS = _meaningless("a class of Java cannot be loaded")
ONE_BATCH = _meaningless("one batch of a partition is under way at a time, which keeps its order through every retry")
TICKETS = _meaningless("Kerberos' own library asks for tickets, and for others before they expire")
JAVA_CLASS = _meaningless("a class of Java cannot be loaded; values and keys are bytes")

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

BOOLEAN, STRING, INT, SHORT, LONG = Type.BOOLEAN, Type.STRING, Type.INT, Type.SHORT, Type.LONG
DOUBLE, LIST, CLASS, PASSWORD = Type.DOUBLE, Type.LIST, Type.CLASS, Type.PASSWORD
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
PER_BROKER, CLUSTER_WIDE = Dynamic.PER_BROKER, Dynamic.CLUSTER_WIDE


def row(
    name: str,
    kind: Type,
    default: Value,
    importance: Importance,
    check: Check | None = None,
    *,
    doc: str,
    dynamic: Dynamic = Dynamic.READ_ONLY,
    effect: Reason = WORKS,
    release: str = "1.0",
    internal: bool = False,
) -> Setting:
    """Returns a row of a table; `release` is the Kafka release that the default is from."""
    return Setting(name, kind, default, importance, doc, check, dynamic, effect[0], effect[1], release, internal)
