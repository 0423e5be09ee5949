"""StreamsBuilder: builds a topology with the Streams DSL.

builder = StreamsBuilder()
orders = builder.stream("orders", key=Serdes.string(), value=Serdes.json())
orders.filter(value["amount"] > 10).group_by_key().count(store="large-orders").to_stream().to("counts")
topology = builder.build()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jesenska.pipeline.streams.dsl.construction import Construction, TableFacts
from jesenska.pipeline.streams.dsl.kinds import MAKERS, KStream, KTable
from jesenska.pipeline.streams.dsl.materialization import Materialized
from jesenska.pipeline.streams.dsl.operations.table_operations import GlobalKTable
from jesenska.pipeline.streams.dsl.processing import Processor, check_supplier
from jesenska.pipeline.streams.dsl.stream_sources import Topics, checked_reset, names_and_pattern, stream_source
from jesenska.pipeline.streams.kafka_names import SaysOurName
from jesenska.pipeline.streams.locations import here, refused
from jesenska.pipeline.streams.names import checked
from jesenska.pipeline.streams.plan import GlobalStore, GlobalTableSource, StateStore, Store, TableSource
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.timestamps import TimestampExtractor
from jesenska.pipeline.streams.topology import Topology


class StreamsBuilder(SaysOurName):
    """Builds a topology: collects the operations of the program, until `build` returns the topology."""

    def __init__(self) -> None:
        self._construction = Construction(MAKERS)

    def stream(
        self,
        topics: Topics,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
        name: str | None = None,
    ) -> KStream:
        """Returns a stream of the records of a topic or of several topics. A compiled regular expression reads all
        topics whose whole name it matches. `offset_reset`, "earliest" or "latest", says where an application without
        committed offsets begins."""
        names, pattern = names_and_pattern(topics)
        node = stream_source(
            self._construction,
            names,
            pattern,
            key=key,
            value=value,
            extractor=timestamp_extractor,
            offset_reset=offset_reset,
            name=name,
        )
        return KStream(self._construction, node.name, key=key, value=value, sources=frozenset((node.name,)))

    def table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        store: str | None = None,
        logging: bool = True,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
        name: str | None = None,
    ) -> KTable:
        """Reads a topic as a table: a key has the value of its latest record, and a record with a null value deletes
        the key."""
        materialized = Materialized(store, key, value, None, logging)
        construction = self._construction
        store_name = materialized.named(construction.names, f"{checked(topic)}-")
        source = construction.names.named(name, "KSTREAM-SOURCE-", "-source")
        table_name = construction.names.named(name, "KTABLE-SOURCE-")
        facts = TableFacts("source", kept=store is not None)
        node = TableSource(
            name=table_name,
            made_at=here(),
            key=key,
            value=value,
            store=materialized.key_value_store(store_name, key, value),
            source_name=source,
            topic=topic,
            timestamp_extractor=timestamp_extractor,
            offset_reset=checked_reset(offset_reset),
        )
        construction.add(node, facts)
        return KTable(construction, table_name, facts, key=key, value=value, sources=frozenset((source,)))

    def global_table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        store: str | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> GlobalKTable:
        """Reads a topic as a global table: every instance of the application has all partitions of the topic. So a
        stream can be joined with the table by any key."""
        materialized = Materialized(store, key, value, None, False)
        construction = self._construction
        store_name = materialized.named(construction.names, f"{checked(topic)}-")
        source = construction.names.named(name, "KSTREAM-SOURCE-", "-source")
        table_name = construction.names.named(name, "KTABLE-SOURCE-")
        facts = TableFacts("source", kept=True)
        node = GlobalTableSource(
            name=table_name,
            made_at=here(),
            key=key,
            value=value,
            store=materialized.key_value_store(store_name, key, value),
            source_name=source,
            topic=topic,
            timestamp_extractor=timestamp_extractor,
        )
        construction.add(node, facts)
        return GlobalKTable(construction, table_name, store_name)

    def add_state_store(self, store: Store) -> StreamsBuilder:
        """Adds a state store, which was made by `Stores`. Processors that name the store can use it."""
        _check_store("add_state_store", store)
        self._construction.add(StateStore(name=store.name, made_at=here(), store=store))
        return self

    def add_global_store(
        self,
        store: Store,
        topic: str,
        supplier: Callable[[], Any],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Adds a global store, which every instance of the application has completely. A processor that `supplier`
        makes fills the store from the topic."""
        _check_store("add_global_store", store)
        check_supplier("add_global_store", supplier, Processor)
        source = self._construction.names.named(name, "KSTREAM-SOURCE-", "-source")
        processor = self._construction.names.named(name, "KTABLE-SOURCE-")
        self._construction.add(
            GlobalStore(
                name=processor,
                made_at=here(),
                key=key,
                value=value,
                source_name=source,
                topic=checked(topic),
                store=store,
                supplier=supplier,
                timestamp_extractor=timestamp_extractor,
            )
        )
        return self

    def build(self) -> Topology:
        """Returns the topology of all operations that the program has called so far."""
        return Topology.of_plan(self._construction.plan())


def _check_store(operation: str, store: object) -> None:
    if not isinstance(store, Store):
        raise refused(
            f"{operation} takes a store that Stores makes, such as Stores.key_value_store('seen'), and not {store!r}."
        )
