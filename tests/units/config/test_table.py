from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import InvalidConfigError
from jesenska.config.reasons import INT_MAX, LONG_MAX
from jesenska.config.settings.broker_settings import BROKER_SETTINGS
from jesenska.config.settings.client_settings import ADMIN_SETTINGS, CONSUMER_SETTINGS, PRODUCER_SETTINGS
from jesenska.config.settings.topic_settings import BROKER_SYNONYMS, TOPIC_SETTINGS
from jesenska.config.table import Dynamic, Effect, Importance, Setting, Table, Type, Value, release_number, value_text

TABLES = (BROKER_SETTINGS, TOPIC_SETTINGS, PRODUCER_SETTINGS, CONSUMER_SETTINGS, ADMIN_SETTINGS)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.kind)
def test_every_default_is_of_its_type_and_passes_its_own_check(table: Table) -> None:
    kinds: dict[Type, type | tuple[type, ...]] = {
        Type.BOOLEAN: bool,
        Type.INT: int,
        Type.SHORT: int,
        Type.LONG: int,
        Type.DOUBLE: float,
        Type.STRING: str,
        Type.LIST: tuple,
        Type.CLASS: str,
        Type.PASSWORD: str,
    }
    for setting in table:
        if setting.default is not None:
            assert isinstance(setting.default, kinds[setting.type]), setting.name
            text = value_text(setting.default)
            assert text is not None
            assert setting.parse(text) == setting.default, setting.name


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.kind)
def test_every_setting_has_one_sentence_and_a_reason_where_it_does_not_work(table: Table) -> None:
    for setting in table:
        assert setting.doc.endswith("."), setting.name
        assert setting.doc[0].isupper(), setting.name
        assert (setting.effect is Effect.WORKS) == (setting.reason == ""), setting.name


# Defaults from kafka-topics of 3.9.1 and from the documents' table of 1.0; where they differ, see the rulings.
@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("cleanup.policy", ("delete",)),
        ("compression.type", "producer"),
        ("delete.retention.ms", 86_400_000),
        ("file.delete.delay.ms", 60_000),
        ("flush.messages", LONG_MAX),
        ("flush.ms", LONG_MAX),
        ("index.interval.bytes", 4096),
        ("max.message.bytes", 1_048_588),  # current producers send up to 1 MiB, which 1.0's 1000012 would refuse
        ("message.format.version", "1.0-IV0"),
        ("message.timestamp.difference.max.ms", LONG_MAX),
        ("message.timestamp.type", "CreateTime"),
        ("min.cleanable.dirty.ratio", 0.5),
        ("min.compaction.lag.ms", 0),
        ("min.insync.replicas", 1),
        ("preallocate", False),
        ("retention.bytes", -1),
        ("retention.ms", 604_800_000),
        ("segment.bytes", 1_073_741_824),
        ("segment.index.bytes", 10_485_760),
        ("segment.jitter.ms", 0),
        ("segment.ms", 604_800_000),
        ("unclean.leader.election.enable", False),
    ],
)
def test_topic_defaults_are_those_of_the_documents(name: str, default: Value) -> None:
    assert TOPIC_SETTINGS.default(name) == default


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("replica.lag.time.max.ms", 10_000),
        ("offsets.retention.minutes", 1440),
        ("zookeeper.session.timeout.ms", 6000),
        ("num.partitions", 1),
        ("log.retention.hours", 168),
        ("delete.topic.enable", True),
        ("num.replica.fetchers", 1),
        ("message.max.bytes", 1_048_588),
        ("socket.request.max.bytes", 104_857_600),
        ("max.connections.per.ip", INT_MAX),
    ],
)
def test_broker_defaults_are_those_of_one_zero(name: str, default: Value) -> None:
    assert BROKER_SETTINGS.default(name) == default


def test_transactions_over_their_time_are_looked_for_as_often_as_in_four_three() -> None:
    setting = BROKER_SETTINGS["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
    assert (setting.default, setting.release) == (10_000, "4.3")


def test_every_topic_setting_with_a_synonym_takes_it_from_a_broker_setting_of_the_same_kind() -> None:
    for name, synonyms in BROKER_SYNONYMS.items():
        kind = TOPIC_SETTINGS[name].type
        for synonym in synonyms:
            other = BROKER_SETTINGS[synonym].type
            assert other is kind or {other, kind} <= {Type.INT, Type.LONG}, synonym


# Sentences as a broker of 4.3.1 gave them.
@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "cleanup.policy",
            "foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            "compression.type",
            "foo",
            "Invalid value foo for configuration compression.type: String must be one of: uncompressed, zstd, lz4, "
            "snappy, gzip, producer",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "compression.zstd.level",
            "23",
            "Invalid value 23 for configuration compression.zstd.level: Value must be no more than 22",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1.5",
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "min.cleanable.dirty.ratio",
            "x",
            "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
        ),
        (
            "segment.bytes",
            "99999999999",
            "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "message.format.version",
            "9.9",
            "Invalid value 9.9 for configuration message.format.version: Version 9.9 is not a valid version",
        ),
        (
            "leader.replication.throttled.replicas",
            "x",
            "Invalid value [x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal "
            "'*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ],
)
def test_a_value_that_is_not_valid_is_refused_in_kafkas_words(name: str, text: str, sentence: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        TOPIC_SETTINGS[name].parse(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 8000000 ", 8_000_000),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "1:1,0:2", ("1:1", "0:2")),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("message.format.version", "0.10.2", "0.10.2"),
        ("flush.ms", "9223372036854775807", LONG_MAX),
    ],
)
def test_values_are_read_as_kafka_reads_them(name: str, text: str, value: Value) -> None:
    assert TOPIC_SETTINGS[name].parse(text) == value


