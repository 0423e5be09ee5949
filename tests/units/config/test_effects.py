"""The claims of the tables of settings are true: a setting that works is read by code and named by a test of its
effect, and a broker's setting from which a topic's takes its default works as far as the topic's does."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from jesenska.config.settings.broker_settings import BROKER_SETTINGS
from jesenska.config.settings.client_settings import ADMIN_SETTINGS, CONSUMER_SETTINGS, PRODUCER_SETTINGS
from jesenska.config.settings.topic_settings import BROKER_SYNONYMS, TOPIC_SETTINGS
from jesenska.config.table import Effect, Table
from tests.units.config.named_settings import NamesRead, names_in_tests, sources_below

_SOURCE, _TESTS = Path(__file__).parents[3] / "src" / "jesenska", Path(__file__).parents[2]
_TIERS = [_TESTS / tier for tier in ("units", "processes")]
_TABLES = [TOPIC_SETTINGS, BROKER_SETTINGS, PRODUCER_SETTINGS, CONSUMER_SETTINGS, ADMIN_SETTINGS]
_CLIENTS = (PRODUCER_SETTINGS, CONSUMER_SETTINGS, ADMIN_SETTINGS)

#: Code that reads the settings of a broker and of its topics, and code that reads those of the clients.
_BROKER_CODE = [
    *(_SOURCE / room for room in ("broker", "controller", "groups", "metadata", "security")),
    *(_SOURCE / "config" / f"{name}.py" for name in ("layers", "listeners", "safety")),
]
_CLIENT_CODE = [_SOURCE / room for room in ("client", "cli", "pipeline", "security")]
_ADMIN_CODE = [_SOURCE / "client", _SOURCE / "security", _SOURCE / "cli" / "shared" / "tool.py"]
#: Tests of brokers, and tests of clients. Tests of the tables, and settings of the brokers used for comparison, prove
#: nothing.
_BROKER_TESTS = [
    *(
        tier / room
        for tier in _TIERS
        for room in ("broker", "cli", "controller", "crash", "groups", "log", "metadata", "net", "security", "testing")
    ),
    *sorted((_TESTS / "conformance").glob("*.py")),
    *(_TESTS / "units" / "config" / f"test_{name}.py" for name in ("listeners", "safety")),
]
_CLIENT_TESTS = [tier / room for tier in _TIERS for room in ("client", "cli", "pipeline", "security")]


def working(table: Table) -> list[str]:
    return [setting.name for setting in table if setting.effect is Effect.WORKS]


@cache
def read_by(*places: Path) -> NamesRead:
    return NamesRead(sources_below(*places))


@cache
def named_in(*places: Path) -> set[str]:
    return names_in_tests(sources_below(*places))


@pytest.mark.parametrize("table", _TABLES, ids=lambda table: table.kind)
def test_every_setting_that_works_is_read(table: Table) -> None:
    read = read_by(*(_ADMIN_CODE if table is ADMIN_SETTINGS else _CLIENT_CODE if table in _CLIENTS else _BROKER_CODE))
    as_default = (
        {name for topic, names in BROKER_SYNONYMS.items() if topic in read for name in names}
        if table is BROKER_SETTINGS
        else set()
    )
    assert [name for name in working(table) if name not in read and name not in as_default] == []


@pytest.mark.parametrize("table", _TABLES, ids=lambda table: table.kind)
def test_every_setting_that_works_has_a_test_that_names_it(table: Table) -> None:
    named = named_in(*(_CLIENT_TESTS if table in _CLIENTS else _BROKER_TESTS))
    assert [name for name in working(table) if name not in named] == []


def test_a_brokers_setting_says_the_same_as_the_topics_that_it_is_the_default_of() -> None:
    different = []
    for topic, names in BROKER_SYNONYMS.items():
        row = TOPIC_SETTINGS[topic]
        different += [
            (topic, name)
            for name in names
            if (BROKER_SETTINGS[name].effect, BROKER_SETTINGS[name].reason) != (row.effect, row.reason)
        ]
    assert different == []


def test_only_code_that_reads_a_name_counts() -> None:
    read = NamesRead(
        [
            '"""in.a.docstring"""\n'
            'table = {"in.a.table": 1, "as.a.value": "a.value"}\n'
            'named = ("in.a.tuple", "too")\n'
            "# config.integer('in.a.comment')\n"
            '_LIMIT = "by.a.constant"\n'
            'prefix = "one.prefix" if x else y\n'
            'prefix = "other.prefix"\n'
            'settings["an.index"], config.integer("an.argument"), texts[_LIMIT], f(name=config), '
            'config.integer(f"{prefix}.of.parts")\n'
            'config.get(f"any.{part}.ms")\n'
            'settings["written"] = 1\n'
            "print(f'{anything}')"
        ]
    )
    names = ["an.index", "an.argument", "by.a.constant", "other.prefix.of.parts", "any.one.ms"]
    assert [name for name in names if name not in read] == []
    others = [
        "in.a.docstring",
        "in.a.table",
        "as.a.value",
        "a.value",
        "in.a.tuple",
        "in.a.comment",
        "another.of.parts",
        "any.two.parts.ms",
        "written",
        "acks",
    ]
    assert [name for name in others if name in read] == []


def test_only_tests_that_use_a_name_count() -> None:
    named = names_in_tests(
        [
            '"""in.a.docstring"""\n'
            "# in.a.comment\n"
            'run("--property", "given.in=a.text", {"kafka.for.spark": "1"}, a_keyword_ms=1, data=b"in.bytes=1")\n'
            "def test() -> None:\n"
            '    """also.a.docstring"""\n'
        ]
    )
    assert {"given.in", "for.spark", "a.keyword.ms", "in.bytes"} <= named
    assert not {"in.a.docstring", "in.a.comment", "also.a.docstring", "given"} & named


def test_a_setting_without_an_effect_does_not_say_that_tls_and_logins_are_missing() -> None:
    """Listeners have both, so the reason has to be about the setting."""
    reasons = [f"{setting.name}: {setting.reason}" for table in _TABLES for setting in table]
    assert [reason for reason in reasons if re.search(r"\b(TLS|SASL) (is|are) not built", reason)] == []
