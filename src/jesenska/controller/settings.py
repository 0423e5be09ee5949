"""The settings of topics, brokers and clients that one broker knows, and their changes. Settings are changed by this
broker's clients, by other brokers, or directly in the metadata tree (ZooKeeper's nodes). The broker that gets a
request writes the change, and announces it to every broker by a node under /config/changes.

Every broker has its own copy of all settings, and applies them to its replicas and clients; the controller is not
involved. This module does no input or output: it gets events and returns effects."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from jesenska.config.layers import BrokerConfig, TopicConfig
from jesenska.controller.changes.change_machine import ChangeMachine
from jesenska.controller.changes.change_nodes import delete_old
from jesenska.controller.changes.change_state import ChangeState, Steps, refusal, write, write_plan
from jesenska.controller.changes.config_looks import ConfigLooks, config_in
from jesenska.controller.context import ConfigView, ControllerContext
from jesenska.controller.effects import Get, Read, SettingsChanged, Write
from jesenska.controller.events import (
    EVERYTHING,
    AlterBrokerSettings,
    AlterClientSettings,
    AlterTopicSettings,
    Look,
    TopicsNew,
)
from jesenska.controller.plans.config_changes import (
    ChangeNodes,
    ConfigPlan,
    plan_broker_config,
    plan_broker_config_replaced,
    plan_client_config,
    plan_topic_config,
    plan_topic_config_replaced,
)
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError
from jesenska.metadata.tree_operations import (
    Create,
    MultiError,
    NodeExistsError,
    TreeError,
)

#: The maximum number of times that a change is planned before it fails.
_ATTEMPTS_MAX = 5


class Settings(ChangeMachine):
    """The state machine that reads and changes the settings of one broker. `configs` has the settings in the metadata
    tree at the start, `config` the settings of the broker's configuration files. `is_topic` returns True if this
    broker's metadata has a topic with that name."""

    def __init__(
        self, broker_id: int, configs: Mapping[str, ConfigView], config: BrokerConfig, is_topic: Callable[[str], bool]
    ) -> None:
        self._context = context = ControllerContext(configs=dict(configs))
        self._shared = shared = ChangeState(broker_id, context, config)
        self._is_topic = is_topic
        self._change_nodes = ChangeNodes()
        self._looks = ConfigLooks(shared, self._found, self._remember, (*paths.ENTITY_KINDS, *paths.CLIENT_KINDS))
        super().__init__(
            shared,
            {
                AlterTopicSettings: self._alter_topic,
                AlterBrokerSettings: self._alter_broker,
                AlterClientSettings: self._alter_client,
                TopicsNew: self._read,
                Look: self._look,
            },
        )

    @property
    def config(self) -> BrokerConfig:
        """Returns the broker's current settings: settings in the metadata tree override the settings in its
        configuration files."""
        return self._shared.config

    def topic_config(self, name: str) -> TopicConfig:
        """Returns the current settings of a topic."""
        return self._shared.topic_config(name)

    def user_settings(self, user: str) -> Mapping[str, str]:
        """Returns a user's settings in the metadata tree: SCRAM credentials and quotas."""
        found = self._context.configs.get(f"users/{paths.sanitize(user)}")
        return found.settings if found is not None else {}

    def users(self) -> dict[str, Mapping[str, str]]:
        """Returns the settings of all users that have settings, by user name."""
        return {
            paths.desanitize(entity.removeprefix("users/")): found.settings
            for entity, found in self._context.configs.items()
            if entity.startswith("users/") and not paths.is_client_entity(entity)
        }

    def client_settings(self) -> dict[str, Mapping[str, str]]:
        """Returns the settings of users, client ids and IP addresses, by entity (`AlterClientSettings`)."""
        return {
            entity: found.settings
            for entity, found in self._context.configs.items()
            if entity.partition("/")[0] in paths.CLIENT_KINDS
        }

    # --- requests of clients -----------------------------------------------------------------------------------------

    def _alter_topic(self, event: AlterTopicSettings) -> Steps:
        def plan() -> ConfigPlan:
            context, config, exists = self._context, self._shared.config, self._is_topic(event.name)
            if isinstance(event.change, Mapping):
                return plan_topic_config_replaced(context, event.name, event.change, config, exists=exists)
            return plan_topic_config(context, event.name, event.change, config, exists=exists)

        yield from self._carry_out(plan, event.validate_only)
        self._shared.answer(event.token)

    def _alter_broker(self, event: AlterBrokerSettings) -> Steps:
        def plan() -> ConfigPlan:
            context, config, broker_id = self._context, self._shared.config, self._shared.broker_id
            if isinstance(event.change, Mapping):
                return plan_broker_config_replaced(context, event.name, event.change, broker_id, config)
            return plan_broker_config(context, event.name, event.change, broker_id, config)

        yield from self._carry_out(plan, event.validate_only)
        self._shared.answer(event.token)

    def _alter_client(self, event: AlterClientSettings) -> Steps:
        if paths.is_client_entity(event.entity):
            yield from self._make_parents(event.entity)
        yield from self._carry_out(lambda: plan_client_config(self._context, event.entity, event.changes), False)
        self._shared.answer(event.token)

    def _make_parents(self, entity: str) -> Steps:
        """Creates the parent nodes of the settings of a user's client, if they are missing."""
        user, clients = f"{paths.CONFIG}/{entity.rsplit('/', 2)[0]}", f"{paths.CONFIG}/{entity.rsplit('/', 1)[0]}"
        nodes = yield Read((Get(user), Get(clients)))
        for path, node in zip((user, clients), nodes, strict=True):
            if node is None:
                try:
                    yield from write((Create(path, b""),))
                except (MultiError, TreeError) as error:
                    if not isinstance(refusal(error), NodeExistsError):
                        raise

    def _carry_out(self, make: Callable[[], ConfigPlan], validate_only: bool) -> Steps:
        """Makes a plan and writes it. If another broker has written the same settings since they were read, reads them
        again and makes a new plan."""
        plan = make()
        if validate_only:
            return

        def make_again(plan: ConfigPlan) -> Generator[Read | Write, Any, ConfigPlan]:
            yield from self._looks.entities([plan.entity])
            return make()

        plan, results = yield from write_plan(plan, make_again, _ATTEMPTS_MAX)
        plan.apply(self._context)
        self._remember(results[-1].path)
        self._act(plan.entity)
        yield from delete_old(self._shared, self._change_nodes, paths.CONFIG_CHANGES)

    # --- reading settings from the tree ------------------------------------------------------------------------------

    def _look(self, event: Look) -> Steps:
        if event.at == EVERYTHING:
            yield from self._looks.everything()
        yield from self._looks.changes()

    def _read(self, event: TopicsNew) -> Steps:
        """Reads the settings of new topics. Settings of an earlier topic with the same name are dropped."""
        nodes = yield Read(tuple(Get(paths.topic_config(name)) for name in event.names))
        for name, node in zip(event.names, nodes, strict=True):
            entity = f"topics/{name}"
            self._context.configs.pop(entity, None)
            if node is None:
                continue
            try:
                self._context.configs[entity] = config_in(node)
            except NodeFormatError as error:
                self._shared.say("error", f"/config/{entity} is ignored: {error}")
                continue
            self._say_refused(name)
        self._shared.answer(event.token)

    def _found(self, entity: str, found: ConfigView | None) -> Steps:
        """Applies settings of an entity that were changed in the metadata tree, or whose node was deleted there."""
        yield from ()
        self._context.store_settings(entity, found)
        kind, _, name = entity.partition("/")
        self._act(entity)
        if kind == "topics" and self._is_topic(name):
            self._say_refused(name)

    def _say_refused(self, name: str) -> None:
        for setting, reason in self._shared.topic_config(name).refused:
            self._shared.say("error", f"topic {name}: {setting} in the tree has no effect: {reason}")

    def _remember(self, path: str) -> None:
        """Stores the path of a new node under /config/changes, which is deleted when it is old."""
        self._change_nodes.add(path, self._shared.now_ms)

    def _act(self, entity: str) -> None:
        if entity.startswith("brokers/"):
            self._shared.settings_changed()
        self._shared.put(SettingsChanged(entity))
