"""Every limit that is not a Kafka setting, by name. A queue, a buffer or a count without a limit is a defect."""

from __future__ import annotations

#: Bytes that the records of one compressed batch may take once decompressed; beyond it INVALID_RECORD (against
#: decompression bombs).
DECOMPRESSED_BATCH_MAX_BYTES = 128 * 1024 * 1024
#: Decompression and the check of the records inside go in pieces of this size.
DECOMPRESSION_PIECE_BYTES = 64 * 1024
#: A batch over this size is checked in the thread pool and not on the loop.
INLINE_CHECK_MAX_BYTES = 64 * 1024
#: Bytes that the compressed batches of one request may make on the loop (a quarter of a millisecond); more goes to the
#: pool.
INLINE_DECOMPRESSED_MAX_BYTES = 512 * 1024
#: The bytes that one byte of a message set counts for: if it is decompressed, converted and compressed again (16 KB of
#: lz4 take 40 us), and if it is only converted.
COST_OF_RECOMPRESSING, COST_OF_CONVERTING = 4, 1
#: The largest buffer that a thread of the pool keeps to read into what it converts for old consumers; they ask for 1
#: MB by default.
CONVERSION_BUFFER_MAX_BYTES = 2 * 1024 * 1024
#: How many converted answers' memory is kept for the next ones, and from which size on.
CONVERTED_KEPT_MAX, CONVERTED_KEPT_MIN_BYTES = 8, 256 * 1024
#: Bytes of converted answers on their way to old consumers, over all connections. Each new answer gets half of what is
#: left of it, and at least the second figure: consumers that do not read take no more than that each once the first is
#: used up.
CONVERTED_ANSWERS_BYTES, CONVERTED_ANSWER_MIN_BYTES = 32 * 1024 * 1024, 512 * 1024
#: Bytes of small pieces of files that are read to leave in one write: the memory that a peer that does not read takes.
GATHERED_WRITE_BYTES = 256 * 1024
#: The longest wait of a fetch for records, even if it asks for more.
FETCH_WAIT_MAX_MS = 300_000
#: Bytes that one read from a socket may bring; one buffer of this size serves all connections of a loop.
READ_BUFFER_BYTES = 256 * 1024
#: A request that does not fit the read buffer gets a buffer of its own, which grows by doubling from this size as its
#: bytes arrive.
REQUEST_BUFFER_FIRST_BYTES = 64 * 1024
#: Buffers of a megabyte for such requests that are kept for the next ones.
KEPT_REQUEST_BUFFERS = 8
#: Bytes of the buffers of requests that have not arrived whole, over all connections, before new ones get room for no
#: more than twice what has arrived.
UNFINISHED_REQUESTS_BYTES = 32 * 1024 * 1024
#: Frames of one read that are handled before other connections have their turn.
FRAMES_PER_TURN = 200
#: Produce requests of one connection that are in the log and wait for replicas at once, and their bytes: no further
#: one is taken beyond either.
WAITING_PRODUCES_PER_CONNECTION = 10
WAITING_PRODUCES_BYTES = 4 * 1024 * 1024
#: Connections that may wait to be accepted, where socket.listen.backlog.size does not say how many.
LISTEN_BACKLOG = 1024
#: How long a TLS handshake may take, and how many of their steps one turn of the loop has: each costs about 1 ms.
TLS_HANDSHAKE_SECONDS = 10.0
TLS_HANDSHAKE_STEPS_PER_TURN = 4
#: Bytes of answers to the requests of one read that leave in one write.
HELD_ANSWER_BYTES = 64 * 1024
#: Bytes of answers that wait for a slow reader before the connection's requests are no longer read.
UNSENT_ANSWER_BYTES = 1024 * 1024
#: Elements of one array in a request; a count is also refused when the bytes that are left cannot hold that many.
ARRAY_MAX_ELEMENTS = 1_000_000
#: Elements of all arrays of one request together, beside one for each partition that there is: what a request may name
#: is bounded by what can exist. It is worked through in one turn of the loop.
REQUEST_ELEMENTS_MAX = 10_000
#: The same for requests that describe partitions, each with its replicas: of topics that are to be made, or as a
#: controller orders them.
CREATION_ELEMENTS_MAX = 60_000
#: Settings that one answer may describe of resources that it has described before.
DESCRIBED_AGAIN_MAX = 10_000
#: Metadata of a member of a group for all its protocols together, as a multiple of the largest record that the group's
#: partition takes: the group's record holds that of one protocol.
MEMBER_METADATA_RECORDS_MAX = 10
#: Tagged fields in one struct of a request.
TAGGED_FIELDS_MAX = 1024
#: Characters of an error's message: names that a client sends may have 32,767 bytes, and an answer's string no more
#: than that.
ERROR_MESSAGE_MAX_CHARS = 2_000
#: Tasks that wait for a thread of the pool before requests that need one are refused.
POOL_QUEUE_MAX = 10_000
#: Open segment files kept by the cache of files, if the system's limit allows as many.
OPEN_SEGMENTS_MAX = 4096
#: Partitions of one fetch session; a client that names more gets none.
FETCH_SESSION_PARTITIONS_MAX = 100_000
#: Partitions of all fetch sessions together (each takes about 300 bytes).
FETCH_SESSIONS_PARTITIONS_MAX = 500_000
#: Bytes of an active segment that a branch copies; a larger one is rolled, so that it can be linked.
BRANCH_COPIED_BYTES = 16 * 1024 * 1024
#: Producers remembered by one partition.
PRODUCERS_PER_PARTITION_MAX = 100_000
#: Bytes of one node of the metadata tree (ZooKeeper's own limit).
TREE_NODE_MAX_BYTES = 1024 * 1024
#: Changes of the metadata tree that wait for their commit before further ones are refused.
TREE_PENDING_MAX = 10_000
#: Bytes of one line with an order to the tree's process, or with its answer.
TREE_ORDER_MAX_BYTES = 16 * 1024
#: Bytes of one frame from a client of the ZooKeeper server: a node at its largest with its path and ACL (ZooKeeper's
#: own limit is 1,048,575).
ZOOKEEPER_REQUEST_MAX_BYTES = TREE_NODE_MAX_BYTES + 64 * 1024
#: Bytes of one frame from a ZooKeeper server: the names of a node's children are the longest (Apache ZooKeeper's own
#: clients take 4 MiB).
ZOOKEEPER_ANSWER_MAX_BYTES = 64 * 1024 * 1024
#: Requests of one client of the ZooKeeper server that wait for their answers, and their bytes, before no more are
#: read.
ZOOKEEPER_OUTSTANDING_MAX = 1000
ZOOKEEPER_OUTSTANDING_BYTES = 4 * 1024 * 1024
#: Bytes of watch events that wait for a client which does not read, before its connection is closed.
ZOOKEEPER_UNSENT_EVENTS_BYTES = 16 * 1024 * 1024
#: Watches of one connection before it is closed.
ZOOKEEPER_WATCHES_MAX = 1_000_000
#: Identities that one connection may give.
ZOOKEEPER_IDENTITIES_MAX = 100
#: Partitions that one request may create over all its topics (Apache Kafka 4's own limit).
PARTITIONS_PER_REQUEST_MAX = 10_000
#: Partitions of one topic that a broker takes an order about: their numbers are below.
PARTITIONS_OF_A_TOPIC_MAX = 1_000_000
#: Partitions that a broker does not have yet and of which it remembers in which log directory they are wanted.
PREFERRED_DIRECTORIES_MAX = 10_000
#: Characters of one option of the Spark source or sink (`assign` and the offsets of many partitions are long).
DATA_SOURCE_OPTION_MAX_CHARS = 16 * 1024 * 1024
#: Tasks that one query may be cut into by minPartitions and maxRecordsPerPartition.
DATA_SOURCE_TASKS_MAX = 100_000
#: How often a stream asks again for partitions and their offsets when topics are deleted meanwhile.
DATA_SOURCE_LOOK_UPS_MAX = 10
#: A reader whose fetch brought no whole batch asks for twice as much, up to this.
FETCH_ONE_BATCH_MAX_BYTES = 256 * 1024 * 1024
#: Bytes of rows that a reading task hands to Spark at once. Spark's JVM takes them into memory outside of its heap.
SOURCE_ROWS_BYTES = 16 * 1024 * 1024
#: Ranges of fewer bytes share tasks, up to about so many bytes in each.
SOURCE_PACKED_BYTES = 8 * 1024 * 1024
#: Ranges of one task whose first bytes are fetched at the same time.
SOURCE_RANGES_AHEAD_MAX = 8
#: A stream samples the size of the records of so many topics; for the rest it assumes the usual size.
SOURCE_SAMPLED_TOPICS_MAX = 20
#: Bytes of rows that a writing task keeps for batches that are not full.
SINK_WAITING_BYTES = 32 * 1024 * 1024
#: Batches of a writing task that may wait for their acknowledgement.
SINK_WAITING_BATCHES_MAX = 64
#: Characters of a pattern of topics.
TOPIC_PATTERN_MAX_CHARS = 10_000
#: Decisions of the authorizer that are remembered until the access rules change.
ACL_DECISIONS_MAX = 10_000
