"""The representations of streams, tables and topologies at a prompt and in a notebook."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from jesenska.pipeline.streams import Serdes, StreamsBuilder, Topology, value
from jesenska.pipeline.streams_on_spark import KafkaStreams
from tests.units.pipeline.streams.running import S


def _rows(html: str) -> list[list[str]]:
    """The cells of all rows; it must be well-formed."""
    return [[cell.text or "" for cell in row] for row in ElementTree.fromstring(f"<div>{html}</div>").iter("tr")]


def upper(text: str) -> str:
    return text.upper()


def test_a_stream_says_where_it_comes_from_and_how_it_is_written() -> None:
    stream = StreamsBuilder().stream("lines", **S)
    assert repr(stream) == "<KStream KSTREAM-SOURCE-0000000000: lines; key string, value string>"
    mapped = stream.filter(value != "<x>").map_values(upper)
    assert repr(mapped) == (
        "<KStream KSTREAM-MAPVALUES-0000000002: lines -> filter((value != '<x>')) -> map_values(upper); key string, "
        "value by default>"
    )
    head, *rows = _rows(mapped._repr_html_())
    assert head == ["operation", "store", "written at"]
    assert [row[0] for row in rows] == ["lines", "filter((value != '<x>'))", "map_values(upper)"]
    assert all(re.fullmatch(r"test_shown\.py, line \d+", row[2]) for row in rows)
    for _ in range(5):
        mapped = mapped.map_values(lambda text: text)
    assert repr(mapped).count(" -> ") == 4 and ": … -> map_values(<lambda>)" in repr(mapped)


def test_a_table_names_its_store_and_what_it_is_joined_with() -> None:
    builder = StreamsBuilder()
    users = builder.table("users", store="names", **S)
    counts = builder.stream("lines", **S).group_by_key().count(store="counts")
    assert re.fullmatch(r"<KTable \S+: lines -> \S+; key string, value long>", repr(counts))
    joined = counts.join(users, lambda count, user: f"{user}: {count}", value=Serdes.string())
    _, *rows = _rows(joined._repr_html_())
    assert "counts" in {row[1] for row in rows}
    assert users.name in rows[-1][0]
    assert repr(users).startswith(f"<KTable {users.name}: table users; key string")
    assert repr(builder.global_table("all", store="everything", **S)).endswith("; store everything>")


def test_a_topology_shows_its_parts(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    counts = builder.stream("lines", **S).group_by(value, **S).count(store="counts")
    counts.to_stream().to("word-counts", value=Serdes.long())
    topology = builder.build()
    assert (
        repr(topology)
        == "<Topology: 2 sub-topologies; reads lines, counts-repartition; writes counts-repartition, word-counts; "
        "stores counts>"
    )
    html = topology._repr_html_()
    assert html.count("<table>") == 2 and "Sub-topology 1: counts-repartition -&gt; word-counts" in html
    rows = _rows(html)
    assert any(row[2] == "counts" for row in rows) and any(row[2] == "lines" for row in rows)
    assert repr(Topology()) == "<Topology: 0 sub-topologies; reads none; writes none; stores none>"
    streams = KafkaStreams(
        topology, {"application.id": "words", "bootstrap.servers": "127.0.0.1:1", "state.dir": str(tmp_path)}
    )
    assert repr(streams) == f"<KafkaStreams words: CREATED, state in {tmp_path / 'words'}>"
