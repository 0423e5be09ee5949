# Message sets converted into records and back: the twin of `_pmessages.py`; the docstrings there also apply here. A part
# of `_crecords.pyx`.

cdef extern from "crc32.h" nogil:
    void jesenska_crc32_prepare()
    uint32_t jesenska_crc32(const uint8_t *data, size_t size)
    uint32_t jesenska_crc32_by_tables(const uint8_t *data, size_t size)

jesenska_crc32_prepare()


def crc32(buffer, bint by_tables=False):
    """Returns the CRC-32 of `buffer`, as messages have it. With `by_tables` it is computed without the processor's CRC
    instructions. For tests."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        return jesenska_crc32_by_tables(<const uint8_t *>view.buf, view.len) if by_tables else jesenska_crc32(<const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef enum:
    M_OVERHEAD = 12
    M_CRC = 12
    M_MAGIC = 16
    M_FIELDS = 18

cdef enum:
    F_MESSAGE_MAGIC = 10
    F_MESSAGE_COMPRESSED = 11


cdef struct OldMessage:
    int magic
    int attributes
    int64_t timestamp
    Field key
    Field value


cdef inline int read_message_field(const uint8_t **cursor, const uint8_t *end, Field *field) noexcept nogil:
    if end - cursor[0] < 4:
        return F_FIELD_PASSES_END
    field.size = <int32_t>big_endian(cursor[0], 4)
    cursor[0] += 4
    field.data = cursor[0]
    if field.size < 0:
        return F_NONE if field.size == -1 else F_FIELD_LENGTH_NEGATIVE
    if field.size > end - cursor[0]:
        return F_FIELD_PASSES_END
    cursor[0] += field.size
    return F_NONE


cdef int read_message(const uint8_t **cursor, const uint8_t *limit, OldMessage *message, bint *whole, bint verify) noexcept nogil:
    """Reads the message at the cursor and moves the cursor past it. If the message is incomplete, sets `whole` to
    false and leaves the cursor. With `verify` the CRC is checked. Returns the fault, or F_NONE."""
    cdef const uint8_t *data = cursor[0]
    cdef const uint8_t *end
    cdef int64_t size
    cdef int fault
    whole[0] = False
    if limit - data < M_FIELDS:
        return F_NONE
    size = <int32_t>big_endian(data + 8, 4)
    message.magic = <int8_t>data[M_MAGIC]
    if message.magic != 0 and message.magic != 1:
        return F_MAGIC
    if size < (22 if message.magic else 14):
        return F_BATCH_LENGTH
    if size > limit - data - M_OVERHEAD:
        return F_NONE
    end = data + M_OVERHEAD + size
    if verify and jesenska_crc32(data + M_MAGIC, end - data - M_MAGIC) != <uint32_t>big_endian(data + M_CRC, 4):
        return F_CRC
    message.attributes = data[M_MAGIC + 1]
    data += M_FIELDS
    message.timestamp = -1
    if message.magic:
        message.timestamp = <int64_t>big_endian(data, 8)
        data += 8
    fault = read_message_field(&data, end, &message.key)
    if fault:
        return fault
    fault = read_message_field(&data, end, &message.value)
    if fault:
        return fault
    if data != end:
        return F_BYTES_LEFT_IN_RECORD
    cursor[0] = end
    whole[0] = True
    return F_NONE


cdef inline int64_t record_length(OldMessage *message, int64_t timestamp_delta, int64_t offset_delta) noexcept nogil:
    """Returns the size of the record made from a message, without its length field. The record has no headers."""
    cdef int64_t length = 2 + number_size(to_zigzag(timestamp_delta)) + number_size(to_zigzag(offset_delta))
    length += number_size(to_zigzag(message.key.size)) + number_size(to_zigzag(message.value.size))
    if message.key.size > 0:
        length += message.key.size
    if message.value.size > 0:
        length += message.value.size
    return length


cdef inline uint8_t *put_field(uint8_t *cursor, Field *field) noexcept nogil:
    cursor = put_number(cursor, to_zigzag(field.size))
    if field.size > 0:
        memcpy(cursor, field.data, field.size)
        cursor += field.size
    return cursor


def messages_to_records(bytearray out not None, data, int magic, int64_t max_message_bytes, bint key_required, bint check_times, int64_t earliest, int64_t latest, append_timestamp=None):
    cdef bint has_append_time = append_timestamp is not None
    cdef int64_t append_time = append_timestamp if has_append_time else 0
    cdef Py_buffer view
    cdef const uint8_t *cursor
    cdef const uint8_t *limit
    cdef const uint8_t *start
    cdef OldMessage message
    cdef bint whole
    cdef int fault = F_NONE
    cdef int32_t count = 0
    cdef int64_t base = 0
    cdef int64_t largest = -1
    cdef int64_t total = 0
    cdef int64_t delta, length, index
    cdef int rejection
    cdef int64_t rejected = 0
    cdef int64_t named_index[NAMED_MAX]
    cdef int named_kind[NAMED_MAX]
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(out)
    cdef uint8_t *target
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        limit = <const uint8_t *>view.buf + view.len
        with nogil:
            start = cursor = <const uint8_t *>view.buf
            while True:
                fault = read_message(&cursor, limit, &message, &whole, True)
                if fault or not whole:
                    break
                if max_message_bytes >= 0 and cursor - start > max_message_bytes:
                    fault = F_TOO_LARGE
                    break
                start = cursor
                if message.magic != magic:
                    fault = F_MESSAGE_MAGIC
                    break
                if message.attributes & 7:
                    fault = F_MESSAGE_COMPRESSED
                    break
                if has_append_time:
                    message.timestamp = append_time
                if count == 0:
                    base = message.timestamp
                rejection = 0
                if key_required and message.key.size < 0:
                    rejection = R_KEY_MISSING
                elif check_times and message.timestamp != -1 and (message.timestamp < earliest or message.timestamp > latest):
                    rejection = R_TIMESTAMP_OUT_OF_RANGE
                if rejection:
                    if rejected < NAMED_MAX:
                        named_index[rejected] = count
                        named_kind[rejected] = rejection
                    rejected += 1
                length = record_length(&message, <int64_t>(<uint64_t>message.timestamp - <uint64_t>base), count)
                total += length + number_size(to_zigzag(length))
                if message.timestamp > largest:
                    largest = message.timestamp
                count += 1
            if not fault and cursor != limit and max_message_bytes < 0:
                fault = F_ENDS_TOO_SOON
        if fault:
            raise_fault(fault, count)
        if rejected:
            raise_rejections([(named_index[place], named_kind[place]) for place in range(min(rejected, NAMED_MAX))], rejected)
        PyByteArray_Resize(out, before + total)
        target = <uint8_t *>PyByteArray_AS_STRING(out) + before
        with nogil:
            cursor = <const uint8_t *>view.buf
            for index in range(count):
                # Read a second time, so the bytes must not change meanwhile; they belong to the request.
                read_message(&cursor, limit, &message, &whole, False)
                if has_append_time:
                    message.timestamp = append_time
                delta = <int64_t>(<uint64_t>message.timestamp - <uint64_t>base)
                target = put_number(target, to_zigzag(record_length(&message, delta, index)))
                target[0] = 0
                target = put_number(target + 1, to_zigzag(delta))
                target = put_number(target, to_zigzag(index))
                target = put_field(target, &message.key)
                target = put_field(target, &message.value)
                target[0] = 0
                target += 1
    finally:
        PyBuffer_Release(&view)
    return count, base, largest


cdef inline int64_t message_size(int magic, Field *key, Field *value) noexcept nogil:
    cdef int64_t size = M_OVERHEAD + (22 if magic else 14)
    if key.size > 0:
        size += key.size
    if value.size > 0:
        size += value.size
    return size


cdef inline uint8_t *put_message_field(uint8_t *target, Field *field) noexcept nogil:
    put_big_endian(target, <uint64_t>field.size, 4)
    target += 4
    if field.size > 0:
        memcpy(target, field.data, field.size)
        target += field.size
    return target


cdef uint8_t *put_message(uint8_t *target, int64_t offset, int magic, int attributes, int64_t timestamp, Field *key, Field *value) noexcept nogil:
    cdef int64_t size = message_size(magic, key, value)
    cdef uint8_t *cursor = target + M_FIELDS
    put_big_endian(target, <uint64_t>offset, 8)
    put_big_endian(target + 8, <uint64_t>(size - M_OVERHEAD), 4)
    target[M_MAGIC] = <uint8_t>magic
    target[M_MAGIC + 1] = <uint8_t>attributes
    if magic:
        put_big_endian(cursor, <uint64_t>timestamp, 8)
        cursor += 8
    cursor = put_message_field(cursor, key)
    cursor = put_message_field(cursor, value)
    put_big_endian(target + M_CRC, jesenska_crc32(target + M_MAGIC, size - M_MAGIC), 4)
    return cursor


cdef inline void lengthen(bytearray out, Py_ssize_t size):
    """Enlarges the buffer to `size` bytes if it is smaller. A larger buffer keeps its size, so that its memory can
    be used again."""
    if size > PyByteArray_GET_SIZE(out):
        PyByteArray_Resize(out, size)


def append_message(bytearray out not None, int64_t offset, int magic, int attributes, int64_t timestamp, key, value, Py_ssize_t at=-1):
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(out) if at < 0 else at
    cdef Py_ssize_t end
    cdef bytes key_bytes = None if key is None else bytes(key)
    cdef bytes value_bytes = None if value is None else bytes(value)
    cdef Field key_field, value_field
    key_field.size = value_field.size = -1
    key_field.data = value_field.data = NULL
    if key_bytes is not None:
        key_field.data, key_field.size = <const uint8_t *>PyBytes_AS_STRING(key_bytes), PyBytes_GET_SIZE(key_bytes)
    if value_bytes is not None:
        value_field.data, value_field.size = <const uint8_t *>PyBytes_AS_STRING(value_bytes), PyBytes_GET_SIZE(value_bytes)
    if before > PyByteArray_GET_SIZE(out):
        raise ValueError("a message cannot be written after the end of the buffer")
    end = before + message_size(magic, &key_field, &value_field)
    lengthen(out, end)
    put_message(<uint8_t *>PyByteArray_AS_STRING(out) + before, offset, magic, attributes, timestamp, &key_field, &value_field)
    return end


cdef struct Written:
    int64_t count
    int64_t last
    int64_t largest


cdef int measure_messages(
    const uint8_t *cursor, const uint8_t *limit, int32_t count, int64_t base_offset, int magic, int64_t first_offset, int64_t *total, int32_t *index
) noexcept nogil:
    """Checks that there are exactly `count` records. Adds to `total` the size of the messages made from those at or
    after `first_offset`. Returns the fault, or F_NONE; `index` is the number of the faulty record."""
    cdef Whole record
    cdef int fault
    index[0] = 0
    while index[0] < count:
        fault = read_record(&cursor, limit, &record)
        if fault:
            return fault
        if <int64_t>(<uint64_t>base_offset + <uint64_t>record.offset_delta) >= first_offset:
            total[0] += message_size(magic, &record.key, &record.value)
        index[0] += 1
    return F_NONE if cursor == limit else F_BYTES_LEFT_IN_BATCH


cdef uint8_t *put_messages(
    uint8_t *target,
    const uint8_t *cursor,
    const uint8_t *limit,
    int32_t count,
    int64_t base_offset,
    int64_t base_timestamp,
    int64_t append_timestamp,
    int magic,
    int64_t relative_to,
    int64_t first_offset,
    Written *written,
) noexcept nogil:
    """Writes records that `measure_messages` has checked as messages. Returns the position after the last message."""
    cdef Whole record
    cdef bint append_time = append_timestamp != -1
    cdef int attributes = 8 if append_time and magic else 0
    cdef int32_t index
    cdef int64_t offset, timestamp
    for index in range(count):
        read_record(&cursor, limit, &record)
        offset = <int64_t>(<uint64_t>base_offset + <uint64_t>record.offset_delta)
        if offset < first_offset:
            continue
        timestamp = append_timestamp if append_time else <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
        target = put_message(target, offset - relative_to, magic, attributes, timestamp, &record.key, &record.value)
        written.count += 1
        written.last = offset
        if timestamp > written.largest:
            written.largest = timestamp
    return target


def records_to_messages(
    bytearray out not None,
    body,
    int32_t count,
    int64_t base_offset,
    int64_t base_timestamp,
    int64_t append_timestamp,
    int magic,
    int64_t relative_to,
    int64_t first_offset,
):
    cdef Py_buffer view
    cdef const uint8_t *cursor
    cdef const uint8_t *limit
    cdef int fault
    cdef int32_t index
    cdef int64_t total = 0
    cdef Written written
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(out)
    cdef uint8_t *target
    written.count, written.last, written.largest = 0, -1, -1
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        cursor = <const uint8_t *>view.buf
        limit = cursor + view.len
        with nogil:
            fault = measure_messages(cursor, limit, count, base_offset, magic, first_offset, &total, &index)
        if fault:
            raise_fault(fault, index)
        PyByteArray_Resize(out, before + total)
        target = <uint8_t *>PyByteArray_AS_STRING(out) + before
        with nogil:
            put_messages(target, cursor, limit, count, base_offset, base_timestamp, append_timestamp, magic, relative_to, first_offset, &written)
    finally:
        PyBuffer_Release(&view)
    return written.count, written.last, written.largest


cdef enum:
    B_HEADER = 61
    B_LENGTH = 8
    B_MAGIC = 16
    B_ATTRIBUTES = 21
    B_BASE_TIMESTAMP = 27
    B_MAX_TIMESTAMP = 35
    B_COUNT = 57
    B_NOT_PLAIN = 0x27  # a codec, or control
    B_APPEND_TIME = 8


cdef int64_t plain_batch_size(const uint8_t *data, int64_t left) noexcept nogil:
    """Returns the size of the batch at `data`. Returns 0 if the batch is incomplete, compressed, a control batch or
    empty."""
    cdef int64_t size
    if left < B_HEADER or data[B_MAGIC] != 2 or data[B_ATTRIBUTES + 1] & B_NOT_PLAIN:
        return 0
    size = <int64_t><int32_t>big_endian(data + B_LENGTH, 4) + M_OVERHEAD
    if size < B_HEADER or size > left or <int32_t>big_endian(data + B_COUNT, 4) <= 0:
        return 0
    return size


def plain_batches_to_messages(bytearray out not None, data, Py_ssize_t position, int magic, int64_t first_offset, Py_ssize_t at):
    cdef Py_buffer view
    cdef const uint8_t *batch
    cdef const uint8_t *begin
    cdef const uint8_t *end
    cdef int64_t size, base_offset
    cdef int64_t total = 0, measured
    cdef int32_t index
    cdef Written written
    cdef uint8_t *target
    written.count, written.last, written.largest = 0, -1, -1
    if at < 0 or at > PyByteArray_GET_SIZE(out):
        raise ValueError("messages cannot be written after the end of the buffer")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if position < 0 or position > view.len:
            raise ValueError("the position is not in the data")
        begin = batch = <const uint8_t *>view.buf + position
        end = <const uint8_t *>view.buf + view.len
        with nogil:
            while True:
                size = plain_batch_size(batch, end - batch)
                if not size:
                    break
                measured = total
                base_offset = <int64_t>big_endian(batch, 8)
                if measure_messages(
                    batch + B_HEADER, batch + size, <int32_t>big_endian(batch + B_COUNT, 4), base_offset, magic, first_offset, &measured, &index
                ):
                    break
                total = measured
                batch += size
        if batch != begin:
            lengthen(out, at + total)
            target = <uint8_t *>PyByteArray_AS_STRING(out) + at
            end = batch
            with nogil:
                batch = begin
                while batch != end:
                    # Read a second time, so the bytes must not change meanwhile; they belong to the caller.
                    size = plain_batch_size(batch, end - batch)
                    target = put_messages(
                        target,
                        batch + B_HEADER,
                        batch + size,
                        <int32_t>big_endian(batch + B_COUNT, 4),
                        <int64_t>big_endian(batch, 8),
                        <int64_t>big_endian(batch + B_BASE_TIMESTAMP, 8),
                        <int64_t>big_endian(batch + B_MAX_TIMESTAMP, 8) if batch[B_ATTRIBUTES + 1] & B_APPEND_TIME else -1,
                        magic,
                        0,
                        first_offset,
                        &written,
                    )
                    batch += size
        return batch - <const uint8_t *>view.buf, at + total
    finally:
        PyBuffer_Release(&view)
