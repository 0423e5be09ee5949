"""Applies the quota for changes of partitions (controller_mutation_rate, KIP-599). The quota counts the partitions of
topics that are created or deleted, and the partitions that are added to topics."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.broker.requests.connection import Context


class Mutations:
    """Counts the partition changes of one request. If the client is above the quota, a request with `is_strict` (a
    newer version) is refused. After a request in an older version the client only has to wait."""

    __slots__ = ("_bucket", "_context", "_is_strict", "_now_ms")

    def __init__(self, context: Context, now_seconds: float, *, is_strict: bool) -> None:
        self._bucket = None if context.limits is None else context.limits.mutations
        self._context = context
        self._is_strict = is_strict
        self._now_ms = int(now_seconds * 1000)

    def check(self) -> None:
        """Raises THROTTLING_QUOTA_EXCEEDED if the client is above the quota and the request is strict."""
        if self._bucket is not None and self._is_strict:
            self._wait()
            if self._context.throttle_ms:
                raise KafkaError.of(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def count(self, partitions: int) -> None:
        """Counts partitions that were created or deleted."""
        if self._bucket is not None:
            self._bucket.take(partitions, self._now_ms)
            if not self._is_strict:
                self._wait()

    def _wait(self) -> None:
        assert self._bucket is not None
        self._context.throttle_ms = max(self._context.throttle_ms, self._bucket.throttle_ms(self._now_ms))
