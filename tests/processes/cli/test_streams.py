"""`jesenska streams` as far as it needs no Spark: programs that are found and described, and mistakes."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from jesenska.cli.commands import streams
from jesenska.cli.jesenska import main
from jesenska.pipeline.streams.settings import StreamsConfig
from tests.processes.cli.conftest import Tool

PROGRAM = """
from jesenska.pipeline.streams import StreamsBuilder
from beside import topic
builder = StreamsBuilder()
builder.stream(topic).to("out")
topology = builder.build()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that imports a file beside it. Its additions to the path are removed afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "beside.py").write_text("topic = 'in'\n")
    file = tmp_path / "a_program_of_streams.py"
    file.write_text(PROGRAM)
    return file


def test_a_program_is_described(tool: Tool, program: Path) -> None:
    described = tool(main, "streams", "describe", str(program))
    assert described.code == 0
    assert described.lines[:3] == [
        "Topologies:",
        "   Sub-topology: 0",
        "    Source: KSTREAM-SOURCE-0000000000 (topics: [in])",
    ]
    as_json = tool(main, "streams", "describe", f"{program}:builder", "--output", "json")
    assert json.loads(as_json.out) == {"topology": described.out}


def test_a_function_may_give_the_topology(tool: Tool, program: Path) -> None:
    program.write_text(PROGRAM.replace("topology = builder.build()", "def made():\n    return builder"))
    assert "(topics: [in])" in tool(main, "streams", "describe", f"{program}:made").out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no topology: write topology = builder.build()"),
        ("topology = 3", "topology in {} is int: it has to be a Topology"),
        ("config = 3\n" + PROGRAM, "config in {} is int: it has to be a dict of settings."),
        ("a = 1\nb = a / 0", "{}, line 2: ZeroDivisionError: division by zero"),
        ("a = (1", "{}, line 1: '(' was never closed."),
        ("import nowhere_at_all", "{}, line 1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        (PROGRAM + "builder.stream(topic).map_values(3)", "{}, line 7: "),
        ("def topology():\n    return missing", "{}, line 2: NameError: name 'missing' is not defined"),
    ],
)
def test_a_mistake_in_a_program_is_one_sentence(tool: Tool, program: Path, text: str, said: str) -> None:
    program.write_text(text)
    result = tool(main, "streams", "describe", str(program))
    assert (result.code, result.out) == (1, "")
    assert said.format(program) in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("named", ["nowhere.py", ".", "a_program_of_streams.py:nothing"])
def test_a_program_that_there_is_not(tool: Tool, program: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.chdir(program.parent)
    result = tool(main, "streams", "describe", named)
    assert result.code == 1
    assert len(result.err.splitlines()) == 1


def test_what_an_application_lacks_is_said_before_spark_is_started(tool: Tool, program: Path) -> None:
    result = tool(main, "streams", "run", str(program), "--bootstrap-server", "localhost:9092")
    assert result.code == 1
    assert result.err.splitlines() == ["jesenska: application.id is not set: it is needed to run on Spark."]
    unknown = tool(main, "streams", "run", str(program), "--property", "comit.interval.ms=3")
    assert "did you mean commit.interval.ms?" in unknown.err


def test_an_application_without_room_for_its_state_names_the_directory(
    tool: Tool, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        config = StreamsConfig({"application.id": "w", "bootstrap.servers": "h:1", "state.dir": str(tmp_path)})
        set_state_listener = process_available = staticmethod(lambda *_: None)

        def __enter__(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def __exit__(self, *_: object) -> None:
            """The program has not started."""

    monkeypatch.setattr(streams, "heeded_signals", tuple)
    monkeypatch.setattr(streams, "_application", lambda options, program: Full())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    done = tool(main, "streams", "run", str(program), "--once")
    assert (done.code, done.out) == (1, "")
    assert f"jesenska: the disk of {tmp_path} (state.dir) is full: make room on it" in done.err
