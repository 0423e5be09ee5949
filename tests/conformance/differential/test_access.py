"""Answers to a user with random access rules: the same as those of Apache Kafka 3.9.1 or 4.3.1."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from jesenska.security.acls import CLUSTER_NAME, OPERATIONS, ResourceType
from jesenska.wire.registry import APIS
from tests.conformance.conftest import need
from tests.conformance.differential.access import AccessTrial, drawn_rules, sides
from tests.profiles import chosen, rounds
from tests.sensible_requests import BETWEEN_BROKERS

pytestmark = pytest.mark.conformance

VERSIONS = chosen(quick=1, ci=2, everything=None)
CASES = rounds(quick=2, ci=4, everything=100)
_KEYS = [pytest.param(key, id=api.name) for key, api in APIS.items() if key not in BETWEEN_BROKERS]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessTrial]:
    need("java", "mvn")
    with ExitStack() as stack:
        ours, *judges = sides(tmp_path_factory.mktemp("access"), stack)
        yield AccessTrial(ours, judges, versions=VERSIONS)
        for side in (ours, *judges):
            side.end()


@pytest.mark.hour("src/jesenska/broker", "src/jesenska/security")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("key", _KEYS)
def test_refusals_are_those_of_kafka(trial: AccessTrial, key: int) -> None:
    report = trial.run(key, CASES)
    assert report.cases >= CASES * 9 // 10
    assert not report.found, "\n".join(f"{report.counts[sign]} times: {found}" for sign, found in report.found.items())


def test_drawn_rules_are_many_and_legal() -> None:
    drawn = [drawn_rules(random.Random(seed), ["topic", "group"]) for seed in range(500)]
    assert len({tuple(rules) for rules in drawn}) > 400
    assert {pattern.resource_type for rules in drawn for pattern, _ in rules} == set(OPERATIONS)
    for rules in drawn:
        for pattern, entry in rules:
            assert pattern.resource_type is not ResourceType.CLUSTER or pattern.name == CLUSTER_NAME
            assert entry.host in ("*", "127.0.0.1", "10.0.0.1")
