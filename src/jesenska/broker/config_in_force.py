"""A broker's settings in force. They change while it runs, if an operator changes a dynamic one."""

from __future__ import annotations

from collections.abc import Callable

from jesenska.config.layers import BrokerConfig


class ConfigInForce:
    """`config` holds the current settings."""

    __slots__ = ("_changed", "config")

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._changed: list[Callable[[BrokerConfig], None]] = []

    def on_change(self, apply: Callable[[BrokerConfig], None]) -> None:
        """Has `apply` called with the settings when they change; functions are called in the order of registration."""
        self._changed.append(apply)

    def change(self, config: BrokerConfig) -> None:
        """Puts other settings in force."""
        self.config = config
        for apply in self._changed:
            apply(config)
