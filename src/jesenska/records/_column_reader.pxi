# Records to Arrow's memory layout: the twin of `ColumnReader` in `_pcolumns.py`; the docstrings there also apply here.
# A part of `_crecords.pyx`.

cdef class BinaryColumn:
    """The values of a binary column in Arrow's layout: one more 32-bit offset than there are rows, the bytes of all
    values, and a validity bit for each row."""

    cdef readonly bytearray offsets
    cdef readonly bytearray data
    cdef readonly bytearray validity
    cdef readonly int64_t nulls

    def __init__(self):
        self.offsets = bytearray(4)
        self.data = bytearray()
        self.validity = bytearray()
        self.nulls = 0


cdef struct Fill:
    int32_t *offsets
    uint8_t *data
    uint8_t *validity
    int64_t size
    int64_t nulls


cdef int grow(bytearray vector, int64_t size) except -1:
    """Enlarges the vector to `size` bytes. The new bytes are zero. A longer vector is not changed."""
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(vector)
    if size > before:
        PyByteArray_Resize(vector, size)
        memset(PyByteArray_AS_STRING(vector) + before, 0, size - before)
    return 0


cdef int begin_fill(BinaryColumn column, int64_t rows, int64_t added_rows, int64_t added_bytes, Fill *fill) except -1:
    cdef int64_t size = PyByteArray_GET_SIZE(column.data)
    PyByteArray_Resize(column.offsets, 4 * (rows + added_rows + 1))
    PyByteArray_Resize(column.data, size + added_bytes)
    grow(column.validity, (rows + added_rows + 7) // 8)
    fill.offsets = <int32_t *>PyByteArray_AS_STRING(column.offsets) + rows
    fill.data = <uint8_t *>PyByteArray_AS_STRING(column.data)
    fill.validity = <uint8_t *>PyByteArray_AS_STRING(column.validity)
    fill.size = size
    fill.nulls = 0
    return 0


cdef inline void fill_one(Fill *fill, int64_t row, Field *field) noexcept nogil:
    if field.size >= 0:
        memcpy(fill.data + fill.size, field.data, field.size)
        fill.size += field.size
        fill.validity[row >> 3] |= <uint8_t>(1 << (row & 7))
    else:
        fill.nulls += 1
    fill.offsets += 1
    fill.offsets[0] = <int32_t>fill.size


cdef struct Totals:
    int64_t rows
    int64_t key_bytes
    int64_t value_bytes
    int64_t headers
    int64_t name_bytes
    int64_t data_bytes


cdef int measure_columns(
    const uint8_t *cursor, const uint8_t *limit, int32_t count, int64_t base_offset, int64_t start, int64_t stop, bint with_headers,
    Totals *totals, int32_t *index
) noexcept nogil:
    """Checks all records, so that `fill_columns` can read them without checks. Adds up the sizes of the records with
    `start` <= offset < `stop`. Returns a fault or F_NONE; `index` is the number of records that were read."""
    cdef Whole record
    cdef Field field
    cdef const uint8_t *header
    cdef int64_t offset, number
    cdef int fault
    memset(totals, 0, sizeof(Totals))
    field.size = 0
    index[0] = 0
    while index[0] < count:
        fault = read_record(&cursor, limit, &record)
        if fault:
            return fault
        index[0] += 1
        offset = <int64_t>(<uint64_t>base_offset + <uint64_t>record.offset_delta)
        if offset < start or offset >= stop:
            continue
        totals.rows += 1
        if record.key.size > 0:
            totals.key_bytes += record.key.size
        if record.value.size > 0:
            totals.value_bytes += record.value.size
        if with_headers:
            header = record.headers
            totals.headers += record.header_count
            for number in range(record.header_count):
                read_field(&header, record.end, &field)
                totals.name_bytes += field.size
                read_field(&header, record.end, &field)
                if field.size > 0:
                    totals.data_bytes += field.size
    if cursor != limit:
        return F_BYTES_LEFT_IN_BATCH
    return F_NONE


cdef int64_t fill_columns(
    const uint8_t *cursor, const uint8_t *limit, int32_t count, int64_t base_offset, int64_t base_timestamp, bint append_time,
    int64_t append_timestamp, int64_t start, int64_t stop, bint with_headers, int64_t row, int64_t header_row,
    int64_t *offsets, int64_t *timestamps, int32_t *types, int32_t *lists, uint8_t *marks, Fill *keys, Fill *values, Fill *names, Fill *datas
) noexcept nogil:
    """Copies the records with `start` <= offset < `stop` into the columns. Returns the number of rows without
    headers."""
    cdef Whole record
    cdef Field field
    cdef const uint8_t *header
    cdef int64_t offset, number
    cdef int64_t without = 0
    cdef int32_t index
    field.size = -1
    field.data = NULL
    for index in range(count):
        read_record(&cursor, limit, &record)
        offset = <int64_t>(<uint64_t>base_offset + <uint64_t>record.offset_delta)
        if offset < start or offset >= stop:
            continue
        offsets[row] = offset
        timestamps[row] = append_timestamp if append_time else <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
        types[row] = append_time
        fill_one(keys, row, &record.key)
        fill_one(values, row, &record.value)
        if with_headers:
            if record.header_count:
                marks[row >> 3] |= <uint8_t>(1 << (row & 7))
            else:
                without += 1
            header = record.headers
            for number in range(record.header_count):
                read_field(&header, record.end, &field)
                fill_one(names, header_row, &field)
                read_field(&header, record.end, &field)
                fill_one(datas, header_row, &field)
                header_row += 1
            lists[row + 1] = <int32_t>header_row
        row += 1
    return without


cdef class ColumnReader:
    """Collects the records of batches as columns in Arrow's layout. Numbers are in the machine's byte order. `key` and
    `value` are binary columns, and with headers also `header_key` and `header_value`. `header_offsets` assigns the
    headers to rows; a row without headers is null."""

    cdef readonly bint with_headers
    cdef readonly int64_t rows
    cdef readonly int64_t header_rows
    cdef readonly bytearray offsets
    cdef readonly bytearray timestamps
    cdef readonly bytearray timestamp_types
    cdef readonly bytearray header_offsets
    cdef readonly bytearray header_validity
    cdef readonly int64_t header_nulls
    cdef readonly BinaryColumn key
    cdef readonly BinaryColumn value
    cdef readonly BinaryColumn header_key
    cdef readonly BinaryColumn header_value

    def __init__(self, bint with_headers):
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
        self, body, int32_t count, int64_t base_offset, int64_t base_timestamp, int64_t append_timestamp, bint append_time, int64_t start,
        int64_t stop
    ):
        """Adds the records with `start` <= offset < `stop`, and returns their number. All of the batch's records are
        read. If they are not `count` complete records, nothing is added and InvalidRecordError is raised. Raises
        OverflowError if a column would be larger than 2 GiB."""
        cdef Py_buffer view
        cdef const uint8_t *cursor
        cdef const uint8_t *limit
        cdef Totals totals
        cdef int32_t index = 0
        cdef int fault
        cdef Fill keys, values, names, datas
        cdef int64_t *offsets
        cdef int64_t *timestamps
        cdef int32_t *types
        cdef int32_t *lists
        cdef uint8_t *marks
        cdef int64_t without
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            cursor = <const uint8_t *>view.buf
            limit = cursor + view.len
            with nogil:
                fault = measure_columns(cursor, limit, count, base_offset, start, stop, self.with_headers, &totals, &index)
            if fault:
                raise_fault(fault, index)
            if (
                PyByteArray_GET_SIZE(self.key.data) + totals.key_bytes > INT32_MAX_
                or PyByteArray_GET_SIZE(self.value.data) + totals.value_bytes > INT32_MAX_
                or PyByteArray_GET_SIZE(self.header_key.data) + totals.name_bytes > INT32_MAX_
                or PyByteArray_GET_SIZE(self.header_value.data) + totals.data_bytes > INT32_MAX_
                or self.header_rows + totals.headers > INT32_MAX_
            ):
                raise OverflowError("a column of more than 2 GiB does not fit one Arrow batch; take fewer records at once")
            PyByteArray_Resize(self.offsets, 8 * (self.rows + totals.rows))
            PyByteArray_Resize(self.timestamps, 8 * (self.rows + totals.rows))
            PyByteArray_Resize(self.timestamp_types, 4 * (self.rows + totals.rows))
            begin_fill(self.key, self.rows, totals.rows, totals.key_bytes, &keys)
            begin_fill(self.value, self.rows, totals.rows, totals.value_bytes, &values)
            lists = NULL
            marks = NULL
            if self.with_headers:
                PyByteArray_Resize(self.header_offsets, 4 * (self.rows + totals.rows + 1))
                lists = <int32_t *>PyByteArray_AS_STRING(self.header_offsets)
                grow(self.header_validity, (self.rows + totals.rows + 7) // 8)
                marks = <uint8_t *>PyByteArray_AS_STRING(self.header_validity)
                begin_fill(self.header_key, self.header_rows, totals.headers, totals.name_bytes, &names)
                begin_fill(self.header_value, self.header_rows, totals.headers, totals.data_bytes, &datas)
            offsets = <int64_t *>PyByteArray_AS_STRING(self.offsets)
            timestamps = <int64_t *>PyByteArray_AS_STRING(self.timestamps)
            types = <int32_t *>PyByteArray_AS_STRING(self.timestamp_types)
            with nogil:
                without = fill_columns(
                    cursor, limit, count, base_offset, base_timestamp, append_time, append_timestamp, start, stop, self.with_headers,
                    self.rows, self.header_rows, offsets, timestamps, types, lists, marks, &keys, &values, &names, &datas
                )
            self.key.nulls += keys.nulls
            self.value.nulls += values.nulls
            if self.with_headers:
                self.header_nulls += without
                self.header_key.nulls += names.nulls
                self.header_value.nulls += datas.nulls
                self.header_rows += totals.headers
            self.rows += totals.rows
        finally:
            PyBuffer_Release(&view)
        return totals.rows
