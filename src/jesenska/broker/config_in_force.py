"""A broker's settings in force. They change while it runs, where an operator changes a dynamic one."""

from __future__ import annotations

from collections.abc import Callable

from jesenska.config.layers import BrokerConfig


class ConfigInForce:
    """`config` is what holds now."""

    __slots__ = ("_changed", "config")

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._changed: list[Callable[[BrokerConfig], None]] = []

    def on_change(self, apply: Callable[[BrokerConfig], None]) -> None:
        """Has `apply` called with the settings whenever they are others, in the order in which it was asked for."""
        self._changed.append(apply)

    def change(self, config: BrokerConfig) -> None:
        """Other settings are in force."""
        self.config = config
        for apply in self._changed:
            apply(config)
