"""Plans for changes of settings: AlterConfigs (replaces all settings) and IncrementalAlterConfigs (SET, DELETE,
APPEND, SUBTRACT). The changes apply to a topic, to one broker, or to every broker (the resource with an empty name).

A plan writes the entity's node under /config, and a node under /config/changes that announces the change to every
broker, in one multi. Error codes and messages are the same as in Kafka 3.9.1 and 4.3.1: a mistake in a topic's
settings is answered INVALID_CONFIG, a mistake in a broker's settings INVALID_REQUEST.

The table of broker settings says which can be changed while the broker runs (`dynamic`). These changes are also
refused: TLS keys and certificates without a listener's prefix, classes that are not Kafka's own, passwords (nothing
encrypts them yet), and settings with which the next start would fail (`safety`). Unknown names are stored for brokers
and refused for topics, as in Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from jesenska.base.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicException,
    UnknownTopicOrPartitionError,
)
from jesenska.base.topic_names import topic_name_problem
from jesenska.config.layers import BrokerConfig, TopicConfig, check_broker_values, check_topic_values
from jesenska.config.safety import refusals
from jesenska.config.settings.broker_settings import PER_LISTENER, broker_setting, split_listener_prefix
from jesenska.config.settings.topic_settings import TOPIC_SETTINGS
from jesenska.config.table import Dynamic, Setting, Table, Type, Value, value_text
from jesenska.controller.context import ConfigView, ControllerContext
from jesenska.controller.plans.branches import BRANCH_OF
from jesenska.metadata import paths
from jesenska.metadata.nodes import encode_config, encode_config_change
from jesenska.metadata.tree_operations import Create, Delete, Operation, SetData

#: How long, in milliseconds, a change node is kept, so that a slow broker can still read it. Kafka has the same
#: number.
CHANGE_EXPIRATION_MS = 15 * 60 * 1000

_BRANCH_REFUSAL = (
    f"{BRANCH_OF} says where a topic comes from: it can be given when the topic is created, and not be changed."
)

#: Settings that can only be changed with a listener's prefix.
_ONLY_OF_LISTENERS = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")
#: Changeable settings that name classes, with the allowed classes of Apache Kafka.
_CLASSES: Mapping[str, frozenset[str]] = {
    "metric.reporters": frozenset({"org.apache.kafka.common.metrics.JmxReporter"}),
    "principal.builder.class": frozenset(
        {"org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"}
    ),
    "ssl.engine.factory.class": frozenset({"org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"}),
}


class ChangeNodes:
    """The change nodes of settings or of ACLs, oldest first. Each change creates a node, and later changes delete the
    old nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}  # when it was first seen

    def add(self, path: str, now_ms: int) -> None:
        self._nodes.setdefault(path, now_ms)

    def due(self, now_ms: int) -> tuple[Operation, ...]:
        """Returns the operations that delete the old change nodes, and removes these nodes from the list."""
        old: list[str] = []
        for path, heard_ms in self._nodes.items():
            if heard_ms > now_ms - CHANGE_EXPIRATION_MS:
                break
            old.append(path)
        for path in old:
            del self._nodes[path]
        return tuple(Delete(path) for path in old)


class OpType(IntEnum):
    """The operation on one setting, with the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigOp:
    """The change of one setting. `op` is the number of the operation in the request; it may be an unknown number."""

    name: str
    op: int
    value: str | None


@dataclass(frozen=True, slots=True)
class ConfigPlan:
    """The operations to write together to the metadata tree, and the entity's settings after these operations."""

    operations: tuple[Operation, ...]
    entity: str
    settings: Mapping[str, str]

    def apply(self, view: ControllerContext) -> None:
        """Updates the controller's copy of the metadata tree after the operations were written."""
        known = view.configs.get(self.entity)
        view.configs[self.entity] = ConfigView(self.settings, 0 if known is None else known.version + 1)


def plan_topic_config(
    view: ControllerContext,
    topic: str,
    ops: Sequence[ConfigOp],
    broker_config: BrokerConfig,
    *,
    exists: bool | None = None,
) -> ConfigPlan:
    """Plans an IncrementalAlterConfigs of a topic. `exists` is True if the topic exists; None means that the topic is
    looked up in `view`."""
    if any(op.name == BRANCH_OF for op in ops):
        raise InvalidConfigError(_BRANCH_REFUSAL)
    settings = _changed(view.topic_settings(topic), ops, TOPIC_SETTINGS)
    return _topic_plan(view, topic, settings, broker_config, exists)


