# Records encoded and decoded as Python objects: the twin of the last part of `_precords.py`; the docstrings there also
# apply here. A part of `_crecords.pyx`.

# --- encode ------------------------------------------------------------------------------------------------------------------------------

cdef int put_bytes(bytearray target, const uint8_t *data, Py_ssize_t size) except -1:
    """Appends the length of the data, as a variable-length number, and the data."""
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(target)
    cdef uint8_t *cursor
    PyByteArray_Resize(target, before + number_size(to_zigzag(size)) + size)
    cursor = put_number(<uint8_t *>PyByteArray_AS_STRING(target) + before, to_zigzag(size))
    memcpy(cursor, data, size)
    return 0


cdef bytearray encode_headers(headers):
    """Returns the encoded headers of a record, without their count."""
    cdef bytearray encoded = bytearray()
    cdef bytes name_bytes, data_bytes
    for name, data in headers:
        name_bytes = name if PyBytes_CheckExact(name) else name.encode()
        put_bytes(encoded, <const uint8_t *>PyBytes_AS_STRING(name_bytes), PyBytes_GET_SIZE(name_bytes))
        if data is None:
            encoded.append(1)
        else:
            data_bytes = bytes(data)
            put_bytes(encoded, <const uint8_t *>PyBytes_AS_STRING(data_bytes), PyBytes_GET_SIZE(data_bytes))
    return encoded


cdef int append_fields(
    bytearray target,
    int32_t offset_delta,
    int64_t timestamp_delta,
    const uint8_t *key,
    int64_t key_size,
    const uint8_t *value,
    int64_t value_size,
    int32_t header_count,
    const uint8_t *headers,
    int64_t headers_size,
) except -1:
    cdef int64_t length = 1 + number_size(to_zigzag(timestamp_delta)) + number_size(to_zigzag(offset_delta))
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(target)
    cdef uint8_t *cursor
    length += number_size(to_zigzag(key_size)) + number_size(to_zigzag(value_size)) + number_size(to_zigzag(header_count)) + headers_size
    if key_size > 0:
        length += key_size
    if value_size > 0:
        length += value_size
    if length > INT32_MAX_:
        raise OverflowError("a record may take at most 2147483647 bytes")
    PyByteArray_Resize(target, before + number_size(to_zigzag(length)) + length)
    cursor = <uint8_t *>PyByteArray_AS_STRING(target) + before
    cursor = put_number(cursor, to_zigzag(length))
    cursor[0] = 0
    cursor = put_number(cursor + 1, to_zigzag(timestamp_delta))
    cursor = put_number(cursor, to_zigzag(offset_delta))
    cursor = put_number(cursor, to_zigzag(key_size))
    if key_size > 0:
        memcpy(cursor, key, key_size)
        cursor += key_size
    cursor = put_number(cursor, to_zigzag(value_size))
    if value_size > 0:
        memcpy(cursor, value, value_size)
        cursor += value_size
    cursor = put_number(cursor, to_zigzag(header_count))
    if headers_size > 0:
        memcpy(cursor, headers, headers_size)
    return 0


cdef int append_one(bytearray target, int32_t offset_delta, int64_t timestamp_delta, key, value, headers) except -1:
    cdef Py_buffer key_view, value_view
    cdef bint key_held = False
    cdef bint value_held = False
    cdef const uint8_t *key_data = NULL
    cdef const uint8_t *value_data = NULL
    cdef int64_t key_size = -1
    cdef int64_t value_size = -1
    cdef bytearray encoded = None
    cdef int32_t header_count = 0
    if headers:
        header_count = len(headers)
        encoded = encode_headers(headers)
    try:
        if key is not None:
            if PyBytes_CheckExact(key):
                key_data = <const uint8_t *>PyBytes_AS_STRING(key)
                key_size = PyBytes_GET_SIZE(key)
            else:
                PyObject_GetBuffer(key, &key_view, PyBUF_SIMPLE)
                key_held = True
                key_data = <const uint8_t *>key_view.buf
                key_size = key_view.len
        if value is not None:
            if PyBytes_CheckExact(value):
                value_data = <const uint8_t *>PyBytes_AS_STRING(value)
                value_size = PyBytes_GET_SIZE(value)
            else:
                PyObject_GetBuffer(value, &value_view, PyBUF_SIMPLE)
                value_held = True
                value_data = <const uint8_t *>value_view.buf
                value_size = value_view.len
        append_fields(
            target,
            offset_delta,
            timestamp_delta,
            key_data,
            key_size,
            value_data,
            value_size,
            header_count,
            <const uint8_t *>PyByteArray_AS_STRING(encoded) if encoded is not None else NULL,
            PyByteArray_GET_SIZE(encoded) if encoded is not None else 0,
        )
    finally:
        if key_held:
            PyBuffer_Release(&key_view)
        if value_held:
            PyBuffer_Release(&value_view)
    return 0


def append_record(bytearray buffer not None, int32_t offset_delta, int64_t timestamp_delta, key, value, headers):
    """Appends one record to `buffer`."""
    append_one(buffer, offset_delta, timestamp_delta, key, value, headers)


def encode_records(bytearray buffer not None, records, int64_t base_timestamp):
    """Appends records to `buffer`, with offset deltas from 0 on. Returns their count and their largest timestamp."""
    cdef int32_t count = 0
    cdef int64_t max_timestamp = -1
    cdef int64_t timestamp
    for item in records:
        stamp, key, value, headers = item
        timestamp = stamp
        append_one(buffer, count, timestamp - base_timestamp, key, value, headers)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        count += 1
    return count, max_timestamp


# --- decode ------------------------------------------------------------------------------------------------------------------------------

cdef object bytes_or_none(Field *field):
    if field.size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>field.data, field.size)


cdef object header_values(Whole *record):
    cdef const uint8_t *cursor = record.headers
    cdef Field field
    cdef int64_t index
    cdef list values = []
    field.size = -1
    field.data = NULL
    for index in range(record.header_count):
        read_field(&cursor, record.end, &field)
        name = PyUnicode_DecodeUTF8(<const char *>field.data, field.size, "replace")
        read_field(&cursor, record.end, &field)
        values.append((name, bytes_or_none(&field)))
    return tuple(values)


def decode_records(body, int32_t count, int64_t base_offset, int64_t base_timestamp, int64_t append_timestamp, timestamp_type):
    """Returns the records of a decompressed batch."""
    cdef Py_buffer view
    cdef const uint8_t *cursor
    cdef const uint8_t *limit
    cdef Whole record
    cdef bint append_time = timestamp_type != 0
    cdef int64_t timestamp
    cdef int32_t index = 0
    cdef int fault = F_NONE
    cdef list records = []
    cdef object value
    cdef object kind = TimestampType(timestamp_type)
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        cursor = <const uint8_t *>view.buf
        limit = cursor + view.len
        while index < count:
            fault = read_record(&cursor, limit, &record)
            if fault:
                break
            timestamp = append_timestamp if append_time else <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
            value = PyType_GenericAlloc(<PyTypeObject *>Record, 6)
            set_item(value, 0, <int64_t>(<uint64_t>base_offset + <uint64_t>record.offset_delta))
            set_item(value, 1, timestamp)
            set_item(value, 2, kind)
            set_item(value, 3, bytes_or_none(&record.key))
            set_item(value, 4, bytes_or_none(&record.value))
            set_item(value, 5, header_values(&record) if record.header_count else ())
            records.append(value)
            index += 1
        if not fault and cursor != limit:
            fault = F_BYTES_LEFT_IN_BATCH
    finally:
        PyBuffer_Release(&view)
    if fault:
        raise_fault(fault, index)
    return records
