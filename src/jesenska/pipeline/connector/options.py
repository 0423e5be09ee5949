"""Parses and checks the options that a user gives with `.option(...)`. Their names are those of Spark's own Kafka
source and sink:

    source   one of   subscribe            "flights,weather"
                      subscribePattern     a Java regular expression over whole names
                      assign               {"flights": [0, 1]}
             from     startingTimestamp, else startingOffsetsByTimestamp, else startingOffsets
                      (the first that is given counts, as in Spark)
             to       endingTimestamp, else endingOffsetsByTimestamp, else endingOffsets           (batch only)
             pace     maxOffsetsPerTrigger, minOffsetsPerTrigger with maxTriggerDelay              (streams only)
             tasks    minPartitions, maxRecordsPerPartition
             rows     includeHeaders, columns ("value,offset": these columns only), failOnDataLoss
             patience fetchOffset.numRetries with fetchOffset.retryIntervalMs (look-ups of offsets),
                      kafkaConsumer.pollTimeoutMs (records)
             lag      kafka.group.id: a stream commits the offsets it has read to this group, for tools that show lag;
                      no query starts at these offsets
             ignored  groupIdPrefix: it names the consumer groups of Spark's own source; this source has no groups
    sink     topic, includeHeaders
    both     kafka.bootstrap.servers, and kafka.<name> for the client's settings

Offsets are `earliest`, `latest` or {"topic": {"0": 23, "1": -1}} with -2 for earliest and -1 for latest; times are
milliseconds since 1970. Spark passes option names in lower case, so case does not matter. An unknown option is an
error that suggests the nearest known name: a typing error must not change which records are read.

TLS files must exist on every machine that runs tasks. A query cannot start at a consumer group's committed offsets, as
in Spark's own source."""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from jesenska.base.errors import InvalidConfigError, JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import DATA_SOURCE_OPTION_MAX_CHARS
from jesenska.base.topic_names import is_legal_topic_name
from jesenska.client.client_config import ClientConfig, client_config_of
from jesenska.config.settings.client_settings import CONSUMER_SETTINGS, PRODUCER_SETTINGS, SECURITY_OF_CLIENTS
from jesenska.config.table import Table, Unknown, Value
from jesenska.pipeline.patterns import topic_pattern
from jesenska.security.client_security import client_security

logger = logging.getLogger(__name__)

EARLIEST_OFFSET, LATEST_OFFSET = -2, -1
#: The columns of a row. The last column, headers, is present only with includeHeaders, or if the option `columns`
#: names it.
COLUMNS_WITH_HEADERS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
COLUMNS = COLUMNS_WITH_HEADERS[:-1]
#: The key of the topic id in a topic's part of a stream's offsets. The other keys of the topic's part are partition
#: numbers.
TOPIC_ID = "topicId"

