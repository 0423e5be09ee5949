"""Every setting of Kafka 1.0's table for Kafka Streams: what it does here, or what to set instead.

    effect     what is meant
    WORKS      the topology and the test driver act on it
    SPARK      KafkaStreams acts on it, which runs the topology on Spark; the test driver has no use for it
    INSTEAD    it has nothing to act on; one sentence says what to set instead
    REFUSED    a value other than the default would promise what is not kept, and is an error

`StreamsConfig` reads a mapping of settings. Names that the table does not have are an error that gives the nearest
name: a slip of the pen must not change what runs. With `consumer.`, `producer.` or `topic.` in front, as in Kafka
Streams, they are settings of the source's client, of the sink's, and of internal topics; they are checked by those
tables, and kept for Spark.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from jesenska.base.errors import InvalidConfigError
from jesenska.config.client_settings import CONSUMER_SETTINGS, PRODUCER_SETTINGS
from jesenska.config.table import Table, value_text
from jesenska.config.topic_settings import TOPIC_SETTINGS
from jesenska.pipeline.streams.errors import SettingError
from jesenska.pipeline.streams.handlers import DeserializationHandler, handler_named, log_and_fail
from jesenska.pipeline.streams.serde import Serde
from jesenska.pipeline.streams.serdes import Serdes, serde_named
from jesenska.pipeline.streams.timestamps import TimestampExtractor, extractor_named, fail_on_invalid_timestamp

logger = logging.getLogger(__name__)


class Effect(Enum):
    WORKS = "works"
    SPARK = "for Spark"
    INSTEAD = "instead"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the table. `says` is what the setting does, or what to set in its place. `check` makes the value."""

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
            raise SettingError(f"{name} has {server!r} in it, which is no address: write host:port, several separated by commas.")
    return ",".join(servers)


def _server(name: str, value: Any) -> str:
    text = _text(name, value)
    if text and not re.fullmatch(r"[^\s,/]+:[0-9]{1,5}", text):
        raise SettingError(f"{name} is {text!r}, which is no address: write host:port.")
    return text


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
        raise SettingError(f"{name} is {text!r}, but topics are named after it: use ASCII letters, digits, '.', '_' and '-'.")
    return text


def _guarantee(name: str, value: Any) -> str:
    if value in ("exactly_once", "exactly_once_beta", "exactly_once_v2"):
        return "exactly_once_v2"
    if value != "at_least_once":
        raise SettingError(f"{name} is {value!r}: set at_least_once or exactly_once_v2.")
    return str(value)


def _plaintext(name: str, value: Any) -> str:
    if value != "PLAINTEXT":
        raise SettingError(f"{name} is {value!r}, and connections are plain as yet: set PLAINTEXT.")
    return str(value)


_SOURCE = "the source and the sink take it as a client's setting"
_WATCH = "watch the query with Spark's StreamingQueryListener or its metrics"

