"""Prints how fast the record codec is: check, encode, decode, Arrow columns; the compiled module and its pure twin
side by side.

python bench/records_bench.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from jesenska.records import codec
from jesenska.records.arrow import batches_to_columns, columns_to_batches
from jesenska.records.check import CheckRules, check_batches
from jesenska.records.decode import decode_batch
from jesenska.records.encode import BatchWriter, encode_batch
from jesenska.records.header import Codec
from jesenska.records.pure import _pcolumns, _precords
from jesenska.records.record import RecordInput

VALUE_BYTES = 100
RULES = CheckRules(max_message_bytes=1 << 30)


def seconds_per_call(function: Callable[[], object], at_least_s: float = 0.3) -> float:
    """The best of several rounds."""
    calls = 1
    while True:
        began = time.perf_counter()
        for _ in range(calls):
            function()
        took = time.perf_counter() - began
        if took >= at_least_s / 5:
            break
        calls *= 2 if took < at_least_s / 50 else 1 + int(at_least_s / 5 / took)
    best = took / calls
    for _ in range(4):
        began = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - began) / calls)
    return best


def use(name: str) -> bool:
    """Puts a twin in place; returns False if it is missing."""
    modules: list[ModuleType] = [_precords, _pcolumns]
    if name == "compiled":
        try:
            modules = [import_module("jesenska.records._crecords")]
        except ImportError:
            return False
    for entry in codec.__all__:
        for module in modules:
            if hasattr(module, entry):
                setattr(codec, entry, getattr(module, entry))
    return True


def report(name: str, seconds: float, size_bytes: int, records: int) -> None:
    print(
        f"  {name:42} {seconds * 1e6:12.2f} us {size_bytes / seconds / 1e6:10.0f} MB/s "
        f"{records / seconds / 1e6:9.3f} M records/s"
    )


def measure() -> None:
    def rows(count: int) -> list[RecordInput]:
        return [
            (1_700_000_000_000 + index, None, os.urandom(VALUE_BYTES // 2) + bytes(VALUE_BYTES // 2), ())
            for index in range(count)
        ]

    for name, count in (("check, one record", 1), ("check, 16 KB batch", 150), ("check, 1 MB batch", 9500)):
        batch = encode_batch(rows(count))
        report(name, seconds_per_call(lambda batch=batch: check_batches(batch, RULES)), len(batch), count)  # type: ignore[misc]
    many = rows(9500)
    plain = encode_batch(many)
    for kind in list(Codec)[1:]:
        batch = encode_batch(many, kind)
        report(
            f"check, 1 MB in {kind.name.lower()}",
            seconds_per_call(lambda batch=batch: check_batches(batch, RULES)),  # type: ignore[misc]
            len(plain),
            9500,
        )
    report("encode_batch, 1 MB", seconds_per_call(lambda: encode_batch(many)), len(plain), 9500)

    def write() -> bytearray:
        writer = BatchWriter(1 << 30)
        for timestamp, key, value, headers in many:
            writer.append(timestamp, key, value, headers)
        return writer.finish()

    report("BatchWriter, 1 MB", seconds_per_call(write), len(plain), 9500)
    report("decode_batch, 1 MB", seconds_per_call(lambda: decode_batch(plain)), len(plain), 9500)
    try:
        import pyarrow as pa
    except ImportError:
        print("  (no pyarrow: Arrow columns not measured)")
        return
    values = pa.array([row[2] for row in many] * 10, pa.binary())
    times = pa.array([row[0] for row in many] * 10, pa.int64())
    batches = columns_to_batches(None, values, None, times, default_timestamp=0)
    size = sum(map(len, batches))
    report(
        "columns_to_batches",
        seconds_per_call(lambda: columns_to_batches(None, values, None, times, default_timestamp=0)),
        size,
        95_000,
    )
    report("batches_to_columns", seconds_per_call(lambda: batches_to_columns(batches)), size, 95_000)


if __name__ == "__main__":
    for twin in ("compiled", "pure"):
        print(f"{twin}, records of {VALUE_BYTES} bytes without key; MB/s uncompressed")
        if use(twin):
            measure()
        else:
            print("  not built")
