"""Mistakes that are made on purpose in brokers of a cluster, for a simulation of three to find.

`JESENSKA_PURE=1 python -m tests.processes.testing.planted_cluster_bugs NAME [FIRST [SEEDS]]` prints the first seed
that fails, and why. Exit code 1 if none of so many does."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jesenska.base.errors import ErrorCode
from jesenska.broker.controlling.controllership import Controllership
from jesenska.broker.replicas.order_receiver import OrderReceiver
from jesenska.broker.stages import replication, tree
from jesenska.controller.changes import brokers, many_elections
from jesenska.controller.orders.fence import OrderFence
from jesenska.controller.orders.missed_deletions import TopicsGone
from jesenska.coordination.runtime import Runtime
from jesenska.interchange import rebuilding
from jesenska.interchange.takeover import topics_in
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.metadata.nodes import PartitionStateNode
from jesenska.replication.follower import link
from jesenska.replication.partition import Partition
from jesenska.replication.replicas import Replicas
from jesenska.testing.simulation import disasters
from jesenska.testing.simulation.schedule import simulation


def committed_is_what_the_leader_has() -> None:
    """The high watermark is the end of the leader's log."""
    Replicas.next_high_watermark = lambda self, current, end, now_ms: max(current, end)  # type: ignore[assignment,method-assign]


def cut_to_the_high_watermark() -> None:
    """A follower cuts its log to its high watermark, and not to the point where the epochs diverge."""

    def cut(log: PartitionLog, diverging: Any, now_ms: int, settled: Any) -> None:
        log.truncate_to(log.high_watermark, now_ms, settled)

    link.cut = cut  # type: ignore[attr-defined]


def nothing_is_cut() -> None:
    """A follower continues at the end of its log without regard to its leader's log."""

    def cut(log: PartitionLog, diverging: Any, now_ms: int, settled: Any) -> None:
        settled(None)

    link.cut = cut  # type: ignore[attr-defined]


def who_crashed_is_elected() -> None:
    """A broker that returns after a crash stays in every ISR."""
    came = brokers.Brokers._change

    def change(self: Any, gone: Any, arrived: Any) -> Any:
        return came(self, gone, [event._replace(crashed=False) for event in arrived])

    brokers.Brokers._change = change  # type: ignore[method-assign,assignment]


def orders_of_anybody_are_obeyed() -> None:
    """A broker obeys every former controller."""
    admit = OrderFence.admit

    def admit_anybody(self: OrderFence, orderer: Any, broker_epoch: int) -> ErrorCode:
        known, self.controller_epoch = self.controller_epoch, -1
        refusal = admit(self, orderer, broker_epoch)
        if refusal != ErrorCode.NONE:
            self.controller_epoch = known
        return refusal

    OrderFence.admit = admit_anybody  # type: ignore[method-assign]


def proposed_is_agreed() -> None:
    """The high watermark does not wait for replicas that are about to leave the ISR."""
    Replicas._in_either = property(lambda self: dict.fromkeys(self.proposed_isr or self.isr))  # type: ignore[assignment,method-assign]


def a_leader_that_was_replaced_writes_on() -> None:
    """Acknowledgements are kept across the end of a leadership."""

    def answer(self: Partition) -> None:
        waiting, self._uncommitted = self._uncommitted or (), None
        for write in waiting:
            write.done(write.result)

    Partition._fail_uncommitted = answer  # type: ignore[method-assign]


def elections_are_not_fenced() -> None:
    """A replaced controller still writes elections."""
    many_elections.epoch_check = lambda view: ()  # type: ignore[attr-defined]


def who_was_controller_goes_on() -> None:
    """The end of a controller's term stops none of its work."""

    def end(self: Controllership, epoch: int) -> None:
        self.controller_id = -1
        self.is_settled.clear()

    Controllership.end = end  # type: ignore[method-assign]


def metadata_of_anybody_are_taken() -> None:
    """Metadata of topics and brokers from a replaced controller are passed on to clients."""

    async def update_metadata(self: OrderReceiver, orderer: Any, metadata: Any) -> None:
        async with self._turn:
            await self._replicas.update_metadata(metadata, orderer.controller_id)
        self.knows_cluster = True
        if self._replicas_epoch >= 0:
            self.has_replicas.set()

    OrderReceiver.update_metadata = update_metadata  # type: ignore[method-assign]


