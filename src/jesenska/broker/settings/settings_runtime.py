"""Reads and changes settings in the metadata tree (ZooKeeper's nodes), for the state machine `controller.settings`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jesenska.broker.effects_runtime import EffectsRuntime
from jesenska.broker.shared_parts import SharedParts
from jesenska.config.layers import BrokerConfig, TopicConfig
from jesenska.controller.effects import Answer, Effect, SettingsChanged
from jesenska.controller.events import TopicsNew
from jesenska.controller.settings import Settings
from jesenska.metadata.store import Store


class SettingsRuntime(EffectsRuntime):
    """Runs the state machine of one broker's settings."""

    def __init__(self, core: SharedParts, store: Store, settings: Settings, change_max_bytes: int | None) -> None:
        super().__init__(core, store, settings, change_max_bytes)
        self._settings = settings
        self._changed: list[Callable[[str], None]] = []

    def on_change(self, changed: Callable[[str], None]) -> None:
        """Registers `changed`, which is called with the entity whenever an entity's settings change: `topics/<name>`,
        `brokers/<id>`, `users/<name>`, …"""
        self._changed.append(changed)

    @property
    def config(self) -> BrokerConfig:
        """Returns the broker's current settings."""
        return self._settings.config

    def topic_config(self, name: str) -> TopicConfig:
        """Returns the current settings of a topic."""
        return self._settings.topic_config(name)

    def user_settings(self, user: str) -> Mapping[str, str]:
        """Returns the settings of a user in the metadata tree: SCRAM credentials and quotas."""
        return self._settings.user_settings(user)

    def users(self) -> dict[str, Mapping[str, str]]:
        """Returns the settings of all users that have settings, by user name."""
        return self._settings.users()

    def client_settings(self) -> dict[str, Mapping[str, str]]:
        """Returns the settings of users, client ids and IP addresses, by entity
        (`controller.events.AlterClientSettings`)."""
        return self._settings.client_settings()

    async def read(self, topics: Sequence[str]) -> None:
        """Reads the settings of new topics. Raises TreeError or KafkaStorageError if the metadata tree cannot be
        reached."""
        if topics:
            await self.ask(lambda token: TopicsNew(token, tuple(topics)))

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Answer):
            self._answer(effect)
        else:
            assert isinstance(effect, SettingsChanged)
            for changed in self._changed:
                changed(effect.entity)
