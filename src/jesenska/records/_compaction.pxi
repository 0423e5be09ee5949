# Selects the records that a compaction keeps: the twin of `_pcompaction.py`. The docstrings there also apply here. A
# part of `_crecords.pyx`.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE

cdef extern from "siphash.h" nogil:
    void jesenska_siphash128(const uint64_t *secret, const uint8_t *data, size_t size, uint64_t *hash)
    uint64_t jesenska_place(uint64_t number, uint64_t count)

cdef extern from "zeroed.h" nogil:
    void *jesenska_zeroed(size_t size)
    void jesenska_give_back(void *block, size_t size)
    void jesenska_prefetch(const void *place)

cdef enum:
    # Bits of compressed, transactional and control batches, which the caller must handle.
    SPECIAL_BITS = 0x37
    HORIZON_BIT = 0x40
    # The most bytes by which a record grows if the base timestamp changes: its timestamp delta and its length field may
    # take more bytes.
    RECORD_GROWS_BYTES = 12
    # This many records are read before the first is looked up, so that their slots can be prefetched into the
    # processor's cache.
    AHEAD = 16


cdef struct Slot:
    uint64_t first_half
    uint64_t second_half
    # 0: the slot is free.
    int64_t offset_plus_1


cdef struct Brief:
    const uint8_t *start
    # The start of the offset delta.
    const uint8_t *rest
    const uint8_t *end
    uint8_t attributes
    int64_t timestamp_delta
    int64_t offset_delta
    Field key
    int64_t value_size
    # True if the key is looked up; then also the hash of the key and the first slot of the search.
    bint is_sought
    uint64_t first_half
    uint64_t second_half
    uint64_t place


cdef struct Survivors:
    int64_t kept
    int64_t tombstones
    int64_t max_timestamp
    int64_t written
    int fault
    int64_t faulty_record


cdef inline int read_brief(const uint8_t **cursor, const uint8_t *limit, Brief *record) noexcept nogil:
    cdef int fault
    cdef int64_t length = 0
    cdef Field value
    record.start = cursor[0]
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
    record.end = cursor[0] + length
    record.attributes = cursor[0][0]
    cursor[0] += 1
    fault = read_number(cursor, record.end, 64, &record.timestamp_delta)
    if fault:
        return fault
    record.rest = cursor[0]
    fault = read_number(cursor, record.end, 32, &record.offset_delta)
    if fault:
        return fault
    fault = read_field(cursor, record.end, &record.key)
    if fault:
        return fault
    fault = read_field(cursor, record.end, &value)
    if fault:
        return fault
    record.value_size = value.size
    cursor[0] = record.end
    return F_NONE


cdef inline bint holds(const int64_t *ends, Py_ssize_t count, int64_t offset) noexcept nogil:
    """Returns true if the offset is in the ascending array `ends`."""
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = count
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if ends[middle] < offset:
            low = middle + 1
        else:
            high = middle
    return low < count and ends[low] == offset