def orders_for_an_earlier_life_are_obeyed() -> None:
    """A broker obeys orders that were sent before it registered."""
    admit = OrderFence.admit
    OrderFence.admit = lambda self, orderer, broker_epoch: admit(self, orderer, -1)  # type: ignore[method-assign]


def a_followers_epoch_is_not_asked_for() -> None:
    """A leader counts the fetches of followers that are in an earlier epoch."""
    log_for, fetched = Partition.log_for, Partition.follower_fetched

    def follower_fetched(
        self: Partition, broker_id: int, offset: int, end: int, epoch: int = -1, *, may_join: bool = True
    ) -> bool:
        return fetched(self, broker_id, offset, end, -1, may_join=may_join)

    Partition.log_for = lambda self, broker_id, epoch: log_for(  # type: ignore[method-assign,assignment]
        self, broker_id, -1 if self.leader_epoch > epoch else epoch
    )
    Partition.follower_fetched = follower_fetched  # type: ignore[method-assign,assignment]


def sent_again_is_answered_at_once() -> None:
    """A batch that is already in the log is acknowledged, even if replicas lack it."""
    is_done = Partition._is_done
    Partition._is_done = lambda self, log, acks, result, done: (  # type: ignore[method-assign]
        result.duplicate or is_done(self, log, acks, result, done)
    )


def all_is_committed_after_a_restart() -> None:
    """The high watermark is restored as the end of the log."""
    adopt = LogDirectories._adopt

    def adopted(
        self: LogDirectories,
        directory: Any,
        name: Any,
        loaded: Any,
        config: Any,
        topic_id: Any,
        now_ms: int,
        high_watermark: int = 0,
    ) -> PartitionLog:
        return adopt(self, directory, name, loaded, config, topic_id, now_ms, loaded.next_offset)

    LogDirectories._adopt = adopted  # type: ignore[method-assign,assignment]


def who_fetches_is_in_sync() -> None:
    """A follower joins the ISR after its first fetch, without a check of the end of its log."""
    fetched = Replicas.follower_fetched

    def follower_fetched(
        self: Replicas,
        broker_id: int,
        offset: int,
        end: int,
        high_watermark: int,
        now_ms: int,
        *,
        may_join: bool = True,
    ) -> bool:
        proposes = fetched(self, broker_id, offset, end, high_watermark, now_ms, may_join=may_join)
        if proposes or not may_join or broker_id in self.isr or self.proposed_isr is not None:
            return proposes
        self.proposed_isr = (*self.isr, broker_id)
        self._count()
        return True

    Replicas.follower_fetched = follower_fetched  # type: ignore[method-assign,assignment]


def a_new_leader_tells_what_it_knows() -> None:
    """A leader reports its high watermark before it knows the records that were committed under the leader before."""
    Replicas.knows_high_watermark = lambda self, high_watermark: True  # type: ignore[method-assign]


def what_is_being_loaded_is_kept() -> None:
    """The loading of a shard continues after another broker has become leader of its partition."""
    resign = Runtime.resign

    def resigned(self: Runtime[Any], number: int) -> None:
        hosted = self._hosted.get(number)
        if hosted is None or hosted.loading is None:
            resign(self, number)

    Runtime.resign = resigned  # type: ignore[method-assign]


def one_in_sync_is_enough() -> None:
    """min.insync.replicas=2 has no effect."""
    Replicas._needed_in_sync = property(lambda self: 1)  # type: ignore[assignment,method-assign]


def too_few_in_sync_sync_nothing() -> None:
    """The last in-sync replica keeps acknowledged records only in its page cache."""
    Replicas.is_to_be_synced = property(lambda self: False)  # type: ignore[assignment,method-assign]


def the_ghost_topic() -> None:
    """A broker that missed a topic's deletion keeps the topic."""
    TopicsGone.gone_after = lambda self, orderer, metadata, known: () if metadata.is_all else metadata.gone  # type: ignore[method-assign]


