# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled record codec: the compiled form (twin) of the modules in plain Python, with the same functions; their
docstrings also apply here. The layout of a record is in record.py. This module has these parts:

    _walk.pxi, _check.pxi, _encode_decode.pxi       _precords.py
    _column_reader.pxi, _column_writer.pxi          _pcolumns.py
    _scan.pxi                                       _pscan.py
    _messages.pxi                                   _pmessages.py
    _compaction.pxi                                 _pcompaction.py

Bytes from outside are read only by `read_number`, `read_field` and the states of the walker. They check the end of the
bytes before they read. No length, count or Arrow offset from outside is trusted. Loops over records create Python
objects only if the caller requested records. They release the interpreter lock if the batch is large, so that other
threads can run.
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
    # The interpreter lock is released for batches of at least this size.
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

include "_walk.pxi"
include "_check.pxi"
include "_encode_decode.pxi"
include "_column_reader.pxi"
include "_column_writer.pxi"
include "_scan.pxi"
include "_messages.pxi"
include "_compaction.pxi"
