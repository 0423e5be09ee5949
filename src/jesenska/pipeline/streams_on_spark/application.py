"""A Streams application on Spark: its topology, sub-topologies and settings, and the options for the source, the sink
and the state directory that follow from the settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jesenska.config.settings.client_settings import SECURITY_OF_CLIENTS
from jesenska.config.table import value_text
from jesenska.pipeline.connector.options import SourceOptions, source_options
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.topology import Topology
from jesenska.pipeline.streams_on_spark.changelogs import logged_stores
from jesenska.pipeline.streams_on_spark.cutting import SubTopology

_EXACTLY_ONCE = "exactly_once_v2"
#: Settings that are passed to the client of the source and the sink.
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
    """A Streams application. `max_offsets` limits the number of offsets that one micro-batch of a sub-topology reads;
    None means no limit. If `with_logging`, its stores have changelog topics."""

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
        """Returns the directory of the application's state, below state.dir."""
        return Path(self.config["state.dir"]).absolute() / self.id

    def logged_stores(self, part: SubTopology) -> tuple[str, ...]:
        """Returns the names of the sub-topology's stores that have a changelog topic."""
        return () if part.is_global else logged_stores(self.topology.processors, part.stores, self.with_logging)

    @property
    def has_changelogs(self) -> bool:
        """Returns True if any store has a changelog topic."""
        return any(self.logged_stores(part) for part in self.parts)

    @property
    def stores_without_changelog(self) -> tuple[str, ...]:
        """Returns the names of the stores without a changelog topic. Their only copy is in the state directory."""
        return tuple(
            name
            for part in self.parts
            if not part.is_global
            for name in part.stores
            if name not in self.logged_stores(part)
        )

    @property
    def has_stores(self) -> bool:
        """Returns True if the application has state that must be restored when its directory is lost."""
        return any(part.stores for part in self.parts if not part.is_global)

    @property
    def is_exactly_once(self) -> bool:
        return bool(self.config["processing.guarantee"] == _EXACTLY_ONCE)

    @property
    def state_id(self) -> str:
        """Returns the unique id of the application's state, which is stored in the state directory. State that starts
        from the beginning has a new id."""
        return (self.directory / "id").read_text().split("\n")[0]

    @property
    def is_bound(self) -> bool:
        """Returns True if all parts of the state contain the state's id. Returns False for state that an older release
        of jesenska has made."""
        return "\n" in (self.directory / "id").read_text()

    def name_of_query(self, part: SubTopology) -> str:
        """Returns the name of the sub-topology's query. When a micro-batch begins under this name, earlier processes
        of the query are fenced."""
        return f"{self.id}-{part.number}"

    def counted_as(self, part: SubTopology) -> str:
        """Returns the name under which the numbers of the query's micro-batches are recorded. The name contains the
        state's id, so that the numbers of a new state begin at 0."""
        return f"{self.name_of_query(part)}-{self.state_id}"

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Returns the settings whose names begin with `prefix`, with the prefix removed and the values as texts."""
        named = {
            name.removeprefix(prefix): value for name, value in self.config.values.items() if name.startswith(prefix)
        }
        return {name: value_text(value) or "" for name, value in named.items()}

    def consumer_options(self) -> dict[str, str]:
        """Returns the options for the source that reads the application's topics."""
        isolation = {"kafka.isolation.level": "read_committed"} if self.is_exactly_once else {}
        return {**self._client_options("consumer."), **isolation}

    def producer_options(self) -> dict[str, str]:
        """Returns the options for the sink that writes the application's topics."""
        return self._client_options("producer.")

    def _client_options(self, prefix: str) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": self.config["bootstrap.servers"]}
        defaults = StreamsConfig()
        for name in _CLIENT_SETTINGS:
            if self.config[name] != defaults[name]:
                given[f"kafka.{name}"] = str(self.config[name])
        for name in SECURITY_OF_CLIENTS:
            if name in self.config.values:
                given[f"kafka.{name}"] = value_text(self.config[name]) or ""
        return given | {f"kafka.{name}": value for name, value in self.prefixed(prefix).items()}

    def global_topics(self) -> list[str]:
        """Returns the topics of global tables and stores."""
        return [topic for part in self.parts if part.is_global for topic in part.reads]

    def global_source(self) -> SourceOptions:
        """Returns the source options with which global topics are read."""
        return source_options(
            {**self.consumer_options(), "subscribe": ",".join(self.global_topics()), "includeHeaders": "true"},
            streaming=False,
        )
