# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled record codec: the twin of `_precords.py`, function by function; the docstrings there hold here too. What a record looks like is
drawn in record.py.

Everything that reads bytes from outside goes through `read_number`, `read_field` or the states of `walk`, each of which compares with the end
before it reads; nothing here trusts a length, a count or an Arrow offset. Loops over records make no Python object unless the caller asked for
records, and leave the interpreter lock free where a batch is large enough for another thread to gain by it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from jesenska.records.faults import raise_fault, raise_rejections
from jesenska.records.header import BatchHeader, TimestampType
from jesenska.records.record import Record

cdef extern from "Python.h":
    ctypedef struct PyTypeObject
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t items)

cdef extern from "crc32c.h" nogil:
    void jesenska_crc_prepare()
    uint32_t jesenska_crc32c(const uint8_t *data, size_t size)
    uint32_t jesenska_crc32c_by_tables(const uint8_t *data, size_t size)

jesenska_crc_prepare()

cdef enum:
    NAMED_MAX = 100
    # A batch from this size on is worth letting other threads run meanwhile.
    UNLOCK_BYTES = 16384
    HEADER_BYTES = 61
    FRAME_BYTES = 17
    INT32_MAX_ = 2147483647

cdef enum:
    F_NONE = 0
    F_NUMBER_TOO_LONG = 1
    F_LENGTH_NEGATIVE = 2
    F_FIELD_PASSES_END = 3
    F_BYTES_LEFT_IN_RECORD = 4
    F_FIELD_LENGTH_NEGATIVE = 5
    F_HEADER_COUNT = 6
    F_OFFSET_DELTA = 7
    F_BYTES_LEFT_IN_BATCH = 8
    F_ENDS_TOO_SOON = 9
    F_NO_BATCH = 20
    F_BATCH_LENGTH = 21
    F_MAGIC = 22
    F_MESSAGE_SET = 23
    F_MESSAGE_SET_UNSUPPORTED = 24
    F_ZSTD_TOO_EARLY = 25
    F_SECOND_BATCH = 26
    F_BASE_OFFSET = 27
    F_TOO_LARGE = 28
    F_CRC = 29
    F_RECORD_COUNT = 30
    F_OFFSET_RANGE = 31
    F_CODEC = 32
    F_CONTROL = 33
    F_SEQUENCE = 34

cdef enum:
    R_KEY_MISSING = 1
    R_TIMESTAMP_OUT_OF_RANGE = 2
    R_TIMESTAMP_TYPE = 3

cdef enum:
    S_LENGTH
    S_ATTRIBUTES
    S_TIMESTAMP
    S_OFFSET
    S_KEY_LENGTH
    S_KEY
    S_VALUE_LENGTH
    S_VALUE
    S_HEADERS
    S_NAME_LENGTH
    S_NAME
    S_DATA_LENGTH
    S_DATA


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
    """Reads a record that lies whole before `limit`, its headers too, and moves the cursor past it."""
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
    """Past a record that lies whole in the piece and has no headers and no fault; NULL, with nothing changed, leaves it to the states."""
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
    """Goes through the records of one batch, fed in pieces cut anywhere, and keeps nothing of them."""

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
        """Offset delta and timestamp of the first record that is refused; None while there is none."""
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


# --- the check of a produced batch -------------------------------------------------------------------------------------------------------

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
    """A BatchHeader, made as tuple's own constructor makes it for a subclass."""
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
    """The one batch that `buffer` begins with, checked: frame, header, CRC and, unless it is compressed, its records."""
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
    """Writes largest timestamp and timestamp type with the CRC that follows from them, if they are not there already."""
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
    """CRC32C of `buffer[start:end]`."""
    return _crc32c(buffer, start, end, False)


def crc32c_by_tables(buffer, Py_ssize_t start=0, end=None):
    """The same without the processor's instruction; for tests."""
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


# --- encode ------------------------------------------------------------------------------------------------------------------------------

cdef int put_bytes(bytearray target, const uint8_t *data, Py_ssize_t size) except -1:
    """A length and as many bytes, at the end."""
    cdef Py_ssize_t before = PyByteArray_GET_SIZE(target)
    cdef uint8_t *cursor
    PyByteArray_Resize(target, before + number_size(to_zigzag(size)) + size)
    cursor = put_number(<uint8_t *>PyByteArray_AS_STRING(target) + before, to_zigzag(size))
    memcpy(cursor, data, size)
    return 0


cdef bytearray encode_headers(headers):
    """The headers of a record, without their count."""
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
    """Puts one record at the end of `buffer`."""
    append_one(buffer, offset_delta, timestamp_delta, key, value, headers)


def encode_records(bytearray buffer not None, records, int64_t base_timestamp):
    """Puts records at the end of `buffer` with offset deltas from 0; gives their count and largest timestamp."""
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
    """The records of a decompressed batch."""
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


# --- columns -----------------------------------------------------------------------------------------------------------------------------