def plan_topic_config_replaced(
    view: ControllerContext,
    topic: str,
    configs: Mapping[str, str | None],
    broker_config: BrokerConfig,
    *,
    exists: bool | None = None,
) -> ConfigPlan:
    """Plans an AlterConfigs of a topic. Settings that are not named get their defaults again, except
    jesenska.branch.of (the source of a branch)."""
    settings, known = _without_nulls(configs), view.topic_settings(topic).get(BRANCH_OF)
    if settings.setdefault(BRANCH_OF, known or "") != (known or ""):
        raise InvalidConfigError(_BRANCH_REFUSAL)
    if known is None:
        del settings[BRANCH_OF]
    return _topic_plan(view, topic, settings, broker_config, exists)


def plan_broker_config(
    view: ControllerContext, resource: str, ops: Sequence[ConfigOp], broker_id: int, config: BrokerConfig
) -> ConfigPlan:
    """Plans an IncrementalAlterConfigs of a broker. `resource` is the name in the request. `broker_id` and `config`
    are the id and the settings of this broker."""
    target = require_broker(resource, broker_id)
    current = view.broker_settings(target)
    return _broker_plan(view, target, current, _changed(current, ops, None), config)


def plan_broker_config_replaced(
    view: ControllerContext, resource: str, configs: Mapping[str, str | None], broker_id: int, config: BrokerConfig
) -> ConfigPlan:
    """Plans an AlterConfigs of a broker."""
    target = require_broker(resource, broker_id)
    return _broker_plan(view, target, view.broker_settings(target), _without_nulls(configs), config)


def require_broker(resource: str, broker_id: int) -> int | None:
    """Returns the broker id in a resource's name, or None if the name is empty (every broker). Raises
    InvalidRequestError if the name is the id of another broker."""
    if resource == "":
        return None
    try:
        named = int(resource)
    except ValueError:
        raise InvalidRequestError(f"Broker id must be an integer, but it is: {resource}") from None
    if named != broker_id:
        raise InvalidRequestError(f"Unexpected broker id, expected {broker_id}, but received {resource}")
    return named


def _require_legal(topic: str) -> None:
    if topic == "":
        raise InvalidRequestError("Default topic resources are not allowed.")
    problem = topic_name_problem(topic)
    if problem is not None:
        raise InvalidTopicException(problem)


def _without_nulls(configs: Mapping[str, str | None]) -> dict[str, str]:
    empty = [name for name, value in configs.items() if value is None]
    if empty:
        raise InvalidRequestError(f"Null value not supported for : {','.join(empty)}")
    return {name: value for name, value in configs.items() if value is not None}


def _changed(current: Mapping[str, str], ops: Sequence[ConfigOp], table: Table | None) -> dict[str, str]:
    """Returns the settings after the operations. Checks the operations, but not the values."""
    names = [op.name for op in ops]
    if len(set(names)) != len(names):
        raise InvalidRequestError("Error due to duplicate config keys")
    empty = [op.name for op in ops if op.op != OpType.DELETE and op.value is None]
    if empty:
        raise InvalidRequestError(f"Null value not supported for : {','.join(empty)}")
    settings = dict(current)
    for item in ops:
        if item.op == OpType.DELETE:
            settings.pop(item.name, None)
        elif item.op == OpType.SET:
            settings[item.name] = item.value or ""
        elif item.op in (OpType.APPEND, OpType.SUBTRACT):
            settings[item.name] = _list_changed(settings, item, table)
        else:
            raise InvalidRequestError(f"Unknown operation type {item.op} for config {item.name}; it is 0 to 3.")
    return settings


def _list_changed(settings: Mapping[str, str], item: ConfigOp, table: Table | None) -> str:
    setting = table.get(item.name) if table is not None else broker_setting(item.name)
    if setting is None or setting.type is not Type.LIST:
        raise InvalidConfigError(f"Can't {OpType(item.op).name} to key {item.name} because its type is not LIST.")
    before = settings[item.name] if item.name in settings else value_text(setting.default) or ""
    kept = [part for part in _parts(before) if part]
    if item.op == OpType.APPEND:
        there = set(kept)
        return ",".join(kept + [part for part in dict.fromkeys(_parts(item.value or "")) if part not in there])
    removed = Counter(_parts(item.value or ""))
    left = []
    for part in kept:
        if removed[part]:
            removed[part] -= 1
        else:
            left.append(part)
    return ",".join(left)