_CHOICES = ("assign", "subscribe", "subscribePattern")
#: The metadata stored with the offsets that a query commits to the consumer group of the option kafka.group.id.
READ_BY_A_QUERY = "read by a query of Spark"
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_PACE = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_SOURCE_NAMES = (
    *_CHOICES,
    *_STARTS,
    *_ENDS,
    *_PACE,
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_SINK_NAMES = ("topic", "includeHeaders")
#: The client's settings that both the source and the sink use. A setting that a source or sink does not use is
#: reported with a warning.
_CLIENT_SETTINGS = (
    "bootstrap.servers",
    "client.id",
    *SECURITY_OF_CLIENTS,
    "request.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "send.buffer.bytes",
    "receive.buffer.bytes",
    "metadata.max.age.ms",
    "default.api.timeout.ms",
)
_CONSUMER_SETTINGS = {
    *_CLIENT_SETTINGS,
    "group.id",
    "exclude.internal.topics",
    "max.partition.fetch.bytes",
    "fetch.max.wait.ms",
    "isolation.level",
    "check.crcs",
}
_PRODUCER_SETTINGS = {
    *_CLIENT_SETTINGS,
    "acks",
    "enable.idempotence",
    "compression.type",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "batch.size",
    "max.request.size",
    "buffer.memory",
    "delivery.timeout.ms",
    "max.block.ms",
    "partitioner.ignore.keys",
}
#: The names of options that Spark itself passes to every source or sink.
_SPARK_NAMES = {"checkpointlocation", "queryname"}
#: Client settings that would break the guarantees of this source or sink, each with the remedy to report. Spark's own
#: Kafka source and sink also refuse these settings.
_REFUSED_SETTINGS = {
    "auto.offset.reset": "use startingOffsets, which says it for each query",
    "enable.auto.commit": "the checkpoint holds the offsets",
    "key.deserializer": "keys come as binary; cast them in the query",
    "value.deserializer": "values come as binary; cast them in the query",
    "key.serializer": "cast the column key to string or binary in the query",
    "value.serializer": "cast the column value to string or binary in the query",
    "interceptor.classes": "records are not handed out one by one",
    "partitioner.class": "give the rows a column partition, which says it for each row",
    "transactional.id": "ExactlyOnce, a function for foreachBatch, has one that is made of the query's name",
}
_DELAY = re.compile(r"\s*(\d+)\s*(ms|s|sec|m|min|h|d)?\s*\Z")
_DELAY_MS = {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}
_DEFAULT_DELAY_MS = 15 * 60_000
_LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read: the partitions in `assigned`, all partitions of the named topics, or all partitions of
    the topics whose names match a pattern."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    with_internal: bool = False  # True if a pattern finds topics such as __consumer_offsets, too

    def names(self, key: TopicPartition) -> bool:
        """Returns True if the option assign or subscribe names the partition. With subscribePattern it always returns
        True, since the brokers then decide which topics exist."""
        return self.pattern is not None or key in self.assigned or key.topic in self.topics

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"the pattern {self.pattern}"
        return ", ".join(map(str, self.assigned)) if self.assigned else ", ".join(self.topics)


@dataclass(frozen=True, slots=True)
class Position:
    """The start or end of reading: one offset or time for all partitions (`everywhere`), or an offset or time for each
    partition (`by_partition`). `is_time` is True for times in milliseconds since 1970, and False for offsets. The
    offset -2 means the earliest offset, and -1 the latest. `option` is the name of the user's option, for error
    messages."""

    option: str
    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_time: bool = False


_CLIENT_ID: Final = "jesenska-spark"
_CONNECTIONS: Final = ClientConfig(client_id=_CLIENT_ID)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options of the connection to the brokers. Equal options share one connection in a process."""

    bootstrap: str
    #: The settings of the connection without TLS and SASL: each process makes its TLS and SASL objects from
    #: `security`.
    connections: ClientConfig = _CONNECTIONS
    api_timeout_ms: int = 60_000
    #: The given settings for TLS and SASL, including secrets. Empty for unencrypted connections without
    #: authentication.
    security: tuple[tuple[str, Value], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    client: ClientOptions
    subscription: Subscription
    start: Position
    end: Position
    latest_if_no_record_at_time: bool = False
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = _DEFAULT_DELAY_MS
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = COLUMNS
    offset_retries: int | None = None  # None: as long as default.api.timeout.ms lasts
    offset_retry_interval_ms: int | None = None
    poll_timeout_ms: int | None = None  # None: default.api.timeout.ms
    fetch_bytes: int = 4 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    read_committed: bool = False
    check_crcs: bool = True
    group_id: str | None = None  # the group to which a stream commits its position


@dataclass(frozen=True, slots=True)
class SinkOptions:
    client: ClientOptions
    topic: str | None = None
    acks: int = -1
    enable_idempotence: bool | None = None
    compression: str = "none"
    compression_level: int | None = None
    batch_bytes: int = 1_000_000
    max_request_size: int = 1_048_576
    buffer_memory: int = 32 * 1024 * 1024
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    ignore_keys: bool = False


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Returns the options of a query that reads. Raises JesenskaError for an invalid option."""
    options = _Given(given, _SOURCE_NAMES)
    settings = _settings(options, CONSUMER_SETTINGS, _CONSUMER_SETTINGS)
    if streaming:
        for name in _ENDS:
            options.refuse(name, "a stream has no end; use it with spark.read, or leave it out")
    else:
        options.warn_without_effect(_PACE, "only streams have triggers")
        options.warn_without_effect(("kafka.group.id",), "only streams commit how far they have read")
    options.warn_without_effect(("groupIdPrefix",), "the source reads without a consumer group")
    group = options.text("kafka.group.id") if streaming else None
    maximum, minimum = options.positive("maxOffsetsPerTrigger"), options.positive("minOffsetsPerTrigger")
    if maximum is not None and minimum is not None and minimum > maximum:
        raise JesenskaError(
            f"minOffsetsPerTrigger ({minimum}) is larger than maxOffsetsPerTrigger ({maximum}): no trigger could "
            f"meet both."
        )
    strategy = options.word("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    return SourceOptions(
        client=_client(settings),
        subscription=replace(_subscription(options), with_internal=settings.get("exclude.internal.topics") is False),
        start=_position(
            options,
            _STARTS,
            LATEST_OFFSET if streaming else EARLIEST_OFFSET,
            refused=None if streaming else LATEST_OFFSET,
        ),
        end=_position(options, _ENDS, LATEST_OFFSET, refused=EARLIEST_OFFSET),
        latest_if_no_record_at_time=strategy == "latest",
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=_delay_ms(options),
        min_partitions=options.positive("minPartitions"),
        max_records_per_partition=options.positive("maxRecordsPerPartition"),
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        columns=_columns(options),
        offset_retries=options.whole("fetchOffset.numRetries", 0),
        offset_retry_interval_ms=options.whole("fetchOffset.retryIntervalMs", 0),
        poll_timeout_ms=options.whole("kafkaConsumer.pollTimeoutMs", 1),
        fetch_bytes=max(1, _number(settings, "max.partition.fetch.bytes", 4 * 1024 * 1024)),
        fetch_max_wait_ms=_number(settings, "fetch.max.wait.ms", 500),
        read_committed=settings.get("isolation.level") == "read_committed",
        check_crcs=bool(settings.get("check.crcs", True)),
        group_id=group or None,
    )


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names of a row's columns: the names in the option `columns`, in their order. Without this option,
    all columns are returned; the column headers only with includeHeaders."""
    return _columns(_Given(given, _SOURCE_NAMES))


def _columns(options: _Given) -> tuple[str, ...]:
    with_headers = options.boolean("includeHeaders", False)
    text = options.text("columns")
    if text is None:
        return COLUMNS_WITH_HEADERS if with_headers else COLUMNS
    chosen = tuple(dict.fromkeys(name for item in text.split(",") if (name := item.strip())))
    unknown = [name for name in chosen if name not in COLUMNS_WITH_HEADERS]
    if unknown or not chosen:
        what = f"names {unknown[0]!r}, which a row does not have" if unknown else "names no column"
        raise JesenskaError(f"The option columns {what}: choose from {', '.join(COLUMNS_WITH_HEADERS)}.")
    if with_headers and "headers" not in chosen:
        raise JesenskaError(
            "The option includeHeaders is true, but the option columns does not name headers: add headers to "
            "columns, or leave includeHeaders out."
        )
    return chosen


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Returns the options of a query that writes. Raises JesenskaError for an invalid option."""
    options = _Given(given, _SINK_NAMES)
    settings = _settings(options, PRODUCER_SETTINGS, _PRODUCER_SETTINGS)
    topic = options.text("topic")
    if topic is not None and not is_legal_topic_name(topic):
        raise _not_a_topic(topic, "topic")
    compression = str(settings.get("compression.type", "none"))
    level = settings.get(f"compression.{compression}.level")
    acks = {"all": -1, "-1": -1, "0": 0, "1": 1}[str(settings.get("acks", "all"))]
    idempotent = settings.get("enable.idempotence")
    if idempotent and acks != -1:
        raise JesenskaError("kafka.enable.idempotence=true needs kafka.acks=all: leave one of them out.")
    return SinkOptions(
        client=_client(settings),
        topic=topic,
        acks=acks,
        enable_idempotence=None if idempotent is None else bool(idempotent),
        compression=compression,
        compression_level=level if isinstance(level, int) else None,
        batch_bytes=min(1_000_000, max(1, _number(settings, "batch.size", 1_000_000))),
        max_request_size=max(1, _number(settings, "max.request.size", 1_048_576)),
        buffer_memory=max(1, _number(settings, "buffer.memory", 32 * 1024 * 1024)),
        delivery_timeout_ms=_number(settings, "delivery.timeout.ms", 120_000),
        max_block_ms=_number(settings, "max.block.ms", 60_000),
        ignore_keys=settings.get("partitioner.ignore.keys") is True,
    )


class _Given:
    """The user's options as Spark passes them. Names are looked up without regard to case."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._texts = {name.lower(): text for name, text in given.items()}
        lowered = {name.lower(): name for name in known}
        for name, text in self._texts.items():
            if len(text) > DATA_SOURCE_OPTION_MAX_CHARS:
                raise JesenskaError(
                    f"The option {name} has {len(text)} characters, more than {DATA_SOURCE_OPTION_MAX_CHARS}."
                )
            if name in lowered or name in _SPARK_NAMES or name.startswith("kafka."):
                continue
            if name == "path":
                raise JesenskaError(
                    "A topic is not a path: call load() or save() without one and name the topic in the option "
                    "subscribe or topic."
                )
            nearest = difflib.get_close_matches(name, [*lowered, "kafka.bootstrap.servers"], n=1, cutoff=0.6)
            hint = (
                f"; did you mean {lowered.get(nearest[0], nearest[0])}?"
                if nearest
                else f": known are {', '.join(known)} and kafka.*."
            )
            raise JesenskaError(f"The option {name} is not known{hint}")

    def text(self, name: str) -> str | None:
        text = self._texts.get(name.lower())
        return None if text is None else text.strip()

    def settings(self) -> dict[str, str]:
        return {name.removeprefix("kafka."): text for name, text in self._texts.items() if name.startswith("kafka.")}

    def refuse(self, name: str, reason: str) -> None:
        if self.text(name) is not None:
            raise JesenskaError(f"The option {name} does not go with a stream: {reason}.")

    def warn_without_effect(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            if self.text(name) is not None:
                logger.warning("The option %s has no effect here: %s.", name, reason)

    def whole(self, name: str, least: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        number = _long(text)
        if number is None or number < least:
            raise JesenskaError(
                f"The option {name} is {text!r}: write a whole number from {least} up, {_LONG_MAX} at most."
            )
        return number

    def positive(self, name: str) -> int | None:
        return self.whole(name, 1)

    def word(self, name: str, words: tuple[str, ...], default: str) -> str:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in words:
            raise JesenskaError(f"The option {name} is {text!r}: write {' or '.join(words)}.")
        return text.lower()

    def boolean(self, name: str, default: bool) -> bool:
        return self.word(name, ("true", "false"), "true" if default else "false") == "true"


def _long(text: str) -> int | None:
    """Returns the number in a text of digits. Returns None if the text is not a number, or exceeds the maximum of
    Java's long."""
    return int(text) if re.match(r"[0-9]{1,19}\Z", text) and int(text) <= _LONG_MAX else None


def _settings(options: _Given, table: Table, used: Collection[str]) -> dict[str, Value]:
    """Returns the typed values of the options that begin with `kafka.`. Raises JesenskaError for an option that cannot
    be set here. Logs a warning for an option that is unknown or has no effect here."""
    texts = options.settings()
    if not texts.get("bootstrap.servers", "").strip():
        raise JesenskaError("The option kafka.bootstrap.servers is missing: name a broker, for example 127.0.0.1:9092.")
    for name, reason in _REFUSED_SETTINGS.items():
        if name in texts:
            raise JesenskaError(f"The option kafka.{name} cannot be set: {reason}.")
    try:
        settings = table.parse(texts)
    except InvalidConfigError as error:
        raise JesenskaError(f"An option that begins with kafka. is not valid: {error}.") from None
    try:
        client_security(settings.get, bytes)
    except InvalidConfigError as error:
        raise JesenskaError(f"The TLS or SASL options that begin with kafka. are not valid: {error}") from None
    for unknown in table.unknown(texts):
        logger.warning("%s", Unknown(f"kafka.{unknown.name}", unknown.nearest and f"kafka.{unknown.nearest}"))
    for name in sorted(texts):
        if name in table and name not in used:
            logger.warning(
                "The option kafka.%s has no effect here: only Kafka's own clients use it, not this source or sink.",
                name,
            )
    return settings


def _number(settings: Mapping[str, Value], name: str, default: int) -> int:
    value = settings.get(name, default)
    return value if isinstance(value, int) else default


def _client(settings: Mapping[str, Value]) -> ClientOptions:
    servers = settings["bootstrap.servers"]
    assert isinstance(servers, tuple)
    given = {name: settings[name] for name in _CLIENT_SETTINGS if settings.get(name) not in (None, "")}
    return ClientOptions(
        bootstrap=",".join(servers),
        connections=client_config_of({"client.id": _CLIENT_ID, **given}),
        api_timeout_ms=_number(settings, "default.api.timeout.ms", 60_000),
        security=tuple((name, settings[name]) for name in SECURITY_OF_CLIENTS if name in settings),
    )


def _subscription(options: _Given) -> Subscription:
    given = [name for name in _CHOICES if options.text(name) is not None]
    if len(given) != 1:
        count = "none of them is set" if not given else f"{' and '.join(given)} are set"
        raise JesenskaError(
            f"Set exactly one of the options assign, subscribe and subscribePattern, which say what to read: {count}."
        )
    text = options.text(given[0]) or ""
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name for item in text.split(",") if (name := item.strip())))
        if not topics:
            raise JesenskaError("The option subscribe names no topic: write one, or several separated by commas.")
        for topic in topics:
            if not is_legal_topic_name(topic):
                raise _not_a_topic(topic, "subscribe")
        return Subscription(topics=topics)
    if given[0] == "subscribePattern":
        if not text:
            raise JesenskaError(
                "The option subscribePattern is empty: write a Java regular expression, for example flights.*"
            )
        topic_pattern(text)
        return Subscription(pattern=text)
    assigned = _assignment(text)
    return Subscription(assigned=assigned)


