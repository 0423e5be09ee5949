"""Avro values in a schema registry's frame, for Serdes.avro.

    schema     the schema with which values are written and read: a dict, a list (a union), or JSON text
    schema_id  the schema's id in the registry: a number, or a function of topic and schema that returns it. It is
               needed for writing; without it values can only be read
    schemas    the schemas of other writers: a mapping from id to schema, or a function of the id. A value that was
               written with another schema is read as `schema` says, by Avro's rules of resolution

This module sends no requests to a schema registry. The functions for `schema_id` and `schemas` may do so.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

from jesenska.pipeline.streams.errors import SerializationError
from jesenska.pipeline.streams.locations import refused
from jesenska.pipeline.streams.serdes.registry_frame import framed, unframed
from jesenska.pipeline.streams.serdes.serde import Serde

SchemaId = int | Callable[[str, Any], int] | None
Schemas = Mapping[int, Any] | Callable[[int], Any] | None


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise refused(
            'Serdes.avro needs the library fastavro, which is not installed: pip install "jesenska[streams]".'
        ) from error
    return fastavro


class AvroSerde(Serde):
    name = "avro"

    def __init__(self, schema: Any, *, schema_id: SchemaId = None, schemas: Schemas = None) -> None:
        self._fastavro = _fastavro()
        self.schema = self._parsed(schema)
        self._id = schema_id
        self._schemas = schemas
        self._topic = ""
        self._known: dict[int, Any] = {}
        self._own_ids: dict[str, int] = {}

    def serialize(self, topic: str, value: Any) -> bytes | None:
        self._topic = topic
        return super().serialize(topic, value)

    def to_bytes(self, value: Any) -> bytes:
        schema_id = self._own_id(self._topic)
        written = io.BytesIO()
        try:
            self._fastavro.schemaless_writer(written, self.schema, value, strict=True)
        except Exception as error:
            raise SerializationError(
                f"it does not fit the schema ({type(error).__name__}: {error}); mend the value or the schema."
            ) from error
        return framed(schema_id, written.getvalue())

    def _own_id(self, topic: str) -> int:
        if topic not in self._own_ids:
            if self._id is None:
                raise SerializationError("the id of its schema is not known; give Serdes.avro a schema_id.")
            self._own_ids[topic] = self._id if isinstance(self._id, int) else self._id(topic, self.schema)
        return self._own_ids[topic]

    def from_bytes(self, data: bytes) -> Any:
        schema_id, payload = unframed(data)
        writers = self._writers_schema(schema_id)
        stream = io.BytesIO(payload)
        try:
            value = self._fastavro.schemaless_reader(stream, writers, self.schema)
        except Exception as error:
            raise SerializationError(
                f"it does not fit schema {schema_id} ({type(error).__name__}: {error}); name the schema that wrote it."
            ) from error
        if stream.read(1):
            raise SerializationError(
                f"bytes are left after the value of schema {schema_id}; name the schema that wrote it."
            )
        return value

    def _writers_schema(self, schema_id: int) -> Any:
        """Returns the schema with this id. The id of this serde has this serde's own schema. If neither `schema_id`
        nor `schemas` was given, every id has it. Raises SerializationError if the id is unknown."""
        if schema_id == self._id or schema_id in self._own_ids.values():
            return self.schema
        if schema_id not in self._known:
            if self._schemas is None:
                found = self.schema if self._id is None else None
            else:
                found = self._schemas(schema_id) if callable(self._schemas) else self._schemas.get(schema_id)
            if found is None:
                raise SerializationError(
                    f"it was written with schema {schema_id}, which is not known; give Serdes.avro "
                    f"schemas={{{schema_id}: …}}."
                )
            self._known[schema_id] = found if found is self.schema else self._parsed(found)
        return self._known[schema_id]

    def _parsed(self, schema: Any) -> Any:
        try:
            return self._fastavro.parse_schema(
                json.loads(schema) if isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"') else schema
            )
        except Exception as error:
            raise refused(f"the Avro schema cannot be used ({type(error).__name__}: {error}): mend it.") from error
