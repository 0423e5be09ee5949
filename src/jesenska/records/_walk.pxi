# Reads records: numbers, fields, one complete record, and the walker, which reads the records of a batch in pieces.
# The twin of `Walker` in `_precords.py`. The docstrings there also apply here. A part of `_crecords.pyx`.

# --- numbers --------------------------------------------------------------------------------------------------------------------------

cdef inline uint64_t big_endian(const uint8_t *data, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int index
    for index in range(size):
        value = value << 8 | data[index]
    return value


cdef inline void put_big_endian(uint8_t *data, uint64_t value, int size) noexcept nogil:
    cdef int index
    for index in range(size):
        data[size - 1 - index] = <uint8_t>(value & 0xFF)
        value >>= 8


cdef inline int64_t zigzag(uint64_t number) noexcept nogil:
    return <int64_t>((number >> 1) ^ (~(number & 1) + 1))


cdef inline int number_size(uint64_t zigzagged) noexcept nogil:
    cdef int size = 1
    while zigzagged > 0x7F:
        zigzagged >>= 7
        size += 1
    return size


cdef inline uint64_t to_zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ (~(<uint64_t>number >> 63) + 1)


cdef inline uint8_t *put_number(uint8_t *data, uint64_t zigzagged) noexcept nogil:
    while zigzagged > 0x7F:
        data[0] = <uint8_t>(zigzagged & 0x7F | 0x80)
        data += 1
        zigzagged >>= 7
    data[0] = <uint8_t>zigzagged
    return data + 1


cdef inline int read_number(const uint8_t **cursor, const uint8_t *end, int bits, int64_t *number) noexcept nogil:
    cdef const uint8_t *data = cursor[0]
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int shift = 0
    cdef int limit = 70 if bits == 64 else 35
    while True:
        if data >= end:
            return F_FIELD_PASSES_END
        byte = data[0]
        data += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= limit:
            return F_NUMBER_TOO_LONG
    cursor[0] = data
    if bits == 32:
        value &= 0xFFFFFFFFu
    number[0] = zigzag(value)
    return F_NONE


cdef struct Field:
    const uint8_t *data
    int64_t size  # -1: null


cdef inline int read_field(const uint8_t **cursor, const uint8_t *end, Field *field) noexcept nogil:
    cdef int64_t size = 0
    cdef int fault = read_number(cursor, end, 32, &size)
    if fault:
        return fault
    field.size = size
    field.data = cursor[0]
    if size < 0:
        return F_NONE if size == -1 else F_FIELD_LENGTH_NEGATIVE
    if size > end - cursor[0]:
        return F_FIELD_PASSES_END
    cursor[0] += size
    return F_NONE


# --- one whole record ------------------------------------------------------------------------------------------------------------------

cdef struct Whole:
    int64_t timestamp_delta
    int64_t offset_delta
    Field key
    Field value
    int64_t header_count
    const uint8_t *headers
    const uint8_t *end


cdef int read_record(const uint8_t **cursor, const uint8_t *limit, Whole *record) noexcept nogil:
    """Reads and checks the record at the cursor, with its headers, and moves the cursor past it. The record must end
    at or before `limit`. Returns the fault, or F_NONE."""
    cdef int fault
    cdef int64_t length = 0
    cdef int64_t index
    cdef Field field
    cdef const uint8_t *end
    if cursor[0] >= limit:
        return F_ENDS_TOO_SOON
    fault = read_number(cursor, limit, 32, &length)
    if fault:
        return fault
    if length < 0:
        return F_LENGTH_NEGATIVE
    if length > limit - cursor[0]:
        return F_ENDS_TOO_SOON
    if length == 0:
        return F_FIELD_PASSES_END
    end = cursor[0] + length
    record.end = end
    cursor[0] += 1
    fault = read_number(cursor, end, 64, &record.timestamp_delta)
    if fault:
        return fault
    fault = read_number(cursor, end, 32, &record.offset_delta)
    if fault:
        return fault
    fault = read_field(cursor, end, &record.key)
    if fault:
        return fault
    fault = read_field(cursor, end, &record.value)
    if fault:
        return fault
    fault = read_number(cursor, end, 32, &record.header_count)
    if fault:
        return fault
    if record.header_count < 0 or record.header_count > (end - cursor[0]) // 2:
        return F_HEADER_COUNT
    record.headers = cursor[0]
    for index in range(record.header_count):
        fault = read_field(cursor, end, &field)
        if fault:
            return fault
        if field.size < 0:
            return F_FIELD_LENGTH_NEGATIVE
        fault = read_field(cursor, end, &field)
        if fault:
            return fault
    if cursor[0] != end:
        return F_BYTES_LEFT_IN_RECORD
    return F_NONE


# --- the walker ------------------------------------------------------------------------------------------------------------------------

cdef struct Walk:
    int state
    int shift
    bint no_key
    bint key_required
    bint check_times
    bint append_time_bit
    int32_t count
    int32_t index
    int32_t rejected
    int64_t left
    int64_t skip
    int64_t headers_left
    int64_t timestamp
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t earliest
    int64_t latest
    int64_t from_delta
    int64_t delta
    int64_t first_rejected_delta
    int64_t first_rejected_timestamp
    uint64_t number
    int32_t indexes[NAMED_MAX]
    int8_t kinds[NAMED_MAX]


cdef void begin_walk(
    Walk *walk, int32_t count, int64_t base_timestamp, bint key_required, bint check_times, bint append_time_bit, int64_t earliest, int64_t latest
) noexcept nogil:
    walk.state = S_LENGTH
    walk.shift = 0
    walk.no_key = False
    walk.key_required = key_required
    walk.check_times = check_times
    walk.append_time_bit = append_time_bit
    walk.count = count
    walk.index = 0
    walk.rejected = 0
    walk.left = 0
    walk.skip = 0
    walk.headers_left = 0
    walk.timestamp = 0
    walk.base_timestamp = base_timestamp
    walk.max_timestamp = -1
    walk.earliest = earliest
    walk.latest = latest
    walk.from_delta = -1
    walk.delta = 0
    walk.first_rejected_delta = -1
    walk.first_rejected_timestamp = -1
    walk.number = 0


cdef inline int end_record(Walk *walk, int64_t left) noexcept nogil:
    cdef int rejection = 0
    cdef int64_t timestamp = walk.timestamp
    if left:
        return F_BYTES_LEFT_IN_RECORD
    if walk.key_required and walk.no_key:
        rejection = R_KEY_MISSING
    elif walk.check_times and timestamp != -1:
        if timestamp < walk.earliest or timestamp > walk.latest:
            rejection = R_TIMESTAMP_OUT_OF_RANGE
    elif walk.append_time_bit:
        rejection = R_TIMESTAMP_TYPE
    if rejection and walk.delta >= walk.from_delta:
        if walk.rejected == 0:
            walk.first_rejected_delta = walk.delta
            walk.first_rejected_timestamp = timestamp
        if walk.rejected < NAMED_MAX:
            walk.indexes[walk.rejected] = walk.index
            walk.kinds[walk.rejected] = rejection
        walk.rejected += 1
    if timestamp > walk.max_timestamp:
        walk.max_timestamp = timestamp
    walk.index += 1
    return F_NONE


cdef inline const uint8_t *walk_plain(Walk *walk, const uint8_t *data, const uint8_t *end) noexcept nogil:
    """Reads the next record if it is complete in the piece and has no headers and no fault. Returns the position after
    the record. Otherwise returns NULL and changes nothing; the states of `walk_piece` must then read the record."""
    cdef const uint8_t *cursor = data
    cdef const uint8_t *after
    cdef int64_t size = 0
    cdef int64_t delta = 0
    cdef int64_t number = 0
    cdef bint no_key
    if walk.index == walk.count or read_number(&cursor, end, 32, &size) or size <= 0 or size > end - cursor:
        return NULL
    after = cursor + size
    cursor += 1
    if read_number(&cursor, after, 64, &delta) or read_number(&cursor, after, 32, &number) or (number != walk.index and walk.from_delta < 0):
        return NULL
    if read_number(&cursor, after, 32, &size) or size < -1 or size > after - cursor:
        return NULL
    no_key = size < 0
    if size > 0:
        cursor += size
    if read_number(&cursor, after, 32, &size) or size < -1 or size > after - cursor:
        return NULL
    if size > 0:
        cursor += size
    if after - cursor != 1 or cursor[0] != 0:
        return NULL
    walk.no_key = no_key
    walk.delta = number
    walk.timestamp = <int64_t>(<uint64_t>walk.base_timestamp + <uint64_t>delta)
    end_record(walk, 0)
    return after


cdef int walk_piece(Walk *walk, const uint8_t *data, const uint8_t *end) noexcept nogil:
    cdef int state = walk.state
    cdef int shift = walk.shift
    cdef int64_t left = walk.left
    cdef uint64_t number = walk.number
    cdef int64_t value, taken
    cdef uint8_t byte
    cdef int fault
    cdef const uint8_t *after
    while data < end:
        if state == S_LENGTH and shift == 0:
            after = walk_plain(walk, data, end)
            if after != NULL:
                data = after
                continue
        if state == S_KEY or state == S_VALUE or state == S_NAME or state == S_DATA:
            taken = end - data
            if taken > walk.skip:
                taken = walk.skip
            data += taken
            walk.skip -= taken
            left -= taken
            if walk.skip:
                break
            if state != S_DATA:
                state += 1
                continue
            walk.headers_left -= 1
            if walk.headers_left:
                state = S_NAME_LENGTH
                continue
            fault = end_record(walk, left)
            if fault:
                return fault
            state = S_LENGTH
            continue
        byte = data[0]
        data += 1
        if state == S_LENGTH:
            if walk.index == walk.count:
                return F_BYTES_LEFT_IN_BATCH
        else:
            if left == 0:
                return F_FIELD_PASSES_END
            left -= 1
            if state == S_ATTRIBUTES:
                state = S_TIMESTAMP
                continue
        number |= <uint64_t>(byte & 0x7F) << shift
        if byte >= 0x80:
            shift += 7
            if shift >= (70 if state == S_TIMESTAMP else 35):
                return F_NUMBER_TOO_LONG
            continue
        if state == S_TIMESTAMP:
            walk.timestamp = <int64_t>(<uint64_t>walk.base_timestamp + <uint64_t>zigzag(number))
            state = S_OFFSET
            number = 0
            shift = 0
            continue
        value = zigzag(number & 0xFFFFFFFFu)
        number = 0
        shift = 0
        if state == S_LENGTH:
            if value < 0:
                return F_LENGTH_NEGATIVE
            left = value
            state = S_ATTRIBUTES
        elif state == S_OFFSET:
            if value != walk.index and walk.from_delta < 0:
                return F_OFFSET_DELTA
            walk.delta = value
            state = S_KEY_LENGTH
        elif state == S_HEADERS:
            if value < 0 or value > left // 2:
                return F_HEADER_COUNT
            walk.headers_left = value
            if value:
                state = S_NAME_LENGTH
                continue
            fault = end_record(walk, left)
            if fault:
                return fault
            state = S_LENGTH
        else:
            if value < -1 or (value < 0 and state == S_NAME_LENGTH):
                return F_FIELD_LENGTH_NEGATIVE
            if value > left:
                return F_FIELD_PASSES_END
            if state == S_KEY_LENGTH:
                walk.no_key = value < 0
            if value > 0:
                walk.skip = value
                state += 1
            elif state != S_DATA_LENGTH:
                state += 2
            else:
                walk.headers_left -= 1
                if walk.headers_left:
                    state = S_NAME_LENGTH
                    continue
                fault = end_record(walk, left)
                if fault:
                    return fault
                state = S_LENGTH
    walk.state = state
    walk.shift = shift
    walk.left = left
    walk.number = number
    return F_NONE


cdef inline int walk_end(Walk *walk) noexcept nogil:
    if walk.state != S_LENGTH or walk.shift or walk.index != walk.count:
        return F_ENDS_TOO_SOON
    return F_NONE


cdef int refuse_rejected(Walk *walk) except -1:
    cdef int named = walk.rejected if walk.rejected < NAMED_MAX else NAMED_MAX
    cdef int index
    raise_rejections([(walk.indexes[index], walk.kinds[index]) for index in range(named)], walk.rejected)


cdef class Walker:
    """Checks the records of one batch, which is passed to `feed` in pieces of any size. Stores none of the bytes."""

    cdef Walk walk

    def __init__(
        self,
        int32_t count,
        int64_t base_timestamp,
        bint key_required,
        bint check_times,
        bint append_time_bit,
        int64_t earliest,
        int64_t latest,
        int64_t from_delta=-1,
    ):
        begin_walk(&self.walk, count, base_timestamp, key_required, check_times, append_time_bit, earliest, latest)
        self.walk.from_delta = from_delta

    def feed(self, piece):
        cdef Py_buffer view
        cdef int fault
        cdef const uint8_t *data
        PyObject_GetBuffer(piece, &view, PyBUF_SIMPLE)
        try:
            data = <const uint8_t *>view.buf
            if view.len >= UNLOCK_BYTES:
                with nogil:
                    fault = walk_piece(&self.walk, data, data + view.len)
            else:
                fault = walk_piece(&self.walk, data, data + view.len)
        finally:
            PyBuffer_Release(&view)
        if fault:
            raise_fault(fault, self.walk.index)

    @property
    def first_rejected(self):
        """The offset delta and the timestamp of the first rejected record; None if no record was rejected yet."""
        if not self.walk.rejected:
            return None
        return self.walk.first_rejected_delta, self.walk.first_rejected_timestamp

    def finish(self):
        cdef int fault = walk_end(&self.walk)
        if fault:
            raise_fault(fault, self.walk.index)
        if self.walk.rejected:
            refuse_rejected(&self.walk)
        return self.walk.max_timestamp
