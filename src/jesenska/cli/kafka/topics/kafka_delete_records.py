"""kafka-delete-records: deletes the records of partitions before given offsets. Flags and output are those of Apache
Kafka 4.3.1's tool. The file has the form

    {"partitions": [{"topic": "t", "partition": 0, "offset": 12}], "version": 1}

An offset of -1 means the high watermark. Differs from Kafka's tool: the exit code is 1 if a partition failed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from jesenska.base.errors import JesenskaError, KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.shared.json_files import PARTITION_MAX, is_number, read_json
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    add_output,
    cluster_of,
    print_json,
    run_async,
    sentence,
    telling,
)
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import Cluster

_HIGHEST_OFFSET = 2**63 - 1


def _parser() -> Parser:
    parser = Parser("kafka-delete-records", "Deletes the records of partitions before given offsets.")
    add_bootstrap(parser)
    parser.add_argument(
        "--offset-json-file",
        metavar="FILE",
        help="REQUIRED: The partitions and the offsets before which records are deleted, as JSON.",
    )
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if options.offset_json_file is None:
        parser.error("Missing required argument --offset-json-file")
    offsets = read_offsets(options.offset_json_file)
    text = options.output == "text"
    if text:
        print("Executing records delete operation", flush=True)
    async with cluster_of(options) as cluster, telling("Waiting for the brokers"):
        results = await _delete(cluster, offsets)
    if text:
        print("Records delete operation completed:")
    for key, result in results.items():
        if isinstance(result, KafkaError):
            result = results[key] = _explained(key, offsets[key], result)
            print(f"kafka-delete-records: {sentence(result)}", file=sys.stderr)
        if text:
            print(
                f"partition: {key}\t"
                + (f"error: {sentence(result)}" if isinstance(result, KafkaError) else f"low_watermark: {result}")
            )
    if not text:
        print_json([_document(key, result) for key, result in results.items()])
    return 1 if any(isinstance(result, KafkaError) for result in results.values()) else 0


async def _delete(cluster: Cluster, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
    """Returns for each partition its new low watermark or an error, in the file's order. If some partitions do not
    exist, records are still deleted in the existing partitions."""
    topics = await cluster.topics()
    results: dict[TopicPartition, int | KafkaError] = {}
    known = {
        key: offset
        for key, offset in offsets.items()
        if key.topic in topics and key.partition < len(topics[key.topic].partitions)
    }
    done = await Admin(cluster).delete_records(known) if known else {}
    for key in offsets:
        results[key] = done.get(
            key, UnknownTopicOrPartitionError(f"{key} does not exist: kafka-topics --describe shows what does.")
        )
    return results


def _explained(key: TopicPartition, offset: int, error: KafkaError) -> KafkaError:
    if isinstance(error, OffsetOutOfRangeError):
        return OffsetOutOfRangeError(
            f"{key}: offset {offset} is past the high watermark; -1 deletes everything up to it."
        )
    return error


def _document(key: TopicPartition, result: int | KafkaError) -> dict[str, Any]:
    document: dict[str, Any] = {"topic": key.topic, "partition": key.partition}
    return document | (
        {"error": type(result).__name__, "message": sentence(result)}
        if isinstance(result, KafkaError)
        else {"lowWatermark": result}
    )


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Returns the offsets in a file. Raises JesenskaError with one sentence if the file does not have the form that
    the module describes."""
    document = read_json(path, "The input string is not a valid JSON")
    if not isinstance(document, dict) or document.get("version", 1) != 1:
        raise JesenskaError(f'{path} is not of version 1: write {{"partitions": [...], "version": 1}}.')
    partitions = document.get("partitions")
    if not isinstance(partitions, list):
        raise JesenskaError(f"{path} has no list of partitions: Missing partitions field.")
    found: dict[TopicPartition, int] = {}
    for item in partitions:
        fields = item if isinstance(item, dict) else {}
        topic, partition, offset = fields.get("topic"), fields.get("partition"), fields.get("offset")
        if (
            not isinstance(topic, str)
            or not is_number(partition, 0, PARTITION_MAX)
            or not is_number(offset, -1, _HIGHEST_OFFSET)
        ):
            raise JesenskaError(
                f'{json.dumps(item)[:200]} in {path} is not of the form {{"topic": "t", "partition": 0, "offset": 12}}.'
            )
        key = TopicPartition(topic, partition)
        if key in found:
            raise JesenskaError(f"Offset json file contains duplicate topic partitions: {key}.")
        found[key] = offset
    return found


if __name__ == "__main__":
    sys.exit(main())
