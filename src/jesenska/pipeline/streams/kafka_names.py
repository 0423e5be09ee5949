"""Who writes what Kafka Streams in Java has, or what a DataFrame of Spark has, is told how it is written here.

stream.groupByKey()        KStream has no groupByKey: it is written group_by_key here.
Serdes.String()            Serdes has no String: it is written string here.
table.to("out")            KTable has no to: write to_stream().to(…).
import Consumed            Consumed is not there: give key= and value= to the operation itself, ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

#: What the methods of a DataFrame are here.
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
#: Classes of Kafka Streams that only hold arguments, and what is given in their place.
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


#: Versioned stores (KIP-889) are not there.
IN_PLACE_OF_VERSIONS = (
    "Stores.window_store(…), put each value with its time as the start of a window, and read the first one that backward_fetch(key, 0, as_of) gives; "
    "tables have no versions"
)
#: Names that an import asks of the package for, and where they are or what is written instead.
_ELSEWHERE = {
    "KafkaStreams": "import it from jesenska.pipeline.streams_on_spark",
    **dict.fromkeys(("VersionedKeyValueStore", "VersionedRecord", "VersionedBytesStoreSupplier"), f"write {IN_PLACE_OF_VERSIONS}"),
    "col": 'write value["field"], with value and key of this package',
}


def unknown(known: type, name: str, asked: object) -> AttributeError:
    """The error about a name that `asked`, the class or an object of it, has not."""
    if told := _told(known, name):
        # Without the object Python adds no suggestion of its own behind the sentence.
        return AttributeError(told, name=name)
    return AttributeError(f"{known.__name__!r} object has no attribute {name!r}", name=name, obj=asked)


def _told(known: type, name: str) -> str | None:
    """What is written here for a name of others."""
    ours = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
    instead: Mapping[str, str] = next((one.__dict__["_INSTEAD"] for one in known.__mro__ if "_INSTEAD" in one.__dict__), {})
    if other := instead.get(name) or _OF_SPARK.get(name):
        return f"{known.__name__} has no {name}: write {other}."
    if ours != name and any(ours in one.__dict__ for one in known.__mro__):
        return f"{known.__name__} has no {name}: it is written {ours} here."
    return None


class SaysOurName:
    """Answers for a method that is written as elsewhere. A class may have `_INSTEAD`: what is written for a name."""

    # Not for type checkers: they are to find such names themselves.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> None:
            raise unknown(type(self), name, self)


class SaysOurNames(type):
    """The same for what a class itself has."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> None:
            raise unknown(cls, name, cls)


def of_module(name: str) -> ImportError | AttributeError:
    """What to raise for a name that the package has not."""
    if name in _ARGUMENTS:
        return ImportError(f"{name} is not there: the operation itself takes {_ARGUMENTS[name]}.")
    if name in _ELSEWHERE:
        return ImportError(f"{name} is not there: {_ELSEWHERE[name]}.")
    return AttributeError(f"module 'jesenska.pipeline.streams' has no attribute {name!r}")
