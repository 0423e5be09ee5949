"""DescribeCluster (key 60): returns the cluster id, the controller and the brokers (KIP-700).

Versions: 1 adds endpoint types, 2 fenced brokers."""

from __future__ import annotations

from jesenska.wire.language import BOOLEAN, INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class DescribeClusterRequest(Message, key=60, kind=REQUEST, versions=(0, 2), flexible=0):
    include_cluster_authorized_operations: bool = field(BOOLEAN)
    endpoint_type: int = field(INT8, since=1, default=1)
    include_fenced_brokers: bool = field(BOOLEAN, since=2)


class DescribeClusterResponseBroker(Struct):
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable=0, default=None)
    is_fenced: bool = field(BOOLEAN, since=2)


class DescribeClusterResponse(Message, key=60, kind=RESPONSE, versions=(0, 2), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    endpoint_type: int = field(INT8, since=1, default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterResponseBroker] = field(Array(DescribeClusterResponseBroker))
    cluster_authorized_operations: int = field(INT32, default=-2147483648)
