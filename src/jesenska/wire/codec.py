"""Encodes and decodes messages. Each message and version has one decode and one encode function: straight-line Python
source that is generated from the message's declaration and compiled at first use.

Decoding reads from a memoryview. It checks every length and count against the remaining bytes before it allocates
memory. RECORDS and BYTES fields become views into the request's buffer; a reader that keeps small BYTES fields must
copy them. Malformed bytes raise `MalformedMessageError`.

Encoding returns a list of buffers: runs of encoded fields, and between them the values of RECORDS fields (views, bytes
or FileRegions), which are never copied.

`source_of(message, version)` returns the generated text."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from jesenska.base.errors import InvalidRequestError, UnsupportedVersionError
from jesenska.base.identifiers import NO_UUID
from jesenska.base.limits import ARRAY_MAX_ELEMENTS, TAGGED_FIELDS_MAX
from jesenska.base.regions import FileRegion
from jesenska.wire.language import RECORDS, STRING, UUID, Array, Field, Message, Struct, Type

#: A piece of an encoded message.
Buffer = bytes | bytearray | memoryview | FileRegion
Decoder = Callable[..., tuple[Any, int]]
Encoder = Callable[[Any, bytearray, list[Buffer]], bytearray]


#: The limit of array elements when our own client decodes a response. It is so high that it never applies.
_UNLIMITED = 2**31


class MalformedMessageError(InvalidRequestError):
    """Raised if bytes are not a message of the expected type and version."""


# --- primitives that the generated code calls ------------------------------------------------------------------------


def read_uvarint(view: memoryview, position: int, limit: int) -> tuple[int, int]:
    """Reads an unsigned varint of at most five bytes and 32 bits. Returns its value and the position after it."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        if position >= limit:
            raise MalformedMessageError("a message ends inside a varint")
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedMessageError("a varint exceeds 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def skip_tags(view: memoryview, position: int, limit: int) -> int:
    """Skips a section of tagged fields, and returns the position after the section."""
    return skip_counted_tags(view, position, limit, TAGGED_FIELDS_MAX)[0]


def skip_counted_tags(view: memoryview, position: int, limit: int, room: int) -> tuple[int, int]:
    """Skips a section of tagged fields. Returns the position after the section, and `room` less the number of skipped
    fields. `room` is the number of array elements and tagged fields that the message may still have."""
    count, position = read_uvarint(view, position, limit)
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessageError(f"{count} tagged fields in one struct")
    if count > room:
        raise too_many()
    for _ in range(count):
        _, position = read_uvarint(view, position, limit)
        size, position = read_uvarint(view, position, limit)
        position += size
        if position > limit:
            raise MalformedMessageError("a tagged field ends outside the message")
    return position, room - count


def past_end(name: str) -> MalformedMessageError:
    return MalformedMessageError(f"{name} ends outside the message")


def bad_length(name: str, length: int) -> MalformedMessageError:
    return MalformedMessageError(f"{name} has the length {length}")


def bad_count(name: str, count: int) -> MalformedMessageError:
    return MalformedMessageError(f"{name} claims {count} elements")


def too_many() -> MalformedMessageError:
    return MalformedMessageError("it names more than a request may")


def not_null(name: str) -> MalformedMessageError:
    return MalformedMessageError(f"{name} must not be null")


def cannot_encode(name: str, version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(f"{name} is set, but version {version} has no such field")


def null_refused(name: str, version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(f"{name} is null, which version {version} does not allow")


def too_long(name: str, size: int) -> InvalidRequestError:
    return InvalidRequestError(f"{name} has {size} bytes, more than its length field can say")


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> uuid.UUID:
    """Returns the UUID of 16 bytes. It is cached, because requests contain the same few topic ids again and again."""
    return NO_UUID if not any(raw) else uuid.UUID(bytes=raw)


# --- the compiler ----------------------------------------------------------------------------------------------------


class _Scope:
    """Collects the source lines of one generated function, and the objects to which its names refer."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "uv": read_uvarint,
            "wuv": write_uvarint,
            "skip_tags": skip_counted_tags,
            "past_end": past_end,
            "bad_length": bad_length,
            "bad_count": bad_count,
            "too_many": too_many,
            "not_null": not_null,
            "cannot_encode": cannot_encode,
            "null_refused": null_refused,
            "too_long": too_long,
            "uuid_of": uuid_of,
            "NO_UUID": NO_UUID,
        }
        self.counter = 0

    def add(self, indent: int, *lines: str) -> None:
        self.lines += ["    " * indent + line for line in lines]

    def name(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def struct(self, codes: str, method: str) -> str:
        name = f"{method}_{codes}".replace("?", "B_")
        self.names[name] = getattr(struct.Struct(">" + codes), method)
        return name

    def constant(self, value: object, prefix: str = "const") -> str:
        name = self.name(prefix)
        self.names[name] = value
        return name


def _min_size(type_: Type | Array | type[Struct], version: int, flexible: bool) -> int:
    """Returns the smallest number of bytes that an encoded value of this type can take. Before the decoder allocates
    an array, it compares the array's count with the remaining bytes by this number."""
    if isinstance(type_, Array):
        return 1 if flexible else 4
    if isinstance(type_, Type):
        if type_.size_bytes:
            return type_.size_bytes
        return 1 if flexible else (2 if type_ is STRING else 4)
    total = 1 if flexible else 0
    for item in type_.fields:
        if item.present(version) and item.tag is None:
            total += (
                1
                if item.nullable is not None and isinstance(item.type, type)
                else _min_size(item.type, version, flexible)
            )
    return max(total, 1)


def _fixed(item: Field) -> Type | None:
    return item.type if isinstance(item.type, Type) and item.type.size_bytes else None


def _runs(fields: list[Field]) -> list[list[Field]]:
    """Groups neighbouring fields of fixed size, so that one `struct.unpack` reads each group."""
    groups: list[list[Field]] = []
    for item in fields:
        if groups and _fixed(item) and _fixed(groups[-1][0]):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


class _DecoderWriter:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version, self.flexible, self.scope = version, flexible, _Scope()

    def struct(self, kind: type[Struct], target: str, indent: int, label: str) -> None:
        """Generates the code that reads a struct into the local variable `target`."""
        scope = self.scope
        make = scope.constant(kind, "make_")
        new = scope.constant(object.__new__, "new_")
        scope.add(indent, f"{target} = {new}({make})")
        for item in kind.fields:
            if not item.present(self.version) or item.tag is not None:
                scope.add(indent, f"{target}.{item.name} = {self.default(item)}")
        for group in _runs([item for item in kind.fields if item.present(self.version) and item.tag is None]):
            if _fixed(group[0]):
                self.fixed(group, target, indent)
            else:
                self.value(
                    group[0].type,
                    group[0].null_allowed(self.version),
                    f"{target}.{group[0].name}",
                    indent,
                    f"{label}{group[0].name}",
                )
        if self.flexible:
            self.tags(kind, target, indent, label)

    def default(self, item: Field) -> str:
        if isinstance(item.type, Array):
            return "None" if item.null_by_default else "[]"
        if isinstance(item.type, type):
            return "None" if item.null_by_default else self.scope.constant(item.type, "make_") + "()"
        return self.scope.constant(item.default, "default_")

    def fixed(self, group: list[Field], target: str, indent: int) -> None:
        types = [_fixed(item) for item in group]
        codes = "".join(kind.code for kind in types if kind)
        size = sum(kind.size_bytes for kind in types if kind)
        names = [
            self.scope.name("u") if kind is UUID else f"{target}.{item.name}"
            for item, kind in zip(group, types, strict=True)
        ]
        unpack = self.scope.struct(codes, "unpack_from")
        self.scope.add(indent, f"if position + {size} > limit: raise past_end({group[-1].name!r})")
        self.scope.add(
            indent,
            f"{', '.join(names)}{',' if len(names) == 1 else ''} = {unpack}(view, position)",
            f"position += {size}",
        )
        for item, kind, name in zip(group, types, names, strict=True):
            if kind is UUID:
                self.scope.add(indent, f"{target}.{item.name} = uuid_of({name})")

    def length(self, type_: Type | Array, variable: str, indent: int, label: str) -> None:
        """Generates the code that reads a length or count into `variable`; -1 means null."""
        scope = self.scope
        if self.flexible:
            scope.add(indent, f"if position >= limit: raise past_end({label!r})", f"{variable} = view[position]")
            scope.add(
                indent,
                f"if {variable} < 128: position += 1",
                f"else: {variable}, position = uv(view, position, limit)",
                f"{variable} -= 1",
            )
            return
        code, size = ("h", 2) if type_ is STRING else ("i", 4)
        unpack = scope.struct(code, "unpack_from")
        scope.add(indent, f"if position + {size} > limit: raise past_end({label!r})")
        scope.add(indent, f"{variable}, = {unpack}(view, position)", f"position += {size}")

    def value(self, type_: Type | Array | type[Struct], nullable: bool, target: str, indent: int, label: str) -> None:
        scope = self.scope
        if isinstance(type_, type):
            local = scope.name("s")
            if nullable:
                scope.add(
                    indent, f"if position >= limit: raise past_end({label!r})", "marker = view[position]; position += 1"
                )
                scope.add(indent, f"if marker >= 128: {target} = None", "else:")
                indent += 1
            self.struct(type_, local, indent, f"{label}.")
            scope.add(indent, f"{target} = {local}")
            return
        if isinstance(type_, Type) and type_.size_bytes:
            unpack = scope.struct(type_.code, "unpack_from")
            scope.add(indent, f"if position + {type_.size_bytes} > limit: raise past_end({label!r})")
            local = scope.name("v")
            scope.add(indent, f"{local}, = {unpack}(view, position)", f"position += {type_.size_bytes}")
            scope.add(indent, f"{target} = uuid_of({local})" if type_ is UUID else f"{target} = {local}")
            return
        size = scope.name("n")
        self.length(type_, size, indent, label)
        scope.add(indent, f"if {size} < 0:")
        if nullable:
            scope.add(indent + 1, f"if {size} != -1: raise bad_length({label!r}, {size})", f"{target} = None")
        else:
            scope.add(indent + 1, f"raise not_null({label!r}) if {size} == -1 else bad_length({label!r}, {size})")
        scope.add(indent, "else:")
        if isinstance(type_, Type):
            end = scope.name("e")
            scope.add(indent + 1, f"{end} = position + {size}", f"if {end} > limit: raise past_end({label!r})")
            taken = f"str(view[position:{end}], 'utf-8')" if type_ is STRING else f"view[position:{end}]"
            scope.add(indent + 1, f"{target} = {taken}", f"position = {end}")
            return
        smallest = _min_size(type_.element, self.version, self.flexible)
        scope.add(
            indent + 1,
            f"if {size} * {smallest} > limit - position or {size} > {ARRAY_MAX_ELEMENTS}: raise bad_count({label!r}, "
            f"{size})",
        )
        scope.add(indent + 1, f"room -= {size}", "if room < 0: raise too_many()")
        self.array(type_, size, target, indent + 1, label)

    def array(self, type_: Array, size: str, target: str, indent: int, label: str) -> None:
        scope = self.scope
        element = type_.element
        if isinstance(element, Type) and element.size_bytes and element is not UUID:
            unpack = scope.constant(struct.unpack_from, "unpack_")
            scope.add(
                indent,
                f"{target} = list({unpack}('>%d{element.code}' % {size}, view, position))",
                f"position += {size} * {element.size_bytes}",
            )
            return
        items, local = scope.name("a"), scope.name("i")
        scope.add(indent, f"{items} = []", f"for _ in range({size}):")
        if isinstance(element, type):
            self.struct(element, local, indent + 1, f"{label}.")
        else:
            self.value(element, False, local, indent + 1, label)
        scope.add(indent + 1, f"{items}.append({local})")
        scope.add(indent, f"{target} = {items}")

    def tags(self, kind: type[Struct], target: str, indent: int, label: str) -> None:
        scope = self.scope
        known = [item for item in kind.fields if item.tag is not None and item.present(self.version)]
        scope.add(indent, f"if position >= limit: raise past_end('tagged fields of {label}')")
        if not known:
            scope.add(
                indent,
                "if view[position] == 0: position += 1",
                "else: position, room = skip_tags(view, position, limit, room)",
            )
            return
        count, tag, size, end, last = (scope.name(prefix) for prefix in ("c", "t", "n", "e", "l"))
        scope.add(indent, f"{count}, position = uv(view, position, limit)")
        scope.add(indent, f"if {count} > {TAGGED_FIELDS_MAX}: raise bad_count('tagged fields of {label}', {count})")
        scope.add(
            indent, f"room -= {count}", "if room < 0: raise too_many()", f"{last} = -1", f"for _ in range({count}):"
        )
        scope.add(
            indent + 1, f"{tag}, position = uv(view, position, limit)", f"{size}, position = uv(view, position, limit)"
        )
        scope.add(
            indent + 1, f"if {tag} <= {last}: raise bad_count('tags out of order in {label}', {tag})", f"{last} = {tag}"
        )
        scope.add(
            indent + 1, f"{end} = position + {size}", f"if {end} > limit: raise past_end('tagged field of {label}')"
        )
        word = "if"
        for item in known:
            scope.add(indent + 1, f"{word} {tag} == {item.tag}:")
            outer = scope.name("outer")
            scope.add(indent + 2, f"{outer} = limit; limit = {end}")
            self.value(
                item.type, item.null_allowed(self.version), f"{target}.{item.name}", indent + 2, f"{label}{item.name}"
            )
            scope.add(indent + 2, f"limit = {outer}")
            scope.add(indent + 2, f"if position != {end}: raise bad_length({label + item.name!r}, {size})")
            word = "elif"
        scope.add(indent + 1, f"else: position = {end}")


class _EncoderWriter:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version, self.flexible, self.scope = version, flexible, _Scope()

    def struct(self, kind: type[Struct], source: str, indent: int, label: str) -> None:
        for item in kind.fields:
            if not item.present(self.version) and not item.ignorable:
                self.refuse_unless_default(item, source, indent, label)
        for group in _runs([item for item in kind.fields if item.present(self.version) and item.tag is None]):
            if _fixed(group[0]):
                self.fixed(group, source, indent)
            else:
                item = group[0]
                self.value(
                    item.type, item.null_allowed(self.version), f"{source}.{item.name}", indent, label + item.name
                )
        if self.flexible:
            self.tags(kind, source, indent, label)

    def refuse_unless_default(self, item: Field, source: str, indent: int, label: str) -> None:
        value = f"{source}.{item.name}"
        if isinstance(item.type, Array):
            condition = value
        elif isinstance(item.type, type):
            condition = (
                f"{value} is not None" if item.null_by_default else f"{value} != {self.scope.constant(item.type())}"
            )
        else:
            condition = f"{value} != {self.scope.constant(item.default)}"
        self.scope.add(indent, f"if {condition}: raise cannot_encode({label + item.name!r}, {self.version})")

    def fixed(self, group: list[Field], source: str, indent: int) -> None:
        types = [_fixed(item) for item in group]
        pack = self.scope.struct("".join(kind.code for kind in types if kind), "pack")
        values = [
            f"{source}.{item.name}{'.bytes' if kind is UUID else ''}" for item, kind in zip(group, types, strict=True)
        ]
        self.scope.add(indent, f"out += {pack}({', '.join(values)})")

    def length(self, type_: Type | Array, expression: str, indent: int, label: str) -> None:
        scope = self.scope
        if self.flexible:
            scope.add(
                indent, f"if {expression} < 127: out.append({expression} + 1)", f"else: wuv(out, {expression} + 1)"
            )
        elif type_ is STRING:
            scope.add(indent, f"if {expression} > 32767: raise too_long({label!r}, {expression})")
            scope.add(indent, f"out += {scope.struct('h', 'pack')}({expression})")
        else:
            scope.add(indent, f"out += {scope.struct('i', 'pack')}({expression})")

    def null(self, type_: Type | Array, nullable: bool, indent: int, label: str) -> None:
        if not nullable and type_ is not RECORDS:
            self.scope.add(indent, f"raise null_refused({label!r}, {self.version})")
        elif self.flexible:
            self.scope.add(indent, "out.append(0)")
        else:
            self.scope.add(indent, f"out += {bytes([255] * (2 if type_ is STRING else 4))!r}")

    def value(self, type_: Type | Array | type[Struct], nullable: bool, source: str, indent: int, label: str) -> None:
        scope = self.scope
        if isinstance(type_, type):
            if nullable:
                scope.add(indent, f"if {source} is None: out.append(255)", "else:")
                indent += 1
                scope.add(indent, "out.append(1)")
            local = scope.name("s")
            scope.add(indent, f"{local} = {source}")
            self.struct(type_, local, indent, f"{label}.")
            return
        if isinstance(type_, Type) and type_.size_bytes:
            pack = scope.struct(type_.code, "pack")
            scope.add(indent, f"out += {pack}({source}{'.bytes' if type_ is UUID else ''})")
            return
        local, size = scope.name("v"), scope.name("n")
        scope.add(indent, f"{local} = {source}", f"if {local} is None:")
        self.null(type_, nullable, indent + 1, label)
        scope.add(indent, "else:")
        indent += 1
        if type_ is STRING:
            scope.add(indent, f"{local} = {local}.encode()")
        scope.add(indent, f"{size} = len({local})")
        self.length(type_, size, indent, label)
        if isinstance(type_, Array):
            self.array(type_, local, indent, label)
        elif type_ is RECORDS:
            scope.add(indent, f"if {size}: parts.append(out); parts.append({local}); out = bytearray()")
        else:
            scope.add(indent, f"out += {local}")

    def array(self, type_: Array, local: str, indent: int, label: str) -> None:
        scope = self.scope
        element = type_.element
        if isinstance(element, Type) and element.size_bytes and element is not UUID:
            pack = scope.constant(struct.pack, "pack_")
            scope.add(indent, f"out += {pack}('>%d{element.code}' % len({local}), *{local})")
            return
        item = scope.name("i")
        scope.add(indent, f"for {item} in {local}:")
        if isinstance(element, type):
            before = len(scope.lines)
            self.struct(element, item, indent + 1, f"{label}.")
            if len(scope.lines) == before:
                scope.add(indent + 1, "pass")
        else:
            self.value(element, False, item, indent + 1, label)

    def tags(self, kind: type[Struct], source: str, indent: int, label: str) -> None:
        scope = self.scope
        known = sorted(
            (item for item in kind.fields if item.tag is not None and item.present(self.version)),
            key=lambda item: item.tag or 0,
        )
        if not known:
            scope.add(indent, "out.append(0)")
            return
        kept, count, body = scope.name("kept"), scope.name("count"), scope.name("body")
        scope.add(indent, f"{kept} = out; {body} = bytearray(); {count} = 0")
        for item in known:
            value = f"{source}.{item.name}"
            if isinstance(item.type, Array):
                condition = f"{value} is not None" if item.null_by_default else f"{value} is None or {value}"
            elif isinstance(item.type, type):
                condition = (
                    f"{value} is not None" if item.null_by_default else f"{value} != {scope.constant(item.type())}"
                )
            else:
                condition = f"{value} != {scope.constant(item.default)}"
            scope.add(indent, f"if {condition}:", "    out = bytearray()")
            self.value(item.type, item.null_allowed(self.version), value, indent + 1, label + item.name)
            scope.add(indent + 1, f"wuv({body}, {item.tag}); wuv({body}, len(out)); {body} += out; {count} += 1")
        scope.add(indent, f"out = {kept}", f"wuv(out, {count})", f"out += {body}")


def _decoder_source(message: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    writer = _DecoderWriter(version, message.is_flexible(version))
    writer.scope.add(0, f"def decode(view, position, limit, room={_UNLIMITED}):")
    writer.struct(message, "message", 1, "")
    writer.scope.add(1, "return message, position")
    return "\n".join(writer.scope.lines) + "\n", writer.scope.names


def _encoder_source(message: type[Message], version: int) -> tuple[str, dict[str, Any]]:
    writer = _EncoderWriter(version, message.is_flexible(version))
    writer.scope.add(0, "def encode(message, out, parts):")
    writer.struct(message, "message", 1, "")
    writer.scope.add(1, "return out")
    return "\n".join(writer.scope.lines) + "\n", writer.scope.names


def source_of(message: type[Message], version: int) -> str:
    """Returns the source text of the functions that decode and encode this version of the message."""
    return _decoder_source(message, version)[0] + "\n\n" + _encoder_source(message, version)[0]


def _check_version(message: type[Message], version: int) -> None:
    low, high = message.versions
    if not low <= version <= high:
        raise UnsupportedVersionError(f"{message.__name__} has the versions {low} to {high}, not {version}")


@cache
def decoder(message: type[Message], version: int) -> Decoder:
    """Returns `decode(view, position, limit, room) -> (message, position)`. Raises UnsupportedVersionError if the
    message does not have this version. `room` limits the elements of all arrays of the message together, including
    tagged fields that the version does not know."""
    _check_version(message, version)
    source, names = _decoder_source(message, version)
    exec(compile(source, f"<decode {message.__name__} v{version}>", "exec"), names)  # noqa: S102 - made from our own declarations
    function: Decoder = names["decode"]
    return function


@cache
def encoder(message: type[Message], version: int) -> Encoder:
    """Returns the function `encode(message, out, parts)`, which appends encoded fields to the bytearray `out`. A value
    that is not copied, such as records, is added to the list `parts`, after the bytes in `out`. `encode` then
    continues with a new bytearray. It returns the last bytearray, which the caller adds to `parts`."""
    _check_version(message, version)
    source, names = _encoder_source(message, version)
    exec(compile(source, f"<encode {message.__name__} v{version}>", "exec"), names)  # noqa: S102 - made from our own declarations
    function: Encoder = names["encode"]
    return function


def decode(message: type[Message], version: int, data: bytes | bytearray | memoryview) -> Any:
    """Returns the message in `data`. Raises MalformedMessageError if `data` is malformed or has bytes left over."""
    view = memoryview(data)
    try:
        value, position = decoder(message, version)(view, 0, len(view))
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"{message.__name__} version {version}: {error}") from error
    if position != len(view):
        raise MalformedMessageError(f"{message.__name__} version {version}: {len(view) - position} bytes are left over")
    return value


def encode_parts(message: Message, version: int, head: bytearray | None = None) -> list[Buffer]:
    """Returns the encoded message as a list of buffers. `head` is put before the message if it is given."""
    parts: list[Buffer] = []
    out = encoder(type(message), version)(message, bytearray() if head is None else head, parts)
    if out or not parts:
        parts.append(out)
    return parts


def encode(message: Message, version: int) -> bytes:
    """Returns the encoded message as one bytes object. Raises TypeError if a field holds a FileRegion."""
    pieces = []
    for part in encode_parts(message, version):
        if isinstance(part, FileRegion):
            raise TypeError("a file region cannot be turned into bytes")
        pieces.append(part)
    return b"".join(pieces)


__all__ = [
    "Buffer",
    "MalformedMessageError",
    "decode",
    "decoder",
    "encode",
    "encode_parts",
    "encoder",
    "read_uvarint",
    "source_of",
]