def an_empty_disk_leads() -> None:
    """An in-sync replica leads even if its disk has lost data. The tree is not asked for the data that it should
    have."""
    replication.lost_data = lambda core, facts, **more: []
    LogDirectories.was_clean = property(lambda self: True)  # type: ignore[assignment,method-assign]


def a_log_that_has_lost_its_end_leads() -> None:
    """After an orderly stop a log is accepted without a comparison with its checkpoints."""
    LogDirectories.cut_logs = property(lambda self: {})  # type: ignore[assignment,method-assign]


def an_empty_tree_is_taken_for_a_new_one() -> None:
    """A tree that knows no cluster gets the id of the broker's directories."""
    tree.refuse_empty_tree = lambda *arguments, **more: None  # type: ignore[attr-defined]


def an_older_tree_is_taken() -> None:
    """A broker starts with an old tree, without a check of the leader epochs in the logs."""
    replication.older_tree = lambda core, facts, tree: None


def a_rebuilt_tree_has_epochs_of_before() -> None:
    """Leader epochs of a rebuilt tree start where those of the logs end."""
    rebuilding._EPOCHS_UNHEARD_OF = 0


def whoever_has_a_log_is_in_sync_in_a_rebuilt_tree() -> None:
    """The lengths of the logs are not compared."""

    def state(replicas: Any, holders: Any, leader_epoch: int, controller_epoch: int) -> PartitionStateNode:
        return PartitionStateNode(replicas[0], leader_epoch, tuple(replicas), controller_epoch)

    rebuilding._state = state


def topics_that_were_made_since_the_backup_are_forgotten() -> None:
    """A tree that is rebuilt with a backup has only the topics of the backup."""
    build = disasters.rebuild  # type: ignore[attr-defined]

    def of_backup(inventories: Any, new_uuid: Any, *, backup: Any = None) -> Any:
        if backup is not None:
            known = topics_in(backup, "the backup")
            inventories = [
                replace(item, replicas={key: held for key, held in item.replicas.items() if key.topic in known})
                for item in inventories
            ]
        return build(inventories, new_uuid, backup=backup)

    disasters.rebuild = of_backup  # type: ignore[assignment,attr-defined]


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        committed_is_what_the_leader_has,
        cut_to_the_high_watermark,
        nothing_is_cut,
        who_crashed_is_elected,
        orders_of_anybody_are_obeyed,
        proposed_is_agreed,
        a_leader_that_was_replaced_writes_on,
        elections_are_not_fenced,
        who_was_controller_goes_on,
        metadata_of_anybody_are_taken,
        orders_for_an_earlier_life_are_obeyed,
        a_followers_epoch_is_not_asked_for,
        sent_again_is_answered_at_once,
        all_is_committed_after_a_restart,
        who_fetches_is_in_sync,
        a_new_leader_tells_what_it_knows,
        what_is_being_loaded_is_kept,
        one_in_sync_is_enough,
        too_few_in_sync_sync_nothing,
        the_ghost_topic,
        an_empty_disk_leads,
        a_log_that_has_lost_its_end_leads,
        an_empty_tree_is_taken_for_a_new_one,
        an_older_tree_is_taken,
        a_rebuilt_tree_has_epochs_of_before,
        whoever_has_a_log_is_in_sync_in_a_rebuilt_tree,
        topics_that_were_made_since_the_backup_are_forgotten,
    )
}


def search(name: str, first: int, seeds: int) -> int:
    """Makes the mistake and searches for a seed that finds it. Returns the exit code."""
    BUGS[name]()
    gc.freeze()
    for seed in range(first, first + seeds):
        with simulation(seed, brokers=3) as one:
            try:
                one.run()
            except Exception as error:
                print(f"seed {seed} fails at {one.world.now:.3f} s: {type(error).__name__}: {error}")
                return 0
    print(f"no seed of {seeds} fails")
    return 1


def main() -> int:
    logging.disable(logging.CRITICAL)
    first, seeds = (int(text) for text in [*sys.argv[2:], *("1", "200")[len(sys.argv) - 2 :]])
    return search(sys.argv[1], first, seeds)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.processes.testing.planted_cluster_bugs", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
