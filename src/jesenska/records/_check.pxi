# The check of a produced batch, and CRC-32C: the twin of the functions with these names in `_precords.py`. The
# docstrings there also apply here. A part of `_crecords.pyx`.

cdef struct Header:
    int64_t base_offset
    int32_t batch_length
    int32_t leader_epoch
    int8_t magic
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t record_count


cdef inline void load_header(Header *header, const uint8_t *data) noexcept nogil:
    header.base_offset = <int64_t>big_endian(data, 8)
    header.batch_length = <int32_t>big_endian(data + 8, 4)
    header.leader_epoch = <int32_t>big_endian(data + 12, 4)
    header.magic = <int8_t>data[16]
    header.crc = <uint32_t>big_endian(data + 17, 4)
    header.attributes = <int16_t>big_endian(data + 21, 2)
    header.last_offset_delta = <int32_t>big_endian(data + 23, 4)
    header.base_timestamp = <int64_t>big_endian(data + 27, 8)
    header.max_timestamp = <int64_t>big_endian(data + 35, 8)
    header.producer_id = <int64_t>big_endian(data + 43, 8)
    header.producer_epoch = <int16_t>big_endian(data + 51, 2)
    header.base_sequence = <int32_t>big_endian(data + 53, 4)
    header.record_count = <int32_t>big_endian(data + 57, 4)


cdef inline void set_item(object target, Py_ssize_t index, object item) noexcept:
    Py_INCREF(item)
    PyTuple_SET_ITEM(target, index, item)


cdef object header_value(Header *header):
    """Returns the header as a BatchHeader. It is allocated directly, without a call of the Python constructor."""
    cdef object value = PyType_GenericAlloc(<PyTypeObject *>BatchHeader, 13)
    set_item(value, 0, header.base_offset)
    set_item(value, 1, header.batch_length)
    set_item(value, 2, header.leader_epoch)
    set_item(value, 3, header.magic)
    set_item(value, 4, header.crc)
    set_item(value, 5, header.attributes)
    set_item(value, 6, header.last_offset_delta)
    set_item(value, 7, header.base_timestamp)
    set_item(value, 8, header.max_timestamp)
    set_item(value, 9, header.producer_id)
    set_item(value, 10, header.producer_epoch)
    set_item(value, 11, header.base_sequence)
    set_item(value, 12, header.record_count)
    return value


cdef inline int frame_fault(const uint8_t *data, int64_t *size) noexcept nogil:
    cdef int32_t length = <int32_t>big_endian(data + 8, 4)
    if length < 14:
        return F_BATCH_LENGTH
    if data[16] > 2:
        return F_MAGIC
    size[0] = <int64_t>length + 12
    return F_NONE


cdef int frame_and_header(
    const uint8_t *data, int64_t available, int produce_version, int64_t max_message_bytes, Header *header
) noexcept nogil:
    cdef int64_t size = 0
    cdef int64_t next_size = 0
    cdef int fault
    if available < FRAME_BYTES:
        return F_NO_BATCH
    fault = frame_fault(data, &size)
    if fault:
        return fault
    if size > available:
        return F_NO_BATCH
    if data[16] < 2:
        return F_MESSAGE_SET if produce_version >= 3 else F_MESSAGE_SET_UNSUPPORTED
    if size < HEADER_BYTES:
        return F_BATCH_LENGTH
    load_header(header, data)
    header.batch_length = <int32_t>(size - 12)
    if produce_version < 7 and header.attributes & 7 == 4:
        return F_ZSTD_TOO_EARLY
    if available - size >= FRAME_BYTES:
        fault = frame_fault(data + size, &next_size)
        if fault:
            return fault
        if next_size <= available - size:
            return F_SECOND_BATCH
    if header.base_offset != 0:
        return F_BASE_OFFSET
    if size > max_message_bytes:
        return F_TOO_LARGE
    if jesenska_crc32c(data + 21, size - 21) != header.crc:
        return F_CRC
    if header.record_count <= 0:
        return F_RECORD_COUNT
    if header.last_offset_delta != header.record_count - 1:
        return F_OFFSET_RANGE
    if header.attributes & 7 > 4:
        return F_CODEC
    if header.attributes & 0x20:
        return F_CONTROL
    if header.producer_id > -1 and header.base_sequence < 0:
        return F_SEQUENCE
    return F_NONE


cdef int check_all(
    const uint8_t *data,
    int64_t available,
    int produce_version,
    int64_t max_message_bytes,
    bint key_required,
    bint log_append_time,
    int64_t earliest,
    int64_t latest,
    Header *header,
    Walk *walk,
) noexcept nogil:
    cdef int fault = frame_and_header(data, available, produce_version, max_message_bytes, header)
    if fault or header.attributes & 7:
        return fault
    begin_walk(
        walk, header.record_count, header.base_timestamp, key_required, not log_append_time, header.attributes & 8 != 0, earliest, latest
    )
    fault = walk_piece(walk, data + HEADER_BYTES, data + 12 + header.batch_length)
    if fault:
        return fault
    return walk_end(walk)