def _parts(text: str) -> list[str]:
    """Splits a list as Java does: blanks are kept, empty parts at the end are dropped, and a text without a comma is
    one part."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return [] if "," in text and parts == [""] else parts


def plan_client_config(view: ControllerContext, entity: str, changes: Mapping[str, str | None]) -> ConfigPlan:
    """Plans changes of settings of a user, a client id or an IP address. The value None removes a setting."""
    known = view.configs.get(entity)
    settings = dict(known.settings) if known is not None else {}
    for name, value in changes.items():
        if value is None:
            settings.pop(name, None)
        else:
            settings[name] = value
    return _plan(view, entity, settings)


def _topic_plan(
    view: ControllerContext, topic: str, settings: dict[str, str], broker_config: BrokerConfig, exists: bool | None
) -> ConfigPlan:
    """Plans the write of a topic's settings. As in Kafka, values are checked before the topic is looked up, so a wrong
    value is reported first."""
    _require_legal(topic)
    for name, value in settings.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfigError(f"Unknown topic config name: {name}")
        setting.parse(value)
    check_topic_values(TopicConfig(settings, broker_config))
    if not (topic in view.topics if exists is None else exists):
        raise UnknownTopicOrPartitionError(f"The topic '{topic}' does not exist.")
    return _plan(view, f"topics/{topic}", settings)


def _broker_plan(
    view: ControllerContext,
    target: int | None,
    current: Mapping[str, str],
    settings: dict[str, str],
    config: BrokerConfig,
) -> ConfigPlan:
    changed = {name: value for name, value in settings.items() if current.get(name) != value}
    _require_dynamic(changed, settings, target)
    for name, value in changed.items():
        setting = broker_setting(name)
        if setting is not None:
            try:
                setting.parse(value)
            except InvalidConfigError as error:
                raise InvalidRequestError(str(error)) from None
            _require_classes(setting, value)
    after = (
        config.with_dynamic(dynamic_default=settings)
        if target is None
        else config.with_dynamic(dynamic_broker=settings)
    )
    try:
        check_broker_values(_typed(settings))
    except InvalidConfigError as error:
        raise InvalidRequestError(str(error)) from None
    before = {str(refusal) for refusal in refusals(config)}
    for refusal in refusals(after):
        if str(refusal) not in before:
            raise InvalidRequestError(str(refusal))
    return _plan(view, f"brokers/{paths.DEFAULT_ENTITY if target is None else target}", settings)


def _require_dynamic(changed: Mapping[str, str], settings: Mapping[str, str], target: int | None) -> None:
    fixed, per_broker, unprefixed, secret = [], [], [], []
    for name in changed:
        setting = broker_setting(name)
        if setting is None:
            continue
        listener, plain = split_listener_prefix(name)
        if setting.dynamic is Dynamic.READ_ONLY or (
            listener is not None and not plain.startswith(("ssl.", "sasl.")) and plain not in PER_LISTENER
        ):
            fixed.append(name)
        elif listener is None and plain.startswith(_ONLY_OF_LISTENERS):
            unprefixed.append(name)
        elif setting.dynamic is Dynamic.PER_BROKER and target is None:
            per_broker.append(name)
        elif setting.sensitive:
            secret.append(name)
    if fixed:
        raise InvalidRequestError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    if unprefixed:
        raise InvalidRequestError(
            f"These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(unprefixed)}]"
        )
    if per_broker:
        raise InvalidRequestError(
            f"Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(per_broker)}]"
        )
    if secret:
        raise InvalidRequestError(
            "Passwords cannot be kept among the dynamic configs yet, because nothing encrypts them: "
            f"[{', '.join(secret)}]"
        )


def _require_classes(setting: Setting, value: str) -> None:
    known = _CLASSES.get(setting.name)
    for name in value.split(",") if known is not None else ():
        if name.strip() and known is not None and name.strip() not in known:
            raise InvalidRequestError(
                f"Invalid value {name.strip()} for configuration {setting.name}: Class {name.strip()} could not be "
                f"found."
            )


def _typed(settings: Mapping[str, str]) -> dict[str, Value]:
    known = ((name, broker_setting(name), value) for name, value in settings.items())
    return {name: setting.parse(value) for name, setting, value in known if setting is not None}


def _plan(view: ControllerContext, entity: str, settings: dict[str, str]) -> ConfigPlan:
    known = view.configs.get(entity)
    path, data = f"{paths.CONFIG}/{entity}", encode_config(settings)
    write: Operation = Create(path, data) if known is None else SetData(path, data, known.version)
    tell = Create(paths.CONFIG_CHANGE_PREFIX, encode_config_change(entity), sequential=True)
    return ConfigPlan((write, tell), entity, settings)
