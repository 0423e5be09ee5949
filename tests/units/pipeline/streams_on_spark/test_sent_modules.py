"""The parts of a program that are sent to workers without its modules."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pyspark import cloudpickle

from jesenska.pipeline.streams import StreamsError
from jesenska.pipeline.streams_on_spark.queries.sent_modules import pickled, unpickled

_TOPOLOGY = """
import json
import threading

import rules_of_the_shop
from rules_of_the_shop import Discount

lock = threading.Lock()


def price(text):
    return Discount(2).of(rules_of_the_shop.parsed(text))


def guarded(text):
    with lock:
        return text
"""
_RULES = """
import json


class Discount:
    def __init__(self, percent):
        self.percent = percent

    def of(self, price):
        return price * (100 - self.percent) // 100


def parsed(text):
    return json.loads(text)["price"]
"""


@pytest.fixture
def topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module beside the program, which imports another one."""
    (tmp_path / "topology_of_the_shop.py").write_text(_TOPOLOGY, encoding="utf-8")
    (tmp_path / "rules_of_the_shop.py").write_text(_RULES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("topology_of_the_shop")
    _as_in_a_worker(monkeypatch)


def _as_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the modules impossible to import."""
    for name in ("topology_of_the_shop", "rules_of_the_shop"):
        sys.modules.pop(name, None)
    monkeypatch.setattr(
        sys, "path", [entry for entry in sys.path if not (Path(entry) / "rules_of_the_shop.py").exists()]
    )


def test_functions_and_classes_of_modules_that_are_not_installed_travel_by_value(
    topology: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = pickled((topology.price, json.dumps))
    _as_in_a_worker(monkeypatch)
    price, dumps = unpickled(sent)
    assert price(b'{"price": 200}') == 196
    assert dumps is json.dumps, "the standard library is there"


def test_what_the_program_pickles_itself_is_as_before(topology: ModuleType) -> None:
    before = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call]
    pickled(topology.price)
    assert cloudpickle.list_registry_pickle_by_value() == before  # type: ignore[no-untyped-call]


def test_a_function_that_cannot_travel_by_value_needs_its_module(
    topology: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = pickled(topology.guarded)
    assert unpickled(sent) is topology.guarded
    _as_in_a_worker(monkeypatch)
    with pytest.raises(StreamsError, match=r"workers cannot import topology_of_the_shop.*spark\.submit\.pyFiles"):
        unpickled(sent)


def test_what_cannot_be_pickled_at_all_is_told(topology: ModuleType) -> None:
    lock = topology.lock
    with pytest.raises(StreamsError, match="cannot be pickled"):
        pickled(lambda: lock)
