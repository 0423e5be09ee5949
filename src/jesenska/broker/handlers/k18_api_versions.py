"""ApiVersions (key 18), versions 0-4. Each line is what a version adds:

    0-2    the API keys with their supported versions
    3      the client's name and version, which must match a pattern (KIP-511); features (KIP-584)
    4      features may start at version 0

The answer names only the APIs that this broker serves, because clients use every API that is named. A request in a
version above 4 is answered with UNSUPPORTED_VERSION in the format of version 0 (`connection`), and with the range of
versions of this key, so that the client can ask again. The features in the answer are the levels that this software
supports, and the levels of this cluster (`uses.features`)."""

from __future__ import annotations

import re

from jesenska.base.errors import ErrorCode
from jesenska.broker.controlling.features import SUPPORTED, TRANSACTION_VERSION
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import ClusterFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.served import VERSIONS
from jesenska.wire.messages.k18_api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApiKey,
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
_FIRST_WITH_SOFTWARE = 3
#: The first version in which the lowest level of a feature can be 0. Older versions leave such features out, as in
#: Kafka.
_FIRST_WITH_ZERO = 4


def announced() -> list[ApiVersionsResponseApiKey]:
    """Returns the APIs that this broker serves, in the order of their keys."""
    return [
        ApiVersionsResponseApiKey(api_key=key, min_version=low, max_version=high)
        for key, (low, high) in sorted(VERSIONS.items())
    ]


@handles(ApiVersionsRequest, ClusterFamily)
def handle(uses: ClusterFamily, request: ApiVersionsRequest, context: Context) -> Outcome:
    if context.version >= _FIRST_WITH_SOFTWARE and not (
        _SOFTWARE.match(request.client_software_name) and _SOFTWARE.match(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    features = uses.features
    response = ApiVersionsResponse(api_keys=announced(), finalized_features_epoch=features.epoch)
    response.supported_features = [
        ApiVersionsResponseSupportedFeature(name=name, min_version=low, max_version=high)
        for name, (low, high) in SUPPORTED.items()
        if low or context.version >= _FIRST_WITH_ZERO
    ]
    level = features.transaction_version
    if level:
        response.finalized_features = [
            ApiVersionsResponseFinalizedFeature(
                name=TRANSACTION_VERSION, max_version_level=level, min_version_level=level
            )
        ]
    return response