cdef class BinaryColumn:
    """Values of a column as Arrow lays them out: `rows + 1` offsets of 32 bits, the bytes in a row, one validity bit for each."""

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
    """Makes the vector longer; the new bytes are zero."""
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
    """Reads every record, so that the second pass may trust the bytes, and adds up what the rows between the offsets take."""
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
    """Fills the columns; gives the number of rows without headers."""
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
    """Gathers the records of batches as columns in Arrow's layout (numbers in the machine's byte order). `key` and `value`, with headers
    also `header_key`, `header_value`, are binary columns; `header_offsets` says which headers belong to which row, null for none."""

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
        """Adds the records whose offsets are from `start` to before `stop`; gives their number. All of the batch's records are read:
        InvalidRecordError where they are not `count` whole ones, then nothing is added. OverflowError where a column would pass 2 GiB."""
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


cdef class Source:
    """A view into the buffers of one Arrow array: bytes (`binary`, offsets of 32 or 64 bits), or whole numbers of 64 bits."""

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
        """Buffers of the array or None, the array's own offset into them and its length."""
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
    """The bytes of a row; 0 where the array's offsets lead out of its data."""
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
    """Encodes rows of Arrow arrays as records: `key`, `value` (Source or None), `header_lists`, `header_structs`, `header_keys`, `header_values`
    (all or none), `timestamps` (ms)."""

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
        """Bytes of a record without its length."""
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
        """How many rows from `row` on fit into `room` bytes (one at least), and what they take exactly."""
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
        """Puts records from `row` on at the end of `buffer`, as many as keep it within `max_bytes` and one at least. Gives their count, the
        first's timestamp and the largest one."""
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


# --- batches of a file -----------------------------------------------------------------------------------------------------------------

cdef enum:
    SCAN_ENTRIES = 2048
    SCAN_EPOCHS = 64
    REMEMBERED_MAX = 16
    SCAN_PRODUCERS = 1024
    SCAN_SLOTS = 4096
    SCAN_KEPT = 4096


cdef class BatchScan:
    """Checks batches that follow one another; the twin in `_pscan.py` says what it gives."""

    cdef readonly int64_t last_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t max_timestamp_offset
    cdef readonly int64_t first_timestamp
    cdef readonly int64_t bytes_since_entry
    cdef int64_t base_offset
    cdef int64_t interval
    cdef int32_t latest_epoch
    cdef int count
    cdef int epoch_count
    cdef int64_t offsets[SCAN_ENTRIES]
    cdef int64_t positions[SCAN_ENTRIES]
    cdef int64_t timestamps[SCAN_ENTRIES]
    cdef int64_t timestamp_offsets[SCAN_ENTRIES]
    cdef int32_t epochs[SCAN_EPOCHS]
    cdef int64_t epoch_offsets[SCAN_EPOCHS]

    def __init__(self, int64_t base_offset, int64_t index_interval_bytes, int32_t latest_epoch):
        self.base_offset = self.max_timestamp_offset = base_offset
        self.last_offset = base_offset - 1
        self.max_timestamp = self.first_timestamp = -1
        self.bytes_since_entry = 0
        self.interval = index_interval_bytes
        self.latest_epoch = latest_epoch
        self.count = self.epoch_count = 0

    def feed(self, buffer, Py_ssize_t start, Py_ssize_t end, int64_t position):
        cdef Py_buffer view
        cdef Py_ssize_t at
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len:
                raise ValueError("the batches are not in the buffer")
            with nogil:
                at = self.run(<const uint8_t *>view.buf, start, end, position - start)
        finally:
            PyBuffer_Release(&view)
        return at - start

    cdef Py_ssize_t run(self, const uint8_t *data, Py_ssize_t at, Py_ssize_t end, int64_t shift) noexcept nogil:
        cdef Header header
        cdef int64_t size, last_offset, position
        while end - at >= HEADER_BYTES and self.count < SCAN_ENTRIES and self.epoch_count < SCAN_EPOCHS:
            load_header(&header, data + at)
            size = <int64_t>header.batch_length + 12
            if header.magic != 2 or size < HEADER_BYTES or size > end - at:
                break
            if header.base_offset <= self.last_offset or header.last_offset_delta < 0:
                break
            if header.base_offset - self.base_offset > INT32_MAX_ - <int64_t>header.last_offset_delta:
                break
            last_offset = header.base_offset + header.last_offset_delta
            if jesenska_crc32c(data + at + 21, <size_t>(size - 21)) != header.crc:
                break
            position = shift + at
            if header.leader_epoch > self.latest_epoch:
                self.latest_epoch = self.epochs[self.epoch_count] = header.leader_epoch
                self.epoch_offsets[self.epoch_count] = header.base_offset
                self.epoch_count += 1
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = last_offset
            if position == 0:
                self.first_timestamp = header.max_timestamp
            if self.bytes_since_entry > self.interval:
                self.offsets[self.count] = last_offset
                self.positions[self.count] = position
                self.timestamps[self.count] = self.max_timestamp
                self.timestamp_offsets[self.count] = self.max_timestamp_offset
                self.count += 1
                self.bytes_since_entry = 0
            self.bytes_since_entry += size
            self.last_offset = last_offset
            at += size
        return at

    def take_entries(self):
        cdef int index
        entries = []
        for index in range(self.count):
            entries.append((self.offsets[index], self.positions[index], self.timestamps[index], self.timestamp_offsets[index]))
        self.count = 0
        return entries

    def take_epochs(self):
        cdef int index
        epochs = []
        for index in range(self.epoch_count):
            epochs.append((self.epochs[index], self.epoch_offsets[index]))
        self.epoch_count = 0
        return epochs


