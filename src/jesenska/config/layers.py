"""Combines the layers of a setting: the value in force, and its source as DescribeConfigs reports it.

    strongest   1  topic's own                /config/topics/<topic>            changes while running
                2  this broker's dynamic      /config/brokers/<id>              changes while running
                3  every broker's dynamic     /config/brokers/<default>         changes while running
                4  the broker's file          properties, environment, flags    fixed at the start
    weakest     5  default                    the tables in config/settings

Objects of `BrokerConfig` and `TopicConfig` do not change. A new value makes a new object (`with_dynamic`).

DescribeConfigs lists the synonyms of a setting: its own value in each layer, and the values of its other names, such
as `log.retention.hours` for `log.retention.minutes`. The order is Kafka's: layer by layer from the strongest, and in
each layer every name in the order of `TIME_SYNONYMS`. The list begins at the first value under the setting's own name;
values before it are left out. If the setting's own name has neither a value nor a default, the list is empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from jesenska.base.errors import InvalidConfigError
from jesenska.base.plugins import DEFAULT_RETENTION_POLICY, RETENTION_POLICIES, PluginError, plugin
from jesenska.config.settings.broker_settings import (
    BROKER_SETTINGS,
    TIME_SYNONYMS,
    UNIT_MS,
    broker_setting,
    split_listener_prefix,
)
from jesenska.config.settings.topic_settings import BROKER_SYNONYMS, TOPIC_SETTINGS
from jesenska.config.table import Dynamic, Effect, Setting, Value, invalid_value, value_text


class Source(IntEnum):
    """The source of a setting's value. The numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that one layer has for a setting, under one of the setting's names. `value` is None for secrets."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Described:
    """A setting as DescribeConfigs returns it. `kind` is the protocol's number of the value's type, 0 if the setting
    is not known."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    kind: int
    doc: str
    synonyms: tuple[Synonym, ...]

    @property
    def is_default(self) -> bool:
        """True if the value is the default. DescribeConfigs version 0 returns this flag instead of the source."""
        return self.source is Source.DEFAULT


def documentation(setting: Setting) -> str:
    """Returns a setting's description, followed by a note if the setting has no effect, and by its default."""
    parts = [setting.doc]
    if setting.effect is Effect.STORED:
        parts.append(f"Stored, without effect yet: {setting.reason}.")
    elif setting.effect is Effect.MEANINGLESS:
        parts.append(f"Has no effect: {setting.reason}.")
    parts.append(f"Default of {setting.release}: {value_text(setting.default) or 'none'}.")
    return " ".join(parts)


class _Typed:
    """Methods that return a setting's value as a certain type, so that callers need no casts. They fail if the value
    has another type."""

    __slots__ = ()

    def value(self, name: str) -> Value:
        raise NotImplementedError

    def integer(self, name: str) -> int:
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} has no whole number but {value!r}")
        return value

    def optional_integer(self, name: str) -> int | None:
        return None if self.value(name) is None else self.integer(name)

    def number(self, name: str) -> float:
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} has no number but {value!r}")
        return float(value)

    def boolean(self, name: str) -> bool:
        value = self.value(name)
        if not isinstance(value, bool):
            raise TypeError(f"{name} is neither true nor false but {value!r}")
        return value

    def string(self, name: str) -> str | None:
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} has no text but {value!r}")
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        value = self.value(name)
        if value is None:
            return ()
        if not isinstance(value, tuple):
            raise TypeError(f"{name} has no list but {value!r}")
        return value


