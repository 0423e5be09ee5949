"""The directories of several brokers on this machine (`jesenska up -n N --data DIR`):

    DIR/.lock       locked by the supervising process while it runs
    DIR/tree        the metadata tree of the brokers
    DIR/broker-K    the data of broker K, K from 1 on

A single broker stores all its data in DIR itself. A single broker is not started in a directory with the data of
several brokers, and several brokers are not started in a directory of a single broker: they would not find the data,
and would begin with empty data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.stopping import lock_holder
from jesenska.log.directory.directory_lock import (
    DirectoryLock,
    LogDirectoryError,
    UnusableDirectoryError,
    make_directory,
)
from jesenska.log.disk.files import FileLayer

#: Files in the directory of a broker that was started at least once. The first is `metadata.journal.METADATA_FILE`, if
#: the broker stores the metadata tree itself. The second is `log.disk.meta_properties.FILE_NAME`. The names are
#: repeated here because those modules import SQLite and the log.
_MARKS = ("jesenska-metadata.db", "meta.properties")
_BROKER = re.compile(r"broker-([1-9][0-9]{0,3})")


def tree_directory(data: Path) -> Path:
    return data / "tree"


def broker_directory(data: Path, number: int) -> Path:
    return data / f"broker-{number}"


def brokers_with_data(data: Path) -> list[int]:
    """Returns the numbers of the brokers that have data in this directory."""
    try:
        found = [(matched, path) for path in data.iterdir() if (matched := _BROKER.fullmatch(path.name)) is not None]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(matched[1]) for matched, path in found if _has_data(path))


def refuse_directory_of_several(data: Path) -> None:
    """Raises JesenskaError with one sentence if several brokers have their data in this directory."""
    if numbers := brokers_with_data(data):
        brokers = f"broker {numbers[0]}, which was one of several" if len(numbers) == 1 else f"{len(numbers)} brokers"
        raise JesenskaError(
            f"{data} has the data of {brokers}: start them with -n {max(numbers[-1], 2)}, or name another directory "
            f"with --data."
        )


def refuse_directory_of_one(data: Path) -> None:
    """Raises JesenskaError with one sentence if a single broker has its data in this directory."""
    if _has_data(data):
        raise JesenskaError(
            f"{data} has the data of a single broker: start it without -n, or name another directory with --data."
        )


def refuse_directory_beside_several(directory: Path) -> None:
    """Raises JesenskaError with one sentence if a log directory without data is beside the data of several brokers. A
    single broker with it would begin with empty data, as if the data of the others were lost."""
    data = directory.parent
    if _BROKER.fullmatch(directory.name) or not tree_directory(data).exists() or _has_data(directory):
        return
    if numbers := brokers_with_data(data):
        raise JesenskaError(
            f"{directory} has no data, but {data} has the data of {len(numbers)} brokers that jesenska up -n has "
            f"started: start them with jesenska up -n {numbers[-1]} again, or name another directory in log.dirs."
        )


def _has_data(directory: Path) -> bool:
    return any((directory / name).exists() for name in _MARKS)


@contextmanager
def held_directory(data: Path) -> Iterator[None]:
    """Locks the directory for this process while the `with` block runs. Creates the directory if it is missing. Raises
    JesenskaError with one sentence if the directory cannot be created or locked."""
    try:
        make_directory(data, FileLayer())
    except OSError as error:
        raise JesenskaError(
            f"The directory {data} cannot be made ({error.strerror}): name one that can be written with --data."
        ) from error
    try:
        lock = DirectoryLock(data)
    except UnusableDirectoryError as error:
        raise JesenskaError(f"The directory {data} cannot be used, since {error.reason}: {error.remedy}.") from error
    except LogDirectoryError as error:
        if (holder := lock_holder(data)) is None:
            raise JesenskaError(
                f"The directory {data} is locked by another program: name another directory with --data."
            ) from error
        # The name is imported here because its module imports the metadata tree, which a supervisor does not need
        # otherwise.
        from jesenska.cli.shared.tree_serving import ADDRESS_FILE

        tool = "zookeeper-server-stop" if (data / ADDRESS_FILE).exists() else "kafka-server-stop"
        raise JesenskaError(
            f"The directory {data} is in use by process {holder}: stop that process with {tool}, or name another "
            "directory with --data."
        ) from error
    try:
        yield
    finally:
        lock.release()
