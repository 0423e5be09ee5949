"""The notation in which Kafka's messages are declared: once per API, for all versions.

    class ProduceRequestPartition(Struct):
        index: int = field(INT32)
        records: Records = field(RECORDS, nullable=0)

    class ProduceRequest(Message, key=0, kind=REQUEST, versions=(0, 13), flexible=9):
        transactional_id: str | None = field(STRING, since=3, nullable=3, default=None)
        acks: int = field(INT16)
        …

`since` and `until` are the first and last version that have the field (`until=None`: all versions from `since` on).
`nullable` is the first version in which null is legal. `tag` makes it a tagged field. If a field is not `ignorable`
and its value is not the default, encoding fails in a version that lacks the field. From the version `flexible` on,
strings, bytes and arrays are written in the compact form, and every struct ends in tagged fields (KIP-482).

`wire.codec` compiles a declaration into functions, one version at a time, at first use. Values are not validated here
(a handler does that), and there is no JSON form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from jesenska.base.identifiers import NO_UUID
from jesenska.base.regions import FileRegion

#: The value of a RECORDS field: a view into a request, bytes to send, or a piece of a file to send.
Records = memoryview | bytes | bytearray | FileRegion | None


class Type:
    """A primitive type of the protocol: its name in Kafka's protocol guide, its `struct` code if its size is fixed,
    and its default."""

    __slots__ = ("code", "default", "name", "size_bytes")

    def __init__(self, name: str, code: str, size_bytes: int, default: object) -> None:
        self.name = name
        self.code = code
        self.size_bytes = size_bytes
        self.default = default

    def __repr__(self) -> str:
        return self.name


BOOLEAN: Final = Type("BOOLEAN", "?", 1, False)
INT8: Final = Type("INT8", "b", 1, 0)
INT16: Final = Type("INT16", "h", 2, 0)
UINT16: Final = Type("UINT16", "H", 2, 0)
INT32: Final = Type("INT32", "i", 4, 0)
UINT32: Final = Type("UINT32", "I", 4, 0)
INT64: Final = Type("INT64", "q", 8, 0)
FLOAT64: Final = Type("FLOAT64", "d", 8, 0.0)
UUID: Final = Type("UUID", "16s", 16, NO_UUID)
STRING: Final = Type("STRING", "", 0, "")
BYTES: Final = Type("BYTES", "", 0, b"")
RECORDS: Final = Type("RECORDS", "", 0, None)


class Array:
    """An array of a primitive type or of a struct."""

    __slots__ = ("element",)

    def __init__(self, element: Type | type[Struct]) -> None:
        self.element = element


_UNSET: Final = object()


class Field:
    """One declared field of a struct. The struct's class sets `name`."""

    __slots__ = (
        "default",
        "ignorable",
        "name",
        "null_by_default",
        "nullable",
        "nullable_until",
        "since",
        "tag",
        "type",
        "until",
    )

    def __init__(
        self,
        type_: Type | Array | type[Struct],
        since: int,
        until: int | None,
        nullable: int | None,
        nullable_until: int | None,
        tag: int | None,
        default: object,
        ignorable: bool,
    ) -> None:
        self.name = ""
        self.type = type_
        self.since = since
        self.until = until
        self.nullable = nullable
        self.nullable_until = nullable_until
        self.tag = tag
        self.ignorable = ignorable
        self.null_by_default = default is None
        if default is not _UNSET:
            self.default = default
        elif isinstance(type_, Type):
            self.default = type_.default
        else:
            self.default = None  # an empty list or an empty struct, made afresh for each message

    def present(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)

    def null_allowed(self, version: int) -> bool:
        return (
            self.nullable is not None
            and self.nullable <= version
            and (self.nullable_until is None or version <= self.nullable_until)
        )

    @property
    def makes_default(self) -> bool:
        """Returns true if each message needs a new default object. This is so for an array or a struct whose default
        is not null."""
        return not isinstance(self.type, Type) and not self.null_by_default


def field(
    type_: Type | Array | type[Struct],
    *,
    since: int = 0,
    until: int | None = None,
    nullable: int | None = None,
    nullable_until: int | None = None,
    tag: int | None = None,
    default: object = _UNSET,
    ignorable: bool = False,
) -> Any:
    """Declares a field of a struct. The arguments are explained at the top of this module."""
    return Field(type_, since, until, nullable, nullable_until, tag, default, ignorable)


