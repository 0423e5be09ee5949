"""Makes the state store of an operation from the arguments that the program gives.

`store=` is the name of the store, which makes it queryable. `key=` and `value=` are the serdes of the store.
`retention=` is the time for which windows are stored. `logging=False` means that the store has no changelog topic. By
default the store's name is generated, and its serdes are those of the operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jesenska.pipeline.streams.dsl.windows import SessionWindows, SlidingWindows, TimeWindows
from jesenska.pipeline.streams.durations import Duration, milliseconds
from jesenska.pipeline.streams.kafka_names import IN_PLACE_OF_VERSIONS, SaysOurNames
from jesenska.pipeline.streams.locations import refused
from jesenska.pipeline.streams.names import NameCounter, checked
from jesenska.pipeline.streams.plan import Store
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.serdes.windowed_keys import SessionWindowedSerde, TimeWindowedSerde


@dataclass(frozen=True, slots=True)
class Materialized:
    """The arguments of an operation that configure its store."""

    store: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    retention: Duration | None = None
    logging: bool = True

    def __post_init__(self) -> None:
        if self.store is not None:
            if not isinstance(self.store, str):
                raise refused(f"store={self.store!r} is not a name: write store='counts'.")
            checked(self.store)
        for what, serde in (("key", self.key), ("value", self.value)):
            check_serde(what, serde)

    @property
    def is_given(self) -> bool:
        return self != _NOTHING

    def named(self, names: NameCounter, prefix: str) -> str:
        """Returns the store's name: the given name, or a generated one."""
        return names.store(prefix) if self.store is None else self.store

    def key_value_store(self, name: str, key: Serde | None, value: Serde | None) -> Store:
        return Store(
            name=name,
            kind="key-value",
            key=self.key or key,
            value=self.value or value,
            logging=self.logging,
            given_name=self.store is not None,
        )

    def windowed_store(
        self, name: str, key: Serde | None, value: Serde | None, windows: TimeWindows | SlidingWindows | SessionWindows
    ) -> tuple[Store, Serde | None]:
        """Returns the store of an aggregation by windows or sessions, and the serde of its windowed keys. The serde is
        None if the serde of the keys without windows is not known."""
        key = self.key or key
        if isinstance(windows, SessionWindows):
            shortest_ms, size_ms, kind = windows.inactivity_gap_ms + windows.grace_ms, None, "session"
            serde: Serde | None = None if key is None else SessionWindowedSerde(key)
        else:
            shortest_ms, size_ms, kind = windows.shortest_retention_ms, windows.length_ms, "window"
            serde = None if key is None else TimeWindowedSerde(key, windows.length_ms)
        store = Store(
            name=name,
            kind=kind,
            key=key,
            value=self.value or value,
            timestamped=size_ms is not None,
            retention_ms=self._retention_ms(name, shortest_ms),
            window_size_ms=size_ms,
            logging=self.logging,
            given_name=self.store is not None,
        )
        return store, serde

    def _retention_ms(self, name: str, shortest_ms: int) -> int:
        if self.retention is None:
            return shortest_ms
        retention_ms = milliseconds("the retention of a store", self.retention)
        if retention_ms < shortest_ms:
            raise refused(
                f"the retention of {name} is {retention_ms} ms, shorter than its windows and their grace: give at "
                f"least {shortest_ms} ms."
            )
        return retention_ms


def check_serde(what: str, serde: object) -> None:
    """Raises TopologyError if the argument `what` is neither a serde nor None."""
    if serde is not None and not isinstance(serde, Serde):
        raise refused(f"{what}={serde!r} is not a serde: write {what}=Serdes.string(), or another serde of Serdes.")


_NOTHING = Materialized()


class Stores(metaclass=SaysOurNames):
    """Makes state stores for processors: `builder.add_state_store(Stores.key_value_store("seen", key=...,
    value=...))`."""

    _INSTEAD: ClassVar[dict[str, str]] = {
        written: f"Stores.{ours}(…)"
        for java, ours in (("keyValue", "key_value_store"), ("window", "window_store"), ("session", "session_store"))
        for written in (
            f"persistent{java[0].upper()}{java[1:]}Store",
            f"inMemory{java[0].upper()}{java[1:]}Store",
            f"{java}StoreBuilder",
            f"persistent_{ours}",
            f"in_memory_{ours}",
            f"{ours}_builder",
        )
    } | dict.fromkeys(
        (
            "persistentVersionedKeyValueStore",
            "versionedKeyValueStoreBuilder",
            "persistent_versioned_key_value_store",
            "versioned_key_value_store",
        ),
        IN_PLACE_OF_VERSIONS,
    )

    @staticmethod
    def key_value_store(
        name: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamped: bool = False,
        logging: bool = True,
        changelog_config: Mapping[str, str] | None = None,
    ) -> Store:
        """Returns a store with the latest value of each key. If `timestamped`, the values are ValueAndTimestamp."""
        check_serde("key", key)
        check_serde("value", value)
        return Store(
            name=checked(name),
            kind="key-value",
            key=key,
            value=value,
            timestamped=timestamped,
            logging=logging,
            changelog_config=_config(changelog_config),
        )

    @staticmethod
    def window_store(
        name: str,
        *,
        retention: Duration,
        window_size: Duration,
        retain_duplicates: bool = False,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamped: bool = False,
        logging: bool = True,
        changelog_config: Mapping[str, str] | None = None,
    ) -> Store:
        """Returns a store that has a value for each key and window. A window is identified by its start. `retention`
        is the time for which windows are stored."""
        check_serde("key", key)
        check_serde("value", value)
        retention_ms = milliseconds("the retention of a store", retention)
        size_ms = milliseconds("the size of a store's windows", window_size)
        if retention_ms < size_ms:
            raise refused(
                f"the retention of {name} is {retention_ms} ms, shorter than its windows: give at least {size_ms} ms."
            )
        return Store(
            name=checked(name),
            kind="window",
            key=key,
            value=value,
            timestamped=timestamped,
            retention_ms=retention_ms,
            window_size_ms=size_ms,
            retain_duplicates=retain_duplicates,
            logging=logging,
            changelog_config=_config(changelog_config),
        )

    @staticmethod
    def session_store(
        name: str,
        *,
        retention: Duration,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        changelog_config: Mapping[str, str] | None = None,
    ) -> Store:
        """Returns a store that has a value for each key and session. `retention` is the time for which sessions are
        stored."""
        check_serde("key", key)
        check_serde("value", value)
        return Store(
            name=checked(name),
            kind="session",
            key=key,
            value=value,
            timestamped=False,
            retention_ms=milliseconds("the retention of a store", retention),
            logging=logging,
            changelog_config=_config(changelog_config),
        )


def _config(config: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((config or {}).items()))
