"""kafka-log-dirs against a broker of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jesenska.cli.kafka.cluster import kafka_log_dirs
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Tool
from tests.processes.cli.groups import fill


def test_sizes_of_the_replicas_stand_behind_two_lines(at: Tool, broker: BrokerProcess) -> None:
    fill(broker, "directories", 2, 10)
    result = at(kafka_log_dirs.main, "--describe", "--topic-list", "directories,never-was")
    assert (result.code, result.err) == (0, "")
    first, second, document = result.lines
    assert first == "Querying brokers for log directories information"
    assert second == "Received log directory information from brokers 1"
    data = broker.data.absolute()
    sizes = [Path(data, f"directories-{number}", f"{0:020}.log").stat().st_size for number in range(2)]
    assert min(sizes) > 0
    replicas = ",".join(
        f'{{"partition":"directories-{number}","size":{sizes[number]},"offsetLag":0,"isFuture":false}}'
        for number in range(2)
    )
    assert (
        document
        == f'{{"brokers":[{{"broker":1,"logDirs":[{{"partitions":[{replicas}],"error":null,"logDir":"{data}"}}]}}],"version":1}}'  # noqa: E501
    )


def test_as_json_it_is_one_document_with_the_room_on_the_volume(at: Tool, broker: BrokerProcess) -> None:
    fill(broker, "roomy", 1, 1)
    result = at(kafka_log_dirs.main, "--describe", "--broker-list", "1,", "--output", "json")
    (found,) = json.loads(result.out)["brokers"]
    (directory,) = found["logDirs"]
    assert "roomy-0" in [item["partition"] for item in directory["partitions"]]
    assert directory["totalBytes"] >= directory["usableBytes"] > 0


def test_several_directories_stand_apart(tool: Tool, tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    with BrokerProcess(tmp_path / "data", settings={"log.dirs": ",".join(map(str, directories))}) as broker:
        fill(broker, "spread", 4, 4)
        result = tool(
            kafka_log_dirs.main, "--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", "spread"
        )
        (found,) = json.loads(result.lines[2])["brokers"]
        assert [item["logDir"] for item in found["logDirs"]] == [str(directory) for directory in directories]
        assert [len(item["partitions"]) for item in found["logDirs"]] == [2, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing required argument --describe"),
        (
            ["--describe", "--broker-list", "1,9,8"],
            "The given brokers do not exist from --broker-list: 8,9. Current existent brokers: 1.",
        ),
        (["--describe", "--broker-list", "one"], "--broker-list expects numbers of brokers"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(at: Tool, arguments: list[str], says: str) -> None:
    result = at(kafka_log_dirs.main, *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert says in result.err
