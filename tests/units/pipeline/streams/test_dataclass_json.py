"""Objects of a dataclass as JSON: the values that come back, those that are refused, and the messages."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.pipeline.streams import (
    Serdes,
    SerializationError,
    StreamsBuilder,
    StreamsError,
    TopologyError,
    TopologyTestDriver,
    value,
)
from jesenska.pipeline.streams_on_spark.queries.sent_modules import pickled, unpickled


class Size(Enum):
    SMALL = "S"
    LARGE = "L"


@dataclass
class Line:
    article: str
    count: int = 1


@dataclass
class Order:
    user: str
    price: float
    lines: list[Line]
    size: Size = Size.SMALL
    paid: bool = False
    note: str | None = None
    by_day: dict[str, int] = field(default_factory=dict)
    at: datetime | None = None
    before: Order | None = None
    anything: Any = None
    marks: tuple[int, ...] = ()
    shown: str = field(init=False, default="")

    def __post_init__(self) -> None:
        if self.price < 0:
            raise ValueError("a price is not negative")


ORDERS = Serdes.dataclass(Order)
_ORDER = {"user": "ada", "price": 2, "lines": [{"article": "plums"}]}
_orders: st.SearchStrategy[Order] = st.builds(
    Order,
    user=st.text(),
    price=st.floats(0, allow_infinity=False),
    lines=st.lists(st.builds(Line, article=st.text(), count=st.integers()), max_size=3),
    size=st.sampled_from(Size),
    paid=st.booleans(),
    note=st.none() | st.text(),
    by_day=st.dictionaries(st.text(), st.integers(), max_size=3),
    at=st.none() | st.datetimes(timezones=st.just(UTC)),
    before=st.none() | st.just(Order("bob", 1.5, [])),
    anything=st.none() | st.integers() | st.lists(st.text(), max_size=2),
    marks=st.lists(st.integers(), max_size=2).map(tuple),
)


@given(_orders)
def test_every_object_comes_back_or_is_refused(order: Order) -> None:
    try:
        data = ORDERS.serialize("orders", order)
    except (SerializationError, UnicodeEncodeError) as error:
        assert "surrogate" in str(error)
        return
    assert ORDERS.deserialize("orders", data) == order


def test_a_field_that_is_missing_has_its_default_and_one_that_is_not_known_is_left_alone() -> None:
    data = json.dumps({**_ORDER, "color": "blue"}).encode()
    assert ORDERS.deserialize("orders", data) == Order("ada", 2.0, [Line("plums", 1)])
    assert ORDERS.deserialize("orders", None) is None and ORDERS.serialize("orders", None) is None


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"user": None}, "the field user is None and not str; mend the value"),
        ({"price": "2"}, "the field price is '2' and not float"),
        ({"price": True}, "the field price is True and not float"),
        ({"paid": 1}, "the field paid is 1 and not bool"),
        ({"lines": [{"article": "plums", "count": 1.5}]}, "the field lines[0].count is 1.5 and not int"),
        ({"lines": [{}]}, "the field lines[0].article is missing; give the field a default"),
        ({"lines": {}}, "the field lines is {} and not a list"),
        ({"size": "M"}, "the field size is 'M' and not a value of Size"),
        ({"note": 5}, "the field note is 5 and not str or null"),
        ({"by_day": {"mon": "one"}}, "the field by_day['mon'] is 'one' and not int"),
        ({"at": "yesterday"}, "the field at is 'yesterday' and not a datetime in ISO 8601 or null"),
        ({"before": {**_ORDER, "user": 7}}, "the field before.user is 7 and not str"),
        ({"price": -1}, "Order raised ValueError: a price is not negative; mend the class or the data"),
    ],
)
def test_data_that_does_not_fit_is_refused_and_the_field_is_named(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SerializationError, match=re.escape(sentence)):
        ORDERS.deserialize("orders", json.dumps({**_ORDER, **changed}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"\xff", b"{"])
def test_data_that_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(SerializationError, match="in orders cannot be read as dataclass"):
        ORDERS.deserialize("orders", data)


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        ({"user": "ada"}, "and not a Order"),
        (Order("ada", 2, [], paid=0), "the field paid is 0 and not bool"),  # type: ignore[arg-type]
        (Order("ada", 2, [Line("plums", "3")]), "the field lines[0].count is '3' and not int"),  # type: ignore[arg-type]
        (Order("ada", 2, (Line("plums"),)), "and not a list"),  # type: ignore[arg-type]
        (Order("ada", float("nan"), []), "JSON has null, booleans, finite numbers"),
        (Order("ada", 2, [], at=date(2024, 1, 1)), "and not a datetime in ISO 8601 or null"),  # type: ignore[arg-type]
        (Order("ada", 2, [], anything={1}), "not JSON serializable"),
    ],
)
def test_an_object_that_does_not_fit_is_refused_and_the_field_is_named(order: Any, sentence: str) -> None:
    with pytest.raises(SerializationError, match=re.escape(sentence)):
        ORDERS.serialize("orders", order)


def test_a_type_without_a_form_is_refused_where_the_serde_is_made() -> None:
    @dataclass
    class Odd:
        tags: set[str]

    with pytest.raises(
        TopologyError,
        match=r"the field tags of Odd has the type .*set.*, for which Serdes.dataclass has no form in JSON: use str",
    ):
        Serdes.dataclass(Odd)
    with pytest.raises(TopologyError, match="takes a dataclass, and not"):
        Serdes.dataclass(dict)


def test_expressions_and_functions_use_its_fields() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=Serdes.string(), value=ORDERS)
    large = orders.filter(value["price"] > 10)
    large.map_values(value["lines"][0]["article"], value=Serdes.string()).to("articles")
    large.map_values(lambda order: Line(order.user, len(order.lines)), value=Serdes.dataclass(Line)).to("lines")
    with TopologyTestDriver(builder.build()) as driver:
        orders_in = driver.create_input_topic("orders", key=Serdes.string(), value=ORDERS)
        orders_in.pipe_input("1", Order("ada", 5, []))
        orders_in.pipe_input("2", Order("ada", 50, [Line("plums")]))
        assert driver.create_output_topic("articles", value=Serdes.string()).read_value() == "plums"
        assert driver.create_output_topic("lines", value=Serdes.dataclass(Line)).read_value() == Line("ada", 1)
        with pytest.raises(StreamsError, match="cannot be read as dataclass: the field user is missing"):
            driver.pipe_raw("orders", b"3", b"{}", 1)


def test_it_travels_to_workers() -> None:
    sent = unpickled(pickled(Serdes.dataclass(Order)))
    order = sent.deserialize("orders", json.dumps(_ORDER).encode())
    assert (order.user, order.lines[0].article) == ("ada", "plums")
    assert sent.deserialize("orders", sent.serialize("orders", order)) == order
