"""UpdateFeatures over the wire: its answers, and the features in force afterwards, also after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k57_update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeatureUpdate,
    UpdateFeaturesResponse,
)
from tests.conformance.transaction_table import SETTINGS, Asked, Broker
from tests.raw_connection import RawConnection

_NAME = "transaction.version"
_UP, _DOWN = 1, 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS, warm=True) as running:
        yield running


def _update(
    link: RawConnection, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False
) -> UpdateFeaturesResponse:
    items = [
        UpdateFeaturesRequestFeatureUpdate(
            feature=name, max_version_level=level, **({"upgrade_type": way} if version else {})
        )
        for name, level, way in updates
    ]
    request = UpdateFeaturesRequest(feature_updates=items, validate_only=validate_only)
    return link.ask(request, version, UpdateFeaturesResponse)


def _level(link: RawConnection) -> tuple[int, int]:
    """The finalised level (0 if there is none), and the epoch."""
    answer = link.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4, ApiVersionsResponse)
    return next(
        (item.max_version_level for item in answer.finalized_features if item.name == _NAME), 0
    ), answer.finalized_features_epoch


def test_a_level_goes_down_and_up_and_outlives_a_start(broker: BrokerProcess) -> None:
    with RawConnection(broker.bootstrap) as link:
        level, first = _level(link)
        assert level == 2
        assert _update(link, (_NAME, 1, _DOWN)).error_code == ErrorCode.NONE
        level, second = _level(link)
        assert level == 1 and second > first
    broker.kill()
    broker.start()
    with RawConnection(broker.bootstrap) as link:
        assert _level(link)[0] == 1
        assert _update(link, (_NAME, 0, _DOWN)).error_code == ErrorCode.NONE
        assert _level(link)[0] == 0
        assert _update(link, (_NAME, 2, _UP)).error_code == ErrorCode.NONE
        assert _level(link)[0] == 2


def test_what_is_refused_and_what_is_a_trial_changes_nothing(broker: BrokerProcess) -> None:
    with RawConnection(broker.bootstrap) as link:
        before = _level(link)
        assert _update(link, (_NAME, 1, _DOWN), validate_only=True).error_code == ErrorCode.NONE
        refused = _update(link, (_NAME, 1, _DOWN), ("nope", 1, _UP))
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert refused.error_message == (
            "The update failed for all features since the following feature had an error: "
            "Invalid update version 1 for feature nope. The controller does not support this feature."
        )
        assert _update(link).error_code == ErrorCode.NONE
        # Version 0 has no way down.
        assert _update(link, (_NAME, 1, _DOWN), version=0).error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert _level(link) == before


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_0_and_1_answer_for_each_feature(broker: BrokerProcess, version: int) -> None:
    with RawConnection(broker.bootstrap) as link:
        answer = _update(link, (_NAME, 2, _UP), version=version)
    assert answer.error_code == ErrorCode.NONE
    assert [(item.feature, item.error_code) for item in answer.results] == ([(_NAME, 0)] if version < 2 else [])


def test_without_the_feature_epochs_are_not_raised_by_transactions(broker: BrokerProcess) -> None:
    """InitProducerId works. A producer whose transaction timed out is fenced for good, as in Apache Kafka 3.9."""
    client = Broker(broker.bootstrap)
    client.prepare()
    with RawConnection(broker.bootstrap) as link:
        assert _update(link, (_NAME, 0, _DOWN)).error_code == ErrorCode.NONE
    asked = Asked("low", client.init("low"))
    assert client.add(asked, asked.producer, 3) == ErrorCode.NONE
    assert client.produce(asked, asked.producer, 9) == ErrorCode.NONE
    answer = client.end(asked, asked.producer, 3, commits=True)
    assert answer.error_code == ErrorCode.NONE
    client.close()
