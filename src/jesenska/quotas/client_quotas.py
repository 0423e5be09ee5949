"""The quotas of clients, and the amounts that each client has used: bytes produced and fetched, time of requests,
changes of partitions (creations and deletions of topics and partitions). This module computes how long a client waits.

Amounts are recorded even while a client is above its quota. An amount is removed when it is older than all windows of
the quota. When the quotas change, the recorded amounts remain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jesenska.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Found,
    Quotas,
    quota_for,
)
from jesenska.quotas.rate import Rate, Windows
from jesenska.quotas.token_bucket import TokenBucket

#: The maximum number of clients whose limits are remembered. Without this limit, invented client ids could fill the
#: memory.
_CLIENTS_MAX: Final = 10_000

#: The key of a measured rate: the kind of the quota, and the user and client id that share the rate.
_Shared = tuple[str, str, str]


class Limit:
    """A quota, with the measured rate of the clients that share it."""

    __slots__ = ("quota", "rate")

    def __init__(self, quota: float, rate: Rate) -> None:
        self.quota = quota
        self.rate = rate

    def record(self, amount: float, now_ms: int) -> int:
        """Records an amount (bytes, time or partitions) that a client has used. Returns the time in milliseconds that
        the client must wait."""
        self.rate.record(amount, now_ms)
        return self.rate.throttle_ms(self.quota, now_ms)


class ClientLimits:
    """The quotas that apply to one user and client id. A limit is None if no quota of its kind applies.
    `fetch_max_bytes` limits the size of one Fetch answer, so that a single large answer does not exceed the quota."""

    __slots__ = ("fetch", "fetch_max_bytes", "mutations", "produce", "request", "request_max_ms")

    def __init__(
        self,
        produce: Limit | None,
        fetch: Limit | None,
        request: Limit | None,
        mutations: TokenBucket | None,
        windows: Windows,
    ) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.mutations = mutations
        self.request_max_ms = windows.window_ms
        seconds = (windows.samples - 1) * windows.window_ms / 1000
        self.fetch_max_bytes = None if fetch is None else max(1, int(min(fetch.quota * seconds, 2**31 - 1)))

    def produced(self, size_bytes: int, now_ms: int) -> int:
        """Records a Produce request of this size. Returns the time in milliseconds that the client must wait."""
        return 0 if self.produce is None else self.produce.record(size_bytes, now_ms)

    def fetched(self, size_bytes: int, request_seconds: float, now_ms: int) -> int:
        """Records the answer to a Fetch request, and the time that the request took. Returns the time in milliseconds
        that the client must wait. A client that must wait gets an empty answer, and the bytes are not counted."""
        throttle_ms = self.requested(request_seconds, now_ms)
        if self.fetch is not None:
            throttle_ms = max(throttle_ms, self.fetch.record(size_bytes, now_ms))
            if throttle_ms:
                self.fetch.rate.record(-size_bytes, now_ms)
        return throttle_ms

    def requested(self, seconds: float, now_ms: int) -> int:
        """Records the time that a request took, counted as a percentage of one thread. Returns the time in
        milliseconds that the client must wait, at most one window."""
        if self.request is None:
            return 0
        return min(self.request.record(seconds * 100, now_ms), self.request_max_ms)


class ClientQuotas:
    """The quotas of all clients. `is_active` is False while there are no quotas. `defaults` has the values of settings
    such as quota.producer.default: they apply to each client id that has no other quota of that kind."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        windows: Windows,
        mutation_windows: Windows,
        defaults: dict[str, float],
    ) -> None:
        self.now_ms = now_ms
        self.is_active = bool(defaults)
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._defaults = defaults
        self._quotas: Quotas = {}
        self._rates: dict[_Shared, Rate] = {}
        self._buckets: dict[_Shared, TokenBucket] = {}
        self._clients: dict[tuple[str, str], ClientLimits | None] = {}

    def replace(self, quotas: Quotas) -> None:
        """Replaces all quotas, from the next request on."""
        self._quotas = {entity: values for entity, values in quotas.items() if values}
        self.is_active = bool(self._quotas or self._defaults)
        self._clients.clear()
        self._forget_old()

    def limits_for(self, user: str, client_id: str) -> ClientLimits | None:
        """Returns the limits of a client; None if no quota applies to the client."""
        key = (user, client_id)
        try:
            return self._clients[key]
        except KeyError:
            pass
        if len(self._clients) >= _CLIENTS_MAX:
            self._clients.clear()
            self._forget_old()
        limits = self._clients[key] = self._made(user, client_id)
        return limits

    def _made(self, user: str, client_id: str) -> ClientLimits | None:
        produce, fetch, request = (
            self._limit(name, user, client_id) for name in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
        )
        mutations = self._bucket(user, client_id)
        if produce is None and fetch is None and request is None and mutations is None:
            return None
        return ClientLimits(produce, fetch, request, mutations, self._windows)

    def _found(self, name: str, user: str, client_id: str) -> Found | None:
        found = quota_for(self._quotas, name, user, client_id)
        if found is None and name in self._defaults:
            return Found(self._defaults[name], "", client_id)
        return found

    def _limit(self, name: str, user: str, client_id: str) -> Limit | None:
        found = self._found(name, user, client_id)
        if found is None:
            return None
        key = (name, found.user, found.client_id)
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = Rate(self._windows)
        return Limit(found.quota, rate)

    def _bucket(self, user: str, client_id: str) -> TokenBucket | None:
        found = self._found(CONTROLLER_MUTATION_RATE, user, client_id)
        if found is None:
            return None
        key = (CONTROLLER_MUTATION_RATE, found.user, found.client_id)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(found.quota, self._mutation_windows, self.now_ms())
        elif bucket.quota != found.quota:
            bucket.change(found.quota, self.now_ms())
        return bucket

    def _forget_old(self) -> None:
        """Removes amounts that are older than all windows of the quota, and token buckets that are full."""
        now_ms = self.now_ms()
        for key in [key for key, rate in self._rates.items() if rate.recorded_at_ms < now_ms - self._windows.all_ms]:
            del self._rates[key]
        for key in [key for key, bucket in self._buckets.items() if bucket.is_full(now_ms)]:
            del self._buckets[key]
