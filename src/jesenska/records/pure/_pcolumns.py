"""Converts records to Arrow's memory layout and back, in plain Python: the twin of the compiled `_column_reader.pxi`
and `_column_writer.pxi`. It uses the buffers of Arrow arrays, but not pyarrow.

    binary column   rows + 1 offsets of 32 bits into the data, the data, and a bitmap of the rows that are not null
                    (lowest bit first)
    headers         rows + 1 offsets of 32 bits into two binary columns, the keys and the values of all headers,
                    one after another

Numbers are in the machine's byte order, as in Arrow."""

from __future__ import annotations

from array import array
from struct import Struct

from jesenska.records.header import Buffer
from jesenska.records.murmur2 import murmur2
from jesenska.records.pure._precords import RecordReader, append_record, wrap64

_INT32 = Struct("=i")
_INT64 = Struct("=q")
_INT32_MAX = 0x7FFFFFFF


class BinaryColumn:
    """The values of a binary column in Arrow's layout."""

    __slots__ = ("data", "nulls", "offsets", "validity")

    def __init__(self) -> None:
        self.offsets = bytearray(4)
        self.data = bytearray()
        self.validity = bytearray()
        self.nulls = 0

    def append(self, row: int, field: bytes | None) -> None:
        if not row & 7:
            self.validity.append(0)
        if field is None:
            self.nulls += 1
        else:
            self.data += field
            self.validity[row >> 3] |= 1 << (row & 7)
        self.offsets += _INT32.pack(len(self.data))


class ColumnReader:
    """Collects the records of batches as columns in Arrow's layout. `key` and `value` are binary columns, and with
    headers also `header_key` and `header_value`. `header_offsets` assigns the headers to rows; a row without headers
    is null."""

    def __init__(self, with_headers: bool) -> None:
        self.with_headers = with_headers
        self.rows = 0
        self.header_rows = 0
        self.offsets = bytearray()
        self.timestamps = bytearray()
        self.timestamp_types = bytearray()
        self.header_offsets = bytearray(4)
        self.header_validity = bytearray()
        self.header_nulls = 0
        self.key = BinaryColumn()
        self.value = BinaryColumn()
        self.header_key = BinaryColumn()
        self.header_value = BinaryColumn()

    def add(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int,
        append_time: bool,
        start: int,
        stop: int,
    ) -> int:
        """Adds the records with `start` <= offset < `stop`, and returns their number. All of the batch's records are
        read. If they are not `count` complete records, nothing is added and InvalidRecordError is raised. Raises
        OverflowError if a column would be larger than 2 GiB."""
        reader = RecordReader(bytes(body))
        taken = []
        for _ in range(count):
            timestamp_delta, offset_delta, key, value, headers = reader.record()
            offset = wrap64(base_offset + offset_delta)
            if start <= offset < stop:
                timestamp = append_timestamp if append_time else wrap64(base_timestamp + timestamp_delta)
                taken.append((offset, timestamp, key, value, headers if self.with_headers else ()))
        reader.finish()
        if max(len(self.key.data), len(self.value.data), len(self.header_value.data)) + len(reader.data) > _INT32_MAX:
            raise OverflowError("a column of more than 2 GiB does not fit one Arrow batch; take fewer records at once")
        for offset, timestamp, key, value, headers in taken:
            self.offsets += _INT64.pack(offset)
            self.timestamps += _INT64.pack(timestamp)
            self.timestamp_types += _INT32.pack(1 if append_time else 0)
            self.key.append(self.rows, key)
            self.value.append(self.rows, value)
            if self.with_headers:
                if not self.rows & 7:
                    self.header_validity.append(0)
                if headers:
                    self.header_validity[self.rows >> 3] |= 1 << (self.rows & 7)
                else:
                    self.header_nulls += 1
                for name, data in headers:
                    self.header_key.append(self.header_rows, name)
                    self.header_value.append(self.header_rows, data)
                    self.header_rows += 1
                self.header_offsets += _INT32.pack(self.header_rows)
            self.rows += 1
        return len(taken)


