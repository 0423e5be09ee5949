"""Groups records by key, and computes running results for each key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jesenska.pipeline.streams_on_spark.columns.value_columns import Indices


class Groups:
    """Records grouped by key. Each key has a number below `count`; `codes` contains the number of each record's key.

    `places` contains the positions of the records, grouped by key; the records of a key keep their order. For each
    key, `starts` contains the index of its first record in `places`, and `sizes` the number of its records."""

    def __init__(self, codes: Indices, count: int) -> None:
        self.codes = codes
        self.count = count
        self.sizes = np.bincount(codes, minlength=count)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.places = stably_sorted(codes, count)

    def ranks(self) -> Indices:
        """Returns, for each record, the number of earlier records with the same key."""
        ranks = np.empty(len(self.codes), np.int64)
        ranks[self.places] = np.arange(len(self.codes)) - np.repeat(self.starts, self.sizes)
        return ranks

    def last(self) -> Indices:
        """Returns the position of each key's last record. Every key must have a record."""
        found: Indices = self.places[self.starts + self.sizes - 1]
        return found

    def running_max(self, numbers: Indices, beginning: Indices) -> Indices:
        """Returns, for each record, the largest number among its key's records so far. The result is at least the
        key's value in `beginning`."""
        if len(numbers) < 2 or bool((numbers[1:] >= numbers[:-1]).all()):
            return np.maximum(numbers, beginning[self.codes])
        by_key = np.maximum(numbers, beginning[self.codes])[self.places]
        least = int(by_key.min())
        span = int(by_key.max()) - least + 1
        if span * self.count >= 2**63:
            raise OverflowError("times are too far apart")
        shift = np.repeat(np.arange(self.count) * span, self.sizes) - least
        found = np.empty(len(numbers), np.int64)
        found[self.places] = np.maximum.accumulate(by_key + shift) - shift
        return found


def dense(numbers: Indices, count: int) -> tuple[Indices, Indices]:
    """Replaces numbers below `count` by smaller numbers without gaps. Returns the new numbers, and the distinct old
    numbers in ascending order."""
    if count > 4 * len(numbers) + 1_000_000:
        values, codes = np.unique(numbers, return_inverse=True)
        return codes, values
    there = np.zeros(count, np.bool_)
    there[numbers] = True
    return (np.cumsum(there) - 1)[numbers], np.flatnonzero(there)


def stably_sorted(codes: Indices, count: int) -> Indices:
    """Returns the positions that sort numbers below `count`; equal numbers keep their order. numpy sorts numbers of 16
    bits in a fast way. So larger numbers are sorted by their lower 16 bits, and then by their upper bits."""
    if count <= 1 << 16:
        return np.argsort(codes.astype(np.uint16), kind="stable")
    places = np.argsort((codes & 0xFFFF).astype(np.uint16), kind="stable")
    upper = codes >> 16
    return places[stably_sorted(upper[places], (count >> 16) + 1)]


def numbered(keys: pa.Array) -> tuple[Indices, pa.Array]:
    """Returns two arrays: for each key its number among the sorted distinct keys, and these distinct keys. No key may
    be null."""
    encoded = keys.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    number = np.empty(len(order), np.int64)
    number[order.to_numpy()] = np.arange(len(order))
    return number[encoded.indices.to_numpy()], encoded.dictionary.take(order)