# fmt: off
SETTINGS: tuple[Setting, ...] = (
    Setting("application.id", None, Effect.WORKS, "names the application: internal topics, stores and the checkpoint begin with it", _application_id),
    Setting("bootstrap.servers", None, Effect.SPARK, "the brokers to ask first, host:port separated by commas; the test driver needs none", _servers),
    Setting("replication.factor", 1, Effect.SPARK, "how many replicas internal topics get", _whole(-1)),
    Setting("state.dir", "/tmp/kafka-streams", Effect.SPARK, "where checkpoints and state are kept; give a directory that all executors reach", _text),  # noqa: S108
    Setting("cache.max.bytes.buffering", 0, Effect.SPARK, "the earlier name of statestore.cache.max.bytes", _whole(0)),
    Setting("statestore.cache.max.bytes", 0, Effect.SPARK,
            "above 0: a table with a store sends on only the last update of each key in a micro-batch, as Kafka Streams does with its default of "
            "10485760; the size does not matter. 0: every update goes on, as in the test driver", _whole(0)),
    Setting("client.id", "", Effect.SPARK, f"{_SOURCE}: the name that brokers see in requests"),
    Setting("default.deserialization.exception.handler", log_and_fail, Effect.WORKS,
            "what happens with records that the serdes cannot read: log_and_fail, log_and_continue, dead_letter_topic(…) or a function", handler_named),
    Setting("default.key.serde", Serdes.bytes(), Effect.WORKS, "how keys are read and written where the program names no serde", serde_named),
    Setting("default.timestamp.extractor", fail_on_invalid_timestamp, Effect.WORKS, "which time records have where the source names no extractor",
            extractor_named),
    Setting("default.value.serde", Serdes.bytes(), Effect.WORKS, "how values are read and written where the program names no serde", serde_named),
    Setting("num.standby.replicas", 0, Effect.INSTEAD,
            "state is on the disk of state.dir: put it on storage that outlives a machine, in place of standby replicas", _whole(0)),
    Setting("num.stream.threads", 1, Effect.INSTEAD, "Spark runs the tasks: choose the master (local[4]) or the number of executors and cores", _whole(1)),
    Setting("processing.guarantee", "at_least_once", Effect.SPARK,
            "at_least_once or exactly_once_v2 (exactly_once and exactly_once_beta are the same): then each micro-batch is one transaction", _guarantee),
    Setting("security.protocol", "PLAINTEXT", Effect.REFUSED, "PLAINTEXT is what connections speak as yet", _plaintext),
    Setting("application.server", "", Effect.SPARK, "host:port of this machine where the stores are asked over HTTP, without TLS and password", _server),
    Setting("buffered.records.per.partition", 1000, Effect.INSTEAD,
            "a micro-batch has no buffer for each partition: give KafkaStreams max_offsets_per_trigger", _whole(1)),
    Setting("commit.interval.ms", 30000, Effect.SPARK,
            "how often a micro-batch begins (30 seconds where it is not set), which is also how long an update may take to come out; "
            "the test driver commits after each record",
            _whole(0)),
    Setting("connections.max.idle.ms", 540000, Effect.INSTEAD, "connections live as long as Spark's workers: nothing needs to be set instead", _whole(-1)),
    Setting("key.serde", None, Effect.WORKS, "is deprecated and stands for default.key.serde: set that instead", serde_named),
    Setting("metadata.max.age.ms", 300000, Effect.SPARK, f"{_SOURCE}: the age at which metadata are asked for again", _whole(0)),
    Setting("metric.reporters", (), Effect.INSTEAD, f"a class of Java cannot be loaded: {_WATCH}"),
    Setting("metrics.num.samples", 2, Effect.INSTEAD, f"Spark measures: {_WATCH}", _whole(1)),
    Setting("metrics.recording.level", "INFO", Effect.INSTEAD, f"Spark measures: {_WATCH}"),
    Setting("metrics.sample.window.ms", 30000, Effect.INSTEAD, f"Spark measures: {_WATCH}", _whole(0)),
    Setting("partition.grouper", None, Effect.INSTEAD,
            "Spark divides the work among tasks: set repartition(partitions=…) for an internal topic"),
    Setting("poll.ms", 100, Effect.INSTEAD, "a task reads a range of offsets and waits for nothing: set commit.interval.ms for the pace", _whole(0)),
    Setting("receive.buffer.bytes", 32768, Effect.SPARK, f"{_SOURCE}: the system's receive buffer", _whole(-1)),
    Setting("reconnect.backoff.max.ms", 1000, Effect.SPARK, f"{_SOURCE}: the longest pause before a broker is connected to again", _whole(0)),
    Setting("reconnect.backoff.ms", 50, Effect.SPARK, f"{_SOURCE}: the first pause before a broker is connected to again", _whole(0)),
    Setting("request.timeout.ms", 40000, Effect.SPARK, f"{_SOURCE}: how long an answer is waited for", _whole(0)),
    Setting("retry.backoff.ms", 100, Effect.SPARK, f"{_SOURCE}: the pause before a request is sent again", _whole(0)),
    Setting("rocksdb.config.setter", None, Effect.INSTEAD,
            "stores are SQLite files below state.dir: nothing needs to be set instead"),
    Setting("send.buffer.bytes", 131072, Effect.SPARK, f"{_SOURCE}: the system's send buffer", _whole(-1)),
    Setting("state.cleanup.delay.ms", 600000, Effect.INSTEAD,
            "state stays for as long as the application is to go on from it: kafka-streams-application-reset begins anew", _whole(0)),
    Setting("timestamp.extractor", None, Effect.WORKS, "is deprecated and stands for default.timestamp.extractor: set that instead", extractor_named),
    Setting("value.serde", None, Effect.WORKS, "is deprecated and stands for default.value.serde: set that instead", serde_named),
    Setting("windowstore.changelog.additional.retention.ms", 86400000, Effect.SPARK,
            "how much longer than in the store windows stay in its changelog topic", _whole(0)),
    Setting("zookeeper.connect", "", Effect.INSTEAD, "it is deprecated and has no effect in Kafka either: set bootstrap.servers"),
)
# fmt: on

