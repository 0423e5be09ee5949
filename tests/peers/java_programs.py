"""The Java programs beside this file, compiled once for each release and kept beside its jars."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path

from tests.peers.apache_kafka import SHORT_RUN, jars, java_command, java_program, streams_jar, streams_test_jars

_HERE = Path(__file__).parent


def command_of(release: str, name: str, *, heap: str, log_level: str = "WARN", streams: bool = False) -> list[str]:
    """What runs a program with that release's jars; its arguments follow."""
    command = java_command(release, name, heap=heap, log_level=log_level)
    command[-2:] = class_path_and_program(release, name, streams=streams)
    return command


def class_path_and_program(
    release: str, name: str, *, streams: bool = False, test_driver: bool = False
) -> tuple[str, str]:
    """What follows `java -cp`: the path, with that release's jars, and the class. Without a compiler it is the source,
    which Java then compiles at each start. `streams`: with the jar of Kafka Streams; `test_driver`: and that of its
    TopologyTestDriver."""
    folder = jars(release)
    path = f"{folder}/*"
    if streams or test_driver:
        path += f"{os.pathsep}{streams_jar(release)}"
    if test_driver:
        path += "".join(f"{os.pathsep}{jar}" for jar in streams_test_jars(release))
    source = _HERE / f"{name}.java"
    javac = java_program("javac")
    if shutil.which(javac) is None:
        return path, str(source)
    return f"{path}{os.pathsep}{_classes(folder, path, source, javac)}", name


def _classes(folder: Path, path: str, source: Path, javac: str) -> Path:
    """The folder with the classes of a program, compiled for what stands in it and for this compiler."""
    real = Path(shutil.which(javac) or javac).resolve()
    kept = folder / f"{source.stem}-{zlib.crc32(source.read_bytes() + str(real).encode()):08x}"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=folder) as made:
            command = [javac, f"-J{SHORT_RUN}", "-nowarn", "-cp", path, "-d", f"{made}/classes", str(source)]
            subprocess.run(command, check=True, capture_output=True)
            # Another test run may have been first.
            with suppress(OSError):
                Path(made, "classes").rename(kept)
    return kept
