"""A topology and its input as JSON, for every implementation of the Streams DSL: Apache Kafka Streams
(`tests/peers/StreamsJudge.java`) and jesenska's (`interpreted.py`). An implementation needs only this page and the
functions of `named_functions.py`.

A description is an object:

    name       its name in messages and on the command line
    settings   settings of the application, by Kafka's names; optional
    headers    true: headers of written records are compared too; optional
    on_disk    true: Kafka keeps the state in RocksDB, as it does by default, and not in memory; what is in the stores
               and how many records were dropped is then not compared, as RocksDB forgets late windows later; optional
    expressions     true: functions are expressions if possible; optional, and not for Kafka's driver
    topic_prefix    prefix of the names that functions give to topics; optional, and not for Kafka's driver
    steps      calls of the DSL in their order, which decides the numbers in the names of processors
    input      the events, in order

Each of `input` is a record or a step of the clock. Wall-clock time begins at 0; the driver has one partition.

    {"topic": "left", "key": "a", "value": null, "timestamp": 12, "headers": [["name", "value"]]}
    {"advance_ms": 1000}

Keys of input are strings or null; values are strings, numbers (8 bytes) or null. `headers` is optional. A string in a
topic of numbers cannot be read, unless it has 8 bytes; the setting default.deserialization.exception.handler, with
Kafka's class name, decides how it is handled.

A step is an object with `do`, the call; `of`, the name of the node that it is called on, or a list of names; `as`, the
name of the node that it makes. A step that makes a node has the types of the node: `key` is "string", "window" (a time
window of strings, of `size_ms`) or "session" (a session of strings); `value` is "string" or "long". Every operation
that takes serdes gets those of these types. Names of times end in `_ms`. `named` is the name for a processor (Named,
Consumed, Produced, Joined, StreamJoined, TableJoined); it is optional for sources, calls of a stream or of a table,
count, and joins but those with a global table.

    stream            topics: a list
    table             topic; store: the name of its store, optional
    global_table      topic; store, optional
    add_state_store   store; kind: "key value", "window" (retention_ms, size_ms) or "session" (retention_ms); value.
                      Keys are strings, values have no timestamps. Makes no node.

    of a stream
    filter, filter_not          predicate
    map, flat_map, select_key   function of key and value
    map_values                  function of key and value
    flat_map_values             function of a value (the key is given as null)
    peek                        as: also the name of the witness (see `seen`)
    foreach                     as: the name of the witness; makes no node
    merge                       of: two streams
    split                       branches: pairs of predicate and the name of the node; default: a name, optional
    branch                      predicates; as: a name for each
    through                     topic
    repartition                 name, optional
    to                          topic; or topics, a list, and function of key and value, which gives one of them; makes
                                no node
    to_table                    store, optional
    process                     processor, stores: a list, optional; every_ms and time ("stream" or "wall clock") for
                                those that have a punctuator
    process_values              processor, stores
    transform, flat_transform   stores; every_ms and time, optional
    transform_values,
    flat_transform_values       stores, optional
    group_by                    function of key and value: the new key; name, optional
    group_by_key                name, optional

    of grouped streams and tables
    windowed_by       windows: kind is "tumbling" (size_ms), "hopping" (size_ms, advance_ms), "sliding" (difference_ms)
                      or "session" (gap_ms); grace_ms; emit: "when closed" for that emit strategy, optional
    cogroup           of: grouped streams; aggregators: a function of aggregate and value for each
    count             store, optional, as of the next two; retention_ms: of the store of windows, optional
    reduce            adder: a function of two values; subtractor, for a grouped table
    aggregate         initial: a string, a number or null; adder: a function of aggregate and value; subtractor, for
                      a grouped table; merger: a function of two aggregates, for sessions. After cogroup there is
                      neither adder nor subtractor.

    of a table
    filter, filter_not, map_values    as of a stream; store, optional
    transform_values                  stores, optional
    to_stream                         function of key and value: the new key; optional
    group_by                          function of key and value: a pair
    suppress                          until: "window closes" or "time limit" (time_limit_ms); max_records or
                                      max_bytes (time limit only), optional, and then when_full: "emit early" or
                                      "shut down"

    join     of: left and right; how: "inner", "left" or "outer"; joiner: a function of two values
             two streams                   windows: before_ms, after_ms, grace_ms; store: the name of its stores,
                                           optional
             a stream and a table          -
             a stream and a global table   function of key and value: the key of the table
             two tables                    store, optional; foreign_key: a function of a value (the key is null)

An outcome is an object:

    describe   the text of `Topology.describe()`; classes of topic extractors are "-"
    output     the records of each topic of `to`, in order: [key, value, timestamp] and where `headers` is true
               [[name, value], ...]. A key of type "window" is {"key", "start"}, of "session" {"key", "start", "end"}:
               the contents of its bytes.
    seen       what each witness saw, in order: [key, value]
    internal   the records of repartition topics and changelogs, in order: [key, value, timestamp], key and value as
               hexadecimal bytes, except those of foreign-key joins, of suppression, and of records that wait in left
               and outer joins of streams. The application is called "judge".
    stores     the content of each store that is a table, in the store's order: [key, value], or
               [key, value, timestamp]. Windowed keys are {"key", "start", "end"}. The stores of stream-stream joins,
               of foreign-key joins and of suppression are not among them.
    dropped    the number of records that the sensor dropped-records has counted
    error      only after a failure: when ("build" or "input"), at (the number of the input), kind, text. The output
               before it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: One description, one of its steps, one outcome: JSON as it is read.
Json = dict[str, Any]

JOINS = (
    ("stream", "stream", "inner"),
    ("stream", "stream", "left"),
    ("stream", "stream", "outer"),
    ("stream", "table", "inner"),
    ("stream", "table", "left"),
    ("stream", "global", "inner"),
    ("stream", "global", "left"),
    ("table", "table", "inner"),
    ("table", "table", "left"),
    ("table", "table", "outer"),
    ("table", "foreign", "inner"),
    ("table", "foreign", "left"),
)
#: Parts of the names of stores that are not tables: of joins of streams, of foreign-key joins and of suppression.
NOT_TABLES = (
    *("JOINTHIS", "JOINOTHER", "OUTERTHIS", "OUTEROTHER", "SHARED", "-this-join", "-other-join", "-shared-join"),
    *("SUBSCRIPTION", "subscription", "SUPPRESS", "held"),
)
#: Parts of the names of internal topics whose bytes are internal to each implementation.
NOT_COMPARED = ("SHARED", "-shared-join", "SUBSCRIPTION", "subscription", "SUPPRESS", "held")
WINDOWS = ("tumbling", "hopping", "sliding", "session")


def made(step: Json) -> Iterator[str]:
    """The names of the nodes that a step makes."""
    if step["do"] in ("foreach", "to", "add_state_store"):
        return
    if step["do"] == "split":
        yield from (name for _, name in step["branches"])
        if "default" in step:
            yield step["default"]
    elif isinstance(step["as"], list):
        yield from step["as"]
    else:
        yield step["as"]


def inputs_of(step: Json) -> list[str]:
    """The names of the nodes that a step is called on."""
    of = step.get("of", [])
    return [of] if isinstance(of, str) else list(of)


def kinds(description: Json) -> dict[str, str]:
    """Returns the kind of each node: "stream", "table", "global", "grouped stream", "grouped table", "cogrouped" or
    "windowed"."""
    found: dict[str, str] = {}
    for step in description["steps"]:
        of = [found[name] for name in inputs_of(step)]
        found.update(dict.fromkeys(made(step), _kind(step["do"], of)))
    return found


def _kind(call: str, of: list[str]) -> str:
    match call:
        case "table" | "to_table" | "count" | "reduce" | "aggregate" | "suppress":
            return "table"
        case "global_table":
            return "global"
        case "group_by" | "group_by_key":
            return f"grouped {of[0]}"
        case "cogroup":
            return "cogrouped"
        case "windowed_by":
            return "windowed"
        case "filter" | "filter_not" | "map_values" | "transform_values" | "join":
            return of[0]
        case _:
            return "stream"
