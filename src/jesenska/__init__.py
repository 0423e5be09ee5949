"""jesenska: Apache Kafka's system in Python, with its data pipeline on Spark."""

import sys

__version__ = "0.1.0"

if sys.platform == "win32":
    raise SystemExit("jesenska runs on Linux and macOS; on Windows use it inside WSL, where it works as on Linux.")

from jesenska.base.source_only import source_is_asked_for, use_source_only

if source_is_asked_for():
    use_source_only()
