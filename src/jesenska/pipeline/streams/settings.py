"""All settings of Kafka Streams from 1.0 to 4.3. For each setting, its effect here is described, or the setting to use
instead.

    effect     meaning
    WORKS      the setting has an effect on Spark and in the test driver
    SPARK      the setting has an effect in KafkaStreams, which runs the topology on Spark, but not in the test driver
    INSTEAD    the setting has no effect here; a sentence names the setting or action to use instead
    REFUSED    only the default is accepted: another value would have no effect, and is an error

`StreamsConfig` reads a mapping of settings. An unknown name is an error that suggests the nearest known name: a typing
error must not change how the application runs. As in Kafka Streams, the prefixes `consumer.`, `producer.` and `topic.`
mark settings of the consumer, of the producer, and of internal topics. The settings after a prefix are also checked,
and are used on Spark. `security.protocol`, `ssl.*` and `sasl.*` without a prefix are used by all clients. The prefix
`application.server.` marks the `ssl.*` settings and the token of the HTTP server for queries."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jesenska.base.errors import InvalidConfigError
from jesenska.config.settings.broker_security_settings import SECURITY_SETTINGS
from jesenska.config.settings.client_settings import CONSUMER_SETTINGS, PRODUCER_SETTINGS, SECURITY_OF_CLIENTS
from jesenska.config.settings.topic_settings import TOPIC_SETTINGS
from jesenska.config.table import Setting as ClientSetting
from jesenska.config.table import Table, value_text
from jesenska.pipeline.streams.errors import SettingError
from jesenska.pipeline.streams.handlers import Handler, handler_named, log_and_fail, with_dead_letters
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.serdes.serdes import Serdes, serde_named
from jesenska.pipeline.streams.timestamps import TimestampExtractor, extractor_named, fail_on_invalid_timestamp

logger = logging.getLogger(__name__)


class Effect(Enum):
    WORKS = "works"
    SPARK = "for Spark"
    INSTEAD = "instead"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of Kafka Streams. `says` describes the effect of the setting, or the setting to use instead. `check`
    validates a given value and converts it."""

    name: str
    default: Any
    effect: Effect
    says: str
    check: Callable[[str, Any], Any] | None = None


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise SettingError(f"{name} is {value!r}: give a text.")
    return value


def _servers(name: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    servers = [server.strip() for server in _text(name, value).split(",")]
    for server in servers:
        if not re.fullmatch(r".+:[0-9]{1,5}", server):
            raise SettingError(
                f"{name} has {server!r} in it, which is not an address: write host:port, several separated by commas."
            )
    return ",".join(servers)


def _server(name: str, value: Any) -> str:
    text = _text(name, value)
    if text and not re.fullmatch(r"[^\s,/]+:[0-9]{1,5}", text):
        raise SettingError(f"{name} is {text!r}, which is not an address: write host:port.")
    return text


def _token(name: str, value: Any) -> str:
    # The message does not have the value, which is a secret.
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9._~+/-]{16,1024}=*", value):
        raise SettingError(
            f"{name} is not a token: give at least 16 letters, digits and characters of ._~+/- in a text."
        )
    return value


def _whole(lowest: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool):
            raise SettingError(f"{name} is {value!r}: give a whole number.")
        if number < lowest:
            raise SettingError(f"{name} is {number}: give at least {lowest}.")
        return number

    return check


def _application_id(name: str, value: Any) -> str:
    text = _text(name, value)
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,200}", text):
        raise SettingError(
            f"{name} is {text!r}, but topics are named after it: use ASCII letters, digits, '.', '_' and '-'."
        )
    return text


def _guarantee(name: str, value: Any) -> str:
    if value in ("exactly_once", "exactly_once_beta", "exactly_once_v2"):
        return "exactly_once_v2"
    if value != "at_least_once":
        raise SettingError(f"{name} is {value!r}: set at_least_once or exactly_once_v2.")
    return str(value)


