"""The demo's state, kept from run to run, in demo-data/state.json:

    {"status": "preparing" | "running" | "done", "flights": 336776, "topics": {"flights": "<topic id>", ...}}

    preparing   topics and checkpoint are being made: a run that ended here begins again
    running     topics and checkpoint belong together: a run that ended here is continued
    done        results were shown: the next run starts from scratch

Written to another name, synced and renamed: after a crash there is the old state or the new one. The positions of the
flights and the pipeline are not kept here, but in the topic and the checkpoint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class State:
    status: str
    flights: int
    topics: Mapping[str, str] = field(default_factory=dict)


def write_json(path: Path, tree: Mapping[str, Any]) -> None:
    """Replaces the file as a whole."""
    partial = path.with_suffix(path.suffix + ".new")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(tree, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_state(folder: Path) -> State | None:
    """Returns the last run's state; None if there was none, or none that can be read."""
    try:
        tree = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        return State(
            str(tree["status"]), int(tree["flights"]), {str(name): str(item) for name, item in tree["topics"].items()}
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_state(folder: Path, state: State) -> None:
    write_json(folder / "state.json", asdict(state))
