"""The names and stores of a join of two streams, as Kafka Streams generates them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from jesenska.pipeline.streams.dsl.windows import JoinWindows
from jesenska.pipeline.streams.names import NameCounter, checked
from jesenska.pipeline.streams.plan import Store
from jesenska.pipeline.streams.serdes.serde import Serde


@dataclass(frozen=True, slots=True)
class JoinedSide:
    """The processor names of one of the two joined streams. `generated` is the generated name of the join processor;
    the numbers in store names are taken from it. `suffix` is appended to the name that the program gave to the
    join."""

    windowed: str
    generated: str
    suffix: str
    join: str


@dataclass(frozen=True, slots=True)
class StreamJoinNames:
    this: JoinedSide
    other: JoinedSide
    merge: str

    @classmethod
    def of(cls, kind: str, names: NameCounter, name: str | None) -> Self:
        """Returns the names of the processors of an inner, left or outer join. They are generated in the order in
        which Kafka Streams numbers its processors."""
        left, right = kind != "inner", kind == "outer"
        this_windowed = names.named(name, "KSTREAM-WINDOWED-", "-this-windowed")
        other_windowed = names.named(name, "KSTREAM-WINDOWED-", "-other-windowed")
        this_generated = names.processor("KSTREAM-OUTERTHIS-" if right else "KSTREAM-JOINTHIS-")
        other_generated = names.processor("KSTREAM-OUTEROTHER-" if left else "KSTREAM-JOINOTHER-")
        this_suffix = "-outer-this-join" if right else "-this-join"
        other_suffix = "-outer-other-join" if left else "-other-join"
        this_join = this_generated if name is None else checked(name + this_suffix)
        other_join = other_generated if name is None else checked(name + other_suffix)
        return cls(
            JoinedSide(this_windowed, this_generated, this_suffix, this_join),
            JoinedSide(other_windowed, other_generated, other_suffix, other_join),
            names.named(name, "KSTREAM-MERGE-", "-merge"),
        )


@dataclass(frozen=True, slots=True)
class StreamJoinStores:
    """Makes the stores of a join. `given` is the name that the program gave to the stores, or None."""

    kind: str
    names: StreamJoinNames
    given: str | None
    windows: JoinWindows
    key: Serde | None

    def of(self, side: JoinedSide, value: Serde | None) -> Store:
        """Returns the store with the records of one stream. Records of the other stream look for partners in it."""
        return Store(
            name=(side.generated if self.given is None else self.given + side.suffix) + "-store",
            kind="window",
            key=self.key,
            value=value,
            timestamped=False,
            retention_ms=self.windows.size_ms + self.windows.grace_ms,
            window_size_ms=self.windows.size_ms,
            retain_duplicates=True,
            given_name=self.given is not None,
        )

    def unmatched(self) -> Store | None:
        """Returns the store with the records that have no partner yet. They are joined with None when their window
        closes. Returns None for an inner join."""
        if self.kind == "inner":
            return None
        number = self.names.this.generated.rpartition("-")[2]
        base = (
            f"KSTREAM-OUTERSHARED-{number}"
            if self.given is None
            else self.given + ("-outer-shared-join" if self.kind == "outer" else "-left-shared-join")
        )
        return Store(
            name=f"{base}-store",
            kind="outer-join",
            key=self.key,
            timestamped=False,
            retention_ms=self.windows.size_ms + self.windows.grace_ms,
            given_name=self.given is not None,
        )
