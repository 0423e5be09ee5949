"""The settings of a running broker. They change when an operator changes a dynamic setting."""

from __future__ import annotations

from collections.abc import Callable

from jesenska.config.layers import BrokerConfig


class ConfigInForce:
    """The current settings (`config`), and the functions that are called when they change."""

    __slots__ = ("_changed", "config")

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._changed: list[Callable[[BrokerConfig], None]] = []

    def on_change(self, apply: Callable[[BrokerConfig], None]) -> None:
        """Registers `apply`, which is called with the new settings at each change. Functions are called in the order
        of registration."""
        self._changed.append(apply)

    def change(self, config: BrokerConfig) -> None:
        """Replaces the settings, and calls the registered functions."""
        self.config = config
        for apply in self._changed:
            apply(config)
