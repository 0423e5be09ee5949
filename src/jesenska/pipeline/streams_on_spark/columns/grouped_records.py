"""Records by their keys: groups of the same key, and running results of each key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jesenska.pipeline.streams_on_spark.columns.value_columns import Indices


class Groups:
    """Records whose keys are numbered: `codes` has the number of each record's key, below `count`.

    `places` has the records' places, key by key, those of one key in their order. `starts` has each key's first index
    in it, `sizes` its number of records.
    """

    def __init__(self, codes: Indices, count: int) -> None:
        self.codes = codes
        self.count = count
        self.sizes = np.bincount(codes, minlength=count)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.places = stably_sorted(codes, count)

    def ranks(self) -> Indices:
        """Returns the number of earlier records with the same key, for each record."""
        ranks = np.empty(len(self.codes), np.int64)
        ranks[self.places] = np.arange(len(self.codes)) - np.repeat(self.starts, self.sizes)
        return ranks

    def last(self) -> Indices:
        """Returns the place of each key's last record. Each key has one."""
        found: Indices = self.places[self.starts + self.sizes - 1]
        return found

    def running_max(self, numbers: Indices, beginning: Indices) -> Indices:
        """For each record the largest number of its key so far, at least the key's `beginning`."""
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
    """Returns numbers below `count` as the places of their distinct values among these, and the distinct values in
    order."""
    if count > 4 * len(numbers) + 1_000_000:
        values, codes = np.unique(numbers, return_inverse=True)
        return codes, values
    there = np.zeros(count, np.bool_)
    there[numbers] = True
    return (np.cumsum(there) - 1)[numbers], np.flatnonzero(there)


def stably_sorted(codes: Indices, count: int) -> Indices:
    """Returns the places that sort numbers from 0 to below `count`; equal ones keep their order. numpy sorts numbers
    of 16 bits by counting, so larger ones are sorted by their lower half and then by their upper half."""
    if count <= 1 << 16:
        return np.argsort(codes.astype(np.uint16), kind="stable")
    places = np.argsort((codes & 0xFFFF).astype(np.uint16), kind="stable")
    upper = codes >> 16
    return places[stably_sorted(upper[places], (count >> 16) + 1)]


def numbered(keys: pa.Array) -> tuple[Indices, pa.Array]:
    """For each key the number of its distinct value, and the distinct values in their order. No key is null."""
    encoded = keys.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)
    number = np.empty(len(order), np.int64)
    number[order.to_numpy()] = np.arange(len(order))
    return number[encoded.indices.to_numpy()], encoded.dictionary.take(order)
