"""Error messages for programs that use a name of Kafka Streams in Java or of Spark's DataFrame. Each message contains
the name that this package uses instead.

stream.groupByKey()        KStream has no groupByKey: it is written group_by_key here.
Serdes.String()            Serdes has no String: it is written string here.
table.to("out")            KTable has no to: write to_stream().to(…).
import Consumed            Consumed is not there: give key= and value= to the operation itself, ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

#: The replacements for methods of Spark's DataFrame.
_OF_SPARK = {
    "where": "filter(…)",
    "select": "map_values(…)",
    "withColumn": "map_values(…)",
    "explode": "flat_map_values(…)",
    "union": "merge(…)",
    "agg": "aggregate(…)",
    "writeStream": "to(…)",
    "withWatermark": "windowed_by(TimeWindows(…, grace=…))",
    "window": "windowed_by(TimeWindows(…))",
}
#: Classes of Kafka Streams that only contain arguments, each with the keyword arguments that replace it here.
_ARGUMENTS = {
    "Consumed": "key=, value=, offset_reset= and timestamp_extractor=",
    "Produced": "key=, value= and partitioner=",
    "Grouped": "key=, value= and name=",
    "Materialized": "store=, key=, value= and retention=",
    "Joined": "key=, value= and name=",
    "StreamJoined": "key=, value=, other_value= and store=",
    "Repartitioned": "key=, value=, partitions= and name=",
    "TableJoined": "name=",
    "Branched": "name=",
    "Named": "name=",
    "Printed": "label=",
}


#: The replacement for versioned stores (KIP-889), which are not implemented.
IN_PLACE_OF_VERSIONS = (
    "Stores.window_store(…), put each value with its time as the start of a window, and read the first one that "
    "backward_fetch(key, 0, as_of) gives; "
    "tables have no versions"
)
#: Names that a program may try to import from the package, with the right import or the replacement.
_ELSEWHERE = {
    "KafkaStreams": "import it from jesenska.pipeline.streams_on_spark",
    **dict.fromkeys(
        ("VersionedKeyValueStore", "VersionedRecord", "VersionedBytesStoreSupplier"), f"write {IN_PLACE_OF_VERSIONS}"
    ),
    "col": 'write value["field"], with value and key of this package',
}


def unknown(known: type, name: str, asked: object) -> AttributeError:
    """Returns the AttributeError for a name that `asked` does not have. `asked` is an object of the class `known`, or
    the class itself."""
    if sentence := _sentence(known, name):
        # The error is made without `obj`: with `obj`, Python would append a suggestion of its own to the sentence.
        return AttributeError(sentence, name=name)
    return AttributeError(f"{known.__name__!r} object has no attribute {name!r}", name=name, obj=asked)


def _sentence(known: type, name: str) -> str | None:
    """Returns an error message with the name used here for a name of Kafka Streams or Spark. Returns None if the name
    is unknown."""
    ours = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
    instead: Mapping[str, str] = next(
        (one.__dict__["_INSTEAD"] for one in known.__mro__ if "_INSTEAD" in one.__dict__), {}
    )
    if other := instead.get(name) or _OF_SPARK.get(name):
        return f"{known.__name__} has no {name}: write {other}."
    if ours != name and any(ours in one.__dict__ for one in known.__mro__):
        return f"{known.__name__} has no {name}: it is written {ours} here."
    return None


class SaysOurName:
    """Base class: raises an error with the right name for a method that is spelled as in Kafka Streams or Spark. A
    class may define `_INSTEAD`, which maps such names to their replacements."""

    # Hidden from type checkers, so that they still report unknown names.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> None:
            raise unknown(type(self), name, self)


class SaysOurNames(type):
    """Metaclass: does the same as SaysOurName for attributes of the class itself, such as `Serdes.String`."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> None:
            raise unknown(cls, name, cls)


def of_module(name: str) -> ImportError | AttributeError:
    """Returns the error for a name that the package does not have. For a known class of Kafka Streams, the error names
    the replacement."""
    if name in _ARGUMENTS:
        return ImportError(f"{name} is not there: the operation itself takes {_ARGUMENTS[name]}.")
    if name in _ELSEWHERE:
        return ImportError(f"{name} is not there: {_ELSEWHERE[name]}.")
    return AttributeError(f"module 'jesenska.pipeline.streams' has no attribute {name!r}")
