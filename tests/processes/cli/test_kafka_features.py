"""kafka-features against a broker of ours. Lines are those of Apache Kafka 4.3.1's tool. Sentences have full stops."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from jesenska.cli.kafka.cluster import kafka_features
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Tool

_NAME = "transaction.version"
_WHY = "The update failed for all features since the following feature had an error: Invalid update version"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("features") / "data", warm=True) as running:
        yield running


def _level(at: Tool) -> str:
    (line,) = at(kafka_features.main, "describe").lines
    return line.split("FinalizedVersionLevel: ")[1].split()[0]


def test_features_are_described(at: Tool) -> None:
    (line,) = at(kafka_features.main, "describe").lines
    head, _, epoch = line.rpartition("Epoch: ")
    assert int(epoch) > 0
    assert head == (
        "Feature: transaction.version                       SupportedMinVersion: 0                "
        "SupportedMaxVersion: 2                "
        "FinalizedVersionLevel: 2                "
    )
    assert at(kafka_features.main, "describe", "--node-id", "1").lines == [line]


def test_a_feature_is_downgraded_disabled_and_upgraded(at: Tool) -> None:
    for arguments, said, level in [
        (("downgrade", "--feature", f"{_NAME}=1", "--dry-run"), f"{_NAME} can be downgraded to 1.", "2"),
        (("downgrade", "--feature", f"{_NAME}=1"), f"{_NAME} was downgraded to 1.", "1"),
        (("disable", "--feature", _NAME, "--dry-run"), f"{_NAME} can be disabled.", "1"),
        (("disable", "--feature", _NAME, "--unsafe"), f"{_NAME} was disabled.", "0"),
        (("upgrade", "--feature", f"{_NAME}=2", "--dry-run"), f"{_NAME} can be upgraded to 2.", "0"),
        (("upgrade", "--feature", f"{_NAME}=2"), f"{_NAME} was upgraded to 2.", "2"),
    ]:
        result = at(kafka_features.main, *arguments)
        assert (result.code, result.err, result.lines) == (0, "", [said])
        assert _level(at) == level


def test_what_is_refused_is_said_of_each_feature(at: Tool) -> None:
    result = at(kafka_features.main, "upgrade", "--feature", f"{_NAME}=9")
    assert (result.code, result.err) == (1, "1 out of 1 operation(s) failed.\n")
    assert result.lines == [
        f"Could not upgrade {_NAME} to 9. {_WHY} 9 for feature {_NAME}. Broker 1 only supports versions 0-2."
    ]
    result = at(kafka_features.main, "disable", "--feature", "nope", "--feature", _NAME)
    assert (result.code, result.err) == (1, "2 out of 2 operation(s) failed.\n")
    assert result.lines == [
        f"Could not disable {name}. {_WHY} 0 for feature nope. Feature nope not found." for name in ("nope", _NAME)
    ]
    assert _level(at) == "2"


def test_json_has_the_same(at: Tool) -> None:
    result = at(kafka_features.main, "--output", "json", "describe")
    (item,) = json.loads(result.out)
    assert {**item, "epoch": 0} == {
        "feature": _NAME,
        "supportedMinVersion": 0,
        "supportedMaxVersion": 2,
        "finalizedVersionLevel": 2,
        "epoch": 0,
    }
    assert json.loads(at(kafka_features.main, "--output", "json", "upgrade", "--feature", f"{_NAME}=2").out) == [
        {"feature": _NAME, "level": 2, "error": None}
    ]
    result = at(kafka_features.main, "--output", "json", "upgrade", "--feature", f"{_NAME}=9")
    assert result.code == 1 and json.loads(result.out)[0]["error"].endswith("Broker 1 only supports versions 0-2.")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("upgrade",), "You must specify at least one feature to upgrade."),
        (("disable",), "You must specify at least one feature to disable."),
        (("upgrade", "--feature", "a=1", "--feature", "a=2"), "Feature a was specified more than once."),
        (("upgrade", "--feature", "a"), "Can't parse feature=level string a: equals sign not found."),
        (
            ("upgrade", "--feature", "a=x"),
            "Can't parse feature=level string a=x: x is no level, which is a whole number up to 32767.",
        ),
        (
            ("upgrade", "--feature", "a=40000"),
            "Can't parse feature=level string a=40000: 40000 is no level, which is a whole number up to 32767.",
        ),
        (
            ("feature-dependencies", "--feature", "nope=1"),
            "Unknown feature: nope. The cluster has transaction.version.",
        ),
        (
            ("feature-dependencies", "--feature", f"{_NAME}=3"),
            f"Feature {_NAME} has no level 3: its levels are 0 to 2.",
        ),
    ],
)
def test_a_mistake_is_one_sentence(at: Tool, arguments: tuple[str, ...], sentence: str) -> None:
    result = at(kafka_features.main, *arguments)
    assert result.code == 1
    assert sentence in result.err and len(result.err.splitlines()) == 1


def test_a_feature_has_no_dependencies(at: Tool) -> None:
    assert at(kafka_features.main, "feature-dependencies", "--feature", f"{_NAME}=2").lines == [
        f"{_NAME}=2 has no dependencies."
    ]
