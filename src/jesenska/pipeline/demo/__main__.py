"""The program `script/demo`. It sends real flights through a broker, processes them with PySpark, and writes the
results.

    broker (found or started) -> topics -> flights sent while Spark starts and reads -> results in topics, in Parquet
    and as tables -> Ctrl-C

All data is in demo-data/. A run that was interrupted, by Ctrl-C or by kill -9 of this program or of the broker, is
continued by the next run: it sends the flights that come after the last flight in the topic, and the pipeline
continues from its checkpoint. After a run that finished, the next run starts from the beginning."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jesenska.base.clock import Clock, SystemClock
from jesenska.base.errors import JesenskaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import uuid_to_text
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import ClientOptions
from jesenska.pipeline.demo import broker as demo_broker
from jesenska.pipeline.demo import flights, job
from jesenska.pipeline.demo.producing import NotContinuedError, StreamProducer
from jesenska.pipeline.demo.report import Reporter, day_of, tables
from jesenska.pipeline.demo.state import State, read_state, write_state
from jesenska.pipeline.spark.session import SHORT_RUN, end_session, session

_PARTITIONS = {"flights": 4, **dict.fromkeys(flights.REFERENCE_KEYS, 1), **dict.fromkeys(job.RESULT_TOPICS.values(), 2)}
_OUR_ERRORS = re.compile(r"jesenska\.[\w.]+(?:Error|Exception): (.+)")
_ALL_FLIGHTS = 336_776
_TOPIC_SECONDS = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell started us with Ctrl-C switched off
        signal.signal(number, signal.default_int_handler)
    clock = SystemClock()
    reporter = Reporter(clock)
    folder: Path = options.data
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = demo_broker.try_lock(folder / "run.lock")
        if lock is None:
            raise JesenskaError(f"Another demo is at work in {folder}: wait until it has shown its results.")
        broker = demo_broker.find_or_start(folder, clock, time.sleep, reporter.say)
    except (JesenskaError, OSError) as error:
        return _failed(error, options.debug)
    try:
        _Run(options, folder, broker, clock, reporter).run()
        lock.close()
    except KeyboardInterrupt:
        # Stopping the broker takes a moment, and a second Ctrl-C must not leave it running.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        reporter.show("\nInterrupted: the next run goes on from here.")
        broker.stop(clock, time.sleep)
        return 130
    except Exception as error:
        code = _failed(error, options.debug)
        broker.stop(clock, time.sleep)
        # Spark's threads may hang if the broker is unreachable. The checkpoint needs no orderly shutdown.
        sys.stdout.flush()
        os._exit(code)
    return _stay(broker, options, clock, reporter)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "script/demo", description="Real flights through a broker, a PySpark pipeline and out again."
    )
    parser.add_argument(
        "--exit",
        action="store_true",
        help="End after the results, the broker too, instead of keeping it up until Ctrl-C.",
    )
    parser.add_argument(
        "--speed-up",
        type=float,
        metavar="N",
        help="Send the flights N times as fast as they flew (20000: a year in 26 minutes); default: full speed.",
    )
    parser.add_argument("--flights", type=int, default=_ALL_FLIGHTS, metavar="N", help="Only the first N flights.")
    parser.add_argument(
        "--per-trigger", type=int, default=60_000, metavar="N", help="Flights that one micro-batch reads at most."
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("demo-data"),
        metavar="DIR",
        help="Folder for everything that is kept (default: demo-data).",
    )
    parser.add_argument("--master", default="local[2]", help="Where Spark runs (default: local[2]).")
    parser.add_argument("--debug", action="store_true", help="Show the stack behind an error.")
    return parser


def _failed(error: Exception, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exception(error)
    print(f"The demo stopped: {_sentence(error)}", file=sys.stderr, flush=True)
    return 1


def _sentence(error: Exception) -> str:
    """Returns the message of jesenska's own error in Spark's stack trace. If the trace contains no such error, returns
    the first line of the error's text."""
    text = str(error).strip()
    ours = _OUR_ERRORS.findall(text)
    if ours:
        return str(ours[-1])
    return text.splitlines()[0] if text else type(error).__name__


