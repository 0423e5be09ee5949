"""The serde for objects of a dataclass as JSON: Serdes.dataclass. Field values are checked against the fields' types,
in writing and in reading.

    str, int, bool, Any      the same value in JSON; a bool is not accepted as an int
    float                    a number; an int is accepted
    datetime, date           text in ISO 8601
    Enum                     the value of the member
    list[T], tuple[T, ...]   a list
    dict[str, T]             an object
    a dataclass              an object of its fields
    T | None, T | U          the first type that accepts the value

A field that is missing in the JSON gets its default. A field that the class does not have is ignored, so a program can
read the records of newer programs with more fields. An object is made by calling the class, so the checks in the
class's `__init__` and `__post_init__` also run."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from datetime import date, datetime
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

from jesenska.pipeline.streams.errors import SerializationError
from jesenska.pipeline.streams.locations import refused
from jesenska.pipeline.streams.serdes.serde import Serde

Convert = Callable[[str, Any], Any]
"""convert(where, value) returns the converted value, or raises SerializationError that names the field"""


class DataclassSerde(Serde):
    """The serde of the dataclass `kind`. Raises TopologyError if a field has a type that cannot be written as JSON."""

    name = "dataclass"

    def __init__(self, kind: Any) -> None:
        if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
            raise refused(f"Serdes.dataclass takes a dataclass, and not {kind!r}.")
        self.kind = kind
        self._form = _Form.of(kind, kind.__name__, {})

    def to_bytes(self, value: Any) -> bytes:
        try:
            return json.dumps(
                self._form.write("", value), ensure_ascii=False, separators=(",", ":"), allow_nan=False
            ).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(
                f"{error}; JSON has null, booleans, finite numbers, strings, lists and dicts."
            ) from error

    def from_bytes(self, data: bytes) -> Any:
        try:
            found = json.loads(data.decode())
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"{error}; use the serde with which it was written.") from error
        return self._form.read("", found)

    def __repr__(self) -> str:
        return f"Serdes.dataclass({self.kind.__name__})"


def _refusal(where: str, value: Any, wanted: str) -> SerializationError:
    shown = repr(value)
    place = f"the field {where} is" if where else "it is"
    return SerializationError(
        f"{place} {shown if len(shown) <= 60 else shown[:60] + '…'} and not {wanted}; mend the value, or the type of "
        f"the field."
    )


class _Form:
    """Converts values of one type to JSON values and back. `wanted` describes the values in error messages."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    def read(self, where: str, value: Any) -> Any:
        """Returns the value of the type that a JSON value represents."""
        return value

    def write(self, where: str, value: Any) -> Any:
        """Returns the JSON value that represents a value of the type."""
        return value

    @staticmethod
    def of(kind: Any, where: str, known: dict[type, _Form]) -> _Form:
        """Returns the _Form that converts values of a type. Raises TopologyError, which names the field `where`, if
        the type cannot be converted. `known` contains the dataclasses that are being processed, since a dataclass may
        contain itself."""
        origin, arguments = get_origin(kind), get_args(kind)
        if kind is Any or kind is object:
            return _Form("anything")
        if kind is None or kind is type(None):
            return _Plain(type(None), "null")
        if kind in (str, bool, int):
            return _Plain(kind, kind.__name__)
        if kind is float:
            return _Number("float")
        if kind in (datetime, date):
            return _Iso(kind)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return _Member(kind)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return known.get(kind) or _Object(kind, known)
        if origin in (typing.Union, types.UnionType):
            return _Either([_Form.of(one, where, known) for one in arguments])
        if kind is list or origin is list or (origin is tuple and arguments[1:] == (...,)):
            return _Many(origin or kind, _Form.of(arguments[0] if arguments else Any, where, known))
        if kind is dict or (origin is dict and arguments[0] is str):
            return _Named(_Form.of(arguments[1] if arguments else Any, where, known))
        raise refused(
            f"{where} has the type {kind}, for which Serdes.dataclass has no form in JSON: use str, int, float, "
            f"bool, datetime, date, Enum, list[…], "
            "tuple[…, ...], dict[str, …] or a dataclass."
        )


class _Plain(_Form):
    def __init__(self, kind: type, wanted: str) -> None:
        super().__init__(wanted)
        self._kind = kind

    def read(self, where: str, value: Any) -> Any:
        if type(value) is not self._kind:
            raise _refusal(where, value, self.wanted)
        return value

    write = read