class BrokerConfig(_Typed):
    """A broker's settings: the settings of its file, and the dynamic settings that were changed while brokers ran.

    `static` (the file), `dynamic_default` (all brokers) and `dynamic_broker` (this broker) hold texts as they were
    given. Unknown names are kept, and DescribeConfigs lists them with hidden values. A value in the file that is not
    valid raises InvalidConfigError. A dynamic value that is not valid is ignored and named in `refused`, as in Kafka.
    So this broker can start even if a broker of another release has stored a value that is not valid here."""

    __slots__ = ("_typed", "dynamic_broker", "dynamic_default", "refused", "static")

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
    ) -> None:
        self.static: Mapping[str, str] = _with_both_ids(dict(static or {}))
        self.dynamic_default: Mapping[str, str] = dict(dynamic_default or {})
        self.dynamic_broker: Mapping[str, str] = dict(dynamic_broker or {})
        self.refused: list[tuple[str, str]] = []
        typed: dict[str, Value] = {}
        for name, text in self.static.items():
            setting = broker_setting(name)
            if setting is not None:
                typed[name] = setting.parse(text)
        check_broker_values(typed)
        for layer in (self.dynamic_default, self.dynamic_broker):
            for name, text in layer.items():
                setting = broker_setting(name)
                if setting is None or setting.dynamic is Dynamic.READ_ONLY:
                    continue
                try:
                    typed[name] = setting.parse(text)
                except InvalidConfigError as error:
                    self.refused.append((name, str(error)))
        self._typed = typed

    def with_dynamic(
        self, *, dynamic_default: Mapping[str, str] | None = None, dynamic_broker: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """Returns a configuration with the same file and new dynamic settings. A layer that is None keeps its
        settings."""
        return BrokerConfig(
            self.static,
            self.dynamic_default if dynamic_default is None else dynamic_default,
            self.dynamic_broker if dynamic_broker is None else dynamic_broker,
        )

    def value(self, name: str) -> Value:
        """Returns the typed value in force of a broker's setting. Raises KeyError for a name that is not in the
        table."""
        if name in self._typed:
            return self._typed[name]
        listener, plain = split_listener_prefix(name)
        if listener is not None:
            return self.value(plain)
        return BROKER_SETTINGS[name].default

    def is_set(self, name: str) -> bool:
        """Returns true if a layer above the default has a value for the setting."""
        return name in self._typed

    def milliseconds(self, name: str) -> int | None:
        """Returns a time in milliseconds that may also be set in minutes or hours. The setting's names (in
        milliseconds, minutes, hours) are tried in order, and the first name that has a value decides. If no name has a
        value, the default is returned."""
        names = TIME_SYNONYMS.get(name, (name,))
        for candidate in names:
            value = self._typed.get(candidate)
            if isinstance(value, int):
                return value * UNIT_MS.get(candidate, 1) if value >= 0 else value
        for candidate in names:
            default = BROKER_SETTINGS[candidate].default
            if isinstance(default, int):
                return default * UNIT_MS.get(candidate, 1)
        return None

    def unused(self) -> list[Setting]:
        """Returns the settings in the broker's file that have no effect in jesenska yet. The broker logs a warning for
        each of them when it starts."""
        found = (broker_setting(name) for name in self.static)
        return [setting for setting in found if setting is not None and setting.effect is Effect.STORED]

    def describe(self, names: Iterable[str] | None = None) -> list[Described]:
        """Returns this broker's settings as DescribeConfigs reports them: all, or those in `names`. A name that is
        neither known nor set is left out."""
        if names is None:
            listed = [
                setting.name for setting in BROKER_SETTINGS if not setting.internal or self._is_given(setting.name)
            ]
            known = set(listed)
            for layer in (self.static, self.dynamic_default, self.dynamic_broker):
                for name in layer:
                    if name not in known:
                        known.add(name)
                        listed.append(name)
        else:
            listed = [name for name in names if name in BROKER_SETTINGS or self._is_given(name)]
        return [self._described(name) for name in listed]

    def describe_default(self, names: Iterable[str] | None = None) -> list[Described]:
        """Returns the dynamic settings for all brokers, as DescribeConfigs returns them for the broker with the empty
        name."""
        listed = self.dynamic_default if names is None else [name for name in names if name in self.dynamic_default]
        answers = []
        for name in listed:
            setting = broker_setting(name)
            sensitive = setting is None or setting.sensitive
            value = None if sensitive else self.dynamic_default[name]
            answers.append(
                Described(
                    name,
                    value,
                    Source.DYNAMIC_DEFAULT_BROKER,
                    _read_only(name),
                    sensitive,
                    int(setting.type) if setting else 0,
                    documentation(setting) if setting else "",
                    (Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER),),
                )
            )
        return answers

    def synonyms(self, name: str) -> tuple[Synonym, ...]:
        """Returns every value that a layer has for the setting, the strongest layer first. The rule is at the top of
        this file."""
        listener, plain = split_listener_prefix(name)
        names = (
            (name, *TIME_SYNONYMS.get(plain, (plain,))) if listener is not None else TIME_SYNONYMS.get(name, (name,))
        )
        found: list[Synonym] = []
        layers = (
            (self.dynamic_broker, Source.DYNAMIC_BROKER),
            (self.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
            (self.static, Source.STATIC_BROKER),
        )
        for layer, source in layers:
            found += [Synonym(item, _shown(item, layer[item]), source) for item in names if item in layer]
        for item in names:
            setting = BROKER_SETTINGS.get(item)
            if setting is not None and setting.default is not None:
                found.append(Synonym(item, None if setting.sensitive else value_text(setting.default), Source.DEFAULT))
        first = next((index for index, item in enumerate(found) if item.name == name), len(found))
        return tuple(found[first:])

    def _is_given(self, name: str) -> bool:
        return name in self.static or name in self.dynamic_default or name in self.dynamic_broker

    def _described(self, name: str) -> Described:
        setting = broker_setting(name)
        synonyms = self.synonyms(name)
        source = synonyms[0].source if synonyms else Source.DEFAULT
        sensitive = setting is None or setting.sensitive
        value = None if sensitive else value_text(self.value(name))
        kind = int(setting.type) if setting is not None else 0
        return Described(
            name, value, source, _read_only(name), sensitive, kind, documentation(setting) if setting else "", synonyms
        )


class TopicConfig(_Typed):
    """A topic's settings: its own values, and the broker's values for settings that the topic does not have. A topic's
    value that is not valid is ignored and named in `refused`."""

    __slots__ = ("_typed", "broker", "overrides", "refused")

    def __init__(self, overrides: Mapping[str, str], broker: BrokerConfig) -> None:
        self.overrides: Mapping[str, str] = dict(overrides)
        self.broker = broker
        self.refused: list[tuple[str, str]] = []
        typed: dict[str, Value] = {setting.name: _from_broker(setting, broker) for setting in TOPIC_SETTINGS}
        for name, text in self.overrides.items():
            setting = TOPIC_SETTINGS.get(name)
            if setting is None:
                continue
            try:
                typed[name] = setting.parse(text)
            except InvalidConfigError as error:
                self.refused.append((name, str(error)))
        self._typed = typed

    def with_broker(self, broker: BrokerConfig) -> TopicConfig:
        """Returns the settings of the same topic, with `broker` as the broker's settings."""
        return TopicConfig(self.overrides, broker)

    def value(self, name: str) -> Value:
        """Returns the typed value in force of a topic's setting. Raises KeyError for a name that is not a topic
        setting."""
        return self._typed[name]

    @property
    def timestamp_before_max_ms(self) -> int:
        """Largest age of a producer's timestamp in ms. If message.timestamp.before.max.ms has its default, the older
        message.timestamp.difference.max.ms applies."""
        return self._timestamp_limit("message.timestamp.before.max.ms")

    @property
    def timestamp_after_max_ms(self) -> int:
        """Largest distance of a producer's timestamp into the future in ms. If message.timestamp.after.max.ms has
        its default, the older message.timestamp.difference.max.ms applies."""
        return self._timestamp_limit("message.timestamp.after.max.ms")

    def unused(self) -> list[Setting]:
        """Returns the topic's own settings that have no effect in jesenska yet."""
        return TOPIC_SETTINGS.without_effect(self.overrides)

    def describe(self, names: Iterable[str] | None = None) -> list[Described]:
        """Returns the topic's settings as DescribeConfigs reports them: all, or those in `names`. Unknown names are
        left out."""
        if names is None:
            chosen = [setting for setting in TOPIC_SETTINGS if not setting.internal or setting.name in self.overrides]
        else:
            chosen = [TOPIC_SETTINGS[name] for name in names if name in TOPIC_SETTINGS]
        return [self._described(setting) for setting in chosen]

    def _timestamp_limit(self, name: str) -> int:
        limit, older = self.integer(name), self.integer("message.timestamp.difference.max.ms")
        is_older_alone = limit == TOPIC_SETTINGS.default(name) and older != TOPIC_SETTINGS.default(
            "message.timestamp.difference.max.ms"
        )
        return older if is_older_alone else limit

    def _described(self, setting: Setting) -> Described:
        name = setting.name
        value = value_text(self.value(name))
        broker_name = BROKER_SYNONYMS.get(name, ("",))[0]
        synonyms = self.broker.synonyms(broker_name) if broker_name else ()
        if name in self.overrides:
            synonyms = (Synonym(name, value, Source.TOPIC), *synonyms)
        source = synonyms[0].source if synonyms else Source.DEFAULT
        return Described(name, value, source, False, False, int(setting.type), documentation(setting), synonyms)


def check_broker_values(typed: Mapping[str, Value]) -> None:
    """Checks Kafka's rules about pairs of a broker's settings. Raises InvalidConfigError with Kafka's message."""
    both = typed.get("broker.id"), typed.get("node.id")
    if both[0] is not None and both[1] is not None and both[0] != both[1]:
        raise InvalidConfigError(
            f"broker.id is {both[0]} and node.id is {both[1]}; give one of them, or both the same number."
        )
    number = typed.get("broker.id")
    if typed.get("broker.id.generation.enable") is False and (not isinstance(number, int) or number < 0):
        raise InvalidConfigError(
            "broker.id.generation.enable is false and no number is given: set broker.id to 0 or a larger number."
        )
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if typed.get(name) == 0:
            raise InvalidConfigError(
                f"requirement failed: {name} must be unlimited (-1) or, greater than or equal to 1"
            )
    for name in ("log.roll.ms", "log.roll.hours"):
        value = typed.get(name)
        if isinstance(value, int) and value < 1:
            raise InvalidConfigError(f"requirement failed: {name} must be greater than or equal to 1")
    jitter = typed.get("log.roll.jitter.ms")
    if isinstance(jitter, int) and jitter < 0:
        raise InvalidConfigError("requirement failed: log.roll.jitter.ms must be greater than or equal to 0")
    for text in _items(typed.get("max.connections.per.ip.overrides")):
        host, colon, count = text.rpartition(":")
        if not (host and colon and count.isascii() and count.isdigit()):
            raise InvalidConfigError(
                f"Error parsing configuration property 'max.connections.per.ip.overrides': {text!r} is not host:count"
            )


def check_topic_values(config: TopicConfig) -> None:
    """Checks Kafka's rules about pairs of a topic's settings. Raises InvalidConfigError with Kafka's message."""
    least, most = config.integer("min.compaction.lag.ms"), config.integer("max.compaction.lag.ms")
    if least > most:
        raise InvalidConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
    policy = config.overrides.get("jesenska.retention.policy")
    if policy is not None and (reason := retention_policy_fault(policy)) is not None:
        raise invalid_value("jesenska.retention.policy", policy, reason)
    if config.boolean("remote.storage.enable"):
        raise InvalidConfigError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage."
        )


