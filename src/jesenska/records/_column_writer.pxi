# Records from Arrow's memory layout, and the partitions of their keys: the twin of `ColumnWriter` in `_pcolumns.py`; the
# docstrings there also apply here. A part of `_crecords.pyx`.

cdef class Source:
    """A view of the buffers of one Arrow array: bytes (with offsets of 32 or 64 bits) or, without offsets, 64-bit
    integers."""

    cdef Py_buffer validity_view, offsets_view, data_view
    cdef int held
    cdef const uint8_t *validity
    cdef const uint8_t *data
    cdef const int32_t *narrow
    cdef const int64_t *wide
    cdef int64_t validity_bytes
    cdef int64_t data_bytes
    cdef int64_t first
    cdef int64_t rows

    def __cinit__(self):
        self.held = 0

    def __dealloc__(self):
        if self.held & 1:
            PyBuffer_Release(&self.validity_view)
        if self.held & 2:
            PyBuffer_Release(&self.offsets_view)
        if self.held & 4:
            PyBuffer_Release(&self.data_view)

    def __init__(self, validity, offsets, data, int64_t first, int64_t rows, bint wide):
        """Takes the buffers of the array, each possibly None. `first` and `rows` are the array's own offset into the
        buffers and its length; `wide` means offsets of 64 bits."""
        if first < 0 or rows < 0 or first > (<int64_t>1 << 60) or rows > (<int64_t>1 << 60):
            raise ValueError("an Arrow array has no such offset or length")
        self.validity = NULL
        self.data = NULL
        self.narrow = NULL
        self.wide = NULL
        self.validity_bytes = 0
        self.data_bytes = 0
        self.first = first
        self.rows = rows
        if validity is not None:
            PyObject_GetBuffer(validity, &self.validity_view, PyBUF_SIMPLE)
            self.held |= 1
            self.validity = <const uint8_t *>self.validity_view.buf
            if self.validity_view.len < (first + rows + 7) // 8:
                raise ValueError("the validity bitmap is shorter than the array")
        if offsets is not None:
            PyObject_GetBuffer(offsets, &self.offsets_view, PyBUF_SIMPLE)
            self.held |= 2
            if rows and self.offsets_view.len < (8 if wide else 4) * (first + rows + 1):
                raise ValueError("the offsets are fewer than the array's length says")
            if wide:
                self.wide = <const int64_t *>self.offsets_view.buf
            else:
                self.narrow = <const int32_t *>self.offsets_view.buf
        if data is not None:
            PyObject_GetBuffer(data, &self.data_view, PyBUF_SIMPLE)
            self.held |= 4
            self.data = <const uint8_t *>self.data_view.buf
            self.data_bytes = self.data_view.len
        if offsets is None and data is not None and self.data_bytes < 8 * (first + rows):
            raise ValueError("the numbers are fewer than the array's length says")


cdef inline bint is_valid(Source source, int64_t row) noexcept nogil:
    row += source.first
    return source.validity == NULL or source.validity[row >> 3] >> (row & 7) & 1


cdef inline int field_at(Source source, int64_t row, Field *field) noexcept nogil:
    """Reads the bytes of a row into `field`. Returns 1, or 0 if the array's offsets point outside its data."""
    cdef int64_t begin, end
    if not is_valid(source, row):
        field.size = -1
        field.data = NULL
        return 1
    row += source.first
    if source.wide != NULL:
        begin = source.wide[row]
        end = source.wide[row + 1]
    else:
        begin = source.narrow[row]
        end = source.narrow[row + 1]
    if begin < 0 or end < begin or end > source.data_bytes:
        return 0
    field.data = source.data + begin
    field.size = end - begin
    return 1


cdef enum:
    E_NONE = 0
    E_OFFSETS = 1
    E_NAME_NULL = 2
    E_RECORD_SIZE = 3

_COLUMN_ERRORS = {
    E_OFFSETS: "the offsets of an Arrow array lead out of its data",
    E_NAME_NULL: "a record header has no key",
    E_RECORD_SIZE: "a record may take at most 2147483647 bytes",
}


