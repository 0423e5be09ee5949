"""UpdateFeatures (key 57), versions 0-2: changes the levels of the cluster's features (KIP-584). If one change of a
request is refused, no change is made. Every broker accepts this request; clients send it to the controller. Each line
is what a version adds:

  0      levels can only be raised: `allow_downgrade` has no effect, as in Kafka
  1      the kind of change (upgrade, safe or unsafe downgrade); `validate_only`
  2      the answer no longer has a result for each feature
"""

from __future__ import annotations

from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.controlling.feature_levels import Update
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import ClusterFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k57_update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpdateFeaturesResponseResult,
)

_LAST_WITH_RESULTS = 1


@handles(UpdateFeaturesRequest, ClusterFamily)
def handle(uses: ClusterFamily, request: UpdateFeaturesRequest, context: Context) -> Outcome:
    return _update(uses, request, context.version)


async def _update(uses: ClusterFamily, request: UpdateFeaturesRequest, version: int) -> UpdateFeaturesResponse:
    updates = [Update(item.feature, item.max_version_level, item.upgrade_type) for item in request.feature_updates]
    try:
        await uses.features.update(updates, validate_only=request.validate_only)
    except Exception as error:
        refused = as_kafka_error(error)
        return UpdateFeaturesResponse(error_code=refused.code, error_message=refused.message or None)
    response = UpdateFeaturesResponse(error_message=None)
    if version <= _LAST_WITH_RESULTS:
        # As in Kafka, the message of a result without an error is the name of its code, NONE.
        response.results = [
            UpdateFeaturesResponseResult(feature=item.feature, error_message="NONE") for item in updates
        ]
    return response