def _of_client(name: str, value: Any) -> Any:
    """Checks a setting that has the same name and meaning in Kafka's consumer."""
    return _parsed(name, CONSUMER_SETTINGS[name], value)


def _parsed(name: str, setting: ClientSetting, value: Any) -> Any:
    try:
        return setting.parse(value if isinstance(value, str) else value_text(value) or "")
    except InvalidConfigError as error:
        raise SettingError(f"{name}: {error}") from error


def _whether(name: str, value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise SettingError(f"{name} is {value!r}: set true or false.")
    return str(value).lower() == "true"


def _topic(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", text := _text(name, value)) or text in (".", ".."):
        raise SettingError(
            f"{name} is {text!r}, which cannot be a topic: use 1 to 249 ASCII letters, digits, '.', '_' and '-'."
        )
    return text


def _plain_stores(name: str, value: Any) -> str:
    if str(value).upper() != "DEFAULT":
        raise SettingError(
            f"{name} is {value!r}, but stores keep only values and their timestamps, no headers: set DEFAULT."
        )
    return "DEFAULT"


_NOT_A_CLASS = "Java classes cannot be loaded"
_NO_GROUP = "the consumer group of the application has no members, and Spark distributes the work"
_NAMED_SERDES = "name the serde in the program"
_SQLITE = "stores are SQLite files below state.dir"
_SOURCE = "a setting of the clients in the source and the sink"
_WATCH = "watch the query with Spark's StreamingQueryListener or its metrics"

# fmt: off
SETTINGS: tuple[Setting, ...] = (
    Setting("application.id", None, Effect.WORKS, "the name of the application; the names of its internal topics and of its state directory begin with it", _application_id),
    Setting("bootstrap.servers", None, Effect.SPARK, "the brokers that clients connect to first, as host:port separated by commas; the test driver needs none", _servers),
    Setting("replication.factor", 1, Effect.SPARK, "number of replicas of internal topics", _whole(-1)),
    Setting("state.dir", "/tmp/kafka-streams", Effect.SPARK, "the directory of checkpoints and state; all executors must be able to use it", _text),  # noqa: S108
    Setting("cache.max.bytes.buffering", 0, Effect.SPARK, "the earlier name of statestore.cache.max.bytes", _whole(0)),
    Setting("statestore.cache.max.bytes", 0, Effect.SPARK,
            "0 (the default): a table sends on every update, as in the test driver. Above 0: a table with a store "
            "sends on only the last update of each key in a micro-batch, as Kafka Streams does with its default of "
            "10485760; the number itself has no effect", _whole(0)),
    Setting("client.id", "", Effect.SPARK, f"{_SOURCE}: the name that brokers see in requests"),
    Setting("default.deserialization.exception.handler", None, Effect.WORKS,
            "the earlier name of deserialization.exception.handler", handler_named),
    Setting("deserialization.exception.handler", log_and_fail, Effect.WORKS,
            "the handler of records that a serde cannot read: log_and_fail, log_and_continue, "
            "dead_letter_topic(…) or a function", handler_named),
    Setting("processing.exception.handler", log_and_fail, Effect.WORKS,
            "the handler of records for which an operation or a processor raises an error; it takes the values of "
            "deserialization.exception.handler", handler_named),
    Setting("processing.exception.handler.global.enabled", False, Effect.WORKS,
            "true: processing.exception.handler also handles records of global tables and stores", _whether),
    Setting("production.exception.handler", log_and_fail, Effect.WORKS,
            "the handler of records that a serde cannot write to a topic; it takes the values of "
            "deserialization.exception.handler. If a broker refuses a record, the application ends", handler_named),
    Setting("default.production.exception.handler", None, Effect.WORKS, "the earlier name of production.exception.handler", handler_named),
    Setting("errors.dead.letter.queue.topic.name", None, Effect.WORKS, "log_and_fail and log_and_continue also write the unchanged record to this topic",
            _topic),
    Setting("ensure.explicit.internal.resource.naming", False, Effect.WORKS,
            "true: an application is refused if one of its stores or internal topics has a generated name, because "
            "such a name changes with the topology", _whether),
    Setting("dsl.store.format", "DEFAULT", Effect.REFUSED, "only DEFAULT is possible: stores have values with their timestamps", _plain_stores),
    Setting("default.key.serde", Serdes.bytes(), Effect.WORKS, "the serde of keys if the program names none", serde_named),
    Setting("default.timestamp.extractor", fail_on_invalid_timestamp, Effect.WORKS, "the extractor of records' timestamps if the source names none",
            extractor_named),
    Setting("default.value.serde", Serdes.bytes(), Effect.WORKS, "the serde of values if the program names none", serde_named),
    Setting("num.standby.replicas", 0, Effect.INSTEAD,
            "there are no standby replicas, because state is on the disk of state.dir: put this directory on storage that "
            "survives the loss of a machine", _whole(0)),
    Setting("num.stream.threads", 1, Effect.INSTEAD, "Spark runs the tasks: choose the master (local[4]) or the number of executors and cores", _whole(1)),
    Setting("processing.guarantee", "at_least_once", Effect.SPARK,
            "at_least_once or exactly_once_v2; exactly_once and exactly_once_beta mean exactly_once_v2. With it each "
            "micro-batch is one transaction", _guarantee),
    Setting("security.protocol", "PLAINTEXT", Effect.SPARK, "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL: connections with TLS or a login. The `ssl.` and `sasl.` settings of Kafka's clients work, too", _of_client),
    Setting("application.server", "", Effect.SPARK, "host:port on this machine at which other programs can read the stores by HTTP", _server),
    Setting("application.server.token", None, Effect.SPARK, "a secret that these programs must send: `Authorization: Bearer TOKEN`; without it they need none", _token),
    Setting("buffered.records.per.partition", 1000, Effect.INSTEAD,
            "a micro-batch has no buffer for each partition: give KafkaStreams max_offsets_per_trigger", _whole(1)),
    Setting("commit.interval.ms", 30000, Effect.SPARK,
            "how often a micro-batch begins (by default every 30 seconds); this is also how long an update may take "
            "until it is in an output topic. The test driver commits after each record",
            _whole(0)),
    Setting("connections.max.idle.ms", 540000, Effect.INSTEAD, "connections stay open as long as Spark's workers run: nothing needs to be set instead", _whole(-1)),
    Setting("key.serde", None, Effect.WORKS, "is deprecated and stands for default.key.serde: set that instead", serde_named),
    Setting("metadata.max.age.ms", 300000, Effect.SPARK, f"{_SOURCE}: the age at which metadata are requested again", _whole(0)),
    Setting("metric.reporters", (), Effect.INSTEAD, f"{_NOT_A_CLASS}: {_WATCH}"),
    Setting("metrics.num.samples", 2, Effect.INSTEAD, f"metrics come from Spark: {_WATCH}", _whole(1)),
    Setting("metrics.recording.level", "INFO", Effect.INSTEAD, f"metrics come from Spark: {_WATCH}"),
    Setting("metrics.sample.window.ms", 30000, Effect.INSTEAD, f"metrics come from Spark: {_WATCH}", _whole(0)),
    Setting("partition.grouper", None, Effect.INSTEAD,
            "Spark distributes the work among tasks: set repartition(partitions=…) for an internal topic"),
    Setting("poll.ms", 100, Effect.INSTEAD, "a task reads a fixed range of offsets and does not wait for records: set commit.interval.ms, the time between micro-batches", _whole(0)),
    Setting("receive.buffer.bytes", 32768, Effect.SPARK, f"{_SOURCE}: the size of the socket's receive buffer", _whole(-1)),
    Setting("reconnect.backoff.max.ms", 1000, Effect.SPARK, f"{_SOURCE}: the longest pause before the next attempt to connect to a broker", _whole(0)),
    Setting("reconnect.backoff.ms", 50, Effect.SPARK, f"{_SOURCE}: the first pause before the next attempt to connect to a broker", _whole(0)),
    Setting("request.timeout.ms", 40000, Effect.SPARK, f"{_SOURCE}: how long a client waits for an answer", _whole(0)),
    Setting("retry.backoff.ms", 100, Effect.SPARK, f"{_SOURCE}: the pause before a request is sent again", _whole(0)),
    Setting("rocksdb.config.setter", None, Effect.INSTEAD,
            "stores are SQLite files below state.dir: nothing needs to be set instead"),
    Setting("send.buffer.bytes", 131072, Effect.SPARK, f"{_SOURCE}: the size of the socket's send buffer", _whole(-1)),
    Setting("state.cleanup.delay.ms", 600000, Effect.INSTEAD,
            "state is never removed automatically: run kafka-streams-application-reset to begin without the old state", _whole(0)),
    Setting("timestamp.extractor", None, Effect.WORKS, "is deprecated and stands for default.timestamp.extractor: set that instead", extractor_named),
    Setting("value.serde", None, Effect.WORKS, "is deprecated and stands for default.value.serde: set that instead", serde_named),
    Setting("windowstore.changelog.additional.retention.ms", 86400000, Effect.SPARK,
            "how much longer windows stay in a changelog topic than in the store", _whole(0)),
    Setting("acceptable.recovery.lag", 10_000, Effect.INSTEAD, f"{_NO_GROUP}: nothing needs to be set instead"),
    Setting("allow.os.group.write.access", False, Effect.INSTEAD, "the umask of Spark's workers determines the access rights of state files: set this umask"),
    Setting("built.in.metrics.version", "latest", Effect.INSTEAD, f"metrics come from Spark: {_WATCH}"),
    Setting("config.providers", (), Effect.INSTEAD, f"{_NOT_A_CLASS}: let the program read the values, and set the settings to these values"),
    Setting("default.client.supplier", None, Effect.INSTEAD, f"{_NOT_A_CLASS}: nothing needs to be set instead"),
    Setting("default.dsl.store", "rocksDB", Effect.INSTEAD, f"{_SQLITE}: nothing needs to be set instead"),
    Setting("default.list.key.serde.inner", None, Effect.INSTEAD, f"there is no serde for lists: {_NAMED_SERDES}, such as Serdes.json()"),
    Setting("default.list.key.serde.type", None, Effect.INSTEAD, f"there is no serde for lists: {_NAMED_SERDES}, such as Serdes.json()"),
    Setting("default.list.value.serde.inner", None, Effect.INSTEAD, f"there is no serde for lists: {_NAMED_SERDES}, such as Serdes.json()"),
    Setting("default.list.value.serde.type", None, Effect.INSTEAD, f"there is no serde for lists: {_NAMED_SERDES}, such as Serdes.json()"),
    Setting("dsl.store.suppliers.class", None, Effect.INSTEAD, f"{_SQLITE}: nothing needs to be set instead"),
    Setting("enable.metrics.push", True, Effect.INSTEAD, f"metrics come from Spark: {_WATCH}"),
    Setting("group.protocol", "classic", Effect.INSTEAD, f"{_NO_GROUP}: nothing needs to be set instead"),
    Setting("log.summary.interval.ms", 120_000, Effect.INSTEAD, f"metrics come from Spark: {_WATCH}"),
    Setting("max.task.idle.ms", 0, Effect.INSTEAD,
            "a micro-batch processes the records that all topics have at its beginning, by timestamp: set "
            "commit.interval.ms higher, so that a micro-batch has more records of each topic"),
    Setting("max.warmup.replicas", 2, Effect.INSTEAD, f"{_NO_GROUP}: nothing needs to be set instead"),
    Setting("metadata.recovery.rebootstrap.trigger.ms", 300_000, Effect.INSTEAD,
            "a client that can reach no known broker connects to bootstrap.servers again: nothing needs to be set instead"),
    Setting("metadata.recovery.strategy", "rebootstrap", Effect.INSTEAD,
            "a client that can reach no known broker connects to bootstrap.servers again: nothing needs to be set instead"),
    Setting("probing.rebalance.interval.ms", 600_000, Effect.INSTEAD, f"{_NO_GROUP}: nothing needs to be set instead"),
    Setting("processor.wrapper.class", None, Effect.INSTEAD, f"{_NOT_A_CLASS}: wrap the processor in the program"),
    Setting("rack.aware.assignment.non_overlap_cost", None, Effect.INSTEAD, f"{_NO_GROUP}: nothing needs to be set instead"),
    Setting("rack.aware.assignment.strategy", "none", Effect.INSTEAD, f"{_NO_GROUP}: nothing needs to be set instead"),
    Setting("rack.aware.assignment.tags", (), Effect.INSTEAD, f"{_NO_GROUP}: nothing needs to be set instead"),
    Setting("rack.aware.assignment.traffic_cost", None, Effect.INSTEAD, f"{_NO_GROUP}: nothing needs to be set instead"),
    Setting("repartition.purge.interval.ms", 30_000, Effect.INSTEAD,
            "records of internal topics are deleted when they have been read: nothing needs to be set instead"),
    Setting("state.cleanup.dir.max.age.ms", -1, Effect.INSTEAD,
            "state is never removed automatically: call KafkaStreams.clean_up() to remove it"),
    Setting("task.assignor.class", None, Effect.INSTEAD, f"{_NO_GROUP}: choose the master (local[4]) or the number of executors and cores"),
    Setting("task.timeout.ms", 300_000, Effect.INSTEAD,
            "a micro-batch that fails ends the application: set consumer.default.api.timeout.ms and "
            "producer.delivery.timeout.ms, the times for which requests are repeated"),
    Setting("topology.optimization", "none", Effect.INSTEAD,
            "a topology is never optimized, and gives the same results: use one group_by for several tables, so that "
            "they share a repartition topic"),
    Setting("upgrade.from", None, Effect.INSTEAD, f"{_NO_GROUP}: nothing needs to be set instead"),
    Setting("window.size.ms", None, Effect.INSTEAD, f"{_NAMED_SERDES}: Serdes.time_windowed(inner, size)"),
    Setting("windowed.inner.class.serde", None, Effect.INSTEAD, f"{_NAMED_SERDES}: Serdes.time_windowed(inner, size) or Serdes.session_windowed(inner)"),
    Setting("zookeeper.connect", "", Effect.INSTEAD, "it is deprecated and has no effect in Kafka either: set bootstrap.servers"),
)
# fmt: on

_BY_NAME = {setting.name: setting for setting in SETTINGS}
#: The `ssl.` settings of the HTTP server for queries. Their meaning is that of a broker's listener.
_HTTP_SETTINGS = Table(
    "server",
    [
        setting
        for setting in SECURITY_SETTINGS
        if setting.name.startswith(("ssl.keystore.", "ssl.truststore."))
        or setting.name in ("ssl.key.password", "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.client.auth")
    ],
)
_PREFIXED: dict[str, Table] = {
    "consumer.": CONSUMER_SETTINGS,
    "producer.": PRODUCER_SETTINGS,
    "topic.": TOPIC_SETTINGS,
    "application.server.": _HTTP_SETTINGS,
}
#: Deprecated names of settings, each with the present name.
_STAND_FOR = {
    "key.serde": "default.key.serde",
    "value.serde": "default.value.serde",
    "timestamp.extractor": "default.timestamp.extractor",
}
#: Earlier names of settings, which existing programs still use, each with the present name.
_EARLIER = {
    f"default.{kind}.exception.handler": f"{kind}.exception.handler" for kind in ("deserialization", "production")
}


class StreamsConfig:
    """The checked settings of one application. `answers` contains a sentence for each given setting that has no effect
    or is deprecated."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        given = dict(settings or {})
        self.values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
        self.answers: list[str] = []
        for name, value in given.items():
            setting = _BY_NAME.get(name)
            if setting is None:
                self.values[name] = _of_client(name, value) if name in SECURITY_OF_CLIENTS else _prefixed(name, value)
                continue
            made = value if setting.check is None else setting.check(name, value)
            self.values[name] = made
            if name in _EARLIER and _EARLIER[name] not in given:
                self.values[_EARLIER[name]] = made
            if setting.effect is Effect.INSTEAD and value != setting.default:
                self.answers.append(f"{name} has no effect here: {setting.says}.")
            stands_for = _STAND_FOR.get(name)
            if stands_for is not None:
                self.answers.append(f"{name} {setting.says}.")
                if stands_for not in given:
                    self.values[stands_for] = made
        for answer in self.answers:
            logger.warning("%s", answer)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def application_id(self) -> str:
        """Returns the setting application.id. The test driver does not need this setting. If it is missing, the name
        topology-test-driver is returned."""
        return self.values["application.id"] or "topology-test-driver"

    @property
    def caches(self) -> bool:
        """Returns True if tables hold their updates back until the end of a micro-batch, as with a record cache of
        Kafka Streams."""
        return bool(self.values["cache.max.bytes.buffering"] or self.values["statestore.cache.max.bytes"])

    @property
    def key_serde(self) -> Serde:
        serde: Serde = self.values["default.key.serde"]
        return serde

    @property
    def value_serde(self) -> Serde:
        serde: Serde = self.values["default.value.serde"]
        return serde

    @property
    def timestamp_extractor(self) -> TimestampExtractor:
        extractor: TimestampExtractor = self.values["default.timestamp.extractor"]
        return extractor

    def handler(self, kind: str) -> Handler:
        """Returns the exception handler for a kind of failure: "deserialization", "processing" or "production". If the
        settings name a dead letter topic, the handler also writes records to that topic."""
        return with_dead_letters(
            self.values[f"{kind}.exception.handler"], self.values["errors.dead.letter.queue.topic.name"]
        )

    def check_names(self, names: Iterable[str]) -> None:
        """Raises SettingError if ensure.explicit.internal.resource.naming forbids generated names and one of these
        names is generated. The names are those of stores and internal topics."""
        generated = [name for name in names if re.search(r"-[0-9]{10}(-|$)", name)]
        if generated and self.values["ensure.explicit.internal.resource.naming"]:
            raise SettingError(
                "ensure.explicit.internal.resource.naming is true, but these names of stores and internal topics "
                f"are generated ones: {', '.join(generated)}. Give each of these operations a name= or store=."
            )

    @staticmethod
    def matches(pattern: str, topic: str) -> bool:
        """Returns True if a source's pattern matches the whole name of the topic."""
        return re.fullmatch(pattern, topic) is not None


def _prefixed(name: str, value: Any) -> Any:
    """Returns the checked value of a setting with one of the prefixes in `_PREFIXED`. Raises SettingError if the name
    or the value is not valid."""
    prefix = next((prefix for prefix in _PREFIXED if name.startswith(prefix)), None)
    if prefix is None:
        raise SettingError(_unknown(name))
    table, inner = _PREFIXED[prefix], name.removeprefix(prefix)
    if inner not in table:
        near = table.nearest(inner)
        raise SettingError(
            f"the setting {name} is not "
            f"known{f': did you mean {prefix}{near}?' if near else f': {inner} is not a setting of a {table.kind}.'}"
        )
    return _parsed(name, table[inner], value)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.replace("_", "."), _BY_NAME, 1, 0.75)
    return (
        f"the setting {name} is not "
        f"known{f': did you mean {near[0]}?' if near else '; docs/streams.md has all that are.'}"
    )


def as_markdown(settings: Iterable[Setting] = SETTINGS) -> list[str]:
    """Returns the rows of the table of settings in docs/streams.md."""
    words = {
        Effect.WORKS: "works",
        Effect.SPARK: "for Spark",
        Effect.INSTEAD: "no effect",
        Effect.REFUSED: "this value only",
    }
    return [
        f"| `{setting.name}` | {words[setting.effect]} | {setting.says} |"
        for setting in sorted(settings, key=lambda setting: setting.name)
    ]