cdef class ColumnWriter:
    """Encodes rows of Arrow arrays as records. It takes the arrays of keys and values (or None), of the headers'
    lists, structs, keys and values (all or none), and of timestamps (ms, or None)."""

    cdef Source key
    cdef Source value
    cdef Source lists
    cdef Source structs
    cdef Source names
    cdef Source datas
    cdef Source timestamps
    cdef int64_t rows

    def __init__(self, int64_t rows, Source key, Source value, Source lists, Source structs, Source names, Source datas, Source timestamps):
        for source in (key, value, lists, timestamps):
            if source is not None and (<Source>source).rows != rows:
                raise ValueError("the columns are not of one length")
        for source in (key, value, lists, names, datas):
            if source is not None and not (<Source>source).held & 2:
                raise ValueError("this array needs offsets")
        if timestamps is not None and not timestamps.held & 4:
            raise ValueError("this array needs numbers")
        if lists is not None:
            if structs is None or names is None or datas is None:
                raise ValueError("headers need their keys and values")
            if names.rows != structs.rows or datas.rows != structs.rows:
                raise ValueError("the keys and values of the headers are not of one length")
        self.rows = rows
        self.key = key
        self.value = value
        self.lists = lists
        self.structs = structs
        self.names = names
        self.datas = datas
        self.timestamps = timestamps

    cdef int header_range(self, int64_t row, int64_t *begin, int64_t *end) noexcept nogil:
        begin[0] = 0
        end[0] = 0
        if self.lists is None or not is_valid(self.lists, row):
            return E_NONE
        row += self.lists.first
        if self.lists.wide != NULL:
            begin[0] = self.lists.wide[row]
            end[0] = self.lists.wide[row + 1]
        else:
            begin[0] = self.lists.narrow[row]
            end[0] = self.lists.narrow[row + 1]
        if begin[0] < 0 or end[0] < begin[0] or end[0] > self.structs.rows or end[0] - begin[0] > INT32_MAX_:
            return E_OFFSETS
        return E_NONE

    cdef int64_t timestamp_at(self, int64_t row, int64_t default) noexcept nogil:
        cdef int64_t value
        if self.timestamps is None or not is_valid(self.timestamps, row):
            return default
        memcpy(&value, self.timestamps.data + 8 * (row + self.timestamps.first), 8)
        return value

    cdef int body_size(self, int64_t row, int64_t delta, int64_t index, int64_t *size) noexcept nogil:
        """Computes the size of a record without its length field. Returns E_NONE, or the error in the arrays."""
        cdef Field field
        cdef int64_t header, begin, end
        cdef int error
        cdef int64_t total = 1 + number_size(to_zigzag(delta)) + number_size(to_zigzag(index))
        if self.key is None:
            total += 1
        else:
            if not field_at(self.key, row, &field):
                return E_OFFSETS
            total += number_size(to_zigzag(field.size)) + (field.size if field.size > 0 else 0)
        if self.value is None:
            total += 1
        else:
            if not field_at(self.value, row, &field):
                return E_OFFSETS
            total += number_size(to_zigzag(field.size)) + (field.size if field.size > 0 else 0)
        error = self.header_range(row, &begin, &end)
        if error:
            return error
        total += number_size(to_zigzag(end - begin))
        for header in range(begin, end):
            if not is_valid(self.structs, header):
                return E_NAME_NULL
            if not field_at(self.names, header, &field):
                return E_OFFSETS
            if field.size < 0:
                return E_NAME_NULL
            total += number_size(to_zigzag(field.size)) + field.size
            if not field_at(self.datas, header, &field):
                return E_OFFSETS
            total += number_size(to_zigzag(field.size)) + (field.size if field.size > 0 else 0)
            if total > INT32_MAX_:
                return E_RECORD_SIZE
        if total > INT32_MAX_:
            return E_RECORD_SIZE
        size[0] = total
        return E_NONE

    cdef int measure(self, int64_t row, int64_t default, int64_t room, int64_t *rows, int64_t *size, int64_t *base, int64_t *largest) noexcept nogil:
        """Computes how many rows from `row` on fit into `room` bytes (at least one), their size, the first timestamp
        and the largest timestamp. Returns E_NONE, or the error in the arrays."""
        cdef int64_t timestamp, body, whole
        cdef int64_t index = 0
        cdef int error
        size[0] = 0
        largest[0] = -1
        base[0] = self.timestamp_at(row, default)
        while row + index < self.rows and index < INT32_MAX_:
            timestamp = self.timestamp_at(row + index, default)
            error = self.body_size(row + index, <int64_t>(<uint64_t>timestamp - <uint64_t>base[0]), index, &body)
            if error:
                return error
            whole = number_size(to_zigzag(body)) + body
            if index and size[0] + whole > room:
                break
            size[0] += whole
            if timestamp > largest[0]:
                largest[0] = timestamp
            index += 1
        rows[0] = index
        return E_NONE

    cdef uint8_t *put_field(self, uint8_t *cursor, Source source, int64_t row) noexcept nogil:
        cdef Field field
        if source is None:
            cursor[0] = 1
            return cursor + 1
        field.size = -1
        field.data = NULL
        field_at(source, row, &field)
        cursor = put_number(cursor, to_zigzag(field.size))
        if field.size > 0:
            memcpy(cursor, field.data, field.size)
            cursor += field.size
        return cursor

    cdef void write(self, uint8_t *cursor, int64_t row, int64_t rows, int64_t default, int64_t base) noexcept nogil:
        cdef int64_t index, header, delta, body
        cdef int64_t begin = 0
        cdef int64_t end = 0
        for index in range(rows):
            delta = <int64_t>(<uint64_t>self.timestamp_at(row + index, default) - <uint64_t>base)
            self.body_size(row + index, delta, index, &body)
            cursor = put_number(cursor, to_zigzag(body))
            cursor[0] = 0
            cursor = put_number(cursor + 1, to_zigzag(delta))
            cursor = put_number(cursor, to_zigzag(index))
            cursor = self.put_field(cursor, self.key, row + index)
            cursor = self.put_field(cursor, self.value, row + index)
            self.header_range(row + index, &begin, &end)
            cursor = put_number(cursor, to_zigzag(end - begin))
            for header in range(begin, end):
                cursor = self.put_field(cursor, self.names, header)
                cursor = self.put_field(cursor, self.datas, header)

    def encode(self, bytearray buffer not None, int64_t row, int64_t default_timestamp, int64_t max_bytes):
        """Appends records from `row` on to `buffer`: as many as keep it within `max_bytes`, but at least one. Returns
        their number, the first timestamp and the largest timestamp."""
        cdef int64_t rows = 0
        cdef int64_t size = 0
        cdef int64_t base = 0
        cdef int64_t largest = 0
        cdef int64_t before = PyByteArray_GET_SIZE(buffer)
        cdef int error
        cdef uint8_t *cursor
        if row < 0 or row >= self.rows:
            raise IndexError("no such row")
        with nogil:
            error = self.measure(row, default_timestamp, max_bytes - before, &rows, &size, &base, &largest)
        if error:
            raise ValueError(_COLUMN_ERRORS[error])
        PyByteArray_Resize(buffer, before + size)
        cursor = <uint8_t *>PyByteArray_AS_STRING(buffer) + before
        with nogil:
            self.write(cursor, row, rows, default_timestamp, base)
        return rows, base, largest