class _Run:
    """One run of the demo, from the creation of topics to the printed tables."""

    def __init__(
        self,
        options: argparse.Namespace,
        folder: Path,
        broker: demo_broker.DemoBroker,
        clock: Clock,
        reporter: Reporter,
    ) -> None:
        self._options = options
        self._folder = folder
        self._broker = broker
        self._clock = clock
        self._reporter = reporter
        self._connection = ClusterThread(ClientOptions(broker.address))
        self._producers: list[StreamProducer] = []
        self._sending_failed: BaseException | None = None
        self._references_sent = threading.Event()

    def run(self) -> None:
        self._prepare()
        sender = threading.Thread(target=self._send, name="flights", daemon=True)
        sender.start()
        try:
            self._process(sender)
        except KeyboardInterrupt:
            for producer in self._producers:
                producer.stop()
            raise
        finally:
            if sys.exc_info()[0] is None:
                self._connection.close()

    # --- topics ------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Prepares the topics and the checkpoint: keeps the topics and the checkpoint of an interrupted run. If there
        was no interrupted run, makes new topics and a new checkpoint."""
        wanted = self._options.flights
        before = read_state(self._folder)
        if before is not None and before.status == "running":
            if before.flights == wanted and self._connection.persist(self._topic_ids) == dict(before.topics):
                self._reporter.say("The last run was interrupted: continuing from its checkpoint and its last flight.")
                return
            self._reporter.say(
                "The last run was interrupted, but it had other topics or another number of flights: starting again."
            )
        write_state(self._folder, State("preparing", wanted))
        for name in ("checkpoint", "updates", "results"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        ids = self._connection.persist(self._create_topics)
        write_state(self._folder, State("running", wanted, ids))

    async def _create_topics(self) -> dict[str, str]:
        cluster = self._connection.cluster
        admin = Admin(cluster)
        there = [name for name in _PARTITIONS if name in await cluster.topics()]
        for error in (await admin.delete_topics(there)).values() if there else ():
            if error is not None and not isinstance(error, UnknownTopicOrPartitionError):
                raise error
        # Records have timestamps of 2013: with the default retention they would be deleted within minutes.
        missing = {name: NewTopic(name, count, 1, {"retention.ms": "-1"}) for name, count in _PARTITIONS.items()}
        deadline = self._clock.monotonic() + _TOPIC_SECONDS
        while missing:
            for name, error in (await admin.create_topics(missing.values())).items():
                if error is None:
                    del missing[name]
                elif not isinstance(error, TopicAlreadyExistsError) or self._clock.monotonic() > deadline:
                    raise error
            if missing:
                await asyncio.sleep(0.1)
        return await self._topic_ids()

    async def _topic_ids(self) -> dict[str, str]:
        deadline = self._clock.monotonic() + _TOPIC_SECONDS
        while True:
            topics = await self._connection.cluster.topics()
            found = {name: uuid_to_text(topics[name].topic_id) for name in _PARTITIONS if name in topics}
            led = all(partition.leader >= 0 for name in found for partition in topics[name].partitions)
            if led or self._clock.monotonic() > deadline:
                return found
            await asyncio.sleep(0.05)

    # --- flights in --------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        try:
            source = flights.data_folder()
            for topic in flights.REFERENCE_KEYS:
                StreamProducer(
                    self._connection, flights.reference(source, topic), _PARTITIONS[topic], self._clock
                ).send()
            self._references_sent.set()
            producer = StreamProducer(
                self._connection,
                flights.flights(source, self._options.flights),
                _PARTITIONS["flights"],
                self._clock,
                self._options.speed_up,
            )
            self._producers.append(producer)
            producer.send()
        except BaseException as error:
            self._sending_failed = error
            self._references_sent.set()

    # --- results out -------------------------------------------------------------------------------------------------

    def _process(self, sender: threading.Thread) -> None:
        self._reporter.say("Starting Spark while the flights are being sent.")
        settings = {**SHORT_RUN, "spark.sql.shuffle.partitions": "2"}
        spark = self._while(
            lambda: session("jesenska demo", self._options.master, settings, log=self._folder / "spark.log"),
            "Spark is starting",
        )
        self._while(self._references_sent.wait, "Airlines, airports, planes and weather are being sent")
        self._check()
        query = self._while(
            lambda: job.start(spark, self._broker.address, self._folder, self._options.per_trigger),
            "The pipeline is starting",
        )
        while sender.is_alive():
            self._look(query)
            sender.join(0.1)
        self._check()
        self._while(query.processAllAvailable, "", query)
        query.stop()
        self._reporter.say(
            f"All {len_text(self._producers[-1].progress.total)} flights are sent and counted; writing the results."
        )
        text = self._while(lambda: tables(job.finish(spark, self._folder)), "Results are being written")
        write_state(self._folder, State("done", self._options.flights))
        end_session(spark)
        self._reporter.show(text)

    def _while(self, work: Any, text: str, query: Any = None) -> Any:
        """Returns the result of `work`, which runs in a thread while progress is shown. If `work` raises an error, the
        error is raised here."""
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append(work())
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while thread.is_alive():
            self._look(query, text)
            thread.join(0.1)
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    def _look(self, query: Any, text: str = "") -> None:
        self._check(query)
        parts = [text] if text else []
        if self._producers:
            sent = self._producers[-1].progress
            upto = f" (up to {day_of(sent.timestamp_ms)})" if sent.timestamp_ms else ""
            parts.append(f"{len_text(sent.acknowledged)} of {len_text(sent.total)} flights sent{upto}")
        if query is not None:
            parts.append(f"{len_text(job.offsets_done(query))} counted")
        self._reporter.progress(", ".join(parts))

    def _check(self, query: Any = None) -> None:
        """Raises an error if the broker has ended, or if sending or the query has failed."""
        if not self._broker.is_alive():
            raise JesenskaError(
                f"The broker has ended: run the demo again, it goes on from here (its log is "
                f"{self._folder}/broker.log)."
            )
        if self._sending_failed is not None:
            if isinstance(self._sending_failed, NotContinuedError):
                write_state(self._folder, State("preparing", self._options.flights))
                raise JesenskaError(f"{self._sending_failed} Run the demo again: it starts from the beginning.")
            raise self._sending_failed
        if query is not None and not query.isActive and query.exception() is not None:
            raise JesenskaError(f"{query.exception()} Run the demo again, it goes on from here.")


def len_text(number: int) -> str:
    return f"{number:,}"


def _stay(broker: demo_broker.DemoBroker, options: argparse.Namespace, clock: Clock, reporter: Reporter) -> int:
    """Keeps the broker running in the foreground until Ctrl-C. With --exit, stops it at once. Returns the exit code of
    the program."""
    if options.exit or not broker.kept_here:
        broker.stop(clock, time.sleep)
        if not broker.kept_here:
            reporter.show(f"\nThe broker stays up at {broker.address}, where another program keeps it.")
        return 0
    tools = shlex.quote(os.path.relpath(Path(sys.executable).parent))
    reporter.show(
        f"\nThe broker stays up at {broker.address} until Ctrl-C. Next, in another terminal:\n\n"
        f"  {tools}/kafka-topics --bootstrap-server {broker.address} --list\n"
        f"  {tools}/kafka-console-consumer --bootstrap-server {broker.address} --topic "
        f"{job.RESULT_TOPICS['by_route']} --from-beginning\n"
        f'  {tools}/python -c "import pyarrow.parquet as p; '
        f"print(p.read_table('{options.data}/results/by_weather.parquet'))\""
    )
    try:
        while broker.is_alive():
            time.sleep(0.2)
    except KeyboardInterrupt:
        reporter.show("\nStopping the broker.")
        broker.stop(clock, time.sleep)
        return 0
    print(f"The broker has ended; its log is {options.data}/broker.log.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
