"""Holds the elections of many topics in few changes of the metadata tree (ZooKeeper's nodes). A leader writes its ISR
to the tree itself. If a leader has done so since the controller read the states of the partitions, the states are read
again and the elections are planned again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from jesenska.controller.changes.change_state import Asking, Steps, refusal, write
from jesenska.controller.context import ControllerContext, PartitionView, TopicView
from jesenska.controller.effects import Get, Read
from jesenska.controller.plans.topics import epoch_check
from jesenska.metadata import paths
from jesenska.metadata.nodes import PartitionStateNode
from jesenska.metadata.tree_operations import BadVersionError, MultiError, Operation, TreeError

#: When this number of operations has been collected, they are written in one change of the metadata tree.
_OPERATIONS_AT_ONCE: Final = 1000
#: The maximum number of times that elections are planned before the change fails.
_ATTEMPTS_MAX: Final = 10


class ManyElections:
    """The elections of one change of the controller. `plan` returns the changed partitions of a topic, and the
    operations that write them. `written` is called with the states that are in the metadata tree afterwards."""

    def __init__(
        self,
        context: ControllerContext,
        plan: Callable[[TopicView], Asking],
        written: Callable[[str, Mapping[int, PartitionView]], None],
    ) -> None:
        self._context = context
        self._plan = plan
        self._written = written

    def hold(self, names: Iterable[str]) -> Steps:
        """Holds the elections of these topics. Topics that are being deleted are left out."""
        planned: dict[str, Mapping[int, PartitionView]] = {}
        operations: list[Operation] = []
        for name in names:
            topic = self._context.topics[name]
            if topic.deleting:
                continue
            partitions, needed = yield from self._plan(topic)
            if needed:
                planned[name] = partitions
                operations += needed
            if len(operations) >= _OPERATIONS_AT_ONCE:
                yield from self._write(planned, operations)
                planned, operations = {}, []
        yield from self._write(planned, operations)

    def _write(self, planned: dict[str, Mapping[int, PartitionView]], operations: list[Operation]) -> Steps:
        for attempt in range(_ATTEMPTS_MAX):
            if not operations:
                return
            try:
                yield from write((*epoch_check(self._context), *operations))
                break
            except (MultiError, TreeError) as error:
                refused = refusal(error)
                if (
                    not isinstance(refused, BadVersionError)
                    or refused.path == paths.CONTROLLER_EPOCH
                    or attempt == _ATTEMPTS_MAX - 1
                ):
                    raise
            names = list(planned)
            planned, operations = {}, []
            for name in names:
                yield from read_again(self._context, name, self._context.topics[name].partitions, self._written)
                partitions, needed = yield from self._plan(self._context.topics[name])
                if needed:
                    planned[name] = partitions
                    operations += needed
        for name, partitions in planned.items():
            self._written(name, partitions)


def read_again(
    context: ControllerContext,
    name: str,
    numbers: Iterable[int],
    written: Callable[[str, Mapping[int, PartitionView]], None],
) -> Steps:
    """Reads the states of these partitions. `written` is called with the states that another broker has changed."""
    known = {number: context.topics[name].partitions[number] for number in numbers}
    found = yield Read(tuple(Get(paths.partition_state(name, number)) for number in known))
    newer = {
        number: PartitionView(PartitionStateNode.decode(node[0]), node[1])
        for (number, held), node in zip(known.items(), found, strict=True)
        if node is not None and node[1] != held.version
    }
    if newer:
        written(name, newer)
