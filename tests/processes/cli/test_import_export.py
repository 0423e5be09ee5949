"""`jesenska import` and `jesenska export`: their refusals, the files that they leave then, and the way from a tree of
a broker's own to a ZooKeeper and back. tests/conformance/test_interchange.py has the tests with Apache Kafka."""

from __future__ import annotations

import asyncio
import json
import re
import tarfile
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from jesenska.cli.commands import importing
from jesenska.cli.jesenska import main
from jesenska.cli.shared import tool as shared_tool
from jesenska.interchange import journal_file
from jesenska.interchange.journal_file import read_tree
from jesenska.interchange.nodes import Node
from jesenska.interchange.raft import retirement
from jesenska.interchange.raft.records import PartitionRecord, TopicRecord, write_record
from jesenska.log.directory.directory_lock import DirectoryLock
from jesenska.log.disk.files import FileLayer
from jesenska.metadata.nodes import PartitionStateNode, TopicNode, encode_cluster_id
from jesenska.metadata.store import Store
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from jesenska.testing.process import ServerFailedError
from tests.old_requests import create, fetch, produce
from tests.processes.broker.test_start_failures import contents, refused
from tests.processes.cli.conftest import Tool
from tests.raw_connection import RawConnection
from tests.served_tree import ServedTree
from tests.units.interchange.zookeeper_writer import data_directory
from tests.units.records.old_messages import message_set

_CLUSTER = "BkqKvcOWQuuOhwNvbYx_og"
_ID_TEXT, _ID = "AAAAAAAAAAAAAAAAAAAACQ", 9
_PROPERTIES = f"broker.id=1\nversion=0\ncluster.id={_CLUSTER}\n"
_RAFT_PROPERTIES = f"node.id=1\nversion=1\ncluster.id={_CLUSTER}\ndirectory.id=m-w9XTR1aXWZV51PoT-n9g\n"
_SESSION_MS = 10_000


def _nodes(replicas: tuple[int, ...] = (1,)) -> dict[str, Node]:
    return {
        "/brokers": Node(None),
        "/brokers/topics": Node(None),
        "/brokers/topics/t": Node(TopicNode({0: replicas}, uuid.UUID(int=_ID)).encode()),
        "/brokers/topics/t/partitions": Node(None),
        "/brokers/topics/t/partitions/0": Node(None),
        "/brokers/topics/t/partitions/0/state": Node(PartitionStateNode(1, 3, replicas, 2).encode()),
        "/cluster": Node(None),
        "/cluster/id": Node(encode_cluster_id(_CLUSTER)),
    }