cdef class KeyOffsets:
    cdef Slot *slots
    cdef uint64_t slot_count
    cdef readonly int64_t most
    cdef readonly int64_t latest_offset
    cdef readonly bint is_full
    cdef int64_t used
    cdef uint64_t secret[2]

    def __cinit__(self, int64_t slots, int64_t most, bytes secret not None):
        if not 0 < most < slots:
            raise ValueError("a table needs more slots than keys")
        if len(secret) != 16:
            raise ValueError("the secret takes 16 bytes")
        memcpy(self.secret, <const char *>secret, 16)
        self.slot_count = <uint64_t>slots
        self.most = most
        self.latest_offset = -1
        self.slots = <Slot *>jesenska_zeroed(<size_t>slots * sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        jesenska_give_back(self.slots, <size_t>self.slot_count * sizeof(Slot))

    def __len__(self):
        return self.used

    cdef inline void seek(self, Brief *record) noexcept nogil:
        """Computes the hash of the record's key and the slot at which its search begins, and prefetches that slot."""
        cdef uint64_t hash[2]
        jesenska_siphash128(self.secret, record.key.data, <size_t>record.key.size, hash)
        record.first_half = hash[0]
        record.second_half = hash[1]
        record.place = jesenska_place(hash[0], self.slot_count)
        jesenska_prefetch(&self.slots[record.place])

    cdef inline Slot *find(self, Brief *record) noexcept nogil:
        """Returns the slot of the record's key, or the free slot for the key if it is not in the table. `seek` must
        have been called for the record."""
        cdef uint64_t place = record.place
        cdef Slot *slot
        while True:
            slot = &self.slots[place]
            if slot.offset_plus_1 == 0 or (slot.first_half == record.first_half and slot.second_half == record.second_half):
                return slot
            place += 1
            if place == self.slot_count:
                place = 0

    def newest(self, const uint8_t[::1] key not None):
        cdef Brief record
        record.key.data = &key[0] if key.shape[0] else NULL
        record.key.size = key.shape[0]
        self.seek(&record)
        return self.find(&record).offset_plus_1 - 1

    cdef int put(self, const uint8_t *data, int64_t size, int64_t count, int64_t base_offset, int64_t from_offset, int64_t *index) noexcept nogil:
        cdef const uint8_t *cursor = data
        cdef const uint8_t *end = data + size
        cdef Brief records[AHEAD]
        cdef Brief *record
        cdef Slot *slot
        cdef int64_t offset
        cdef int fault = F_NONE
        cdef int ahead, each
        index[0] = 0
        while index[0] < count:
            ahead = 0
            while ahead < AHEAD and index[0] + ahead < count:
                record = &records[ahead]
                fault = read_brief(&cursor, end, record)
                if fault:
                    break
                record.is_sought = record.key.size >= 0 and base_offset + record.offset_delta >= from_offset
                if record.is_sought:
                    self.seek(record)
                ahead += 1
            for each in range(ahead):
                record = &records[each]
                if record.is_sought:
                    slot = self.find(record)
                    if slot.offset_plus_1 == 0:
                        if self.used == self.most:
                            self.is_full = True
                            return F_NONE
                        slot.first_half = record.first_half
                        slot.second_half = record.second_half
                        self.used += 1
                    offset = base_offset + record.offset_delta
                    if offset >= slot.offset_plus_1:
                        slot.offset_plus_1 = offset + 1
                index[0] += 1
            if fault:
                return fault
        return F_NONE if cursor == end else F_BYTES_LEFT_IN_BATCH

    def add_records(self, body, int64_t count, int64_t base_offset, int64_t from_offset):
        cdef Py_buffer view
        cdef int fault
        cdef int64_t index = 0
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                fault = self.put(<const uint8_t *>view.buf, view.len, count, base_offset, from_offset, &index)
        finally:
            PyBuffer_Release(&view)
        if fault:
            raise_fault(fault, index)
        return index

    def note_batch(self, int64_t last_offset):
        self.latest_offset = last_offset

    def add_batches(self, buffer, Py_ssize_t start, Py_ssize_t end, int64_t from_offset):
        cdef Py_buffer view
        cdef Py_ssize_t at = start
        cdef int fault = F_NONE
        cdef int64_t index = 0
        cdef int64_t size
        cdef const uint8_t *data
        cdef Header header
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len:
                raise ValueError("the batches are not in the buffer")
            data = <const uint8_t *>view.buf
            with nogil:
                while end - at >= HEADER_BYTES:
                    load_header(&header, data + at)
                    size = <int64_t>header.batch_length + 12
                    if header.magic != 2 or size < HEADER_BYTES or size > end - at or header.attributes & SPECIAL_BITS:
                        break
                    if header.base_offset + header.last_offset_delta >= from_offset:
                        if jesenska_crc32c(data + at + 21, <size_t>(size - 21)) != header.crc:
                            fault = F_CRC
                            break
                        fault = self.put(data + at + HEADER_BYTES, size - HEADER_BYTES, header.record_count, header.base_offset, from_offset, &index)
                        if fault or self.is_full:
                            break
                    self.latest_offset = header.base_offset + header.last_offset_delta
                    at += size
        finally:
            PyBuffer_Release(&view)
        if fault:
            raise_fault(fault, index)
        return at - start

    cdef Survivors survivors(
        self, const uint8_t *data, int64_t size, int64_t count, int64_t base_offset, int64_t base_timestamp, bint drops_tombstones, int64_t new_base, uint8_t *target
    ) noexcept nogil:
        """Writes the records that the compaction keeps to `target`, with timestamps relative to `new_base`."""
        cdef const uint8_t *cursor = data
        cdef const uint8_t *end = data + size
        cdef uint8_t *begun = target
        cdef Survivors outcome
        cdef Brief records[AHEAD]
        cdef Brief *record
        cdef uint64_t delta
        cdef int64_t offset, timestamp, length
        cdef int64_t index = 0
        cdef int ahead, each
        cdef bint is_dropped
        outcome.kept = outcome.tombstones = outcome.written = 0
        outcome.max_timestamp = outcome.faulty_record = -1
        outcome.fault = F_NONE
        while index < count:
            ahead = 0
            while ahead < AHEAD and index + ahead < count:
                record = &records[ahead]
                outcome.fault = read_brief(&cursor, end, record)
                if outcome.fault:
                    outcome.faulty_record = index + ahead
                    return outcome
                record.is_sought = (
                    base_offset + record.offset_delta <= self.latest_offset
                    and record.key.size >= 0
                    and not (record.value_size < 0 and drops_tombstones)
                )
                if record.is_sought:
                    self.seek(record)
                ahead += 1
            index += ahead
            for each in range(ahead):
                record = &records[each]
                offset = base_offset + record.offset_delta
                if record.is_sought:
                    is_dropped = offset < self.find(record).offset_plus_1 - 1
                else:
                    is_dropped = offset <= self.latest_offset
                if is_dropped:
                    continue
                timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
                outcome.kept += 1
                outcome.tombstones += record.value_size < 0
                if timestamp > outcome.max_timestamp:
                    outcome.max_timestamp = timestamp
                if new_base == base_timestamp:
                    memcpy(target, record.start, record.end - record.start)
                    target += record.end - record.start
                else:
                    delta = to_zigzag(<int64_t>(<uint64_t>timestamp - <uint64_t>new_base))
                    length = 1 + number_size(delta) + (record.end - record.rest)
                    target = put_number(target, to_zigzag(length))
                    target[0] = record.attributes
                    target = put_number(target + 1, delta)
                    memcpy(target, record.rest, record.end - record.rest)
                    target += record.end - record.rest
        if cursor != end:
            outcome.fault = F_BYTES_LEFT_IN_BATCH
            outcome.faulty_record = index
        outcome.written = target - begun
        return outcome

    def keep_records(self, body, int64_t count, int64_t base_offset, int64_t base_timestamp, bint drops_tombstones, int64_t new_base):
        cdef Py_buffer view
        cdef Survivors outcome
        cdef uint8_t *data
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            if count < 0 or count > view.len:
                raise_fault(F_ENDS_TOO_SOON, 0)
            target = bytearray(view.len + (0 if new_base == base_timestamp else count * RECORD_GROWS_BYTES))
            data = <uint8_t *>PyByteArray_AS_STRING(target)
            with nogil:
                outcome = self.survivors(<const uint8_t *>view.buf, view.len, count, base_offset, base_timestamp, drops_tombstones, new_base, data)
        finally:
            PyBuffer_Release(&view)
        if outcome.fault:
            raise_fault(outcome.fault, outcome.faulty_record)
        del target[outcome.written :]
        return target, outcome.kept, outcome.tombstones, outcome.max_timestamp

    def keep_batches(
        self, buffer, Py_ssize_t start, Py_ssize_t end, bytearray target not None, Py_ssize_t filled, int64_t now_ms, int64_t delete_retention_ms, const int64_t[::1] ends not None
    ):
        cdef Py_buffer view
        cdef Py_ssize_t at = start
        cdef Py_ssize_t room = PyByteArray_GET_SIZE(target)
        cdef const int64_t *kept_ends = &ends[0] if ends.shape[0] else NULL
        cdef const uint8_t *data
        cdef uint8_t *out = <uint8_t *>PyByteArray_AS_STRING(target)
        cdef Survivors outcome
        cdef Header header
        cdef int64_t size, new_base
        cdef int16_t attributes
        outcome.fault = F_NONE
        outcome.faulty_record = 0
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len or filled < 0 or filled > room:
                raise ValueError("the batches are not in the buffer")
            data = <const uint8_t *>view.buf
            with nogil:
                while end - at >= HEADER_BYTES:
                    load_header(&header, data + at)
                    size = <int64_t>header.batch_length + 12
                    if header.magic != 2 or size < HEADER_BYTES or size > end - at or header.attributes & SPECIAL_BITS:
                        break
                    if header.record_count < 0 or header.record_count > size:
                        outcome.fault = F_RECORD_COUNT
                        break
                    if room - filled < size + <int64_t>header.record_count * RECORD_GROWS_BYTES:
                        break
                    if jesenska_crc32c(data + at + 21, <size_t>(size - 21)) != header.crc:
                        outcome.fault = F_CRC
                        break
                    attributes = header.attributes
                    new_base = header.base_timestamp
                    outcome = self.survivors(
                        data + at + HEADER_BYTES, size - HEADER_BYTES, header.record_count, header.base_offset, header.base_timestamp,
                        attributes & HORIZON_BIT and header.base_timestamp <= now_ms, new_base, out + filled + HEADER_BYTES,
                    )
                    if outcome.fault:
                        break
                    if outcome.kept == 0 and not holds(kept_ends, ends.shape[0], header.base_offset + header.last_offset_delta):
                        at += size
                        continue
                    if outcome.kept == 0:
                        attributes &= ~HORIZON_BIT
                    elif outcome.tombstones and not attributes & HORIZON_BIT:
                        attributes |= HORIZON_BIT
                        new_base = now_ms + delete_retention_ms
                        outcome = self.survivors(
                            data + at + HEADER_BYTES, size - HEADER_BYTES, header.record_count, header.base_offset, header.base_timestamp,
                            False, new_base, out + filled + HEADER_BYTES,
                        )
                    memcpy(out + filled, data + at, HEADER_BYTES)
                    if outcome.kept != header.record_count or attributes != header.attributes:
                        put_big_endian(out + filled + 8, <uint64_t>(HEADER_BYTES - 12 + outcome.written), 4)
                        put_big_endian(out + filled + 21, <uint64_t>attributes, 2)
                        put_big_endian(out + filled + 27, <uint64_t>new_base, 8)
                        if outcome.kept and not attributes & 8:
                            put_big_endian(out + filled + 35, <uint64_t>outcome.max_timestamp, 8)
                        put_big_endian(out + filled + 57, <uint64_t>outcome.kept, 4)
                        put_big_endian(out + filled + 17, jesenska_crc32c(out + filled + 21, <size_t>(HEADER_BYTES - 21 + outcome.written)), 4)
                    filled += HEADER_BYTES + outcome.written
                    at += size
        finally:
            PyBuffer_Release(&view)
        if outcome.fault:
            raise_fault(outcome.fault, outcome.faulty_record)
        return at - start, filled


def siphash128(bytes secret not None, bytes data not None):
    """Returns the hash by which `KeyOffsets` identifies keys."""
    cdef uint64_t halves[2]
    cdef uint64_t hash[2]
    if len(secret) != 16:
        raise ValueError("the secret takes 16 bytes")
    memcpy(halves, <const char *>secret, 16)
    jesenska_siphash128(halves, <const uint8_t *><const char *>data, <size_t>len(data), hash)
    return (<bytes>(<const char *>hash)[:16])
