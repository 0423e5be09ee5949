"""DescribeCluster (key 60), versions 0-2. Each line is what a version adds:

0      cluster id, controller, and the brokers with their addresses for this listener's clients
1      endpoint type: brokers (1). Type controllers (2) is refused, because there is no separate quorum of controllers
2      fenced brokers, which do not exist here
"""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.authorized_operations import CLUSTER_OPERATIONS
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import ClusterFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)

_BROKERS, _CONTROLLERS = 1, 2


@handles(DescribeClusterRequest, ClusterFamily)
def handle(uses: ClusterFamily, request: DescribeClusterRequest, context: Context) -> Outcome:
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER."
            if known
            else f"Unsupported endpoint type {request.endpoint_type}",
            endpoint_type=_BROKERS,
        )
    response = DescribeClusterResponse(
        cluster_id=uses.view.cluster_id,
        controller_id=uses.view.controller_id if uses.view.controller_id in uses.view.brokers else -1,
        brokers=[
            DescribeClusterResponseBroker(broker_id=node.broker_id, host=host, port=port, rack=node.rack)
            for node, host, port in uses.view.endpoints_for(context.connection.listener_name)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