def _partition(directory: Path) -> None:
    (directory / "t-0").mkdir(parents=True)
    (directory / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {_ID_TEXT}")
    (directory / "t-0" / f"{0:020d}.log").write_bytes(encode_batch([(1, b"k", b"v", ())], leader_epoch=3))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Data of Kafka: one partition of one record, and its tree in a ZooKeeper's files beside it."""
    directory = tmp_path / "kafka"
    _partition(directory)
    (directory / "meta.properties").write_text(_PROPERTIES)
    data_directory(tmp_path / "zookeeper", _nodes())
    return directory


@pytest.fixture
def raft(tmp_path: Path) -> Path:
    """The same data in KRaft mode."""
    directory = tmp_path / "kraft"
    _partition(directory)
    (directory / "meta.properties").write_text(_RAFT_PROPERTIES)
    (directory / "__cluster_metadata-0").mkdir()
    topic_id = uuid.UUID(int=_ID)
    partition = PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=3)
    records = [(TopicRecord(name="t", topic_id=topic_id), 0), (partition, 2)]
    content = encode_batch([(1, None, write_record(record, version), ()) for record, version in records])
    (directory / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(content)
    return directory


def _serves_its_record(directory: Path) -> None:
    with BrokerProcess(directory) as broker, RawConnection(broker.bootstrap) as connection:
        assert fetch(connection, "t", 4).high_watermark == 1
        assert broker.stop() == 0


def test_what_was_imported_is_served(tool: Tool, data: Path) -> None:
    from_files = ["--zookeeper-data", str(data.parent / "zookeeper")]
    before = contents(data)
    trial = tool(main, "import", str(data), *from_files, "--dry-run")
    assert (trial.code, trial.out) == (
        0,
        f"Would import broker 1 of cluster {_CLUSTER}: 1 topics with 1 partitions; 0 partitions have segments of a "
        f"format from before 0.11. "
        "Nothing was changed.\n",
    )
    assert contents(data) == before
    done = tool(main, "import", str(data), *from_files, "--output", "json")
    assert json.loads(done.out) == {
        "directories": [str(data)],
        "brokerId": 1,
        "clusterId": _CLUSTER,
        "topics": 1,
        "partitions": 1,
        "segmentsConverted": 0,
        "notes": [],
        "dryRun": False,
        "start": f"jesenska up --data {data}",
    }
    assert contents(data).keys() - before.keys() == {"jesenska-metadata.db"}
    assert {name: content for name, content in contents(data).items() if name in before} == before
    _serves_its_record(data)
    again = tool(main, "import", str(data), *from_files)
    assert again.code == 1
    assert "already has the metadata of a broker of jesenska" in again.err


_REFUSALS: list[tuple[str, Callable[[Path], list[str]], str]] = [
    ("no source", lambda data: [], "It is not known where the metadata are: give Kafka's ZooKeeper with --zookeeper"),
    (
        "both",
        lambda data: ["--zookeeper", "x:1", "--zookeeper-data", "y"],
        "--zookeeper and --zookeeper-data were both given",
    ),
    (
        "chroot",
        lambda data: ["--zookeeper", "x:1", "--chroot", "/kafka"],
        "--chroot and --zookeeper-logs belong to --zookeeper-data",
    ),
    (
        "bad chroot",
        lambda data: ["--zookeeper-data", str(data.parent / "zookeeper"), "--chroot", "kafka"],
        "--chroot kafka is not a path",
    ),
    (
        "no chroot",
        lambda data: ["--zookeeper-data", str(data.parent / "zookeeper"), "--chroot", "/kafka"],
        "has no node /kafka",
    ),
    ("metadata", lambda data: ["--metadata", str(data)], "--metadata is only for KRaft mode"),
    ("broker id", lambda data: ["--broker-id", "2"], "belongs to broker 1, but --broker-id is 2"),
    ("nobody there", lambda data: ["--zookeeper", "127.0.0.1:1"], "No ZooKeeper answers at 127.0.0.1:1"),
]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(arguments, said) for _, arguments, said in _REFUSALS],
    ids=[name for name, _, _ in _REFUSALS],
)
def test_wrong_arguments_are_one_sentence(
    tool: Tool, data: Path, arguments: Callable[[Path], list[str]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jesenska.cli.shared.zookeeper_option._CONNECT_MS", 200)
    before = contents(data)
    done = tool(main, "import", str(data), *arguments(data))
    assert done.code == 1
    assert said in done.err
    assert re.fullmatch(r"jesenska: [^\n]+\.\n", done.err)
    assert contents(data) == before


def _other_broker(data: Path) -> None:
    data_directory(data.parent / "other", _nodes((1, 2)))
    (data.parent / "zookeeper").rename(data.parent / "unused")
    (data.parent / "other").rename(data.parent / "zookeeper")


def _wrong_cluster(data: Path) -> None:
    (data / "meta.properties").write_text(_PROPERTIES.replace(_CLUSTER, "AaQ75lzqQ2KEwxkVn_PAKA"))


def _wrong_topic(data: Path) -> None:
    (data / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AaQ75lzqQ2KEwxkVn_PAKA")


def _unknown_owner(data: Path) -> None:
    (data / "meta.properties").unlink()


def _incomplete(data: Path) -> None:
    (data / "t-0").rename(data.parent / "elsewhere")


def _old_format_after_a_crash(data: Path) -> None:
    (data / "t-0" / f"{0:020d}.log").write_bytes(message_set([(1, b"k", b"v")], 1))


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (_other_broker, "has replicas on broker 2, too"),
        (_wrong_cluster, "belongs to cluster AaQ75lzqQ2KEwxkVn_PAKA, and The ZooKeeper in"),
        (_wrong_topic, "has the topic id AaQ75lzqQ2KEwxkVn_PAKA"),
        (_unknown_owner, "does not name its broker (it has no meta.properties): give the broker's id with --broker-id"),
        (_incomplete, "hold nothing of t-0"),
        (_old_format_after_a_crash, "was not shut down cleanly, and t-0 has a format from before 0.11"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_changes(
    tool: Tool, data: Path, prepare: Callable[[Path], None], said: str
) -> None:
    prepare(data)
    before = contents(data)
    done = tool(main, "import", str(data), "--zookeeper-data", str(data.parent / "zookeeper"))
    assert done.code == 1
    assert said in done.err
    assert contents(data) == before


def test_a_directory_in_use_and_one_that_is_none(tool: Tool, data: Path) -> None:
    lock = DirectoryLock(data)
    assert "is in use by process" in tool(main, "import", str(data), "--zookeeper", "x:1").err
    lock.release()
    assert "There is no directory" in tool(main, "import", str(data / "missing"), "--zookeeper", "x:1").err
    assert "is named twice" in tool(main, "import", str(data), str(data), "--zookeeper", "x:1").err


def test_old_formats_are_written_anew(tool: Tool, data: Path) -> None:
    (data / "t-0" / f"{0:020d}.log").write_bytes(message_set([(1, b"k", b"v")], 0))
    (data / ".kafka_cleanshutdown").write_bytes(b"")
    done = tool(main, "import", str(data), "--zookeeper-data", str(data.parent / "zookeeper"))
    assert done.lines[0].endswith("1 segments of a format from before 0.11 were written anew.")
    _serves_its_record(data)


def test_a_broker_is_not_started_on_what_was_not_imported(data: Path) -> None:
    """The broker would consider every partition a foreign one, and start an empty tree beside them."""
    said = refused(data)
    assert "has partitions (such as t-0), but" in said
    assert "if the data are Apache Kafka's, run jesenska import first" in said
    assert not (data / "jesenska-metadata.db").exists()


def test_a_crash_while_the_tree_is_written_leaves_the_directory_as_it_was(
    tool: Tool, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: FileLayer, source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    before = contents(data)
    from_files = ["--zookeeper-data", str(data.parent / "zookeeper")]
    with monkeypatch.context() as patched:
        patched.setattr(FileLayer, "rename", fails)
        done = tool(main, "import", str(data), *from_files)
    assert (done.code, "cannot be written" in done.err) == (1, True)
    assert contents(data) == before
    (data / "jesenska-metadata.db.new").write_bytes(b"from a process that was killed")
    assert tool(main, "import", str(data), *from_files).code == 0
    assert contents(data).keys() - before.keys() == {"jesenska-metadata.db"}


# --- KRaft mode ------------------------------------------------------------------------------------------------------


def test_a_raft_directory_is_imported_from_its_own_log(tool: Tool, raft: Path) -> None:
    metadata = (raft / "__cluster_metadata-0" / f"{0:020d}.log").read_bytes()
    assert "leave --zookeeper and --zookeeper-data out" in tool(main, "import", str(raft), "--zookeeper", "x:1").err
    assert tool(main, "import", str(raft)).code == 0
    assert not (raft / "__cluster_metadata-0").exists()
    with tarfile.open(raft / retirement.ARCHIVE) as kept:
        properties, log = (kept.extractfile(name) for name in ("meta.properties", f"__cluster_metadata-0/{0:020d}.log"))
        assert properties is not None
        assert log is not None
        assert (properties.read().decode(), log.read()) == (_RAFT_PROPERTIES, metadata)
    _serves_its_record(raft)


@pytest.mark.parametrize("step", ["archive", "write_meta_properties", "remove_log"])
def test_a_raft_import_that_is_interrupted_goes_on(
    tool: Tool, raft: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step, either the directory is a complete one of KRaft mode, or no broker starts on it until the import
    has been repeated."""

    def stops(*_: object) -> None:
        raise OSError(5, "Input/output error", "the disk")

    with monkeypatch.context() as patched:
        patched.setattr(retirement, step, stops)
        done = tool(main, "import", str(raft))
    assert (done.code, "the disk cannot be written" in done.err) == (1, True)
    is_kafkas = (raft / "meta.properties").read_text() == _RAFT_PROPERTIES
    assert is_kafkas == (step != "remove_log")
    assert (raft / "__cluster_metadata-0").is_dir()
    assert "KRaft mode" in refused(raft)
    before = contents(raft)
    trial = tool(main, "import", str(raft), "--dry-run")
    assert (trial.code, "already has the metadata of a broker of jesenska" in trial.err) == (
        (0, False) if is_kafkas else (1, True)
    )
    assert contents(raft) == before
    done = tool(main, "import", str(raft))
    assert (done.code, "is finished now" in done.out) == (0, not is_kafkas)
    with tarfile.open(raft / retirement.ARCHIVE) as kept:
        properties = kept.extractfile("meta.properties")
        assert properties is not None
        assert properties.read().decode() == _RAFT_PROPERTIES
    _serves_its_record(raft)


def test_a_raft_directory_without_its_metadata_log(tool: Tool, raft: Path, tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (raft / "__cluster_metadata-0").rename(tmp_path / "metadata" / "__cluster_metadata-0")
    before = contents(raft)
    assert "No directory holds __cluster_metadata-0" in tool(main, "import", str(raft)).err
    assert contents(raft) == before
    assert tool(main, "import", str(raft), "--metadata", str(tmp_path / "metadata")).code == 0
    assert (tmp_path / "metadata" / "__cluster_metadata-0").is_dir()
    _serves_its_record(raft)


# --- the way back ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tree() -> Iterator[ServedTree]:
    with ServedTree() as served:
        yield served


def _in_tree(address: str, work: Callable[[Store], Awaitable[object]]) -> object:
    async def run() -> object:
        store = await connect(address, session_timeout_ms=_SESSION_MS)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def test_exported_and_imported_again_everything_is_the_same(tool: Tool, tmp_path: Path, tree: ServedTree) -> None:
    directory, where = tmp_path / "data", f"{tree.address}/some/kafka"
    with BrokerProcess(directory) as broker:
        assert "is in use by process" in tool(main, "export", str(directory), "--zookeeper", where).err
        with RawConnection(broker.bootstrap) as connection:
            create(connection, "t", retention_ms="77000")
            assert produce(connection, "t", 3, encode_batch([(1, b"k", b"v", ())])).error_code == 0
        assert broker.stop() == 0
    own = read_tree(directory)
    trial = tool(main, "export", str(directory), "--zookeeper", where, "--dry-run")
    assert (trial.code, "Nothing was changed." in trial.out) == (0, True)
    assert _in_tree(tree.address, lambda store: store.exists("/some")) is None
    done = tool(main, "export", str(directory), "--zookeeper", where)
    assert (done.code, f"zookeeper.connect={where}" in done.out) == (0, True)
    assert "was exported to Apache Kafka: start Kafka with it" in refused(directory)
    assert "it was exported already" in tool(main, "export", str(directory), "--zookeeper", where).err
    assert tool(main, "import", str(directory), "--zookeeper", where).code == 0
    again = read_tree(directory)
    assert {path: node.data for path, node in again.items()} == {
        path: node.data or None for path, node in own.items() if not re.search(r"_change_\d", path)
    }
    with BrokerProcess(directory) as broker, RawConnection(broker.bootstrap) as connection:
        assert fetch(connection, "t", 4).high_watermark == 1
        assert broker.stop() == 0


def test_an_export_does_not_touch_another_cluster_or_one_that_is_up(tool: Tool, data: Path, tree: ServedTree) -> None:
    assert tool(main, "import", str(data), "--zookeeper-data", str(data.parent / "zookeeper")).code == 0
    before = contents(data)

    async def another(store: Store) -> None:
        await store.create("/cluster", None)
        await store.create("/cluster/id", encode_cluster_id("another"))

    _in_tree(tree.address, another)
    assert (
        "has cluster another, but these are"
        in tool(main, "export", str(data), "--zookeeper", tree.address, "--replace").err
    )
    with BrokerProcess(
        data.parent / "other", settings={"zookeeper.connect": f"{tree.address}/up", "broker.id": "5"}
    ) as broker:
        said = tool(main, "export", str(data), "--zookeeper", f"{tree.address}/up", "--replace").err
        assert "Brokers are registered in The ZooKeeper at" in said
        assert broker.stop() == 0
    assert contents(data) == before


def test_an_export_that_fails_on_the_way_can_be_repeated(
    tool: Tool, data: Path, tree: ServedTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster's id is written last, so that a broker of Kafka's that is started too early stops."""
    assert tool(main, "import", str(data), "--zookeeper-data", str(data.parent / "zookeeper")).code == 0
    monkeypatch.setattr("jesenska.interchange.zookeeper_copy._PIECE_OPERATIONS", 3)
    written = 0

    async def fails(store: Store, operations: object, max_bytes: int) -> None:
        nonlocal written
        written += 1
        if written == 3:
            raise OSError(104, "Connection reset by peer")
        await store.multi(operations)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr("jesenska.interchange.zookeeper_copy.multi_in_pieces", fails)
        assert tool(main, "export", str(data), "--zookeeper", tree.address).code == 1
    assert journal_file.has_tree(data)
    assert _in_tree(tree.address, lambda store: store.exists("/cluster/id")) is None
    assert tool(main, "export", str(data), "--zookeeper", tree.address, "--replace", "--keep").code == 0
    assert _in_tree(tree.address, lambda store: store.exists("/cluster/id")) is not None
    assert journal_file.has_tree(data)


def test_an_export_over_this_clusters_metadata_takes_its_id_away_first(
    tool: Tool, data: Path, tree: ServedTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_files = ["--zookeeper-data", str(data.parent / "zookeeper")]
    assert tool(main, "import", str(data), *from_files).code == 0
    assert tool(main, "export", str(data), "--zookeeper", tree.address, "--keep").code == 0
    assert "already has metadata of Kafka" in tool(main, "export", str(data), "--zookeeper", tree.address).err

    async def later(store: Store) -> None:
        await store.set("/brokers/topics/t", b"of an older time")
        await store.create("/brokers/topics/gone", b"{}")

    async def fails(store: Store, operations: object, max_bytes: int) -> None:
        raise OSError(104, "Connection reset by peer")

    _in_tree(tree.address, later)
    with monkeypatch.context() as patched:
        patched.setattr("jesenska.interchange.zookeeper_copy.multi_in_pieces", fails)
        assert tool(main, "export", str(data), "--zookeeper", tree.address, "--replace").code == 1
    assert _in_tree(tree.address, lambda store: store.exists("/cluster/id")) is None
    assert tool(main, "export", str(data), "--zookeeper", tree.address, "--replace").code == 0
    assert _in_tree(tree.address, lambda store: store.exists("/brokers/topics/gone")) is None
    assert tool(main, "import", str(data), "--zookeeper", tree.address).code == 0
    assert read_tree(data)["/brokers/topics/t"].data == _nodes()["/brokers/topics/t"].data


def test_several_directories_are_named_in_their_order(tool: Tool, data: Path) -> None:
    from_files = ["--zookeeper-data", str(data.parent / "zookeeper")]
    first = data.parent / "first"
    first.mkdir()
    (first / "meta.properties").write_text(_PROPERTIES)
    assert "hold nothing of t-0" in tool(main, "import", str(first), *from_files).err
    done = tool(main, "import", str(first), str(data), *from_files)
    assert done.lines[-1] == f"  jesenska up --override log.dirs={first},{data}"
    assert journal_file.has_tree(first)
    assert not journal_file.has_tree(data)
    with (
        BrokerProcess(first, settings={"log.dirs": f"{first},{data}"}) as broker,
        RawConnection(broker.bootstrap) as connection,
    ):
        assert fetch(connection, "t", 4).high_watermark == 1
        assert broker.stop() == 0
    assert "has no metadata about them" in refused(data, "--port", "0", "--override", f"log.dirs={data},{first}")


def test_versions_of_nodes_are_kept(tmp_path: Path) -> None:
    """The version of /brokers/seqid gives brokers their ids."""
    nodes = {"/brokers": Node(None), "/brokers/seqid": Node(None, 7), "/consumers": Node(b"x", 2)}
    for zxid in (0, 99, 10**19):
        journal_file.write_tree(tmp_path, nodes, zxid, 1, FileLayer())
        assert read_tree(tmp_path) == nodes


def test_long_work_says_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    telling = shared_tool.Telling()
    telling.tell("too soon")
    monkeypatch.setattr(shared_tool, "QUIET_SECONDS", 0.0)
    importing.Counter(telling, "t-0")(500)
    assert capsys.readouterr().err == "t-0: 500 bytes written anew\n"


def test_a_directory_that_does_not_say_whose_it_is(data: Path, tool: Tool) -> None:
    """Kafka before 0.9 wrote no meta.properties."""
    (data / "meta.properties").unlink()
    done = tool(main, "import", str(data), "--zookeeper-data", str(data.parent / "zookeeper"), "--broker-id", "1")
    assert done.lines[-1] == f"  jesenska up --data {data} --override broker.id=1"
    _serves_its_record(data)


def test_a_broker_takes_its_number_from_its_directory(data: Path, tool: Tool) -> None:
    """Without a setting, Kafka's first broker is 0 and ours is 1."""
    (data / "meta.properties").write_text(_PROPERTIES.replace("broker.id=1", "broker.id=4"))
    nodes = _nodes((4,))
    data_directory(data.parent / "four", nodes)
    assert tool(main, "import", str(data), "--zookeeper-data", str(data.parent / "four")).code == 0
    _serves_its_record(data)
    with pytest.raises(ServerFailedError), BrokerProcess(data, settings={"broker.id": "3"}):
        pass