# --- partitions of keys ---------------------------------------------------------------------------------------------------------------


cdef inline uint32_t murmur2(const uint8_t *data, int64_t size) noexcept nogil:
    cdef uint32_t value = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t piece
    cdef int64_t left = size
    while left >= 4:
        piece = <uint32_t>data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        piece *= <uint32_t>0x5BD1E995
        piece ^= piece >> 24
        piece *= <uint32_t>0x5BD1E995
        value = value * <uint32_t>0x5BD1E995 ^ piece
        data += 4
        left -= 4
    if left:
        if left == 3:
            value ^= <uint32_t>data[2] << 16
        if left >= 2:
            value ^= <uint32_t>data[1] << 8
        value ^= data[0]
        value *= <uint32_t>0x5BD1E995
    value ^= value >> 13
    value *= <uint32_t>0x5BD1E995
    return value ^ value >> 15


def partitions_of_keys(Source keys not None, int32_t partition_count, int32_t unkeyed):
    cdef bytearray found
    cdef int32_t *target
    cdef int64_t row
    cdef Field field
    cdef int ok = 1
    if not keys.held & 2:
        raise ValueError("this array needs offsets")
    if partition_count < 1:
        raise ValueError("a topic has at least one partition")
    found = bytearray(4 * keys.rows)
    target = <int32_t *>PyByteArray_AS_STRING(found)
    with nogil:
        for row in range(keys.rows):
            if not field_at(keys, row, &field):
                ok = 0
                break
            target[row] = unkeyed if field.size < 0 else <int32_t>((murmur2(field.data, field.size) & <uint32_t>0x7FFFFFFF) % <uint32_t>partition_count)
    if not ok:
        raise ValueError(_COLUMN_ERRORS[E_OFFSETS])
    return found
