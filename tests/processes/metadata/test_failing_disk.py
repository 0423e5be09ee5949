"""zookeeper-server-start on a disk that fails: it ends, prints the reason, and starts again when the disk works."""

from __future__ import annotations

import os
import resource
import select
from pathlib import Path

import pytest

from jesenska.metadata.tree_operations import ConnectionLossError
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.testing.tree import TreeProcess
from tests.on_a_loop import on_a_loop

_SECONDS = 20.0


@pytest.mark.crash
@on_a_loop
async def test_a_server_whose_file_cannot_be_written_ends_with_one_sentence(tmp_path: Path) -> None:
    with TreeProcess(tmp_path) as tree:
        store = await ZooKeeperStore.connect(ConnectString.parse(tree.address))
        await store.create("/before")
        ended = os.pidfd_open(tree.pid)
        # No byte of any file can be written by that process.
        resource.prlimit(tree.pid, resource.RLIMIT_FSIZE, (0, 0))
        with pytest.raises(ConnectionLossError):
            await store.create("/after")
        assert select.select([ended], [], [], _SECONDS)[0], "the server has ended"
        os.close(ended)
        assert tree.stop() == 1
        said = tree.log.splitlines()[-1]
        assert said.startswith("zookeeper-server-start: The metadata file ")
        tree.start()
        await store.close()
        again = await ZooKeeperStore.connect(ConnectString.parse(tree.address))
        assert await again.exists("/before") is not None
        assert await again.exists("/after") is None
        await again.close()