class _Number(_Form):
    def read(self, where: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _refusal(where, value, self.wanted)
        return float(value)

    write = read


class _Iso(_Form):
    def __init__(self, kind: type[date]) -> None:
        super().__init__(f"a {kind.__name__} in ISO 8601")
        self._kind = kind

    def read(self, where: str, value: Any) -> date:
        try:
            return self._kind.fromisoformat(value)
        except (TypeError, ValueError):
            raise _refusal(where, value, self.wanted) from None

    def write(self, where: str, value: Any) -> str:
        if type(value) is not self._kind:
            raise _refusal(where, value, self._kind.__name__)
        return value.isoformat()


class _Member(_Form):
    def __init__(self, kind: type[Enum]) -> None:
        super().__init__(f"a value of {kind.__name__}")
        self._kind = kind

    def read(self, where: str, value: Any) -> Enum:
        try:
            return self._kind(value)
        except ValueError:
            raise _refusal(where, value, self.wanted) from None

    def write(self, where: str, value: Any) -> Any:
        if not isinstance(value, self._kind):
            raise _refusal(where, value, f"a member of {self._kind.__name__}")
        return value.value


class _Many(_Form):
    def __init__(self, kind: Any, item: _Form) -> None:
        super().__init__("a list")
        self._kind, self._item = kind, item

    def read(self, where: str, value: Any) -> Any:
        if not isinstance(value, list):
            raise _refusal(where, value, self.wanted)
        return self._kind(self._item.read(f"{where}[{place}]", one) for place, one in enumerate(value))

    def write(self, where: str, value: Any) -> Any:
        if not isinstance(value, self._kind):
            raise _refusal(where, value, f"a {self._kind.__name__}")
        return [self._item.write(f"{where}[{place}]", one) for place, one in enumerate(value)]


class _Named(_Form):
    def __init__(self, item: _Form) -> None:
        super().__init__("a dict with str for keys")
        self._item = item

    def read(self, where: str, value: Any) -> Any:
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise _refusal(where, value, self.wanted)
        return {name: self._item.read(f"{where}[{name!r}]", one) for name, one in value.items()}

    def write(self, where: str, value: Any) -> Any:
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise _refusal(where, value, self.wanted)
        return {name: self._item.write(f"{where}[{name!r}]", one) for name, one in value.items()}


class _Either(_Form):
    def __init__(self, forms: list[_Form]) -> None:
        super().__init__(" or ".join(form.wanted for form in forms))
        self._forms = forms

    def _first(self, where: str, value: Any, convert: Callable[[_Form], Any]) -> Any:
        failed = []
        for form in self._forms:
            try:
                return convert(form)
            except SerializationError as error:
                failed.append((form, error))
        # If the value matches the kind of one alternative, the error of this alternative says more than the list of
        # all alternatives.
        meant = [
            error
            for form, error in failed
            if isinstance(form, _Object | _Many | _Named) and isinstance(value, dict | list)
        ]
        raise meant[0] if len(meant) == 1 else _refusal(where, value, self.wanted)

    def read(self, where: str, value: Any) -> Any:
        return self._first(where, value, lambda form: form.read(where, value))

    def write(self, where: str, value: Any) -> Any:
        return self._first(where, value, lambda form: form.write(where, value))


class _Object(_Form):
    def __init__(self, kind: Any, known: dict[type, _Form]) -> None:
        super().__init__(f"a {kind.__name__}")
        known[kind] = self
        self._kind = kind
        try:
            hints = get_type_hints(kind)
        except Exception as error:  # any error of an annotation
            raise refused(
                f"the types of {kind.__name__} cannot be told ({error}): annotate its fields with types that the "
                f"module knows."
            ) from error
        self._fields = {
            field.name: (
                _Form.of(hints[field.name], f"the field {field.name} of {kind.__name__}", known),
                _has_default(field),
            )
            for field in dataclasses.fields(kind)
            if field.init
        }

    def read(self, where: str, value: Any) -> Any:
        if not isinstance(value, dict):
            raise _refusal(where, value, f"an object with the fields of {self._kind.__name__}")
        given = {}
        for name, (form, has_default) in self._fields.items():
            if name in value:
                given[name] = form.read(_within(where, name), value[name])
            elif not has_default:
                raise SerializationError(
                    f"the field {_within(where, name)} is missing; give the field a default, or name the serde that "
                    f"wrote it."
                )
        try:
            return self._kind(**given)
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(
                f"{self._kind.__name__} raised {type(error).__name__}: {error}; mend the class or the data."
            ) from error

    def write(self, where: str, value: Any) -> Any:
        if not isinstance(value, self._kind):
            raise _refusal(where, value, self.wanted)
        return {
            name: form.write(_within(where, name), getattr(value, name)) for name, (form, _) in self._fields.items()
        }


def _within(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
