"""The base class of all serdes, which convert values to bytes and bytes to values. The serdes of the API are in
serdes.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jesenska.pipeline.streams.errors import SerializationError


class Serde:
    """Serializes and deserializes one kind of key or value. `topic` is the name of the topic that contains the bytes;
    few serdes use it."""

    name = "serde"

    def serialize(self, topic: str, value: Any) -> bytes | None:
        """Returns the value as bytes. Returns None for the value None."""
        if value is None:
            return None
        try:
            return self.to_bytes(value)
        except SerializationError as error:
            raise SerializationError(f"{_shown(value)} cannot be written to {topic} as {self.name}: {error}") from error

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        """Returns the value that the bytes represent. Returns None for None."""
        if data is None:
            return None
        try:
            return self.from_bytes(data)
        except SerializationError as error:
            raise SerializationError(f"{_shown(data)} in {topic} cannot be read as {self.name}: {error}") from error

    def to_bytes(self, value: Any) -> bytes:
        """Returns the bytes of a value that is not None. Raises SerializationError with the reason and the remedy."""
        raise NotImplementedError

    def from_bytes(self, data: bytes) -> Any:
        """Returns the value of these bytes. Raises SerializationError with the reason and the remedy."""
        raise NotImplementedError

    @staticmethod
    def of(serialize: Callable[[Any], bytes], deserialize: Callable[[bytes], Any], name: str = "own") -> Serde:
        """Returns a serde made of two functions. If a function raises an exception, the serde raises
        SerializationError."""
        return _OwnSerde(serialize, deserialize, name)

    def __repr__(self) -> str:
        return f"Serdes.{self.name}()"


def _shown(thing: Any) -> str:
    text = repr(thing)
    return text if len(text) <= 100 else f"{text[:100]}…"


def wrong_type(value: Any, wanted: str) -> SerializationError:
    return SerializationError(
        f"it is {type(value).__name__} and not {wanted}; give a serde that fits the values, or values that fit the "
        f"serde."
    )


class _OwnSerde(Serde):
    def __init__(self, serialize: Callable[[Any], bytes], deserialize: Callable[[bytes], Any], name: str) -> None:
        self._serialize, self._deserialize, self.name = serialize, deserialize, name

    def to_bytes(self, value: Any) -> bytes:
        try:
            data = self._serialize(value)
        except Exception as error:
            raise SerializationError(
                f"its function raised {type(error).__name__}: {error}; mend the function or the value."
            ) from error
        if not isinstance(data, bytes):
            raise SerializationError(f"its function gave {type(data).__name__}; let it give bytes.")
        return data

    def from_bytes(self, data: bytes) -> Any:
        try:
            return self._deserialize(data)
        except Exception as error:
            raise SerializationError(
                f"its function raised {type(error).__name__}: {error}; mend the function or the data."
            ) from error