cdef void write_max_timestamp(uint8_t *data, Header *header, int64_t max_timestamp, int16_t attributes) noexcept nogil:
    header.max_timestamp = max_timestamp
    header.attributes = attributes
    put_big_endian(data + 21, <uint64_t>attributes, 2)
    put_big_endian(data + 35, <uint64_t>max_timestamp, 8)
    header.crc = jesenska_crc32c(data + 21, header.batch_length + 12 - 21)
    put_big_endian(data + 17, header.crc, 4)


def check_batch(
    buffer,
    int produce_version,
    int64_t max_message_bytes,
    bint key_required,
    bint log_append_time,
    int64_t earliest,
    int64_t latest,
):
    """Checks the batch at the beginning of `buffer`, which must be the only one, and returns its header. Checks the
    length, the header, the CRC and, if the batch is not compressed, the records. Corrects a wrong largest timestamp or
    timestamp type in the buffer."""
    cdef Py_buffer view
    cdef Header header
    cdef Walk walk
    cdef int fault
    cdef int16_t attributes
    cdef uint8_t *data
    walk.index = 0
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        data = <uint8_t *>view.buf
        if view.len >= UNLOCK_BYTES:
            with nogil:
                fault = check_all(
                    data, view.len, produce_version, max_message_bytes, key_required, log_append_time, earliest, latest, &header, &walk
                )
        else:
            fault = check_all(
                data, view.len, produce_version, max_message_bytes, key_required, log_append_time, earliest, latest, &header, &walk
            )
        if not fault and not header.attributes & 7 and not walk.rejected and not log_append_time:
            attributes = header.attributes & ~8
            if attributes != header.attributes or walk.max_timestamp != header.max_timestamp:
                if view.readonly:
                    raise TypeError("the batch must be put right, and its buffer is read-only")
                write_max_timestamp(data, &header, walk.max_timestamp, attributes)
    finally:
        PyBuffer_Release(&view)
    if fault:
        raise_fault(fault, walk.index)
    if not header.attributes & 7 and walk.rejected:
        refuse_rejected(&walk)
    return header_value(&header)


def set_max_timestamp(buffer, Py_ssize_t position, header, int64_t max_timestamp, bint append_time):
    """Writes the largest timestamp and the timestamp type into a batch, with the new CRC, if they differ from the
    header. Returns the new header."""
    cdef Py_buffer view
    cdef Header loaded
    cdef int16_t attributes = header.attributes
    cdef int16_t wanted = attributes | 8 if append_time else attributes & ~8
    if attributes == wanted and header.max_timestamp == max_timestamp:
        return header
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        if position < 0 or view.len - position < HEADER_BYTES:
            raise ValueError("there is no batch header at this position")
        load_header(&loaded, <uint8_t *>view.buf + position)
        if loaded.batch_length < HEADER_BYTES - 12 or loaded.batch_length + <int64_t>12 > view.len - position:
            raise ValueError("the batch at this position is not whole")
        with nogil:
            write_max_timestamp(<uint8_t *>view.buf + position, &loaded, max_timestamp, wanted)
    finally:
        PyBuffer_Release(&view)
    return header_value(&loaded)


def crc32c(buffer, Py_ssize_t start=0, end=None):
    """Returns the CRC32C of `buffer[start:end]`."""
    return _crc32c(buffer, start, end, False)


def crc32c_by_tables(buffer, Py_ssize_t start=0, end=None):
    """Returns the CRC32C of `buffer[start:end]`, computed without the processor's CRC instruction. For tests."""
    return _crc32c(buffer, start, end, True)


cdef object _crc32c(buffer, Py_ssize_t start, end, bint by_tables):
    cdef Py_buffer view
    cdef uint32_t crc
    cdef Py_ssize_t stop
    cdef const uint8_t *data
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        stop = view.len if end is None else end
        if stop > view.len:
            stop = view.len
        if start < 0 or stop < 0:
            raise ValueError("start and end count from the front")
        if start > stop:
            start = stop
        data = <const uint8_t *>view.buf + start
        if by_tables:
            crc = jesenska_crc32c_by_tables(data, stop - start)
        elif stop - start >= UNLOCK_BYTES:
            with nogil:
                crc = jesenska_crc32c(data, stop - start)
        else:
            crc = jesenska_crc32c(data, stop - start)
    finally:
        PyBuffer_Release(&view)
    return crc
