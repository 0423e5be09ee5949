"""A tool in a source tree whose packages are not all installed reports one sentence that names them."""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path

import pytest

from jesenska.cli.shared.tool import _NEEDED_PACKAGES, FAILED, Parser, run

_ROOT = Path(__file__).parents[3]


def test_the_packages_are_those_of_the_project() -> None:
    needed = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert list(_NEEDED_PACKAGES.values()) == [re.split("[<>=~]", item)[0] for item in needed]


def test_a_missing_package_is_named_with_the_command_that_installs_it(capsys: pytest.CaptureFixture[str]) -> None:
    def work(_: argparse.Namespace) -> int:
        raise ModuleNotFoundError("No module named 'lz4'", name="lz4")

    parser = Parser("kafka-topics", "Topics.")
    parser.runs_without_arguments = True
    assert run(parser, [], work) == FAILED
    printed = capsys.readouterr().err
    assert printed.startswith("kafka-topics: The package lz4 is not installed: ")
    assert "pip install google-crc32c cramjam lz4 zstandard google-re2 sortedcontainers." in printed


def test_a_missing_module_of_ours_is_a_defect() -> None:
    def work(_: argparse.Namespace) -> int:
        raise ModuleNotFoundError("No module named 'jesenska.none'", name="jesenska.none")

    parser = Parser("kafka-topics", "Topics.")
    parser.runs_without_arguments = True
    with pytest.raises(ModuleNotFoundError):
        run(parser, [], work)
