"""The table of the served APIs, the handlers' files, and the APIs of the `wire` package agree."""

from __future__ import annotations

import asyncio
import sys

import pytest

from jesenska.broker import handlers
from jesenska.broker.requests.gate import served_by
from jesenska.broker.requests.served import VERSIONS
from jesenska.wire.api_names import API_NAMES
from jesenska.wire.registry import APIS


@pytest.mark.parametrize("key", sorted(VERSIONS))
def test_a_key_in_the_table_has_a_handler_with_its_versions(key: int) -> None:
    served = served_by(key)
    assert served is not None
    assert (served.api.key, served.min_version, served.max_version) == (key, *VERSIONS[key])


def test_every_handler_stands_in_the_table() -> None:
    assert handlers.all_keys() == list(VERSIONS)


def test_a_key_that_is_not_served_has_no_handler() -> None:
    assert served_by(68) is None
    assert served_by(-1) is None


def test_names_of_apis_are_those_of_their_requests() -> None:
    assert {key: api.name for key, api in APIS.items()} == {key: API_NAMES[key] for key in APIS}


@pytest.mark.parametrize("key", sorted(APIS))
def test_an_api_knows_its_request_and_its_response(key: int) -> None:
    api = APIS[key]
    assert (api.request.api_key, api.response.api_key, api.key) == (key, key, key)
    assert (api.request.__name__, api.response.__name__) == (f"{api.name}Request", f"{api.name}Response")


def test_an_unknown_api_is_a_missing_key() -> None:
    assert 68 not in APIS
    with pytest.raises(KeyError):
        APIS[68]


def test_a_handler_that_cannot_be_imported_now_is_told_and_the_others_are_imported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    imported = []

    def load(key: int) -> None:
        if key == 1:
            raise OSError(24, "Too many open files")
        imported.append(key)

    for key, module in handlers._MODULES.items():
        if key in (1, 2, 3):
            monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(handlers, "load", load)
    monkeypatch.setattr(handlers, "_PAUSE_SECONDS", 0)
    asyncio.run(handlers.load_all())
    assert {2, 3} <= set(imported)
    assert [record.getMessage() for record in caplog.records if "API key 1 " in record.getMessage()]
