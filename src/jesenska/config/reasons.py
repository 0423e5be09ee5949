"""Names the reasons why a setting has no effect, or no effect yet. Each reason is a constant with half a sentence, to
which messages and docs/settings.md add the setting. The function `row` makes one setting of a table in short form.

If a setting begins to work, only its row in the table of settings changes. `kafka-configs --describe`, the warning at
the start and docs/settings.md all read the table."""

from __future__ import annotations

from jesenska.config.table import Check, Dynamic, Effect, Importance, Setting, Type, Value

Reason = tuple[Effect, str]

WORKS: Reason = (Effect.WORKS, "")


def _stored(reason: str) -> Reason:
    return (Effect.STORED, reason)


def _meaningless(reason: str) -> Reason:
    return (Effect.MEANINGLESS, reason)


TIERED = _stored("remote storage is not implemented yet; segments stay on local disk")
LAG_MESSAGES = _stored("the lag of a follower is measured in time only (replica.lag.time.max.ms)")
PEERS = _stored(
    "controller.socket.timeout.ms and replica.socket.timeout.ms decide how long connections to other brokers wait"
)
PEER_BUFFERS = _stored("the operating system chooses the buffer sizes of connections between brokers")
PEER_VERSIONS = _stored("brokers agree on request versions when they connect")
METRICS = _stored("metrics are not published yet")
GROUPS = _stored("consumer groups use only the classic protocol, and this setting is not implemented yet")
TRANSACTIONS = _stored("two-phase commit is not implemented, and the transaction log is read in pieces of a fixed size")
SECURITY = _stored("TLS, SASL PLAIN, SASL SCRAM and ACLs work without it; its other uses are not implemented yet")
ZOOKEEPER = _stored("it is not implemented yet")
STORED_PLANE = _stored("the controller's requests use the same listener as the brokers' requests")
SHARE = _stored("share groups are not implemented yet")
NO_FIRST_DELAY = _stored("each periodic task runs for the first time after its own interval")
EVERY_ADDRESS = _stored("every address of a host is tried, one after another")
NO_RETRIES = _stored("a call that fails with a retriable error is tried again until request.timeout.ms has passed")
NO_API_TIMEOUT = _stored("request.timeout.ms decides how long a call waits")
STREAMS = _stored("streams groups are not implemented yet")
CLIENT_GROUPS = _stored("members use only the classic protocol")

ONE_LOOP = _meaningless("one event loop serves all connections; there are no such threads or queues")
MOVE_SAMPLES = _meaningless("each piece of the copy waits so that the rate is kept; no samples are taken")
NO_PURGATORY = _meaningless("an answered request is removed from the waiting list at once")
KRAFT = _meaningless("there is no KRaft quorum; the metadata are in the embedded tree or in ZooKeeper")
NO_FOLLOWERS = _meaningless("the broker reads and writes the nodes through the same ZooKeeper session")
VOTERS = _meaningless("there is no KRaft quorum; with more than one node the broker does not start")
PLUGINS = _meaningless("Java classes cannot be loaded")
ONE_BATCH = _meaningless(
    "the producer sends one batch of a partition at a time, so the order is kept when a batch is sent again"
)
TICKETS = _meaningless("the Kerberos library asks for tickets, and renews them before they expire")
JAVA_CLASS = _meaningless("Java classes cannot be loaded; keys and values are bytes")

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
    """Returns a setting, as a row of a table. `release` is the Kafka release that has this default."""
    return Setting(name, kind, default, importance, doc, check, dynamic, effect[0], effect[1], release, internal)
