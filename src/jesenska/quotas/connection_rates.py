"""Quotas of new connections: for the broker, for each listener and for each address (KIP-612). This module does no
input or output.

While a listener or the broker is above its rate, the listener accepts no further connection. It accepts connections
again when the rate is within the quota. A connection above the rate of its address is closed when this rate is within
the quota again, and does not delay the connections of other addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from jesenska.quotas.rate import Rate, Windows

#: The maximum number of addresses whose rates are remembered.
_ADDRESSES_MAX: Final = 10_000


class ConnectionRates:
    """The measured rates of new connections, and their quotas in connections per second."""

    def __init__(self, now_ms: Callable[[], int], windows: Windows) -> None:
        self._now_ms = now_ms
        self._windows = windows
        self._by_address: Mapping[str | None, float] = {}
        self._address_rates: dict[str, Rate] = {}
        self._listeners: dict[str | None, float] = {}
        self._listener_rates: dict[str | None, Rate] = {}

    def replace(self, by_address: Mapping[str | None, float]) -> None:
        """Replaces the quotas by address; the key None is the default for other addresses."""
        self._by_address = by_address

    def limit(self, listeners: Mapping[str | None, float]) -> None:
        """Replaces the quotas by name of the listener; the key None is the quota of the whole broker."""
        self._listeners = dict(listeners)

    def took(self, listener: str, address: str) -> tuple[int, int]:
        """Records a new connection. Returns two times in milliseconds. The first is the time for which the listener
        accepts no further connection. The second is the time after which this connection is closed; 0 if it stays
        open."""
        now_ms = self._now_ms()
        address_ms = self._of_address(address, now_ms)
        if address_ms:
            return 0, address_ms
        return max(self._of_listener(None, now_ms), self._of_listener(listener, now_ms)), 0

    def _of_address(self, address: str, now_ms: int) -> int:
        quota = self._by_address.get(address, self._by_address.get(None))
        if quota is None:
            return 0
        rate = self._address_rates.get(address)
        if rate is None:
            if len(self._address_rates) >= _ADDRESSES_MAX:
                self._forget_old(now_ms)
            rate = self._address_rates[address] = Rate(self._windows)
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(quota, now_ms)
        if throttle_ms:
            # A refused connection is not counted, so its recorded amount is removed again.
            rate.record(-1, now_ms)
        return throttle_ms

    def _of_listener(self, listener: str | None, now_ms: int) -> int:
        quota = self._listeners.get(listener)
        if quota is None:
            return 0
        rate = self._listener_rates.get(listener)
        if rate is None:
            rate = self._listener_rates[listener] = Rate(self._windows)
        rate.record(1, now_ms)
        return rate.throttle_ms(quota, now_ms)

    def _forget_old(self, now_ms: int) -> None:
        old_ms = now_ms - self._windows.all_ms
        for address in [name for name, rate in self._address_rates.items() if rate.recorded_at_ms < old_ms]:
            del self._address_rates[address]
        while len(self._address_rates) >= _ADDRESSES_MAX:
            del self._address_rates[next(iter(self._address_rates))]
