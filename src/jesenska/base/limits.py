"""Every limit that is not a setting of Kafka, by name. Each queue, buffer and count of the program must have a
limit."""

from __future__ import annotations

#: Bytes that the records of one compressed batch may take after decompression. A larger batch is refused with
#: INVALID_RECORD, as protection against decompression bombs.
DECOMPRESSED_BATCH_MAX_BYTES = 128 * 1024 * 1024
#: Batches are decompressed, and the records inside checked, in pieces of this many bytes.
DECOMPRESSION_PIECE_BYTES = 64 * 1024
#: A batch larger than this many bytes is checked by a thread of the pool, so that the event loop is not held up.
INLINE_CHECK_MAX_BYTES = 64 * 1024
#: Bytes to which the compressed batches of one request may grow if the event loop decompresses them (this takes a
#: quarter of a millisecond). Larger requests are decompressed by a thread of the pool.
INLINE_DECOMPRESSED_MAX_BYTES = 512 * 1024
#: The cost of one byte of a message set in a conversion, in relative units. The first number is for a message set that
#: is decompressed, converted and compressed again (16 KB of lz4 take 40 us). The second is for a message set that is
#: only converted.
COST_OF_RECOMPRESSING, COST_OF_CONVERTING = 4, 1
#: The largest buffer that a thread of the pool keeps for reading the records that it converts for old consumers. Such
#: consumers ask for 1 MB by default.
CONVERSION_BUFFER_MAX_BYTES = 2 * 1024 * 1024
#: The number of buffers of converted Fetch responses that are kept for reuse, and the smallest size of a buffer that
#: is kept.
CONVERTED_KEPT_MAX, CONVERTED_KEPT_MIN_BYTES = 8, 256 * 1024
#: CONVERTED_ANSWERS_BYTES limits the bytes of converted Fetch responses that wait to be sent to old consumers, over
#: all connections. Each new response may take half of the bytes that are still free, but always
#: CONVERTED_ANSWER_MIN_BYTES. So when no bytes are free, each further consumer that does not read takes only that
#: minimum.
CONVERTED_ANSWERS_BYTES, CONVERTED_ANSWER_MIN_BYTES = 32 * 1024 * 1024, 512 * 1024
#: Bytes of small pieces of files that are read into memory to be sent by one write. A peer that does not read its
#: responses takes this much memory.
GATHERED_WRITE_BYTES = 256 * 1024
#: The longest time that a Fetch request waits for records, even if it asks for a longer wait.
FETCH_WAIT_MAX_MS = 300_000
#: Bytes that one read from a socket may return. All connections of an event loop share one buffer of this size.
READ_BUFFER_BYTES = 256 * 1024
#: The first size of the buffer for a request that does not fit into the read buffer. It doubles as the request's bytes
#: arrive.
REQUEST_BUFFER_FIRST_BYTES = 64 * 1024
#: The number of one-megabyte buffers for requests larger than the read buffer that are kept for reuse.
KEPT_REQUEST_BUFFERS = 8
#: Bytes of the buffers of requests that have not arrived completely, over all connections. Above this limit a new
#: request gets a buffer of at most twice the bytes that have arrived.
UNFINISHED_REQUESTS_BYTES = 32 * 1024 * 1024
#: Frames of one socket read that are handled before other connections have their turn.
FRAMES_PER_TURN = 200
#: Produce requests of one connection that may wait for replicas at once, and their bytes. No further request of the
#: connection is handled while either limit is reached.
WAITING_PRODUCES_PER_CONNECTION = 10
WAITING_PRODUCES_BYTES = 4 * 1024 * 1024
#: Connections that may wait to be accepted if socket.listen.backlog.size gives no number.
LISTEN_BACKLOG = 1024
#: The time limit of a TLS handshake, and the number of handshake steps in one turn of the event loop. Each step costs
#: about 1 ms.
TLS_HANDSHAKE_SECONDS = 10.0
TLS_HANDSHAKE_STEPS_PER_TURN = 4
#: The time limit of a first SASL login, from the beginning of the connection. A client that sends its login byte by
#: byte is not idle, so connections.max.idle.ms does not end it.
LOGIN_SECONDS = 30.0
#: Servers whose last TLS session a client keeps.
TLS_SESSIONS_MAX = 1000
#: Bytes of responses, to requests that arrived in one socket read, that are sent in one write.
HELD_ANSWER_BYTES = 64 * 1024
#: Bytes of unsent responses at which the broker stops reading further requests of the connection.
UNSENT_ANSWER_BYTES = 1024 * 1024
#: Elements of one array in a request. A count is also refused if the remaining bytes cannot hold that many elements.
ARRAY_MAX_ELEMENTS = 1_000_000
#: Elements of all arrays of one request together. A request may have one more element for each existing partition. The
#: limit is needed because the event loop serves no other connection while it handles a request.
REQUEST_ELEMENTS_MAX = 10_000
#: The same limit for requests that describe partitions with their replicas: CreateTopics, AlterPartitionReassignments,
#: and the requests of a controller.
CREATION_ELEMENTS_MAX = 60_000
#: Settings that one DescribeConfigs response may contain for resources that the request names a second time.
DESCRIBED_AGAIN_MAX = 10_000
#: Metadata bytes of a group's member for all its protocols together, as a multiple of the largest record that the
#: group's partition of __consumer_offsets accepts. That record has the metadata of one protocol only.
MEMBER_METADATA_RECORDS_MAX = 10
#: Tagged fields in one struct of a request.
TAGGED_FIELDS_MAX = 1024
#: Characters of an error message. Names in a request may have 32,767 bytes, and a string in a response may not be
#: longer than that.
ERROR_MESSAGE_MAX_CHARS = 2_000
#: Tasks that may wait for a thread of the pool. Above this, requests that need a thread are refused.
POOL_QUEUE_MAX = 10_000
#: Segment files that the cache of open files keeps open, if the system's limit of open files allows so many.
OPEN_SEGMENTS_MAX = 4096
#: Partitions of one fetch session. A client that names more partitions gets no session.
FETCH_SESSION_PARTITIONS_MAX = 100_000
#: Partitions of all fetch sessions together (each takes about 300 bytes).
FETCH_SESSIONS_PARTITIONS_MAX = 500_000
#: Bytes that a branch (a topic that begins as a copy of another) copies of an active segment. A larger active segment
#: is rolled, so that the branch can hard-link its file.
BRANCH_COPIED_BYTES = 16 * 1024 * 1024
#: Idempotent and transactional producers that one partition remembers.
PRODUCERS_PER_PARTITION_MAX = 100_000
#: Bytes of one node of the metadata tree, as in ZooKeeper.
TREE_NODE_MAX_BYTES = 1024 * 1024
#: Changes of the metadata tree that may wait for their commit. Above this, further changes are refused.
TREE_PENDING_MAX = 10_000
#: Bytes of one line between `jesenska up` and the process that keeps the metadata tree: an order, or its answer.
TREE_ORDER_MAX_BYTES = 16 * 1024
#: Bytes of one request to the ZooKeeper server: the largest node, with its path and ACL (ZooKeeper's own limit is
#: 1,048,575).
ZOOKEEPER_REQUEST_MAX_BYTES = TREE_NODE_MAX_BYTES + 64 * 1024
#: Bytes of one response from a ZooKeeper server. The longest responses list the names of a node's children (Apache
#: ZooKeeper's own clients accept 4 MiB).
ZOOKEEPER_ANSWER_MAX_BYTES = 64 * 1024 * 1024
#: Requests of one client of the ZooKeeper server that wait for their responses, and the bytes of these requests. The
#: server stops reading from the connection at either limit.
ZOOKEEPER_OUTSTANDING_MAX = 1000
ZOOKEEPER_OUTSTANDING_BYTES = 4 * 1024 * 1024
#: Bytes of watch events that wait for a client that does not read. Above this, the server closes the client's
#: connection.
ZOOKEEPER_UNSENT_EVENTS_BYTES = 16 * 1024 * 1024
#: Watches of one connection to the ZooKeeper server. Above this, the server closes the connection.
ZOOKEEPER_WATCHES_MAX = 1_000_000
#: Identities with which one connection may authenticate to the ZooKeeper server.
ZOOKEEPER_IDENTITIES_MAX = 100
#: Partitions that one request may create over all its topics, as in Apache Kafka 4.
PARTITIONS_PER_REQUEST_MAX = 10_000
#: A partition number must be below this for a broker to accept a controller's request about the partition.
PARTITIONS_OF_A_TOPIC_MAX = 1_000_000
#: Partitions that a broker does not have yet and for which it remembers the log directory that AlterReplicaLogDirs
#: asked for.
PREFERRED_DIRECTORIES_MAX = 10_000
#: Characters of one option of the Spark source or sink. `assign` and the starting offsets of many partitions are long.
DATA_SOURCE_OPTION_MAX_CHARS = 16 * 1024 * 1024
#: Tasks into which minPartitions and maxRecordsPerPartition may split one query.
DATA_SOURCE_TASKS_MAX = 100_000
#: The number of times that a stream looks up partitions and their offsets again if topics are deleted during the
#: look-up.
DATA_SOURCE_LOOK_UPS_MAX = 10
#: The largest fetch for one batch: a reader whose fetch returned no complete batch doubles the size of the next fetch,
#: up to this.
FETCH_ONE_BATCH_MAX_BYTES = 256 * 1024 * 1024
#: Bytes of rows that a reading task passes to Spark at once. Spark's JVM keeps them in memory outside of its heap.
SOURCE_ROWS_BYTES = 16 * 1024 * 1024
#: Offset ranges with fewer bytes than this share a task, up to about this many bytes for each task.
SOURCE_PACKED_BYTES = 8 * 1024 * 1024
#: Offset ranges of one task whose first bytes are fetched at the same time.
SOURCE_RANGES_AHEAD_MAX = 8
#: Topics of which a stream samples the size of the records. For further topics it assumes the usual size.
SOURCE_SAMPLED_TOPICS_MAX = 20
#: Bytes of rows that a writing task keeps in memory for batches that are not full yet.
SINK_WAITING_BYTES = 32 * 1024 * 1024
#: Batches of a writing task that may wait for their acknowledgement at once.
SINK_WAITING_BATCHES_MAX = 64
#: Characters of a pattern that selects topics.
TOPIC_PATTERN_MAX_CHARS = 10_000
#: Decisions of the authorizer that are cached until the access rules (ACLs) change.
ACL_DECISIONS_MAX = 10_000