def retention_policy_fault(name: str) -> str | None:
    """Returns a sentence that says why a retention policy is not available; None if it is available. The check is made
    only when a topic's policy is set. A topic whose policy was uninstalled later keeps the setting and all its data,
    and does not fall back to another policy."""
    if name == DEFAULT_RETENTION_POLICY:
        return None
    try:
        plugin(RETENTION_POLICIES, name)
    except PluginError as error:
        return str(error)
    return None


def _items(value: Value) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else []


def _from_broker(setting: Setting, broker: BrokerConfig) -> Value:
    names = BROKER_SYNONYMS.get(setting.name)
    if names is None:
        return setting.default
    if len(names) > 1:
        value = broker.milliseconds(names[0])
        return setting.default if value is None else value
    return broker.value(names[0])


def _with_both_ids(static: dict[str, str]) -> dict[str, str]:
    """Gives `broker.id` and `node.id` the same value if only one of them is set, because they are two names of one
    setting."""
    for given, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if given in static and other not in static:
            static[other] = static[given]
    return static


def _read_only(name: str) -> bool:
    setting = BROKER_SETTINGS.get(name)
    return setting is None or setting.dynamic is Dynamic.READ_ONLY


def _shown(name: str, text: str) -> str | None:
    setting = broker_setting(name)
    return None if setting is None or setting.sensitive else text


def token_secret_of(config: BrokerConfig) -> str | None:
    """Returns the secret of delegation tokens, by its newer or its older name; None if the broker serves no tokens."""
    return config.string("delegation.token.secret.key") or config.string("delegation.token.master.key") or None
