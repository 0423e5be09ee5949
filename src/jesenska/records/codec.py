"""Chooses the record codec: the compiled module if it was built, else its twin, a module in plain Python with the same
results. JESENSKA_PURE=1 in the environment forces the twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.base.source_only import source_is_asked_for

COMPILED: bool = False

if TYPE_CHECKING:
    from jesenska.records.pure import _pcolumns as columns
    from jesenska.records.pure import _pcompaction as compaction
    from jesenska.records.pure import _pmessages as messages
    from jesenska.records.pure import _precords as records
    from jesenska.records.pure import _pscan as scan
else:
    records = columns = scan = messages = compaction = None
    if not source_is_asked_for():
        try:
            from jesenska.records import _crecords as records

            columns = scan = messages = compaction = records
            COMPILED = True
        except ImportError:
            pass
    if records is None:
        from jesenska.records.pure import _pcolumns as columns
        from jesenska.records.pure import _pcompaction as compaction
        from jesenska.records.pure import _pmessages as messages
        from jesenska.records.pure import _precords as records
        from jesenska.records.pure import _pscan as scan

BatchScan = scan.BatchScan
ColumnReader = columns.ColumnReader
ColumnWriter = columns.ColumnWriter
KeyOffsets = compaction.KeyOffsets
ProducerScan = scan.ProducerScan
Source = columns.Source
Walker = records.Walker
append_message = messages.append_message
append_record = records.append_record
check_batch = records.check_batch
crc32c = records.crc32c
decode_records = records.decode_records
encode_records = records.encode_records
messages_to_records = messages.messages_to_records
partitions_of_keys = columns.partitions_of_keys
plain_batches_to_messages = messages.plain_batches_to_messages
records_to_messages = messages.records_to_messages
set_max_timestamp = records.set_max_timestamp

__all__ = [
    "COMPILED",
    "BatchScan",
    "ColumnReader",
    "ColumnWriter",
    "KeyOffsets",
    "ProducerScan",
    "Source",
    "Walker",
    "append_message",
    "append_record",
    "check_batch",
    "crc32c",
    "decode_records",
    "encode_records",
    "messages_to_records",
    "partitions_of_keys",
    "plain_batches_to_messages",
    "records_to_messages",
    "set_max_timestamp",
]
