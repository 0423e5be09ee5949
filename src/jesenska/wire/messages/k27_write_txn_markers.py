"""WriteTxnMarkers (key 27): a transaction coordinator asks the leaders of partitions to write commit or abort markers.

Versions: 1 uses the compact encoding. 2 has the transaction version, which decides how strictly epochs are compared
(KIP-1228)."""

from __future__ import annotations

from jesenska.wire.language import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    REQUEST,
    RESPONSE,
    STRING,
    Array,
    Message,
    Struct,
    field,
)


class WriteTxnMarkersRequestTopic(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(Array(INT32))


class WriteTxnMarkersRequestMarker(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    transaction_result: bool = field(BOOLEAN)
    topics: list[WriteTxnMarkersRequestTopic] = field(Array(WriteTxnMarkersRequestTopic))
    coordinator_epoch: int = field(INT32)
    transaction_version: int = field(INT8, since=2, ignorable=True)


class WriteTxnMarkersRequest(Message, key=27, kind=REQUEST, versions=(0, 2), flexible=1):
    markers: list[WriteTxnMarkersRequestMarker] = field(Array(WriteTxnMarkersRequestMarker))


class WriteTxnMarkersResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class WriteTxnMarkersResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[WriteTxnMarkersResponsePartition] = field(Array(WriteTxnMarkersResponsePartition))


class WriteTxnMarkersResponseMarker(Struct):
    producer_id: int = field(INT64)
    topics: list[WriteTxnMarkersResponseTopic] = field(Array(WriteTxnMarkersResponseTopic))


class WriteTxnMarkersResponse(Message, key=27, kind=RESPONSE, versions=(0, 2), flexible=1):
    markers: list[WriteTxnMarkersResponseMarker] = field(Array(WriteTxnMarkersResponseMarker))
