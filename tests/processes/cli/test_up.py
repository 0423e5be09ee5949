"""`jesenska up`: the order of precedence of two places that set the same value, and the text of the banner."""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path

import pytest

from jesenska.base.errors import JesenskaError
from jesenska.cli import jesenska
from jesenska.cli.supervision.up_alone import config_of
from jesenska.cli.supervision.up_options import add_up
from jesenska.config.layers import BrokerConfig
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Tool

#: For each setting, the places that can set it, in order of precedence: the words of the command line, the variables
#: of the environment, and the resulting value.
PLACES: dict[str, list[tuple[list[str], dict[str, str], str]]] = {
    "log.dirs": [
        (["--data", "flag"], {}, "flag"),
        (["--override", "log.dirs=override"], {}, "override"),
        ([], {"KAFKA_LOG_DIRS": "environment"}, "environment"),
        ([], {}, "data"),
    ],
    "listeners": [
        (["--port", "1111"], {}, "PLAINTEXT://127.0.0.1:1111"),
        (["--override", "listeners=PLAINTEXT://localhost:2222"], {}, "PLAINTEXT://localhost:2222"),
        ([], {"KAFKA_LISTENERS": "PLAINTEXT://localhost:3333"}, "PLAINTEXT://localhost:3333"),
        ([], {}, "PLAINTEXT://127.0.0.1:9092"),
    ],
    "jesenska.zookeeper.listener": [
        (["--zookeeper-port", "1111"], {}, "127.0.0.1:1111"),
        (["--override", "jesenska.zookeeper.listener=localhost:2222"], {}, "localhost:2222"),
        ([], {"KAFKA_JESENSKA_ZOOKEEPER_LISTENER": "localhost:3333"}, "localhost:3333"),
    ],
    "group.initial.rebalance.delay.ms": [
        (["--override", "group.initial.rebalance.delay.ms=2"], {}, "2"),
        ([], {"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "3"}, "3"),
        ([], {}, "0"),
    ],
}
PAIRS = [(name, stronger, weaker) for name, places in PLACES.items() for stronger, weaker in combinations(places, 2)]


def configured(monkeypatch: pytest.MonkeyPatch, words: list[str], variables: dict[str, str]) -> BrokerConfig:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    parser = argparse.ArgumentParser()
    add_up(parser)
    return config_of(parser.parse_args(words))


@pytest.mark.parametrize(
    ("name", "stronger", "weaker"), PAIRS, ids=[f"{name}-{one[2]}-{other[2]}" for name, one, other in PAIRS]
)
def test_of_two_places_the_stronger_is_believed(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    stronger: tuple[list[str], dict[str, str], str],
    weaker: tuple[list[str], dict[str, str], str],
) -> None:
    words, variables, expected = stronger
    config = configured(monkeypatch, words + weaker[0], variables | weaker[1])
    assert str(config.value(name)) == expected or config.string(name) == expected


def test_an_older_name_of_the_same_thing_takes_the_default_away(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(monkeypatch, [], {"KAFKA_LOG_DIR": "older"})
    assert (config.string("log.dirs"), config.string("log.dir")) == (None, "older")
    assert configured(monkeypatch, ["--data", "flag"], {"KAFKA_LOG_DIR": "older"}).string("log.dirs") == "flag"


def test_the_banner_names_the_directory_that_is_used(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "flag", environment={"KAFKA_LOG_DIRS": str(tmp_path / "environment")}) as broker:
        assert f"(data in {tmp_path / 'flag'};" in broker.log
    assert (tmp_path / "flag" / "meta.properties").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["flag"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["up", "server.properties"], "kafka-server-start server.properties"),
        (["up", "--port", "abc"], "'abc' is not a port"),
        (["up", "--port", "70000"], "write a number from 0"),
        (["up", "--port", "9092", "--zookeeper-port", "9092"], "cannot both have port 9092"),
        (["up", "--zookeeper-port", "9092"], "cannot both have port 9092"),
        (["up", "--overide", "a=b"], "did you mean --override?"),
        (["up", "--prot", "1"], "jesenska up --help lists the options"),
        (["status", "--timeout-seconds", "-1"], "'-1' is not a time to wait: write a number of seconds above 0"),
        (["status", "--timeout-seconds", "nan"], "'nan' is not a time to wait"),
        (["init"], "DIR"),
        (["settings", "log.retention.hour.ms"], "did you mean"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(tool: Tool, words: list[str], says: str) -> None:
    result = tool(jesenska.main, *words)
    assert (result.code, result.out) == (1, "")
    assert says in result.err
    assert len(result.err.splitlines()) == 1


def test_a_setting_says_what_it_does(tool: Tool) -> None:
    result = tool(jesenska.main, "settings", "retention.bytes")
    assert result.code == 0
    assert result.lines[0].startswith("retention.bytes (topic")
    assert '"name":"log.retention.hours"' in tool(jesenska.main, "settings", "retention", "--output", "json").out


def test_status_says_what_a_broker_holds_and_fails_where_there_is_none(tool: Tool, broker: BrokerProcess) -> None:
    result = tool(
        jesenska.main, "status", "--bootstrap-server", broker.bootstrap, "--data", str(broker.data), "--output", "json"
    )
    assert result.code == 0
    assert '"ready":true' in result.out
    assert f'"process":{broker.pid}' in result.out
    missing = tool(jesenska.main, "status", "--bootstrap-server", "127.0.0.1:1", "--timeout-seconds", "1")
    assert (missing.code, missing.out) == (1, "")


def test_the_release_is_told_once(tool: Tool) -> None:
    assert tool(jesenska.main, "--version").out.startswith("jesenska 0")


def test_an_address_with_a_scheme_is_told_how_to_write_it() -> None:
    from jesenska.client.cluster import parse_bootstrap

    with pytest.raises(JesenskaError, match="leave out http://"):
        parse_bootstrap("http://localhost:9092")
