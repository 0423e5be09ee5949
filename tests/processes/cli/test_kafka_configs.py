"""kafka-configs against a broker of ours: settings of topics, brokers and all brokers, in the format of Kafka's
tool."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.cli.kafka.topics import kafka_topics
from jesenska.cli.kafka.topics.kafka_configs import main, parse_settings
from tests.processes.cli.conftest import Tool


@pytest.fixture
def topic(at: Tool) -> Iterator[str]:
    at(kafka_topics.main, "--create", "--topic", "configured")
    yield "configured"
    at(kafka_topics.main, "--delete", "--topic", "configured")


def test_an_altered_topic_shows_value_source_and_what_lies_behind(at: Tool, topic: str) -> None:
    altered = at(main, "--alter", "--topic", topic, "--add-config", "retention.ms=7,cleanup.policy=[compact,delete]")
    assert (altered.code, altered.out) == (0, "Completed updating config for topic configured.\n")
    assert at(main, "--describe", "--topic", topic).lines == [
        "Dynamic configs for topic configured are:",
        "  cleanup.policy=compact,delete sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  retention.ms=7 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7}",
    ]


def test_a_deleted_setting_goes_back_to_its_default(at: Tool, topic: str) -> None:
    at(main, "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", "retention.ms=7")
    assert at(main, "--alter", "--topic", topic, "--delete-config", "retention.ms,segment.ms").code == 0
    assert at(main, "--describe", "--topic", topic).lines == ["Dynamic configs for topic configured are:"]


def test_all_shows_defaults_too_sorted_by_name(at: Tool, topic: str) -> None:
    head, *lines = at(main, "--describe", "--topic", topic, "--all").lines
    names = [line.strip().partition("=")[0] for line in lines]
    assert head == "All configs for topic configured are:"
    assert names == sorted(names)
    assert {"retention.ms", "cleanup.policy", "max.message.bytes"} <= set(names)


def test_settings_come_from_a_file(at: Tool, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.properties"
    file.write_text("retention.ms=9\nsegment.bytes=1048576\n")
    assert at(main, "--alter", "--topic", topic, "--add-config-file", str(file)).code == 0
    (described,) = json.loads(at(main, "--describe", "--topic", topic, "--output", "json").out)
    assert {item["name"]: item["value"] for item in described["configs"]} == {
        "retention.ms": "9",
        "segment.bytes": "1048576",
    }


def test_a_broker_and_the_default_of_all_brokers_are_told_apart(at: Tool) -> None:
    assert (
        at(main, "--alter", "--broker", "1", "--add-config", "log.cleaner.threads=2").out
        == "Completed updating config for broker 1.\n"
    )
    changed = at(main, "--alter", "--broker-defaults", "--add-config", "log.cleaner.threads=3")
    assert changed.out == "Completed updating default config for brokers in the cluster.\n"
    try:
        assert at(main, "--describe", "--entity-type", "brokers").lines == [
            "Dynamic configs for broker 1 are:",
            "  log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, "
            "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=3, DEFAULT_CONFIG:log.cleaner.threads=1}",
            "Default configs for brokers in the cluster are:",
            "  log.cleaner.threads=3 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=3}",
        ]
        assert len(at(main, "--describe", "--broker", "1").lines) == 2
        assert len(at(main, "--describe", "--entity-type", "brokers", "--entity-default").lines) == 2
    finally:
        at(main, "--alter", "--broker", "1", "--delete-config", "log.cleaner.threads")
        at(main, "--alter", "--broker-defaults", "--delete-config", "log.cleaner.threads")
    assert len(at(main, "--describe", "--entity-type", "brokers").lines) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--alter", "--topic", "configured", "--add-config", "foo=bar"], "Unknown topic config name: foo"),
        (["--alter", "--topic", "configured", "--add-config", "retention.ms=abc"], "Not a number of type LONG"),
        (["--alter", "--topic", "configured", "--add-config", "retention.ms"], "key=val"),
        (["--alter", "--topic", "configured"], "--add-config"),
        (["--alter", "--topic", "configured", "--add-config", "a=b", "--add-config-file", "f"], "Only one of"),
        (["--alter", "--topic", "configured", "--add-config-file", "/there/is/none"], "cannot be read"),
        (["--alter", "--topic", "configured", "--add-config", "a=b", "--delete-config", "a"], "both set and deleted"),
        (["--alter", "--topic", "not-there", "--add-config", "retention.ms=1"], "not-there"),
        (
            ["--alter", "--broker", "1", "--add-config", "log.dirs=/elsewhere"],
            "Cannot update these configs dynamically",
        ),
        (["--alter", "--broker", "9", "--add-config", "log.cleaner.threads=2"], "doesn't exist"),
        (["--alter", "--entity-type", "topics", "--add-config", "a=b"], "entity name"),
        (["--describe", "--topic", "not-there"], "doesn't exist"),
        (["--describe", "--broker", "9"], "doesn't exist"),
        (["--describe", "--broker", "x"], "integer broker id"),
        (["--alter", "--user", "anna", "--add-config", "producer_byte_rate=-1"], "must be greater than 0"),
        (["--alter", "--user", "anna", "--add-config", "producer_byte_rate=fast"], "Cannot parse quota configuration"),
        (
            ["--alter", "--user", "anna", "--add-config", "SCRAM-SHA-999=[password=of-anna]"],
            "SCRAM-SHA-999 is not a SCRAM mechanism: write SCRAM-SHA-256 or SCRAM-SHA-512.",
        ),
        (["--alter", "--user", "anna", "--add-config", "burst=1"], "Invalid configuration key burst"),
        (["--alter", "--user", "anna", "--delete-config", "producer_byte_rate"], "has no such quota"),
        (
            ["--alter", "--entity-type", "users", "--add-config", "producer_byte_rate=1"],
            "An entity-name or default entity must be specified",
        ),
        (["--alter", "--group", "g", "--add-config", "consumer.session.timeout.ms=50000"], "cannot be changed here"),
        (["--alter", "--client-metrics", "m", "--add-config", "interval.ms=1"], "cannot be changed here"),
        (["--alter", "--broker-logger", "1", "--add-config", "no.such=INFO"], "no.such does not exist"),
        (
            ["--describe", "--entity-type", "broker-loggers"],
            "An entity name must be specified with --describe of broker-loggers",
        ),
        (["--describe", "--broker-logger", "one"], "must be a valid integer broker id"),
        (["--describe", "--ip", "nowhere.invalid"], "must be a valid IP or resolvable host"),
        (
            ["--describe", "--topic", "t", "--user", "a"],
            "Only 'users' and 'clients' entity types may be specified together",
        ),
        (
            ["--describe", "--entity-type", "topics", "--entity-type", "topics"],
            "Duplicate entity type(s) specified: topics",
        ),
        (["--describe", "--topic", "t", "--topic", "u"], "more than once"),
        (["--describe", "--entity-type", "topics", "--entity-name", "t", "--entity-name", "u"], "more names"),
        (["--describe", "--entity-type", "groups", "--entity-default"], "--entity-default must not be specified"),
        (["--describe", "--entity-type", "nonsense"], "Invalid entity type"),
        (["--describe", "--topic", "configured", "--entity-name", "configured"], "can't be used"),
        (["--describe"], "entity type"),
        (["--describe", "--alter", "--topic", "configured"], "exactly one action"),
        ([], "exactly one action"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_1(
    at: Tool, topic: str, arguments: list[str], says: str
) -> None:
    result = at(main, *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert says in result.err
    assert at(main, "--describe", "--topic", topic).lines == ["Dynamic configs for topic configured are:"]


_NAMES = st.from_regex(r"[a-z][a-z.]{0,10}", fullmatch=True)
_VALUES = st.text(st.characters(codec="utf-8", exclude_characters="[]", exclude_categories=["C", "Z"]), max_size=12)


@given(st.dictionaries(_NAMES, _VALUES, min_size=1))
def test_what_stands_in_brackets_is_read_back_with_its_commas(settings: dict[str, str]) -> None:
    assert parse_settings(",".join(f"{name}=[{value}]" for name, value in settings.items())) == settings


@pytest.mark.parametrize("text", ["a", "=b", "a=b,,c=d", "a=b,c"])
def test_what_is_not_a_setting_is_refused(text: str) -> None:
    with pytest.raises(JesenskaError, match="key=val"):
        parse_settings(text)


@pytest.mark.parametrize("entity", ["--entity-type users", "--user anna", "--client-defaults", "--ip 127.0.0.1", "--user anna --client shop",  # noqa: E501
                                    "--entity-type groups", "--entity-type client-metrics"])  # fmt: skip
def test_where_nothing_was_set_nothing_is_shown(at: Tool, entity: str) -> None:
    shown = at(main, "--describe", *entity.split())
    assert (shown.code, shown.out, shown.err) == (0, "", "")


def test_quotas_are_set_shown_and_taken_away(at: Tool) -> None:
    both = ["--user", "ben", "--client-defaults"]
    assert at(main, "--alter", *both, "--add-config", "request_percentage=12.5,producer_byte_rate=1000").lines == [
        "Completed updating config for user ben."
    ]
    assert at(main, "--describe", *both).lines == [
        "Quota configs for user-principal 'ben', the default client-id are producer_byte_rate=1000.0, "
        "request_percentage=12.5"
    ]
    assert at(main, "--alter", "--client-defaults", "--add-config", "consumer_byte_rate=5").lines == [
        "Completed updating default config for clients in the cluster."
    ]
    assert at(main, "--alter", "--client-defaults", "--delete-config", "consumer_byte_rate").code == 0
    assert at(main, "--describe", "--client-defaults").out == ""
    at(main, "--alter", *both, "--delete-config", "producer_byte_rate")
    assert at(main, "--describe", *both).lines == [
        "Quota configs for user-principal 'ben', the default client-id are request_percentage=12.5"
    ]
    at(main, "--alter", *both, "--delete-config", "request_percentage")


@pytest.mark.parametrize("kind", ["group", "client-metric"])
def test_a_name_without_settings_is_told_as_kafka_does(at: Tool, kind: str) -> None:
    shown = at(main, "--describe", "--group" if kind == "group" else "--client-metrics", "no-such")
    assert (shown.code, shown.out) == (0, f"The {kind} 'no-such' doesn't exist and doesn't have dynamic config.\n")


def test_a_brokers_loggers_are_shown_and_changed(at: Tool) -> None:
    def level() -> str:
        head, *lines = at(main, "--describe", "--broker-logger", "1").lines
        assert head == "Dynamic configs for broker-logger 1 are:"
        (line,) = (line for line in lines if line.startswith("  jesenska="))
        return line.split()[0].partition("=")[2]

    before = level()
    assert (
        at(main, "--alter", "--broker-logger", "1", "--add-config", "jesenska=DEBUG").out
        == "Completed updating config for broker-logger 1.\n"
    )
    assert level() == "DEBUG"
    assert (
        at(
            main,
            "--alter",
            "--entity-type",
            "broker-loggers",
            "--entity-name",
            "1",
            "--add-config",
            f"jesenska={before}",
        ).code
        == 0
    )
    assert level() == before


def test_a_setting_that_there_is_not_is_told_with_the_one_that_was_meant(at: Tool, topic: str) -> None:
    wanted = "Unknown topic config name: retention (did you mean retention.ms?).\n"
    assert at(main, "--alter", "--topic", topic, "--add-config", "retention=5").err == f"kafka-configs: {wanted}"
    assert (
        at(kafka_topics.main, "--create", "--topic", "never-made", "--config", "retention=5").err
        == f"kafka-topics: {wanted}"
    )
