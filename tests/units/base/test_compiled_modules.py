"""The modules of the request path run compiled if there is a compiler."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path

import pytest

from jesenska.base.source_only import request_path_is_compiled, source_is_asked_for
from jesenska.records import codec

ROOT = Path(__file__).parents[3]


def _listed() -> list[str]:
    lines = (ROOT / "compiled-modules").read_text().splitlines()
    return [
        "jesenska." + line.removesuffix(".py").replace("/", ".") for line in lines if line and not line.startswith("#")
    ]


def test_all_of_the_list_is_compiled_or_none() -> None:
    files = {name: str(import_module(name).__file__) for name in _listed()}
    assert {name for name, file in files.items() if file.endswith(".py")} == (
        set() if request_path_is_compiled() else set(files)
    )


@pytest.mark.skipif(source_is_asked_for(), reason="JESENSKA_PURE asks for source")
@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler is there")
def test_what_can_be_compiled_is() -> None:
    assert codec.COMPILED
    assert request_path_is_compiled()
