"""Log directories that are older than a broker's last start, and the data in the tree for that check."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.directory_starts import DirectoryStarts
from jesenska.metadata.nodes import BrokerStarts, LackingPartitions
from jesenska.replication.older_directories import begun, is_older, newest_in, without

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
FIRST, SECOND, THIRD, FOURTH = (UUID(int=number) for number in (11, 12, 13, 14))
KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_directory_that_knows_the_start_of_the_tree_is_the_newest() -> None:
    starts = BrokerStarts({A: SECOND})
    assert not is_older(DirectoryStarts(A, (SECOND, FIRST)), starts)
    assert not is_older(DirectoryStarts(A, (THIRD, SECOND)), starts), "a start ended before the tree had it"
    assert is_older(DirectoryStarts(A, (FIRST,)), starts), "a copy of a while ago"
    assert is_older(DirectoryStarts(A, (THIRD, FIRST)), starts), "and a start of it that ended early"


def test_a_directory_that_another_one_has_replaced_is_older() -> None:
    starts = BrokerStarts({B: SECOND})
    assert is_older(DirectoryStarts(A, (FIRST,)), starts)
    assert is_older(DirectoryStarts(A), starts)
    assert is_older(None, starts), "it is of a release that wrote no starts down"


def test_where_the_tree_has_nothing_nothing_is_older() -> None:
    assert not is_older(DirectoryStarts(A, (FIRST,)), None)
    assert not is_older(None, None)
    assert newest_in(None, None) == frozenset()


def test_a_directory_that_was_offline_is_not_older_when_it_is_back() -> None:
    starts = begun(BrokerStarts({A: FIRST, B: FIRST}), [A], SECOND, [], some_are_offline=True)
    assert starts.directories == {A: SECOND, B: FIRST}
    assert not is_older(DirectoryStarts(B, (FIRST,)), starts)
    assert is_older(DirectoryStarts(B, (FIRST,)), begun(starts, [A, C], THIRD, [], some_are_offline=False)), (
        "C has taken its place"
    )


def test_an_older_directory_is_the_newest_for_what_is_lacking_since() -> None:
    starts = begun(BrokerStarts({A: FIRST}), [B], SECOND, [KEY], some_are_offline=False)
    had = DirectoryStarts(A, (FIRST,))
    assert is_older(had, starts)
    assert newest_in(had, starts) == {KEY}
    assert newest_in(DirectoryStarts(A, (UUID(int=10),)), starts) == frozenset(), "a copy from before"
    assert newest_in(DirectoryStarts(C, (FIRST,)), starts) == frozenset()
    assert newest_in(None, starts) == frozenset()
    assert without(starts, [KEY]) == BrokerStarts({B: SECOND}), "others have led it"
    again = begun(starts, [B], THIRD, [KEY], some_are_offline=False)
    assert newest_in(had, again) == {KEY}, "the disk is still another one"
    more = begun(again, [C], FOURTH, [KEY, OTHER], some_are_offline=False)
    assert newest_in(had, more) == {KEY}
    assert newest_in(DirectoryStarts(B, (THIRD, SECOND)), more) == {OTHER}, "B had this one meanwhile"
    one, other = LackingPartitions({A: FIRST}, frozenset({KEY})), LackingPartitions({B: THIRD}, frozenset({OTHER}))
    assert more == BrokerStarts({C: FOURTH}, (one, other))
    assert without(more, [KEY]) == BrokerStarts({C: FOURTH}, (other,))
    assert begun(more, [A], UUID(int=15), [OTHER], some_are_offline=False) == BrokerStarts({A: UUID(int=15)}, (other,))


def test_a_directory_of_an_earlier_release_is_the_newest_for_what_is_lacking_since() -> None:
    starts = begun(None, [B], FIRST, [KEY], some_are_offline=False)
    assert newest_in(None, starts) == {KEY}
    assert newest_in(DirectoryStarts(A, (FIRST,)), starts) == frozenset()


@dataclass
class _Disk:
    """A disk that may be in the broker: its recorded starts, the amount of each partition on it (-1: no log), and the
    partitions that it reports as lost."""

    starts: DirectoryStarts | None = None
    has: dict[TopicPartition, int] = field(default_factory=dict)
    lost: set[TopicPartition] = field(default_factory=set)

    def copy(self) -> _Disk:
        return replace(self, has=dict(self.has), lost=set(self.lost))


@dataclass
class _Broker:
    """A broker that is alone in sync with two partitions; other brokers have replicas of them. It writes to partitions
    that it leads."""

    disks: list[_Disk] = field(default_factory=lambda: [_Disk(has={KEY: 0, OTHER: 0})])
    starts: BrokerStarts | None = None
    acknowledged: dict[TopicPartition, int] = field(default_factory=lambda: {KEY: 0, OTHER: 0})
    #: How many ids were given.
    ids: int = 0

    def _new_uuid(self) -> UUID:
        self.ids += 1
        return UUID(int=self.ids)

    def start(self, disk: _Disk, ends: str, writes: set[TopicPartition]) -> None:
        """Starts on that disk. `ends`: the step at which the start ends, if it does."""
        if disk.starts is not None and is_older(disk.starts, self.starts):
            disk.lost |= disk.has.keys() - newest_in(disk.starts, self.starts)
        lost = {key for key in self.acknowledged if key in disk.lost or key not in disk.has}
        for key in self.acknowledged:
            has_all = disk.has.get(key, -1) == self.acknowledged[key]
            assert key in lost or has_all, f"{key} is led with {disk.has[key]} of {self.acknowledged[key]}"
        if ends == "before":
            return
        start = self._new_uuid()
        disk.starts = (disk.starts or DirectoryStarts(self._new_uuid())).then(start)
        if ends == "between":
            return
        self.starts = begun(self.starts, [disk.starts.directory_id], start, lost, some_are_offline=False)
        for key in writes - lost:
            self.acknowledged[key] += 1
            disk.has[key] = self.acknowledged[key]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sampled_from(["", "", "", "before", "between"]),
            st.sets(st.sampled_from([KEY, OTHER])),
            st.booleans(),
        )
    )
)
def test_whatever_disks_come_and_go_nothing_is_led_without_what_was_acknowledged(
    steps: list[tuple[int, str, set[TopicPartition], bool]],
) -> None:
    broker = _Broker()
    broker.start(broker.disks[0], "", {KEY, OTHER})
    for number, ends, writes, copies in steps:
        if number >= len(broker.disks):
            broker.disks.append(_Disk())
            number = len(broker.disks) - 1
        disk = broker.disks[number]
        if copies:
            broker.disks.append(disk.copy())
        broker.start(disk, ends, writes)


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["", "", "before", "between"]))))
def test_the_disk_that_has_all_is_led_from_whatever_was_tried_meanwhile(steps: list[tuple[int, str]]) -> None:
    """Disks without the data are tried. Then the right disk is back."""
    broker = _Broker()
    right = broker.disks[0]
    broker.start(right, "", {KEY, OTHER})
    broker.disks += [_Disk(), _Disk(), right.copy()]
    broker.disks[3].has = {}
    for number, ends in steps:
        disk = broker.disks[number]
        if number == 3:
            disk.lost = {KEY, OTHER}  # a copy whose logs have lost their ends
        broker.start(disk, ends, set())
    broker.start(right, "", {KEY, OTHER})
    assert broker.acknowledged == {KEY: 2, OTHER: 2} == right.has
