"""Settings of topics and brokers that are changed, by clients or in the tree: written where they were asked for, told,
and acted on."""

from __future__ import annotations

from collections.abc import Mapping

from jesenska.base.errors import UnknownTopicOrPartitionError
from jesenska.controller.config_changes import (
    ConfigPlan,
    ToldChanges,
    plan_broker_config,
    plan_broker_config_replaced,
    plan_topic_config,
    plan_topic_config_replaced,
)
from jesenska.controller.context import ConfigView
from jesenska.controller.desk import Desk, Steps, write
from jesenska.controller.effects import SettingsChanged
from jesenska.controller.events import AlterBrokerSettings, AlterTopicSettings
from jesenska.controller.leadership import Leadership
from jesenska.metadata.tree_operations import MultiError, TreeError

#: How many old nodes under /config/changes are taken away in one change of the tree.
_OLD_AT_ONCE = 1000


class Settings:
    """Those of one controller's cluster."""

    def __init__(self, desk: Desk, leadership: Leadership) -> None:
        self._desk = desk
        self._context = desk.context
        self._leadership = leadership
        self._told = ToldChanges()

    def alter_topic(self, event: AlterTopicSettings) -> Steps:
        context, config, known = self._context, self._desk.config, self._context.topics.get(event.name)
        if isinstance(event.change, Mapping):
            plan = plan_topic_config_replaced(context, event.name, event.change, config)
        else:
            plan = plan_topic_config(context, event.name, event.change, config)
        if known is not None and known.deleting:
            raise UnknownTopicOrPartitionError(f"The topic '{event.name}' does not exist.")
        if not event.validate_only:
            yield from self._carry_out(plan)
        self._desk.answer(event.token)

    def alter_broker(self, event: AlterBrokerSettings) -> Steps:
        context, config, broker_id = self._context, self._desk.config, self._desk.broker_id
        if isinstance(event.change, Mapping):
            plan = plan_broker_config_replaced(context, event.name, event.change, broker_id, config)
        else:
            plan = plan_broker_config(context, event.name, event.change, broker_id, config)
        if not event.validate_only:
            yield from self._carry_out(plan)
        self._desk.answer(event.token)

    def found(self, entity: str, found: ConfigView) -> Steps:
        """Somebody else wrote the settings of `topics/<name>` or `brokers/<id>`."""
        self._context.configs[entity] = found
        kind, _, name = entity.partition("/")
        self._act(entity)
        if kind == "topics" and name in self._context.topics:
            for setting, refusal in self._desk.topic_config(name).refused:
                self._desk.say("error", f"topic {name}: {setting} in the tree has no effect: {refusal}")
        yield from self._leadership.elect_where_allowed()

    def told(self, path: str) -> None:
        """Somebody left a node under /config/changes: it is taken away when it is old."""
        self._told.add(path, self._desk.now_ms)

    def _carry_out(self, plan: ConfigPlan) -> Steps:
        results = yield from write(plan.operations)
        plan.apply(self._context)
        self.told(results[-1].path)
        self._act(plan.entity)
        yield from self._leadership.elect_where_allowed()
        yield from self._take_old_away()

    def _act(self, entity: str) -> None:
        if entity.startswith("brokers/"):
            self._desk.settings_changed()
        self._desk.put(SettingsChanged(entity))

    def _take_old_away(self) -> Steps:
        old = self._told.due(self._desk.now_ms)
        for start in range(0, len(old), _OLD_AT_ONCE):
            try:
                yield from write(old[start : start + _OLD_AT_ONCE])
            except (MultiError, TreeError) as error:
                self._desk.say("warning", f"old nodes under /config/changes could not be deleted: {error}; they do no harm")
