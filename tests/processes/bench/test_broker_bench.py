"""The benchmarks run with a thousandth of their work, on jesenska alone. These tests check no speeds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[3]
_ROWS = (
    "start to ready;idle after start;32 connections, one-record requests, 1 partition, acks=1;one record at a time, "
    "acks=all;"
    "one record at a time to a waiting fetch, acks=1;after the load;1,000 idle connections;1,000 partitions"
)


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.broker_bench", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done


def bench(*arguments: str) -> str:
    return run(*arguments).stdout


def refusal(*arguments: str) -> str:
    return run(*arguments, code=2).stderr.splitlines()[-1]


def test_rows_without_java_run_and_give_their_figures_as_json(tmp_path: Path) -> None:
    said = json.loads(
        bench(
            "--sides",
            "jesenska",
            "--rows",
            _ROWS,
            "--rounds",
            "1",
            "--scale",
            "0.001",
            "--output",
            "json",
            "--dir",
            str(tmp_path),
        )
    )
    found: dict[tuple[str, str], Any] = {(row["row"], row["unit"]): row["medians"]["jesenska"] for row in said["rows"]}
    for row, unit in (
        ("start to ready", "seconds"),
        ("idle after start", "resident MB"),
        ("32 connections, one-record requests, 1 partition, acks=1", "requests/s"),
        ("one record at a time, acks=all", "p99 ms"),
        ("one record at a time to a waiting fetch, acks=1", "p50 ms"),
        ("1,000 partitions: start after it", "seconds to ready"),
    ):
        assert found[row, unit] > 0, (row, unit)
    assert ("1,000 idle connections", "KB each") in found
    # After so little work, the histogram may show that the loop was never late.
    assert found["after the load", "event loop late, p99 ms since the start"] >= 0


def test_rows_are_chosen_by_words_or_patterns() -> None:
    assert bench("--list", "--rows", "kcat*queue*,*queue*").splitlines() == [
        "consume 5 M x 100 B, 1 partition, kcat with a queue that never fills"
    ]
    every = bench("--list").splitlines()
    assert len(every) == len(set(every)) > 30


def test_it_ends_when_it_is_told_to_while_a_row_runs(tmp_path: Path) -> None:
    chosen = (
        "--sides",
        "jesenska",
        "--rounds",
        "1",
        "--rows",
        "32 connections",
        "--scale",
        "0.2",
        "--dir",
        str(tmp_path),
    )
    with subprocess.Popen(
        [sys.executable, "-m", "bench.broker_bench", *chosen],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert any("32 connections" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM


def python_in(tree: Path, script: str) -> None:
    """Makes this script the interpreter of the tree."""
    python = tree / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def test_two_brokers_beside_each_other_take_turns_at_each_row(tmp_path: Path) -> None:
    python_in(tmp_path, f'exec {sys.executable} "$@"')
    rows = "start to ready;one record at a time, acks=all"
    chosen = (
        "--sides",
        "jesenska,before",
        "--before",
        str(tmp_path),
        "--beside",
        "--repeat",
        "2",
        "--rounds",
        "1",
        "--rows",
        rows,
        "--scale",
        "0.001",
    )
    said = json.loads(bench(*chosen, "--output", "json", "--dir", str(tmp_path)))
    found = {(row["row"], side): len(row["values"][side]) for row in said["rows"] for side in ("jesenska", "before")}
    assert found == dict.fromkeys(((row, side) for row in rows.split(";") for side in ("jesenska", "before")), 2)


def test_another_checkout_must_run_on_the_same_python(tmp_path: Path) -> None:
    chosen = ("--sides", "jesenska,before", "--before", str(tmp_path), "--rows", "idle after start")
    assert "has no .venv" in refusal(*chosen)
    python_in(tmp_path, "echo 3.11.2 of another build")
    assert "and before on 3.11.2 of another build" in refusal(*chosen)
