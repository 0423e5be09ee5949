# Scans of the batches of a file: the twin of `_pscan.py`; the docstrings there also apply here. A part of
# `_crecords.pyx`.

cdef enum:
    SCAN_ENTRIES = 2048
    SCAN_EPOCHS = 64
    REMEMBERED_MAX = 16
    SCAN_PRODUCERS = 1024
    SCAN_SLOTS = 4096
    SCAN_KEPT = 4096


cdef class BatchScan:
    """Checks consecutive batches of a file and collects index entries and leader epochs from their headers. The
    methods are described in `_pscan.py`."""

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
            if header.record_count <= 0:
                header.max_timestamp = -1
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
    # A ring buffer.
    int64_t positions[REMEMBERED_MAX]
    uint32_t count
    bint open


cdef class ProducerScan:
    """Collects the file positions of the batches from which the state of producers can be rebuilt. The methods are
    described in `_pscan.py`."""

    cdef readonly bint ended
    cdef int remembered
    cdef int kept_count
    cdef int producer_count
    # A batch can add up to REMEMBERED_MAX earlier batches of its producer, and itself.
    cdef int64_t kept[SCAN_KEPT + REMEMBERED_MAX]
    cdef Newest newest[SCAN_PRODUCERS]
    # A hash table of producer ids. A slot has the index in `newest` plus one; 0 means free.
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
        """Returns the entry of a producer in `newest`, and creates it if there is none. Returns NULL if `newest` is
        full."""
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
