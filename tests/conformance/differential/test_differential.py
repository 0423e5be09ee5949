"""A sample of the differential tester for each API, and what the tester itself must do: repeat itself, and find what
differs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from jesenska.wire.registry import APIS
from tests.conformance.conftest import need
from tests.conformance.differential.answers import differences, plain
from tests.conformance.differential.requests import Requests, frame
from tests.conformance.differential.settings import JUDGES, OURS, THEIRS
from tests.conformance.differential.sides import Side, Silence
from tests.conformance.differential.trial import Trial
from tests.conformance.differential.world import Group, World
from tests.peers.apache_kafka import ApacheKafka
from tests.profiles import rounds
from tests.sensible_requests import BETWEEN_BROKERS

pytestmark = pytest.mark.conformance

CASES = rounds(quick=20, ci=100, everything=400)
_KEYS = [pytest.param(key, id=api.name) for key, api in APIS.items() if key not in BETWEEN_BROKERS]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    need("java", "mvn")
    directory = tmp_path_factory.mktemp("differential")
    with ExitStack() as stack:
        ours = stack.enter_context(BrokerProcess(directory / "ours", settings=OURS))
        judges = []
        for release in JUDGES:
            kafka = ApacheKafka(
                release,
                directory / release,
                zookeeper=release.startswith("3"),
                heap="256m",
                settings=THEIRS,
                log_level="OFF",
            )
            judges.append(Side(stack.enter_context(kafka).bootstrap, release))
        sides = [Side(ours.bootstrap, None), *judges]
        yield Trial(sides[0], judges)
        for side in sides:
            side.close()


@pytest.mark.timeout(300 + CASES)
@pytest.mark.parametrize("key", _KEYS)
def test_answers_differ_from_kafkas_only_where_that_is_known(trial: Trial, key: int) -> None:
    report = trial.run(key, CASES)
    assert report.cases >= CASES * 9 // 10
    assert not report.found, "\n".join(f"{report.counts[sign]} times: {found}" for sign, found in report.found.items())


def _world(prefix: str) -> World:
    names = [f"{prefix}{name}" for name in ("empty", "three", "trimmed", "compact")]
    return World(
        prefix,
        names,
        dict.fromkeys(names, _NO_ID),
        [Group(f"{prefix}stable", 1, f"{prefix}member"), Group(f"{prefix}unknown")],
    )


_NO_ID = MetadataResponseTopic().topic_id


@pytest.mark.parametrize("key", _KEYS)
def test_the_same_seed_makes_the_same_request(key: int) -> None:
    def made(seed: int) -> list[bytes]:
        requests = Requests(_world("w-"))
        return [
            frame(requests.request(key, version, random.Random(f"{seed}-{version}-{number}")), version, 1)
            for version in range(APIS[key].min_version, APIS[key].max_version + 1)
            for number in range(20)
        ]

    assert made(1) == made(1)
    if APIS[key].request.fields:
        assert made(1) != made(2)


def _metadata(world: World, host: str, *, error: int = 0, partitions: int = 1) -> MetadataResponse:
    several = [
        MetadataResponsePartition(partition_index=number, replica_nodes=[0], isr_nodes=[0])
        for number in range(partitions)
    ]
    topics = [MetadataResponseTopic(error_code=error, name=name, partitions=several) for name in world.topics]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=0, host=host, port=1)], cluster_id=host, controller_id=0, topics=topics
    )


def test_what_may_differ_is_no_difference_and_the_rest_is() -> None:
    mine, its = _world("mine-"), _world("its-")
    request = MetadataRequest(topics=None)
    ours = plain(_metadata(mine, "one"), mine, request)
    theirs = _metadata(its, "two")
    theirs.topics.reverse()
    theirs.topics.append(MetadataResponseTopic(name="of another world"))
    theirs.throttle_time_ms = 7
    assert list(differences(ours, plain(theirs, its, request))) == []
    wrong = plain(_metadata(its, "two", error=3), its, request)
    assert set(differences(ours, wrong)) == {(".topics[].error_code", "0", "3")}
    more = list(differences(ours, plain(_metadata(its, "two", partitions=2), its, request)))
    assert [path for path, _, _ in more] == [".topics[].partitions[]"] * len(its.topics)
    assert next(differences(plain(Silence.CLOSED, mine, request), plain(theirs, its, request)))[:2] == ("", "'CLOSED'")
