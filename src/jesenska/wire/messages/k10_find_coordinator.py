"""FindCoordinator (key 10): returns the broker that coordinates a group (key type 0), a transactional id (1) or a
share partition (2).

Versions: 1 adds key types, 3 the compact encoding, 4 several keys in one request (KIP-699), 5 the error
TRANSACTION_ABORTABLE, 6 share groups."""

from __future__ import annotations

from jesenska.wire.language import INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class FindCoordinatorRequest(Message, key=10, kind=REQUEST, versions=(0, 6), flexible=3):
    key: str = field(STRING, until=3)
    key_type: int = field(INT8, since=1)
    coordinator_keys: list[str] = field(Array(STRING), since=4)


class FindCoordinatorResponseCoordinator(Struct):
    key: str = field(STRING, since=4)
    node_id: int = field(INT32, since=4)
    host: str = field(STRING, since=4)
    port: int = field(INT32, since=4)
    error_code: int = field(INT16, since=4)
    error_message: str | None = field(STRING, since=4, nullable=4, ignorable=True)


class FindCoordinatorResponse(Message, key=10, kind=RESPONSE, versions=(0, 6), flexible=3):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16, until=3)
    error_message: str | None = field(STRING, since=1, until=3, nullable=1, ignorable=True)
    node_id: int = field(INT32, until=3)
    host: str = field(STRING, until=3)
    port: int = field(INT32, until=3)
    coordinators: list[FindCoordinatorResponseCoordinator] = field(Array(FindCoordinatorResponseCoordinator), since=4)
