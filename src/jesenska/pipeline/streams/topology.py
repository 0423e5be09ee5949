"""The class Topology. `StreamsBuilder.build` returns a Topology, or a program builds it from sources, processors,
sinks and stores:

    topology = Topology()
    topology.add_source("orders", "orders-topic", key=Serdes.string(), value=Serdes.json())
    topology.add_processor("count", CountOrders, parents="orders")
    topology.add_state_store(Stores.key_value_store("counts", key=..., value=Serdes.long()), "count")
    topology.add_sink("out", "counts-topic", parents="count", key=Serdes.string(), value=Serdes.long())

`plan` is the topology's logical plan (plan.py). `describe()` returns a text that lists its processors, in the format
of Kafka Streams 3.9."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from jesenska.pipeline.streams.description import describe
from jesenska.pipeline.streams.dsl import shown
from jesenska.pipeline.streams.dsl.functions import Role, function
from jesenska.pipeline.streams.dsl.materialization import check_serde
from jesenska.pipeline.streams.dsl.processing import Processor, check_supplier
from jesenska.pipeline.streams.dsl.repartitions import Partitioner
from jesenska.pipeline.streams.dsl.stream_sources import Topics, names_and_pattern
from jesenska.pipeline.streams.kafka_names import SaysOurName
from jesenska.pipeline.streams.locations import here, refused
from jesenska.pipeline.streams.lowering import lower
from jesenska.pipeline.streams.names import checked
from jesenska.pipeline.streams.plan import GlobalStore, Node, Plan, Process, Sink, StateStore, Store, StreamSource
from jesenska.pipeline.streams.processor_topology import ProcessorTopology
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.timestamps import TimestampExtractor


class Topology(SaysOurName):
    """A topology of sources, processors, sinks and stores. More nodes can be added after the topology was described or
    run."""

    def __init__(self) -> None:
        self._plan = Plan()
        self._lowered: ProcessorTopology | None = None

    @classmethod
    def expect(cls, given: Any, taker: str) -> Topology:
        """Returns `given` if it is a Topology. Raises TopologyError otherwise; its message names the function
        `taker`."""
        if not isinstance(given, cls):
            raise refused(
                f"{taker} takes a Topology, and not a {type(given).__name__}: give the result of "
                "StreamsBuilder.build()."
            )
        return given

    @classmethod
    def of_plan(cls, plan: Plan) -> Topology:
        """Returns the topology of a plan. Raises TopologyError if the plan cannot be built."""
        topology = cls()
        topology._plan = plan
        topology._lowered = lower(plan)[0]
        return topology

    @property
    def plan(self) -> Plan:
        """Returns the logical plan of the topology."""
        return self._plan

    def __repr__(self) -> str:
        return shown.topology_line(self.processors)

    def _repr_html_(self) -> str:
        return shown.topology_tables(self.processors)

    def describe(self) -> str:
        """Returns a text that lists the sub-topologies with their sources, processors, stores and sinks, in Kafka
        Streams' format."""
        return describe(self.processors)

    @property
    def processors(self) -> ProcessorTopology:
        """Returns the topology as Kafka Streams' processors."""
        if self._lowered is None:
            self._lowered = lower(self._plan)[0]
        return self._lowered

    def internal_topics(self, application_id: str) -> dict[str, str]:
        """Returns the internal topics of the application: each name with its purpose, "repartition" or "changelog"."""
        topology = self.processors
        topics = {f"{application_id}-{topic}": "repartition" for topic in sorted(topology.internal_topics)}
        for store in topology.stores.values():
            if store.logging and store.name not in topology.global_stores:
                topics[changelog_topic(application_id, store.name)] = "changelog"
        return topics

    def internal_names(self) -> list[str]:
        """Returns the names of the application's stores and repartition topics, without the application's id as
        prefix."""
        return [*self.processors.stores, *sorted(self.processors.internal_topics)]

    # Nodes added by the program

    def add_source(
        self,
        name: str,
        topics: Topics,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        offset_reset: str | None = None,
    ) -> Topology:
        """Adds a source that reads the named topics, or all topics whose whole name matches a compiled pattern."""
        check_serde("key", key)
        check_serde("value", value)
        names, pattern = names_and_pattern(topics)
        return self._add(
            StreamSource(
                name=checked(name),
                made_at=here(),
                key=key,
                value=value,
                topics=names,
                pattern=pattern,
                timestamp_extractor=timestamp_extractor,
                offset_reset=offset_reset,
            )
        )

    def add_processor(self, name: str, supplier: Callable[[], Any], parents: str | Iterable[str]) -> Topology:
        """Adds a processor of the user's program after the nodes `parents`. `supplier` makes a Processor for each
        task."""
        check_supplier("add_processor", supplier, Processor)
        return self._add(Process(name=checked(name), inputs=_names(parents), made_at=here(), supplier=supplier))

    def add_sink(
        self,
        name: str,
        topic: Any,
        parents: str | Iterable[str],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: Partitioner | None = None,
    ) -> Topology:
        """Adds a sink that writes the records of its parents to a topic. `topic` may be a function of key and value
        that returns the topic's name."""
        check_serde("key", key)
        check_serde("value", value)
        fixed = checked(topic) if isinstance(topic, str) else None
        return self._add(
            Sink(
                name=checked(name),
                inputs=_names(parents),
                made_at=here(),
                key=key,
                value=value,
                topic=fixed,
                topic_extractor=None if fixed is not None else function(Role.TOPIC_EXTRACTOR, topic, "add_sink"),
                partitioner=partitioner,
            )
        )

    def add_state_store(self, store: Store, *processors: str) -> Topology:
        """Adds a state store, and connects it to the named processors."""
        if not isinstance(store, Store):
            raise refused(
                f"add_state_store takes a store that Stores makes, such as Stores.key_value_store('seen'), and not "
                f"{store!r}."
            )
        if store.name not in self._plan:
            self._add(StateStore(name=store.name, made_at=here(), store=store))
        return self._connect(store.name, processors)

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Allows a processor to use the named stores."""
        for store in stores:
            self._connect(store, (processor,))
        return self

    def _connect(self, store: str, processors: Iterable[str]) -> Topology:
        nodes = list(self._plan.nodes)
        for processor in processors:
            found = next((at for at, node in enumerate(nodes) if node.name == processor), None)
            if found is None or not isinstance(node := nodes[found], Process):
                raise refused(f"there is no processor {processor} to connect with the store {store}: add it first.")
            nodes[found] = replace(node, stores=(*node.stores, store))
        # Stores must come before the processors that use them.
        nodes.sort(key=lambda node: not isinstance(node, StateStore))
        return self._replace(nodes)

    def add_global_store(
        self,
        store: Store,
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: Callable[[], Any],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Topology:
        """Adds a global store, which every instance of the application has completely. A processor that `supplier`
        makes fills the store from the topic."""
        check_supplier("add_global_store", supplier, Processor)
        return self._add(
            GlobalStore(
                name=checked(processor_name),
                made_at=here(),
                key=key,
                value=value,
                source_name=checked(source_name),
                topic=checked(topic),
                store=store,
                supplier=supplier,
                timestamp_extractor=timestamp_extractor,
            )
        )

    def _add(self, node: Node) -> Topology:
        if node.name in self._plan:
            raise refused(f"there are two processors of the name {node.name}: give one of them another name.")
        for parent in node.inputs:
            if parent not in self._plan:
                raise refused(f"the parent {parent} of {node.name} is not there: add it first.")
        return self._replace([*self._plan.nodes, node])

    def _replace(self, nodes: list[Node]) -> Topology:
        plan = Plan(tuple(nodes))
        self._lowered = lower(plan)[0]
        self._plan = plan
        return self


def changelog_topic(application_id: str, store: str) -> str:
    """Returns the name of the changelog topic, to which every change of the store is written."""
    return f"{application_id}-{store}-changelog"


def _names(parents: str | Iterable[str]) -> tuple[str, ...]:
    return (parents,) if isinstance(parents, str) else tuple(parents)
