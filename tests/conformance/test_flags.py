"""Every flag that a tool of Apache Kafka's names in its help is known to ours of that name, from 0.8.2.2 on."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.conformance.conftest import need
from tests.peers.tools import Tools
from tests.tool_modules import module_of_tool

pytestmark = pytest.mark.conformance

TOOLS = (
    "kafka-console-producer",
    "kafka-console-consumer",
    "kafka-topics",
    "kafka-configs",
    "kafka-consumer-groups",
    "kafka-consumer-perf-test",
    "kafka-get-offsets",
    "kafka-delete-records",
    "kafka-dump-log",
    "kafka-broker-api-versions",
    "kafka-leader-election",
    "kafka-preferred-replica-election",
    "kafka-replica-verification",
    "kafka-log-dirs",
    "kafka-reassign-partitions",
    "kafka-streams-application-reset",
)
#: Not built yet.
LEFT_OUT = {
    ("kafka-configs", "--zk-tls-config-file"): "TLS to ZooKeeper",
    ("kafka-consumer-groups", "--validate-regex"): "the patterns of the new group protocol",
}
_FLAG = re.compile(r"^\s*\[?(--[a-z][\w.-]*)", re.MULTILINE)


@pytest.mark.parametrize("release", ["0.8.2.2", "0.10.2.2", "1.0.2", "3.9.1", "4.3.1"])
def test_every_flag_is_known(release: str) -> None:
    need("java", "mvn")
    missing: list[tuple[str, str]] = []
    seen = 0
    with Tools(release) as tools:
        for name in TOOLS:
            try:
                # Releases before 2.0 print their options where nothing is asked for.
                said = tools.run(name, *(["--help"] if release[0] in "34" else []))
            except SystemExit:
                continue  # this release has no such tool
            module = importlib.import_module(module_of_tool(name))
            known = {option for action in module._parser()._actions for option in action.option_strings}
            flags = set(_FLAG.findall(said.output + said.errors))
            seen += len(flags)
            missing += [(name, flag) for flag in sorted(flags - known) if (name, flag) not in LEFT_OUT]
    assert missing == []
    assert seen > 50