def test_a_refused_password_is_not_shown() -> None:
    def refuse(name: str, value: Value) -> None:
        from jesenska.config.table import ValueRefused

        raise ValueRefused("too short")

    secret = Setting("secret", Type.PASSWORD, None, Importance.HIGH, "A secret.", refuse)
    with pytest.raises(InvalidConfigError) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in str(caught.value)


def test_an_unknown_name_comes_with_the_nearest_known_one() -> None:
    unknown = BROKER_SETTINGS.unknown(["log.retention.hour", "log.dirs", "completely.unlike.anything.at.all.xyzzy"])
    assert [(item.name, item.nearest) for item in unknown] == [
        ("log.retention.hour", "log.retention.hours"),
        ("completely.unlike.anything.at.all.xyzzy", None),
    ]
    assert "did you mean log.retention.hours?" in str(unknown[0])


def test_a_name_that_stands_twice_in_a_table_is_refused() -> None:
    row = Setting("a", Type.INT, 1, Importance.LOW, "A number.")
    with pytest.raises(ValueError, match="twice"):
        Table("broker", [row, row])


def test_settings_that_choose_listeners_cannot_be_changed_while_running() -> None:
    for name in ("listeners", "advertised.listeners", "listener.security.protocol.map"):
        assert BROKER_SETTINGS[name].dynamic is Dynamic.READ_ONLY


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.8.2", (0, 8, 2)),
        ("0.10.2.1", (0, 10, 2)),
        ("0.10.0-IV1", (0, 10, 0)),
        ("1.0", (1, 0)),
        ("1.0.2", (1, 0)),
        ("3.9-IV0", (3, 9)),
        ("0.10.0-IV2", None),
        ("0.9.0-IV0", None),
        ("5.0", None),
        ("", None),
        ("1", None),
        ("1.0-IV0x", None),
    ],
)
def test_releases_are_told_from_what_was_never_one(text: str, number: tuple[int, ...] | None) -> None:
    assert release_number(text) == number


@given(st.sampled_from([Type.INT, Type.LONG, Type.SHORT]), st.integers(-(2**70), 2**70))
def test_whole_numbers_are_taken_exactly_where_they_fit(kind: Type, number: int) -> None:
    limit = {Type.INT: 2**31, Type.LONG: 2**63, Type.SHORT: 2**15}[kind]
    setting = Setting("n", kind, None, Importance.LOW, "A number.")
    if -limit <= number < limit:
        assert setting.parse(str(number)) == number
    else:
        with pytest.raises(InvalidConfigError):
            setting.parse(str(number))


@given(st.floats(allow_nan=False))
def test_doubles_are_written_so_that_they_are_read_back(number: float) -> None:
    setting = Setting("d", Type.DOUBLE, None, Importance.LOW, "A number.")
    text = value_text(number)
    assert text is not None
    assert setting.parse(text) == number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.5, "0.5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (123456789.0, "1.23456789E8"),
        (0.0001, "1.0E-4"),
        (3.0, "3.0"),
    ],
)
def test_doubles_are_written_as_java_writes_them(number: float, text: str) -> None:
    assert value_text(number) == text


@given(st.text())
def test_any_text_is_either_taken_or_refused_with_the_right_error(text: str) -> None:
    for name in (
        "retention.ms",
        "cleanup.policy",
        "preallocate",
        "min.cleanable.dirty.ratio",
        "message.format.version",
    ):
        try:
            value = TOPIC_SETTINGS[name].parse(text)
        except InvalidConfigError as error:
            assert name in str(error)
        else:
            written = value_text(value)
            assert written is not None
            assert TOPIC_SETTINGS[name].parse(written) == value


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("retention.ms", "1h", 3_600_000),
        ("retention.ms", "7 days", 604_800_000),
        ("segment.bytes", "10MB", 10 << 20),
        ("segment.ms", "30s", 30_000),
    ],
)
def test_an_amount_with_its_unit_is_told_as_the_number_that_it_is(name: str, text: str, number: int) -> None:
    with pytest.raises(InvalidConfigError, match=f"write {number}"):
        TOPIC_SETTINGS[name].parse(text)


@pytest.mark.parametrize(
    ("name", "text"), [("retention.ms", "an hour"), ("retention.ms", "1x"), ("segment.bytes", "1h")]
)
def test_an_amount_that_is_not_plain_is_only_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        TOPIC_SETTINGS[name].parse(text)
    assert "write" not in str(refused.value)
