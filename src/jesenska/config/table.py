"""The classes of a setting and of a table of settings: parsing, validation, defaults and the texts of values.

A value is given as text (in a file, the environment, a flag or a request) and becomes a typed value:

    type      value in Python          text
    BOOLEAN   bool                     `true` or `false`, any case
    INT       int, 32 bits signed      decimal
    SHORT     int, 16 bits signed      decimal
    LONG      int, 64 bits signed      decimal
    DOUBLE    float                    decimal, exponent allowed
    STRING    str                      as it is, without blanks at either end
    LIST      tuple[str, ...]          separated by commas, blanks around a comma dropped
    CLASS     str                      name of a class; kept as text, never loaded
    PASSWORD  str                      never shown

Error messages are Kafka's (`Invalid value x for configuration y: ...`), as in 3.9.1 and 4.3.1, so that a tool shows
the same text. The sources of values are combined in `layers`, and listeners are parsed in `listeners`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum

from jesenska.base.errors import InvalidConfigError
from jesenska.config.amounts import meant

Value = bool | int | float | str | tuple[str, ...] | None


class Type(IntEnum):
    """Types of a setting's value. The numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Dynamic(Enum):
    """The ways in which a broker's setting may be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Effect(Enum):
    """The effect that a setting has in jesenska."""

    WORKS = "works"
    STORED = "stored"  # kept and shown, warned about once if set; no effect yet
    MEANINGLESS = "meaningless"  # accepted; jesenska has nothing to which it applies


#: Characters that Java strips from both ends of a value, and that Kafka strips around the commas of a list.
_TRIMMED = "".join(map(chr, range(0x21)))
_WHITESPACE = " \t\n\v\f\r"
_INT_LIMITS = {Type.SHORT: 2**15, Type.INT: 2**31, Type.LONG: 2**63}
_INT_TEXT = re.compile(r"[+-]?[0-9]{1,19}\Z")
_DOUBLE_TEXT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?\Z")
_INFINITIES = {"Infinity": float("inf"), "+Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


class ValueRefused(Exception):
    """Raised by a check that refuses a value. Its text is the reason, which becomes the end of the message of an
    InvalidConfigError."""


Check = Callable[[str, Value], None]
"""Raises ValueRefused where the value (of the setting of that name) is not valid."""


@dataclass(frozen=True, slots=True)
class Between:
    """Checks that a number is from `lowest` to `highest`, both included. None means no limit on that side."""

    lowest: int | float | None = None
    highest: int | float | None = None

    def __call__(self, name: str, value: Value) -> None:
        if not isinstance(value, int | float):
            raise ValueRefused("Value must be non-null")
        if self.lowest is not None and not value >= self.lowest:
            raise ValueRefused(f"Value must be at least {self.lowest}")
        if self.highest is not None and not value <= self.highest:
            raise ValueRefused(f"Value must be no more than {self.highest}")

    def __str__(self) -> str:
        if self.highest is None:
            return f"[{self.lowest},...]"
        if self.lowest is None:
            return f"[...,{self.highest}]"
        return f"[{self.lowest},...,{self.highest}]"


@dataclass(frozen=True, slots=True)
class OneOf:
    """Checks that a value, or each element of a list, is one of the given words."""

    words: tuple[str, ...]
    any_case: bool = False

    def __call__(self, name: str, value: Value) -> None:
        known = {word.lower() for word in self.words} if self.any_case else set(self.words)
        for word in value if isinstance(value, tuple) else (value,):
            text = "null" if word is None else str(word)
            if (text.lower() if self.any_case else text) not in known:
                raise _ElementRefused(
                    text, f"String must be one of{' (case insensitive)' if self.any_case else ''}: ", self.words
                )

    def __str__(self) -> str:
        return ("(case insensitive) " if self.any_case else "") + "[" + ", ".join(self.words) + "]"


class _ElementRefused(ValueRefused):
    """Raised by a check that refuses one element of a list. Kafka's message names the refused element, not the whole
    list."""

    def __init__(self, element: str, sentence: str, words: tuple[str, ...]) -> None:
        super().__init__(sentence + ", ".join(words))
        self.element = element


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """Checks that a string has at least one character. An unset value passes."""

    def __call__(self, name: str, value: Value) -> None:
        if value == "":
            raise ValueRefused("String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


@dataclass(frozen=True, slots=True)
class BetweenOr:
    """Checks that a number is from `lowest` to `highest`, or equals `other`, which means a default."""

    lowest: int
    highest: int
    other: int

    def __call__(self, name: str, value: Value) -> None:
        if value != self.other and not (isinstance(value, int) and self.lowest <= value <= self.highest):
            raise ValueRefused(f"Value must be between {self.lowest} and {self.highest} or equal to {self.other}")

    def __str__(self) -> str:
        return f"[{self.lowest},...,{self.highest}] or {self.other}"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """Checks a list of throttled replicas: empty, `*`, or pairs `partition:broker` separated by commas."""

    def __call__(self, name: str, value: Value) -> None:
        if not isinstance(value, tuple):
            raise ValueRefused("Value must be non-null")
        pairs = [item for item in value if item]
        if pairs and pairs != ["*"] and not all(re.match(r"[0-9]+:[0-9]+\Z", item) for item in pairs):
            raise _ElementRefused(
                "[" + ", ".join(value) + "]",
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                f"[partitionId]:[brokerId],[partitionId]:[brokerId],...",
                (),
            )

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


@dataclass(frozen=True, slots=True)
class ReleaseName:
    """Checks the name of a Kafka release as settings have it: `0.10.2`, `1.0-IV0`, `3.9`. Releases that never existed
    are refused."""

    def __call__(self, name: str, value: Value) -> None:
        if not isinstance(value, str) or release_number(value) is None:
            raise ValueRefused(f"Version {value} is not a valid version")

    def __str__(self) -> str:
        return "a release of Apache Kafka from 0.8.0 to 4.3"


# The highest internal version (`-IVn`) of each release; "0.8.0" to "0.9.0" have no internal version.
_RELEASES: dict[tuple[int, ...], int | None] = {
    (0, 8, 0): None,
    (0, 8, 1): None,
    (0, 8, 2): None,
    (0, 9, 0): None,
    (0, 10, 0): 1,
    (0, 10, 1): 2,
    (0, 10, 2): 0,
    (0, 11, 0): 2,
    (1, 0): 0,
    (1, 1): 0,
    (2, 0): 1,
    (2, 1): 2,
    (2, 2): 1,
    (2, 3): 1,
    (2, 4): 1,
    (2, 5): 0,
    (2, 6): 0,
    (2, 7): 2,
    (2, 8): 1,
    (3, 0): 1,
    (3, 1): 0,
    (3, 2): 0,
    (3, 3): 3,
    (3, 4): 0,
    (3, 5): 2,
    (3, 6): 2,
    (3, 7): 4,
    (3, 8): 0,
    (3, 9): 0,
    (4, 0): 3,
    (4, 1): 1,
    (4, 2): 1,
    (4, 3): 0,
}


def release_number(text: str) -> tuple[int, ...] | None:
    """Parses a release's name: `0.10.2`, `0.10.2.1` and `0.10.2-IV0` all give (0, 10, 2). Returns None if there is no
    such release of Kafka."""
    matched = re.match(r"([0-9]{1,3}(?:\.[0-9]{1,3}){1,3})(?:-IV([0-9]))?\Z", text)
    if matched is None:
        return None
    numbers = tuple(int(part) for part in matched[1].split("."))
    release = numbers[:3] if numbers[0] == 0 else numbers[:2]
    if release not in _RELEASES:
        return None
    highest = _RELEASES[release]
    if matched[2] is not None and (highest is None or int(matched[2]) > highest):
        return None
    return release


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: one row of a table.

    `default` is a typed value. `internal` settings are listed only if they are set. `release` is the Kafka release
    that has this default. `reason` explains an effect other than WORKS, in half a sentence."""

    name: str
    type: Type
    default: Value
    importance: Importance
    doc: str
    check: Check | None = None
    dynamic: Dynamic = Dynamic.READ_ONLY
    effect: Effect = Effect.WORKS
    reason: str = ""
    release: str = "1.0"
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        """True for passwords: their value must never be shown."""
        return self.type is Type.PASSWORD

    @property
    def valid_values(self) -> str:
        """The valid values, as Kafka's documentation writes them; empty if every value is valid."""
        return str(self.check) if self.check is not None else ""

    def parse(self, text: str) -> Value:
        """Returns the typed and checked value of a text. Raises InvalidConfigError with Kafka's message if it is not
        valid."""
        try:
            value = _parse(self.type, text.strip(_TRIMMED))
            if self.check is not None:
                self.check(self.name, value)
        except _ElementRefused as refused:
            raise invalid_value(self.name, refused.element, str(refused)) from None
        except ValueRefused as refused:
            shown = "[hidden]" if self.sensitive else text.strip(_TRIMMED)
            raise invalid_value(self.name, shown, f"{refused}{meant(self.name, text)}") from None
        return value

    def text(self, value: Value) -> str | None:
        """Returns a value as text; None for an unset value."""
        return value_text(value)


