"""The table of a log's leader epochs, with the first offset of each (KIP-101). A follower, or a consumer after a
change of leader, uses the table to find the offset up to which its own log agrees with the leader's. Epochs and
offsets increase from entry to entry. `epochs_file` writes the table to the disk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The table of a log's leader epochs in memory."""

    __slots__ = ("_epochs", "_start_offsets", "latest_epoch")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        #: The newest epoch, -1 if there is no epoch. It is stored because every append reads it.
        self.latest_epoch = UNDEFINED_EPOCH
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._start_offsets, strict=True))

    def agrees_with(self, other: LeaderEpochs) -> bool:
        """Returns true if both tables have the same entries."""
        return self._epochs == other._epochs and self._start_offsets == other._start_offsets

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Adds an entry. Existing entries that contradict it, with a later epoch or a later offset, are removed.
        Returns true if the table changed."""
        if epoch < 0 or start_offset < 0:
            return False
        if self._epochs and self._epochs[-1] == epoch and self._start_offsets[-1] <= start_offset:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._start_offsets[-1] >= start_offset):
            self._epochs.pop()
            self._start_offsets.pop()
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        self.latest_epoch = epoch
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Finds the newest epoch in the table that is not newer than `epoch`. Returns that epoch and its end offset:
        the start offset of the following epoch, or the log end offset. Returns (-1, -1) if `epoch` is newer than all
        epochs in the table."""
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        following = bisect_right(self._epochs, epoch)
        if following == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if following == 0:
            return epoch, self._start_offsets[0]
        return self._epochs[following - 1], self._start_offsets[following]

    def epoch_for_offset(self, offset: int) -> int:
        """Returns the leader epoch in which the record at this offset was written; -1 if unknown."""
        index = bisect_right(self._start_offsets, offset)
        return self._epochs[index - 1] if index else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Removes the epochs that start at or after `end_offset`. Returns true if the table changed."""
        keep = bisect_left(self._start_offsets, end_offset)
        if keep == len(self._epochs):
            return False
        del self._epochs[keep:], self._start_offsets[keep:]
        self.latest_epoch = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Removes the epochs that end at or before `start_offset`. The epoch that contains `start_offset` now starts
        there. Returns true if the table changed."""
        index = bisect_right(self._start_offsets, start_offset)
        if index == 0 or (index == 1 and self._start_offsets[0] == start_offset):
            return False
        del self._epochs[: index - 1], self._start_offsets[: index - 1]
        self._start_offsets[0] = start_offset
        return True

    def clear(self) -> None:
        self._epochs.clear()
        self._start_offsets.clear()
        self.latest_epoch = UNDEFINED_EPOCH