def _not_a_topic(name: str, option: str) -> JesenskaError:
    return JesenskaError(
        f"{name!r} in the option {option} cannot be the name of a topic: use 1 to 249 of the characters a-z, A-Z, "
        f"0-9, '.', '_' and '-'."
    )


def _assignment(text: str) -> tuple[TopicPartition, ...]:
    form = 'write {"topic": [0, 1]}'
    tree = _json(text, "assign", form)
    found = []
    for topic, partitions in tree.items():
        if not isinstance(partitions, list) or not all(_is_partition(item) for item in partitions):
            raise JesenskaError(f"The option assign does not list partition numbers for the topic {topic}: {form}.")
        if not is_legal_topic_name(topic):
            raise _not_a_topic(topic, "assign")
        found += [TopicPartition(topic, item) for item in partitions]
    if not found:
        raise JesenskaError(f"The option assign names no partition: {form}.")
    return tuple(sorted(set(found)))


def _is_partition(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**31


def _json(text: str, option: str, form: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        raise JesenskaError(f"The option {option} is not JSON: {form}.") from None
    if not isinstance(tree, dict):
        raise JesenskaError(f"The option {option} is not a JSON object: {form}.")
    return tree


def _position(options: _Given, names: tuple[str, str, str], default: int, refused: int | None) -> Position:
    time_name, by_time_name, offsets_name = names
    time = options.text(time_name)
    if time is not None:
        at = _long(time)
        if at is None:
            raise JesenskaError(f"The option {time_name} is {time!r}: write milliseconds since 1970-01-01 UTC.")
        return Position(time_name, everywhere=at, is_time=True)
    by_time = options.text(by_time_name)
    if by_time is not None:
        return Position(by_time_name, by_partition=_by_partition(by_time, by_time_name, times=True), is_time=True)
    text = options.text(offsets_name)
    if text is None:
        return Position(offsets_name, everywhere=default)
    words = {"earliest": EARLIEST_OFFSET, "latest": LATEST_OFFSET}
    if text.lower() in words:
        if words[text.lower()] == refused:
            raise JesenskaError(
                f"The option {offsets_name} cannot be {text.lower()} in a batch query: nothing would be read."
            )
        return Position(offsets_name, everywhere=words[text.lower()])
    positions = _by_partition(text, offsets_name, times=False)
    for key, offset in positions.items():
        if offset == refused:
            raise JesenskaError(
                f"The option {offsets_name} cannot be {offset} for {key} in a batch query: nothing would be read."
            )
    return Position(offsets_name, by_partition=positions)


def _by_partition(text: str, option: str, *, times: bool) -> dict[TopicPartition, int]:
    form = (
        'write {"topic": {"0": 1700000000000}}' if times else 'write earliest, latest or {"topic": {"0": 23, "1": -2}}'
    )
    lowest = 0 if times else EARLIEST_OFFSET
    found = {}
    for topic, partitions in _json(text, option, form).items():
        if not isinstance(partitions, dict):
            raise JesenskaError(f"The option {option} holds no partitions for the topic {topic}: {form}.")
        for partition, number in partitions.items():
            if partition == TOPIC_ID:  # the offsets of a query's progress or checkpoint, handed over as they are
                continue
            if not re.match(r"\d{1,9}\Z", partition):
                raise JesenskaError(
                    f"The option {option} has {partition!r} where a partition number of the topic {topic} is "
                    f"expected: {form}."
                )
            if not isinstance(number, int) or isinstance(number, bool) or not lowest <= number < 2**63:
                raise JesenskaError(f"The option {option} has {number!r} for {topic}-{partition}: {form}.")
            found[TopicPartition(topic, int(partition))] = number
    if not found:
        raise JesenskaError(f"The option {option} names no partition: {form}.")
    return found


def _delay_ms(options: _Given) -> int:
    text = options.text("maxTriggerDelay")
    if text is None:
        return _DEFAULT_DELAY_MS
    matched = _DELAY.match(text.lower())
    if matched is None:
        raise JesenskaError(f"The option maxTriggerDelay is {text!r}: write a time such as 15m or 30s.")
    return int(matched[1]) * _DELAY_MS[matched[2]]
