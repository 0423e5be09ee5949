"""A token bucket: a quota that allows bursts (KIP-599).

The bucket is full at the start, and gets tokens at the rate of the quota until it is full again. An operation may take
tokens while the number of tokens is 0 or more. An operation may take more tokens than there are; the number is then
negative. Further operations wait until the number is 0 again."""

from __future__ import annotations

from jesenska.quotas.rate import Windows


class TokenBucket:
    """The token bucket of the clients that share a quota. `quota` is in tokens per second. The full bucket has as many
    tokens as the quota allows in all windows."""

    __slots__ = ("_filled_at_ms", "_tokens", "_windows", "quota")

    def __init__(self, quota: float, windows: Windows, now_ms: int) -> None:
        self._windows = windows
        self.quota = quota
        self._tokens = self._burst
        self._filled_at_ms = now_ms

    @property
    def _burst(self) -> float:
        return self.quota * self._windows.all_ms / 1000

    def change(self, quota: float, now_ms: int) -> None:
        """Changes the quota. If the number of tokens is negative, it is not changed."""
        self._fill(now_ms)
        self.quota = quota
        self._tokens = min(self._tokens, self._burst)

    def _fill(self, now_ms: int) -> None:
        self._tokens = min(self._burst, self._tokens + self.quota * (now_ms - self._filled_at_ms) / 1000)
        self._filled_at_ms = now_ms

    def take(self, tokens: float, now_ms: int) -> None:
        self._fill(now_ms)
        self._tokens -= tokens

    def throttle_ms(self, now_ms: int) -> int:
        """Returns the time in milliseconds until the number of tokens is 0 again; 0 if the number is not negative
        now."""
        self._fill(now_ms)
        return 0 if self._tokens >= 0 else int(-self._tokens / self.quota * 1000 + 0.5)

    def is_full(self, now_ms: int) -> bool:
        self._fill(now_ms)
        return self._tokens >= self._burst