def invalid_value(name: str, value: str, reason: str) -> InvalidConfigError:
    """Returns the InvalidConfigError for a value that is not valid, with Kafka's message."""
    return InvalidConfigError(f"Invalid value {value} for configuration {name}: {reason}")


def _parse(kind: Type, text: str) -> Value:
    if kind is Type.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueRefused("Expected value to be either true or false")
        return lowered == "true"
    if kind in _INT_LIMITS:
        limit = _INT_LIMITS[kind]
        if not _INT_TEXT.match(text) or not -limit <= int(text) < limit:
            raise ValueRefused(f"Not a number of type {kind.name}")
        return int(text)
    if kind is Type.DOUBLE:
        if text in _INFINITIES:
            return _INFINITIES[text]
        if not _DOUBLE_TEXT.match(text):
            raise ValueRefused("Not a number of type DOUBLE")
        return float(text.rstrip("dDfF"))
    if kind is Type.LIST:
        return tuple(item.strip(_WHITESPACE) for item in text.split(",")) if text else ()
    return text


def value_text(value: Value) -> str | None:
    """Returns a value as text: `true`, `1.5`, `a,b`; None for an unset value. Numbers are written as in Java."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _double_text(value)
    return str(value)


def _double_text(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, exponent = f"{value:.17e}".split("e")
    digits = repr(value).lower()
    if "e" in digits:
        mantissa = digits.split("e")[0]
    else:
        plain = digits.lstrip("-").replace(".", "").strip("0") or "0"
        mantissa = ("-" if value < 0 else "") + plain[0] + "." + (plain[1:] or "0")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name that is not in the table of settings, together with the most similar name in the table."""

    name: str
    nearest: str | None

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"The setting {self.name} is not known and has no effect{hint}"


