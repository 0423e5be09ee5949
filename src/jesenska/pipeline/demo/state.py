"""The demo's state, stored between runs in demo-data/state.json:

    {"status": "preparing" | "running" | "done", "flights": 336776, "topics": {"flights": "<topic id>", ...}}

    preparing   topics and checkpoint are being made: if a run ended here, the next run prepares again
    running     topics and checkpoint are ready: if a run ended here, the next run continues it
    done        results were shown: the next run starts from the beginning

The file is written under another name, synced and renamed: after a crash it contains the old state or the new state.
The positions of the flights and of the pipeline are not stored here, but in the topic and in the checkpoint."""

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
    """Replaces the JSON file atomically: after a crash it has the old content or the new content."""
    partial = path.with_suffix(path.suffix + ".new")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(tree, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_state(folder: Path) -> State | None:
    """Returns the last run's state. Returns None if there is no state file, or if it cannot be read."""
    try:
        tree = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        return State(
            str(tree["status"]), int(tree["flights"]), {str(name): str(item) for name, item in tree["topics"].items()}
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_state(folder: Path, state: State) -> None:
    write_json(folder / "state.json", asdict(state))
