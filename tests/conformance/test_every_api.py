"""Every announced key and version, encoded by Apache Kafka's own classes, sent to the broker; the answers are read by
the same classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.testing import BrokerProcess
from jesenska.wire.codec import encode
from jesenska.wire.registry import APIS
from tests.peers.judge import Judge
from tests.raw_connection import RawConnection
from tests.sensible_requests import SENSIBLE, Served

pytestmark = pytest.mark.conformance

_RANDOM_REQUESTS = 25


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with BrokerProcess(
        tmp_path_factory.mktemp("every-api") / "data", settings={"group.initial.rebalance.delay.ms": "0"}
    ) as broker:
        yield Served(broker)


#: (key, version) whose documented answer is an error.
REFUSED = {
    (9, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # offsets in the tree: what was never committed is not there
    **{(11, version): ErrorCode.MEMBER_ID_REQUIRED for version in range(4, 10)},
    **{(17, version): ErrorCode.ILLEGAL_SASL_STATE for version in range(2)},
    **{(36, version): ErrorCode.ILLEGAL_SASL_STATE for version in range(3)},
    **{(key, version): ErrorCode.SECURITY_DISABLED for key in (29, 30, 31) for version in range(4)},
    **{
        (key, version): ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        for key, newest in ((38, 3), (39, 2), (40, 2), (41, 3))
        for version in range(newest + 1)
    },
    **{(43, version): ErrorCode.ELECTION_NOT_NEEDED for version in range(3)},
    **{(42, version): ErrorCode.GROUP_ID_NOT_FOUND for version in range(3)},
}
_ELECT_LEADERS = 43
#: What Kafka, too, answers UNSUPPORTED_VERSION where a special time, a kind of quota or of resource is unknown.
_UNKNOWN_KINDS = (2, 48, 74)
#: Kafka 3.9.1's schema of this message cannot write its own nullable struct; 4.3.1 judges the same version.
_NOT_WRITABLE = ("3.9.1", 75)

_KEYS = [pytest.param(key, id=APIS[key].name) for key in sorted(SENSIBLE)]


def _error_codes(answer: Any) -> list[int]:
    """Every error code in a response, wherever it stands."""
    if isinstance(answer, list):
        return [code for item in answer for code in _error_codes(item)]
    if isinstance(answer, dict):
        return [
            code for name, value in answer.items() for code in ([value] if name == "errorCode" else _error_codes(value))
        ]
    return []


def _versions(served: Served, judge: Judge, key: int) -> list[int]:
    low, high = judge.apis().get(key, (0, -1))
    return [version for version in served.announced[key] if low <= version <= high]


def test_every_announced_version_is_known_to_a_judge(served: Served, judge_3: Judge, judge_4: Judge) -> None:
    judged = {
        (key, version)
        for judge in (judge_3, judge_4)
        for key, (low, high) in judge.apis().items()
        for version in range(low, high + 1)
        if key in served.announced
    }
    announced = {(key, version) for key, versions in served.announced.items() for version in versions}
    assert announced <= judged
    assert set(served.announced) == set(SENSIBLE), "a request to send for every announced key"


@pytest.mark.parametrize("key", _KEYS)
def test_what_a_client_asks_is_answered_in_every_version(served: Served, judge: Judge, key: int) -> None:
    with RawConnection(served.broker.bootstrap) as connection:
        for version in _versions(served, judge, key):
            body = encode(SENSIBLE[key](served, version), version)
            connection.send_frame(judge.frame(key, version, 1000 + version, body))
            correlation_id, answer = judge.answer(key, version, connection.receive_frame())
            assert correlation_id == 1000 + version
            refused = REFUSED.get((key, version))
            codes = set(_error_codes(answer))
            if key == _ELECT_LEADERS:
                codes.discard(ErrorCode.NONE)  # the whole's; the partitions' stand beside it
            assert codes == {refused} if refused is not None else codes <= {ErrorCode.NONE}, (
                f"version {version}: {answer}"
            )


@pytest.mark.parametrize("key", _KEYS)
def test_random_requests_are_answered_on_the_same_connection(served: Served, judge: Judge, key: int) -> None:
    if (judge.release, key) == _NOT_WRITABLE:
        pytest.skip("3.9.1's schema of this message cannot write its nullable struct; 4.3.1 judges the same version")
    said_before = len(served.broker.log)
    with RawConnection(served.broker.bootstrap) as connection:
        for version in _versions(served, judge, key):
            for seed in range(_RANDOM_REQUESTS):
                body, request = judge.random("request", key, version, seed)
                if request.get("acks") == 0:
                    continue  # Produce that wants no answer
                connection.send_frame(judge.frame(key, version, seed, body))
                correlation_id, answer = judge.answer(key, version, connection.receive_frame())
                assert correlation_id == seed
                assert key in _UNKNOWN_KINDS or ErrorCode.UNSUPPORTED_VERSION not in _error_codes(answer), (
                    f"version {version}: {request} -> {answer}"
                )
    assert "Traceback" not in served.broker.log[said_before:]