cdef struct Newest:
    int64_t producer
    # A ring.
    int64_t positions[REMEMBERED_MAX]
    uint32_t count
    bint open


cdef class ProducerScan:
    """Where the batches of a file stand that a producers' state must be told of; the twin in `_pscan.py` says which."""

    cdef readonly bint ended
    cdef int remembered
    cdef int kept_count
    cdef int producer_count
    # A batch that is met keeps what stood before it, and itself.
    cdef int64_t kept[SCAN_KEPT + REMEMBERED_MAX]
    cdef Newest newest[SCAN_PRODUCERS]
    # Rows of `newest` by the hash of their producer, one up; 0 is free.
    cdef uint16_t slots[SCAN_SLOTS]

    def __init__(self, int remembered):
        if not 0 < remembered <= REMEMBERED_MAX:
            raise ValueError("so many batches are not remembered")
        self.remembered = remembered
        self.ended = False
        self.clear()

    cdef void clear(self) noexcept:
        self.kept_count = self.producer_count = 0
        memset(self.slots, 0, sizeof(self.slots))

    def feed(self, buffer, Py_ssize_t start, Py_ssize_t end, int64_t position, int64_t end_offset):
        cdef Py_buffer view
        cdef Py_ssize_t at
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len:
                raise ValueError("the batches are not in the buffer")
            with nogil:
                at = self.run(<const uint8_t *>view.buf, start, end, position - start, end_offset)
        finally:
            PyBuffer_Release(&view)
        return at - start

    cdef Py_ssize_t run(self, const uint8_t *data, Py_ssize_t at, Py_ssize_t end, int64_t shift, int64_t end_offset) noexcept nogil:
        cdef int64_t size, producer_id
        cdef Newest *newest
        while end - at >= HEADER_BYTES and self.kept_count < SCAN_KEPT:
            size = <int64_t><int32_t>big_endian(data + at + 8, 4) + 12
            if size < HEADER_BYTES:
                break
            if <int64_t>big_endian(data + at, 8) >= end_offset:
                self.ended = True
                break
            producer_id = <int64_t>big_endian(data + at + 43, 8)
            if producer_id >= 0:
                newest = self.row_of(producer_id)
                if newest == NULL:
                    break
                self.note(newest, shift + at, <int16_t>big_endian(data + at + 21, 2))
            at += size
        return at

    cdef Newest *row_of(self, int64_t producer_id) noexcept nogil:
        """The row of a producer, made where there is none; NULL where there is no room for it."""
        cdef uint32_t slot = <uint32_t>((<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15) >> 40) % SCAN_SLOTS
        cdef Newest *row
        while self.slots[slot]:
            row = &self.newest[self.slots[slot] - 1]
            if row.producer == producer_id:
                return row
            slot = (slot + 1) % SCAN_SLOTS
        if self.producer_count == SCAN_PRODUCERS:
            return NULL
        row = &self.newest[self.producer_count]
        self.producer_count += 1
        self.slots[slot] = <uint16_t>self.producer_count
        row.producer = producer_id
        row.count = 0
        row.open = False
        return row

    cdef void note(self, Newest *newest, int64_t position, int16_t attributes) noexcept nogil:
        if attributes & 0x20:
            self.keep_newest(newest)
            newest.open = False
        elif not attributes & 0x10 or newest.open:
            newest.positions[newest.count % <uint32_t>self.remembered] = position
            newest.count += 1
            return
        else:
            newest.open = True
        self.kept[self.kept_count] = position
        self.kept_count += 1

    cdef void keep_newest(self, Newest *newest) noexcept nogil:
        cdef uint32_t remembered = <uint32_t>self.remembered
        cdef uint32_t index
        for index in range(newest.count - remembered if newest.count > remembered else 0, newest.count):
            self.kept[self.kept_count] = newest.positions[index % remembered]
            self.kept_count += 1
        newest.count = 0

    def take(self):
        cdef list taken = []
        cdef uint32_t remembered = <uint32_t>self.remembered
        cdef uint32_t count, place
        cdef int index
        for index in range(self.kept_count):
            taken.append(self.kept[index])
        for index in range(self.producer_count):
            count = self.newest[index].count
            for place in range(count if count < remembered else remembered):
                taken.append(self.newest[index].positions[place])
        self.clear()
        taken.sort()
        return taken


# --- message sets ------------------------------------------------------------------------------------------------------------------------

include "_messages.pxi"