class Table:
    """All settings of one kind. `kind` is the word for them in messages (`broker`, `topic`)."""

    __slots__ = ("_settings", "kind")

    def __init__(self, kind: str, settings: Iterable[Setting]) -> None:
        self.kind = kind
        self._settings: dict[str, Setting] = {}
        for setting in settings:
            if setting.name in self._settings:
                raise ValueError(f"{kind} setting {setting.name} is twice in its table")
            self._settings[setting.name] = setting

    def __contains__(self, name: object) -> bool:
        return name in self._settings

    def __getitem__(self, name: str) -> Setting:
        return self._settings[name]

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._settings.values())

    def __len__(self) -> int:
        return len(self._settings)

    def get(self, name: str) -> Setting | None:
        return self._settings.get(name)

    def default(self, name: str) -> Value:
        return self._settings[name].default

    def nearest(self, name: str) -> str | None:
        """Returns the name in the table that is most similar to `name`; None if no name is similar."""
        close = difflib.get_close_matches(name, self._settings, n=1, cutoff=0.75)
        return close[0] if close else None

    def unknown(self, names: Iterable[str]) -> list[Unknown]:
        """Returns the names in `names` that are not in the table, each with the most similar name in the table."""
        return [Unknown(name, self.nearest(name)) for name in names if name not in self._settings]

    def parse(self, texts: Mapping[str, str]) -> dict[str, Value]:
        """Returns the typed values of the known settings among `texts`. Other names are left out; `unknown` finds
        them."""
        return {name: self._settings[name].parse(text) for name, text in texts.items() if name in self._settings}

    def without_effect(self, names: Iterable[str]) -> list[Setting]:
        """Returns the settings among `names` that are stored without effect. The user gets a warning for each."""
        return [
            self._settings[name]
            for name in names
            if name in self._settings and self._settings[name].effect is Effect.STORED
        ]
