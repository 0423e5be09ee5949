"""Loads a program of the Streams API, for `jesenska streams`: a Python file with a topology and optionally
settings."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jesenska.base.errors import JesenskaError

if TYPE_CHECKING:
    from jesenska.pipeline.streams import Topology


@dataclass(frozen=True)
class StreamsProgram:
    """The topology and the settings of a program of the Streams API."""

    topology: Topology
    config: Mapping[str, Any]


def load(named: str) -> StreamsProgram:
    """Loads the program of `app.py` or `app.py:name`. Raises JesenskaError with one sentence if the file is not such a
    program, or if it fails."""
    from jesenska.pipeline.streams import StreamsBuilder, Topology

    text, colon, name = named.rpartition(":")
    path = Path(text if colon and text.endswith(".py") else named)
    wanted = name if colon and text.endswith(".py") else "topology"
    if path.suffix != ".py" or not path.is_file():
        raise JesenskaError(f"{path} is not a Python file: name a Python file that has a topology, such as app.py.")
    module = _executed(path)
    found = getattr(module, wanted, None)
    if found is None:
        raise JesenskaError(
            f"{path} has no {wanted}: write topology = builder.build(), or give the name of the topology in the "
            f"file with {path}:NAME."
        )
    if callable(found) and not isinstance(found, StreamsBuilder | Topology):
        found = _run(path, found)
    if isinstance(found, StreamsBuilder):
        found = _run(path, found.build)
    if not isinstance(found, Topology):
        raise JesenskaError(
            f"{wanted} in {path} is {type(found).__name__}: it has to be a Topology, a StreamsBuilder or a function "
            f"that gives one."
        )
    config = getattr(module, "config", {})
    if not isinstance(config, Mapping):
        raise JesenskaError(f"config in {path} is {type(config).__name__}: it has to be a dict of settings.")
    return StreamsProgram(found, config)


def _executed(path: Path) -> ModuleType:
    """Runs the file as a module, and returns it. The file can import other modules from its directory."""
    if (first := str(path.absolute().parent)) not in sys.path:
        sys.path.insert(0, first)
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_streams"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader = spec.loader
    _run(path, lambda: loader.exec_module(module))
    return module


def _run(path: Path, work: Any) -> Any:
    """Runs code of the user's program. If the code raises an error, raises JesenskaError with the line of the
    program."""
    try:
        return work()
    except JesenskaError:
        raise
    except SyntaxError as error:
        raise JesenskaError(f"{error.filename}, line {error.lineno}: {error.msg}.") from error
    except Exception as error:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if Path(frame.filename).absolute() == path.absolute()
        ]
        where = f"{path}, line {lines[-1]}" if lines else str(path)
        raise JesenskaError(f"{where}: {type(error).__name__}: {error}".rstrip(": ")) from error
