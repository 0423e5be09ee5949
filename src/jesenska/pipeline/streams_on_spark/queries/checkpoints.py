"""Checks that Spark's checkpoint of a sub-topology belongs to the application's state, before a query continues from
it.

    <n>/checkpoint/metadata     the id of the query; here it is computed from the id of the state
                   offsets      the end of each planned micro-batch
                   commits      the completed micro-batches

The application's consumer group has the offsets up to which the state has read (group_offsets.py). If a checkpoint is
lost, is an old copy, or belongs to another application, it does not match these offsets."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from jesenska.base.identifiers import TopicPartition
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams_on_spark.application import Application
from jesenska.pipeline.streams_on_spark.cutting import SubTopology
from jesenska.pipeline.streams_on_spark.queries.batch_ranges import ends_in
from jesenska.pipeline.streams_on_spark.queries.group_offsets import GroupOffsets
from jesenska.pipeline.streams_on_spark.stores.state_file import Binding


def numbers_in(directory: Path) -> list[int]:
    """Returns the numbers of the micro-batches in a directory of the checkpoint (offsets or commits), sorted."""
    return sorted(int(path.name) for path in directory.glob("*") if path.name.isdecimal())


def query_id(application: Application, part: SubTopology) -> str:
    """Returns the query id of a sub-topology. It is computed from the state's id, so another state has another query
    id."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{application.state_id}-{part.number}"))


def give_id(application: Application, part: SubTopology) -> None:
    """Writes the query id into the checkpoint of a query that has not run yet. Spark then uses this id."""
    checkpoint = application.directory / str(part.number) / "checkpoint"
    file = checkpoint / "metadata"
    if application.is_bound and not file.exists():
        checkpoint.mkdir(parents=True, exist_ok=True)
        new = checkpoint / "metadata.new"
        new.write_text(json.dumps({"id": query_id(application, part)}))
        new.rename(file)


def check(
    application: Application, part: SubTopology, offsets: GroupOffsets, text: str, begin: Mapping[TopicPartition, int]
) -> None:
    """Raises StreamsError if the checkpoint does not belong to the state. `offsets` are the committed offsets of the
    consumer group. `text` is the metadata text of offsets that this state has committed. `begin` contains the offsets
    at which a query without a checkpoint begins."""
    checkpoint = application.directory / str(part.number) / "checkpoint"
    planned, done = numbers_in(checkpoint / "offsets"), numbers_in(checkpoint / "commits")
    committed = {key: item.offset for key, item in offsets.items() if item.metadata == text and part.takes(key.topic)}
    if application.is_bound:
        _check_id(application, part, checkpoint / "metadata", bool(planned or done))
    if done and (not planned or done[-1] not in (planned[-1], planned[-1] - 1)):
        raise StreamsError(
            f"the checkpoint {checkpoint} has lost files (the last micro-batch is "
            f"{planned[-1] if planned else 'none'} in offsets, but {done[-1]} in commits): {_remedy(application)}."
        )
    if not planned:
        gone = next((key for key, offset in committed.items() if offset != begin.get(key)), None)
        if gone is not None:
            raise StreamsError(
                f"the checkpoint {checkpoint} is gone, but {gone} was read up to offset {committed[gone]} with "
                f"this checkpoint: {_remedy(application)}."
            )
        return
    known = [ends_in(checkpoint / "offsets" / str(number)) for number in planned[-2:]]
    last, before = known[-1], known[-1] if done[-1:] == planned[-1:] else known[0] if len(known) > 1 else {}
    for key, offset in committed.items():
        if key in last and offset > last[key]:
            raise StreamsError(gone_on(application))
        # The offsets are committed to the group before Spark records that the micro-batch is done.
        if key in last and offset not in (before.get(key), last[key]) and application.is_bound:
            raise StreamsError(
                f"the checkpoint {checkpoint} has read {key} up to offset {last[key]}, but the application has "
                f"read it up to {offset}, so the checkpoint belongs to another state: {_remedy(application)}."
            )
    if application.is_bound:
        version = planned[-1] + (done[-1:] == planned[-1:])
        for number, binding in bindings(
            application, part, {key.partition for key in before}, before if version else None, {}
        ).items():
            binding.check(application.directory / str(part.number) / "stores" / f"{number}.state", version)


def bindings(
    application: Application,
    part: SubTopology,
    partitions: Iterable[int],
    starts: Mapping[TopicPartition, int] | None,
    ends: Mapping[TopicPartition, int],
) -> dict[int, Binding]:
    """Returns, for each partition, the `Binding` (state_file.py) that its state file must match. It is made for a
    micro-batch from `starts` to `ends`. Returns no bindings if the sub-topology has no stores, or if an older release
    has made the state."""
    if not part.stores or not application.is_bound:
        return {}

    def of(offsets: Mapping[TopicPartition, int], number: int) -> dict[str, int]:
        return {key.topic: offset for key, offset in offsets.items() if key.partition == number}

    owner = f"{application.state_id} {part.number}"
    return {
        number: Binding(f"{owner} {number}", None if starts is None else of(starts, number), of(ends, number))
        for number in partitions
    }


def _check_id(application: Application, part: SubTopology, file: Path, has_run: bool) -> None:
    if not file.exists():
        if has_run:
            raise StreamsError(
                f"the file {file}, which says to which state the checkpoint belongs, is missing: "
                f"{_remedy(application)}."
            )
        return
    try:
        found = json.loads(file.read_text())["id"]
    except (ValueError, KeyError, TypeError):
        found = None
    if found != query_id(application, part):
        raise StreamsError(
            f"the checkpoint {file.parent} does not belong to the state in {application.directory}: "
            f"{_remedy(application)}."
        )


def _remedy(application: Application) -> str:
    if application.stores_without_changelog:
        return "put the right checkpoint back, or start again with kafka-streams-application-reset"
    return f"put the right checkpoint back, or remove {application.directory}, so that the state is restored"


def gone_on(application: Application) -> str:
    """Returns the error message for a state that is too old: since it was written, the application has continued with
    another state."""
    if application.stores_without_changelog:
        remedy = "set state.dir to where the newer state is, or start again with kafka-streams-application-reset"
    else:
        remedy = f"set state.dir to where the newer state is, or remove {application.directory}, which is restored then"
    return (
        f"the state in {application.directory} is too old: the application {application.id} has continued with "
        f"another state, so records would be counted twice: {remedy}."
    )