_BY_NAME = {setting.name: setting for setting in SETTINGS}
_PREFIXED: dict[str, Table] = {"consumer": CONSUMER_SETTINGS, "producer": PRODUCER_SETTINGS, "topic": TOPIC_SETTINGS}
#: Deprecated names and what they stand for.
_STAND_FOR = {"key.serde": "default.key.serde", "value.serde": "default.value.serde", "timestamp.extractor": "default.timestamp.extractor"}


class StreamsConfig:
    """The settings of one application, checked. `answers` is what is to be told of those that have no effect as they
    are set: one sentence for each."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        given = dict(settings or {})
        self.values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
        self.answers: list[str] = []
        for name, value in given.items():
            setting = _BY_NAME.get(name)
            if setting is None:
                self.values[name] = _prefixed(name, value)
                continue
            made = value if setting.check is None else setting.check(name, value)
            self.values[name] = made
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
        """application.id, which the test driver does not need."""
        return self.values["application.id"] or "topology-test-driver"

    @property
    def caches(self) -> bool:
        """Whether tables hold their updates back until the end of a micro-batch."""
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

    @property
    def deserialization_handler(self) -> DeserializationHandler:
        handler: DeserializationHandler = self.values["default.deserialization.exception.handler"]
        return handler

    @staticmethod
    def matches(pattern: str, topic: str) -> bool:
        """Whether a source's pattern takes the topic."""
        return re.fullmatch(pattern, topic) is not None


def _prefixed(name: str, value: Any) -> Any:
    """The value of a client's or a topic's setting; SettingError where it is none."""
    prefix, _, inner = name.partition(".")
    table = _PREFIXED.get(prefix)
    if table is None:
        raise SettingError(_unknown(name))
    if inner not in table:
        near = table.nearest(inner)
        raise SettingError(f"the setting {name} is not known{f': did you mean {prefix}.{near}?' if near else f': {inner} is no setting of a {table.kind}.'}")
    try:
        return table[inner].parse(value if isinstance(value, str) else value_text(value) or "")
    except InvalidConfigError as error:
        raise SettingError(f"{name}: {error}") from error


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.replace("_", "."), _BY_NAME, 1, 0.75)
    return f"the setting {name} is not known{f': did you mean {near[0]}?' if near else '; docs/streams.md has all that are.'}"


def as_markdown(settings: Iterable[Setting] = SETTINGS) -> list[str]:
    """The rows of the table in docs/streams.md."""
    words = {Effect.WORKS: "works", Effect.SPARK: "for Spark", Effect.INSTEAD: "no effect", Effect.REFUSED: "this value only"}
    return [f"| `{setting.name}` | {words[setting.effect]} | {setting.says} |" for setting in sorted(settings, key=lambda setting: setting.name)]
