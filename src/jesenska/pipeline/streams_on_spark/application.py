"""An application as its parts know it: the topology and its sub-topologies, the settings, and what they say of the
source, the sink and the state's directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jesenska.config.table import value_text
from jesenska.pipeline.options import SourceOptions, source_options
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.topology import Topology
from jesenska.pipeline.streams_on_spark.changelogs import logged_stores
from jesenska.pipeline.streams_on_spark.cutting import SubTopology

_EXACTLY_ONCE = "exactly_once_v2"
#: Settings that go to the client of the source and the sink.
_CLIENT_SETTINGS = (
    "client.id",
    "metadata.max.age.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
)


@dataclass(frozen=True, slots=True)
class Application:
    """`max_offsets` is how much one micro-batch of a sub-topology reads at most, None without a limit.
    `with_logging` says that stores have changelog topics."""

    topology: Topology
    config: StreamsConfig
    parts: tuple[SubTopology, ...]
    max_offsets: int | None
    with_logging: bool = False

    @property
    def id(self) -> str:
        return self.config.application_id

    @property
    def directory(self) -> Path:
        """Where its state is."""
        return Path(self.config["state.dir"]).absolute() / self.id

    def logged_stores(self, part: SubTopology) -> tuple[str, ...]:
        """The stores of a sub-topology that have a changelog topic."""
        return () if part.is_global else logged_stores(self.topology.processors, part.stores, self.with_logging)

    @property
    def has_changelogs(self) -> bool:
        """Whether a store has a changelog topic."""
        return any(self.logged_stores(part) for part in self.parts)

    @property
    def stores_without_changelog(self) -> tuple[str, ...]:
        """Stores that nothing but the state's directory has."""
        return tuple(name for part in self.parts if not part.is_global for name in part.stores if name not in self.logged_stores(part))

    @property
    def has_stores(self) -> bool:
        """Whether there is something to restore where the directory is lost."""
        return any(part.stores for part in self.parts if not part.is_global)

    @property
    def is_exactly_once(self) -> bool:
        return bool(self.config["processing.guarantee"] == _EXACTLY_ONCE)

    @property
    def state_id(self) -> str:
        """What no other state has, and no state that is begun anew."""
        return (self.directory / "id").read_text().split("\n")[0]

    @property
    def is_bound(self) -> bool:
        """Whether all that belongs to the state has its name in it, as it has where the state was begun so."""
        return "\n" in (self.directory / "id").read_text()

    def name_of_query(self, part: SubTopology) -> str:
        """Whoever begins a micro-batch under this name fences those that have begun one."""
        return f"{self.id}-{part.number}"

    def counted_as(self, part: SubTopology) -> str:
        """Under which the micro-batches of a query are counted: a state that is begun anew counts them anew."""
        return f"{self.name_of_query(part)}-{self.state_id}"

    def prefixed(self, prefix: str) -> dict[str, str]:
        """The settings with that prefix, without it, as texts."""
        named = {name.removeprefix(prefix): value for name, value in self.config.values.items() if name.startswith(prefix)}
        return {name: value_text(value) or "" for name, value in named.items()}

    def consumer_options(self) -> dict[str, str]:
        """Of the source."""
        isolation = {"kafka.isolation.level": "read_committed"} if self.is_exactly_once else {}
        return {**self._client_options("consumer."), **isolation}

    def producer_options(self) -> dict[str, str]:
        """Of the sink."""
        return self._client_options("producer.")

    def _client_options(self, prefix: str) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": self.config["bootstrap.servers"]}
        defaults = StreamsConfig()
        for name in _CLIENT_SETTINGS:
            if self.config[name] != defaults[name]:
                given[f"kafka.{name}"] = str(self.config[name])
        return given | {f"kafka.{name}": value for name, value in self.prefixed(prefix).items()}

    def global_topics(self) -> list[str]:
        """The topics of global tables and stores."""
        return [topic for part in self.parts if part.is_global for topic in part.reads]

    def global_source(self) -> SourceOptions:
        """How global topics are read."""
        return source_options({**self.consumer_options(), "subscribe": ",".join(self.global_topics()), "includeHeaders": "true"}, streaming=False)
