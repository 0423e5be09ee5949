"""The Streams API is there without Spark."""

from __future__ import annotations

import subprocess
import sys


def test_the_api_and_its_driver_load_neither_spark_nor_arrow_nor_pandas() -> None:
    program = (
        "import sys, jesenska.pipeline.streams; sys.exit(any(name.partition('.')[0] in ('pyspark', 'pyarrow', "
        "'pandas') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
