"""A process that appends is killed: every record that it has acknowledged is there afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jesenska.log.log_directories import LogDirectories
from tests.units.log.log_harness import NOW_MS
from tests.units.log.test_machine_crashes import CONFIG, TP, offsets

WRITER = """
import sys
from pathlib import Path
from jesenska.base.identifiers import TopicPartition
from jesenska.log.partition.leader_appends import append_at_once
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.records.batch import iter_headers
from jesenska.records.encode import encode_batch

directories = LogDirectories([Path(sys.argv[1])])
directories.lock()
directories.claim("BkqKvcOWQuuOhwNvbYx_og", 0)
config = LogConfig(segment_bytes=20_000)
directories.load(lambda topic_partition, topic_id: config, 0)
log = directories.create(TopicPartition("t", 0), None, config, 0)
while True:
    buffer = memoryview(encode_batch([(1, b"k", bytes(200), ())] * 3))
    result = append_at_once(log, buffer, [header for _, header in iter_headers(buffer)], 0, 1)
    sys.stdout.write(f"{result.last_offset}\\n")
    sys.stdout.flush()
"""


@pytest.mark.crash
def test_acknowledged_records_survive_kill_9(tmp_path: Path) -> None:
    acknowledged = -1
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(200):
                acknowledged = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *(int(line) for line in process.stdout if line.endswith("\n"))])
        directories = LogDirectories([tmp_path / "data"])
        directories.lock()
        directories.load(lambda topic_partition, topic_id: CONFIG, NOW_MS)
        log = directories.logs[TP]
        assert log.log_end_offset > acknowledged
        assert offsets(log) == list(range(0, log.log_end_offset, 3))
        directories.close(clean=False)
