"""Runs one sub-topology as a streaming query of Spark.

Spark decides when a micro-batch begins and at which offsets it ends, and stores the offsets in the checkpoint. The
tasks of the micro-batch read the records (batch_ranges.py), process them, and write the output with the sink or in a
transaction."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import SourceOptions, sink_options, source_options
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams_on_spark import application_topics
from jesenska.pipeline.streams_on_spark.application import Application
from jesenska.pipeline.streams_on_spark.cutting import SubTopology, tasks_of
from jesenska.pipeline.streams_on_spark.paths import ways_of
from jesenska.pipeline.streams_on_spark.queries import checkpoints, group_offsets
from jesenska.pipeline.streams_on_spark.queries.batch_ranges import BatchRanges, shares
from jesenska.pipeline.streams_on_spark.queries.full_disks import of_a_full_disk
from jesenska.pipeline.streams_on_spark.queries.sent_modules import pickled
from jesenska.pipeline.streams_on_spark.stores.state_file import Binding, begin_file
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work, dry_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from jesenska.pipeline.streams_on_spark.queries.spark_task import GlobalEnds, Program

logger = logging.getLogger(__name__)

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class SubTopologyQuery:
    """The streaming query of one sub-topology. `counts` contains the numbers of partitions of all topics."""

    def __init__(
        self,
        application: Application,
        part: SubTopology,
        spark: SparkSession,
        connection: ClusterThread,
        counts: Mapping[str, int],
    ) -> None:
        #: The offsets at which a query without a checkpoint begins if an earlier state was lost. None if no state was
        #: lost.
        self.begin: Mapping[TopicPartition, int] | None = None
        self.part = part
        self._application = application
        self._text = group_offsets.application_text(application)
        self._committed: dict[TopicPartition, int] = {}
        self._spark = spark
        self._connection = connection
        self._counts = counts
        self._config = application.config
        self._directory = application.directory / str(part.number)
        self._producer_options = application.producer_options()
        self._topology = application.topology
        self._exactly_once = application.is_exactly_once
        self._tasks = tasks_of(part, counts)
        self._internal = {f"{application.id}-{topic}" for topic in self._topology.processors.internal_topics}
        self._program: Program = self._pickled()
        self._asks_for_the_clock = self._dry_run()
        self._global_source = application.global_source() if application.global_topics() else None
        self._sink = sink_options(self._producer_options)
        self._failure: StreamsError | None = None
        self._query: StreamingQuery | None = None
        self._source: SourceOptions | None = None
        self._ranges: BatchRanges | None = None
        self._read = 0  # offsets, since the query was started
        self._deleted: dict[TopicPartition, int] = {}

    def _pickled(self) -> Program:
        from jesenska.pipeline.streams_on_spark.queries.spark_task import Program

        sent = pickled((self._topology.plan, self._config))
        partitions = tuple(sorted((topic, self._counts[topic]) for topic in self.part.writes if topic in self._counts))
        return Program(sent, self.part.number, partitions, self._application.logged_stores(self.part))

    def _dry_run(self) -> bool:
        """Makes the processors once on the driver, so that errors in the user's code are raised before the query
        starts. Returns True if a processor schedules punctuations on wall-clock time."""
        work = Work.of(self._topology, self.part.number, self._config, dict(self._program.partitions))
        with dry_task(work) as task:
            return task.asks_for_the_clock

    def explain(self) -> str:
        """Returns a text of a few lines about the sub-topology: its topics, path, stores and guarantee."""
        part, kind = self.part, "exactly once" if self._exactly_once else "at least once"
        reads = [*part.reads, *([f"topics that match {part.pattern}"] if part.pattern is not None else [])]
        writes = [*part.writes, *(["topics that a function names"] if part.extracts else [])]
        return (
            f"Sub-topology: {part.number}\n"
            f"    reads   {', '.join(reads)}: {self._tasks} partitions\n"
            f"    steps   {self._path}\n"
            f"    stores  {', '.join(part.stores) or 'none'}\n"
            f"    writes  {', '.join(writes) or 'nothing'}, {kind}\n"
        )

    @property
    def _path(self) -> str:
        """Returns a description of the path on which records are processed, and why faster paths cannot be used."""
        found, reasons = ways_of(Work.of(self._topology, self.part.number, self._config, {}))
        way = str(found[0]) if found else "the engine, record by record"
        return f"{way}, since {', and '.join(reasons)}" if reasons else way

    def _check_stores(self) -> None:
        """Raises StreamsError if the checkpoint has completed micro-batches but the state files are missing."""
        commits, stores = self._directory / "checkpoint" / "commits", self._directory / "stores"
        if self.part.stores and not stores.exists() and commits.exists() and any(commits.iterdir()):
            raise StreamsError(
                f"the state in {stores} is gone, but its checkpoint exists: put the state back, or remove "
                f"{self._directory.parent}, so that the state is restored from the changelog topics."
            )
        stores.mkdir(parents=True, exist_ok=True)  # a micro-batch without records leaves none

    def refuse_a_second_one(self) -> None:
        """Raises StreamsError if a query of the same name runs in the session. Spark itself would also refuse the
        second query."""
        name = self._application.name_of_query(self.part)
        if any(query.name == name for query in self._spark.streams.active):
            raise StreamsError(
                f"this Spark session already runs a query with the name {name}, which another application with "
                "the same application.id has started: close that application first, or give this one another "
                "application.id."
            )

    # The query

    def start(self, *, continuous: bool) -> None:
        from jesenska.pipeline.streams_on_spark.queries.spark_task import COLUMNS

        self._check_stores()
        checkpoints.give_id(self._application, self.part)
        options = self._source_options()
        self._source = source_options(
            {**options, "includeHeaders": "true", "columns": ",".join(COLUMNS)}, streaming=True
        )
        self._ranges = BatchRanges(self._source, self._directory / "checkpoint")
        self._read = 0
        writer = (
            self._rows(options)
            .writeStream.queryName(self._application.name_of_query(self.part))
            .foreachBatch(self._process)
        )
        writer = writer.option("checkpointLocation", str(self._directory / "checkpoint"))
        if continuous:
            writer = writer.trigger(processingTime=f"{self._config['commit.interval.ms']} milliseconds")
        else:
            writer = writer.trigger(availableNow=True)
        self._failure = None
        with _plain_checkpoint_files(self._spark):
            try:
                self._query = writer.start()
            except Exception as error:
                raise self._worded(error) from error

    def run_to_end(self) -> int:
        """Processes all present records. Returns the number of offsets that were read."""
        from pyspark.errors import StreamingQueryException

        self.start(continuous=False)
        query = self._query
        assert query is not None
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            raise self._worded(error) from error
        self.delete_what_was_read()
        return self._read

    def stop(self) -> None:
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # raised by Spark if the query does not end in time
                logger.warning("The query of sub-topology %d did not stop in time: %s", self.part.number, error)

    def failure(self) -> StreamsError | None:
        """Returns the error with which the query has ended. Returns None while it runs, and before it was started."""
        query = self._query
        if query is None or query.isActive:
            return None
        error = query.exception()
        if error is None:
            return StreamsError(
                f"the query of sub-topology {self.part.number} was stopped from outside: stop the application with "
                f"close()."
            )
        return self._worded(error)

    def _worded(self, error: Exception) -> StreamsError:
        """Returns the query's error as a StreamsError with one sentence."""
        from jesenska.pipeline.streams_on_spark.queries.spark_task import failed_in_a_task

        if self._failure is not None:
            return self._failure
        text = str(error)
        if (full := of_a_full_disk(text, self._directory.parent)) is not None:
            return full
        sentence = failed_in_a_task(text)
        return StreamsError(
            sentence if sentence is not None else f"the query of sub-topology {self.part.number} has failed: {text}"
        )

    def _rows(self, options: Mapping[str, str]) -> DataFrame:
        """Returns the data frame whose micro-batches trigger the processing. Its rows are not used, since the tasks
        read the topics themselves."""
        reader = self._spark.readStream.format("jesenska").option("columns", "offset")
        for name, value in options.items():
            reader = reader.option(name, value)
        rows = reader.load()
        if not self._asks_for_the_clock:
            return rows
        ticks = self._spark.readStream.format("rate").option("rowsPerSecond", "1").load()
        return rows.unionByName(ticks.selectExpr("value as offset"))

    def _source_options(self) -> dict[str, str]:
        part = self.part
        options = {
            **self._application.consumer_options(),
            "startingOffsets": self._starts(),
            **(
                {}
                if self._application.max_offsets is None
                else {"maxOffsetsPerTrigger": str(self._application.max_offsets)}
            ),
        }
        if part.pattern is None:
            options["subscribe"] = ",".join(part.reads)
        else:
            options["subscribePattern"] = "|".join([part.pattern, *(topic.replace(".", r"\.") for topic in part.reads)])
        return options

    def _starts(self) -> str:
        """Returns the option startingOffsets of a query without a checkpoint. If the state was lost, or if a tool has
        set offsets for the group, these are the group's offsets. Otherwise they are the offsets that the program
        chooses."""
        topics = [topic for topic in self._counts if self.part.takes(topic)]
        given = self.begin
        if given is None:
            set_by_a_tool = group_offsets.set_by_a_tool(group_offsets.committed(self._connection, self._application))
            given = {key: offset for key, offset in set_by_a_tool.items() if key.topic not in self._internal}
        if not given and not self.part.latest:
            return "earliest"
        starts = {
            topic: {str(number): -1 if topic in self.part.latest else -2 for number in range(self._counts[topic])}
            for topic in topics
        }
        for key, offset in given.items():
            if key.topic in starts:
                starts[key.topic][str(key.partition)] = offset
        return json.dumps(starts)

    # A micro-batch, on the driver

    def _process(self, rows: DataFrame, batch_id: int) -> None:
        try:
            self._process_batch(rows, batch_id)
        except JesenskaError as error:
            self._failure = error if isinstance(error, StreamsError) else StreamsError(str(error))
            raise

    def _process_batch(self, rows: DataFrame, batch_id: int) -> None:
        from jesenska.pipeline.exactly_once import Offsets, write_exactly_once
        from jesenska.pipeline.spark.session import quiet_about_pandas
        from jesenska.pipeline.streams_on_spark.queries.spark_task import OUTPUT_SCHEMA, SparkTask

        assert self._ranges is not None and self._source is not None
        ranges = self._ranges.of(batch_id)
        self._read += sum(item.size for item in ranges)
        dealt = shares(
            ranges,
            max(1, self._spark.sparkContext.defaultParallelism),
            range(self._tasks) if self._asks_for_the_clock else (),
        )
        ends = {
            key: offset for key, offset in self._ranges.ends_of(batch_id).items() if self._committed.get(key) != offset
        }
        self._is_allowed()
        if not batch_id:
            # Partitions without records also get a state file. So if a state file is missing later, it is known to be
            # lost.
            without = set(range(self._tasks)).difference(number for share in dealt for number, _ in share)
            for number, binding in self._bindings(batch_id, without).items():
                begin_file(self._directory / "stores" / f"{number}.state", batch_id, binding)
        if not dealt:
            self._tell(ends)
            return
        sink = None if self._exactly_once else self._sink
        stores, taken = str(self._directory / "stores"), tuple(dealt)
        bindings = self._bindings(batch_id, {number for share in dealt for number, _ in share})
        task = SparkTask(self._program, stores, batch_id, self._source, taken, sink, self._global_ends(), bindings)
        if self._exactly_once:
            with quiet_about_pandas():
                done = self._spark.range(0, len(dealt), 1, len(dealt)).mapInArrow(task, OUTPUT_SCHEMA)
            write_exactly_once(
                done,
                batch_id,
                self._application.name_of_query(self.part),
                self._producer_options,
                offsets=Offsets(self._application.id, ends, self._text),
                counted_as=self._application.counted_as(self.part),
                is_allowed=self._is_allowed,
            )
            self._committed.update(ends)
        else:
            self._spark.sparkContext.parallelize(range(len(dealt)), len(dealt)).mapPartitions(task.write).collect()
            self._tell(ends)

    def _bindings(self, batch_id: int, partitions: Collection[int]) -> dict[int, Binding]:
        assert self._ranges is not None
        starts = self._ranges.ends_of(batch_id - 1) if batch_id else None
        return checkpoints.bindings(self._application, self.part, partitions, starts, self._ranges.ends_of(batch_id))

    def _is_allowed(self) -> None:
        group_offsets.refuse_another_state(self._connection, self._application, self._text)

    def _tell(self, ends: Mapping[TopicPartition, int]) -> None:
        """Commits the offsets up to which this state has read to the consumer group. Tools compute the application's
        lag from these offsets, and an application that has lost its state continues from them."""
        application_topics.tell_group(self._connection, self._application.id, ends, self._text)
        self._committed.update(ends)

    def _global_ends(self) -> GlobalEnds | None:
        from jesenska.pipeline.streams_on_spark.queries.spark_task import GlobalEnds

        if self._global_source is None:
            return None
        return GlobalEnds(
            application_topics.bounds(self._connection, self._application.global_topics(), self._counts),
            self._global_source,
        )

    # Internal topics

    def delete_what_was_read(self) -> None:
        """Deletes records of internal topics that no micro-batch will read again."""
        progress = (
            None
            if self._query is None or not self._internal.intersection(self.part.reads)
            else self._query.lastProgress
        )
        if progress is None:
            return
        before: dict[TopicPartition, int] = {}
        for source in progress.sources:
            for topic, partitions in _offsets(source.startOffset).items():
                if topic in self._internal:
                    for number, offset in partitions.items():
                        if number.isdigit() and offset > self._deleted.get(
                            key := TopicPartition(topic, int(number)), 0
                        ):
                            before[key] = offset
        try:
            application_topics.delete_records(self._connection, before)
        except JesenskaError as error:
            logger.info("Records of internal topics could not be deleted now: %s", error)
        else:
            self._deleted.update(before)


@contextmanager
def _plain_checkpoint_files(spark: SparkSession) -> Iterator[None]:
    """Makes a query that is started in this block write its checkpoint files with another file manager of Spark. This
    file manager starts fewer processes (chmod, readlink) for each file. It needs directories with atomic renames,
    which every local disk has."""
    before = spark.conf.get(_FILE_MANAGER, None)
    spark.conf.set(_FILE_MANAGER, before or _FILE_SYSTEM)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_FILE_MANAGER)


def _offsets(text: str | None) -> dict[str, dict[str, Any]]:
    """Returns the offsets by topic that the progress of a source contains as JSON text. Returns no offsets if the
    source is not jesenska's."""
    found = json.loads(text) if text else None
    return {name: value for name, value in found.items() if isinstance(value, dict)} if isinstance(found, dict) else {}