class Source:
    """A view of the buffers of one Arrow array: bytes (with offsets of 32 or 64 bits) or, without offsets, 64-bit
    integers."""

    def __init__(
        self, validity: Buffer | None, offsets: Buffer | None, data: Buffer | None, first: int, rows: int, wide: bool
    ) -> None:
        """Takes the buffers of the array, each possibly None. `first` and `rows` are the array's own offset into the
        buffers and its length; `wide` means offsets of 64 bits."""
        if first < 0 or rows < 0 or first > 1 << 60 or rows > 1 << 60:
            raise ValueError("an Arrow array has no such offset or length")
        self.first = first
        self.rows = rows
        self.validity = None if validity is None else memoryview(validity).cast("B")
        if self.validity is not None and len(self.validity) < (first + rows + 7) // 8:
            raise ValueError("the validity bitmap is shorter than the array")
        self.has_data = data is not None
        self.data = memoryview(b"" if data is None else data).cast("B")
        self.offsets: array[int] | None = None
        if offsets is not None:
            view = memoryview(offsets).cast("B")
            width = 8 if wide else 4
            if rows and len(view) < width * (first + rows + 1):
                raise ValueError("the offsets are fewer than the array's length says")
            self.offsets = array("q" if wide else "i", bytes(view[width * first : width * (first + rows + 1)]))
        elif data is not None and len(self.data) < 8 * (first + rows):
            raise ValueError("the numbers are fewer than the array's length says")

    def is_valid(self, row: int) -> bool:
        row += self.first
        return self.validity is None or bool(self.validity[row >> 3] >> (row & 7) & 1)

    def span(self, row: int, limit: int) -> tuple[int, int]:
        """Returns the begin and the end of a row's elements in the array's data. Raises ValueError if they are not
        between 0 and `limit`."""
        if self.offsets is None:
            raise TypeError("this array has no offsets")
        begin, end = self.offsets[row], self.offsets[row + 1]
        if begin < 0 or end < begin or end > limit:
            raise ValueError("the offsets of an Arrow array lead out of its data")
        return begin, end

    def field(self, row: int) -> bytes | None:
        if not self.is_valid(row):
            return None
        begin, end = self.span(row, len(self.data))
        return bytes(self.data[begin:end])

    def number(self, row: int, default: int) -> int:
        if not self.is_valid(row):
            return default
        return int(_INT64.unpack_from(self.data, 8 * (row + self.first))[0])


class ColumnWriter:
    """Encodes rows of Arrow arrays as records. It takes the arrays of keys and values (or None), of the headers'
    lists, structs, keys and values (all or none), and of timestamps (ms, or None)."""

    def __init__(
        self,
        rows: int,
        key: Source | None,
        value: Source | None,
        lists: Source | None,
        structs: Source | None,
        names: Source | None,
        datas: Source | None,
        timestamps: Source | None,
    ) -> None:
        for source in (key, value, lists, timestamps):
            if source is not None and source.rows != rows:
                raise ValueError("the columns are not of one length")
        for source in (key, value, lists, names, datas):
            if source is not None and source.offsets is None:
                raise ValueError("this array needs offsets")
        if timestamps is not None and not timestamps.has_data:
            raise ValueError("this array needs numbers")
        self.headers: tuple[Source, Source, Source, Source] | None = None
        if lists is not None:
            if structs is None or names is None or datas is None:
                raise ValueError("headers need their keys and values")
            if names.rows != structs.rows or datas.rows != structs.rows:
                raise ValueError("the keys and values of the headers are not of one length")
            self.headers = (lists, structs, names, datas)
        self.rows = rows
        self.key = key
        self.value = value
        self.timestamps = timestamps

    def encode(self, buffer: bytearray, row: int, default_timestamp: int, max_bytes: int) -> tuple[int, int, int]:
        """Appends records from `row` on to `buffer`: as many as keep it within `max_bytes`, but at least one. Returns
        their number, the first timestamp and the largest timestamp."""
        if row < 0 or row >= self.rows:
            raise IndexError("no such row")
        base = self._timestamp(row, default_timestamp)
        largest = -1
        count = 0
        while row + count < self.rows:
            timestamp = self._timestamp(row + count, default_timestamp)
            key = None if self.key is None else self.key.field(row + count)
            value = None if self.value is None else self.value.field(row + count)
            record = bytearray()
            append_record(record, count, wrap64(timestamp - base), key, value, self._headers(row + count))
            if count and len(buffer) + len(record) > max_bytes:
                break
            buffer += record
            largest = max(largest, timestamp)
            count += 1
        return count, base, largest

    def _timestamp(self, row: int, default: int) -> int:
        return default if self.timestamps is None else self.timestamps.number(row, default)

    def _headers(self, row: int) -> list[tuple[bytes, bytes | None]]:
        if self.headers is None:
            return []
        lists, structs, names, datas = self.headers
        if not lists.is_valid(row):
            return []
        headers = []
        for element in range(*lists.span(row, structs.rows)):
            name = names.field(element) if structs.is_valid(element) else None
            if name is None:
                raise ValueError("a record header has no key")
            headers.append((name, datas.field(element)))
        return headers


def partitions_of_keys(keys: Source, partition_count: int, unkeyed: int) -> bytearray:
    """Returns the partition of each row, by murmur2 of its key, as 32-bit numbers. Rows without a key get `unkeyed`.
    Raises ValueError for damaged arrays."""
    if keys.offsets is None:
        raise ValueError("this array needs offsets")
    if partition_count < 1:
        raise ValueError("a topic has at least one partition")
    found = array("i", bytes(4 * keys.rows))
    for row in range(keys.rows):
        key = keys.field(row)
        found[row] = unkeyed if key is None else (murmur2(key) & 0x7FFFFFFF) % partition_count
    return bytearray(found.tobytes())