class _StructType(type):
    """The metaclass of structs: it turns declared fields into slots."""

    fields: tuple[Field, ...]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _StructType:
        fields = []
        for field_name in [key for key, value in namespace.items() if isinstance(value, Field)]:
            declared = namespace.pop(field_name)
            declared.name = field_name
            fields.append(declared)
        if bases and not fields and "__slots__" not in namespace:
            namespace["__slots__"] = ()
        if fields:
            namespace["__slots__"] = tuple(item.name for item in fields)
            namespace["fields"] = tuple(fields)
        return super().__new__(mcs, name, bases, namespace, **options)


def _constructor(kind: type[Struct]) -> Callable[..., None]:
    """Returns a constructor for a struct class. It takes the fields by name, each with its default."""
    scope: dict[str, Any] = {}
    parameters, lines = [], []
    for item in kind.fields:
        if item.makes_default:
            scope[f"make_{item.name}"] = list if isinstance(item.type, Array) else item.type
            parameters.append(f"{item.name}=None" if item.nullable is None else f"{item.name}=unset")
            absent = "None" if item.nullable is None else "unset"
            lines.append(f"    self.{item.name} = make_{item.name}() if {item.name} is {absent} else {item.name}")
        else:
            scope[f"default_{item.name}"] = item.default
            parameters.append(f"{item.name}=default_{item.name}")
            lines.append(f"    self.{item.name} = {item.name}")
    scope["unset"] = _UNSET
    source = (
        f"def __init__(self, *, {', '.join(parameters)}):\n" + "\n".join(lines) + "\n"
        if parameters
        else "def __init__(self): pass\n"
    )
    exec(compile(source, f"<{kind.__name__}.__init__>", "exec"), scope)  # noqa: S102 - source made from our own declarations
    constructor: Callable[..., None] = scope["__init__"]
    return constructor


def _equality(kind: type[Struct]) -> Callable[[object, object], bool]:
    """Returns an `__eq__` method for a struct class that compares field by field. The code is generated for speed:
    encoders compare structs with their defaults in every response."""
    same = " and ".join(f"self.{item.name} == other.{item.name}" for item in kind.fields) or "True"
    scope: dict[str, Any] = {}
    source = f"def __eq__(self, other):\n    return {same} if type(self) is type(other) else NotImplemented\n"
    exec(compile(source, f"<{kind.__name__}.__eq__>", "exec"), scope)  # noqa: S102 - source made from our own declarations
    equality: Callable[[object, object], bool] = scope["__eq__"]
    return equality


class Struct(metaclass=_StructType):
    """A value with declared fields. Two structs of the same class are equal if all their fields are equal.

    The constructor and the `__eq__` method of a struct class are generated at first use, because a program uses few of
    the classes that it imports."""

    __slots__ = ()
    fields: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, **fields: Any) -> None:
        kind = type(self)
        constructor = _constructor(kind)
        setattr(kind, "__init__", constructor)  # noqa: B010 - this class's own from now on
        constructor(self, **fields)

    def __eq__(self, other: object) -> bool:
        kind = type(self)
        equality = _equality(kind)
        setattr(kind, "__eq__", equality)  # noqa: B010 - this class's own from now on
        return equality(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inside = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in self.fields)
        return f"{type(self).__name__}({inside})"


REQUEST: Final = "request"
RESPONSE: Final = "response"
DATA: Final = "data"


class Message(Struct):
    """A struct that is encoded by itself: a request, a response, or data inside a record."""

    __slots__ = ()
    api_key: ClassVar[int] = -1
    kind: ClassVar[str] = DATA
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int | None] = None

    def __init_subclass__(
        cls, *, key: int = -1, kind: str = DATA, versions: tuple[int, int] = (0, 0), flexible: int | None = None
    ) -> None:
        super().__init_subclass__()
        cls.api_key, cls.kind, cls.versions, cls.flexible = key, kind, versions, flexible

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        return cls.flexible is not None and version >= cls.flexible
