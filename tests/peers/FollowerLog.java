// Apache Kafka's own partition log (UnifiedLog of 4.3.1) as a follower uses it, over stdin and stdout: one line in, one line out.
//
//   new DIRECTORY SEGMENT_BYTES   a new log; the others forget theirs
//   append BASE64                 batches of the leader, as Partition.appendRecordsToFollowerOrFutureReplica appends them
//   truncate OFFSET               truncateTo
//   restart OFFSET                truncateFullyAndStartAt
//   watermark OFFSET              updateHighWatermark
//   epoch EPOCH OFFSET            assignEpochStartOffset
//
// The answer: "ok" or the exception's class, log start offset, high watermark, log end offset, leader epochs (epoch:offset,), producers (id:last sequence,).

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.UnexpectedAppendOffsetException;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class FollowerLog {
    private static final int DAY_MS = 86_400_000;
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);
    private static UnifiedLog log;

    public static void main(String[] arguments) throws Exception {
        SCHEDULER.startup();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String said = "ok";
            try {
                carryOut(line.split(" "));
            } catch (Exception error) {
                said = error.getClass().getSimpleName();
            }
            System.out.println(said + " " + state());
            System.out.flush();
        }
        System.exit(0);
    }

    private static void carryOut(String[] words) throws Exception {
        switch (words[0]) {
            case "new" -> open(new File(words[1]), Integer.parseInt(words[2]));
            case "append" -> append(MemoryRecords.readableRecords(ByteBuffer.wrap(Base64.getDecoder().decode(words[1]))));
            case "truncate" -> log.truncateTo(Long.parseLong(words[1]));
            case "restart" -> log.truncateFullyAndStartAt(Long.parseLong(words[1]), Optional.empty());
            case "watermark" -> log.updateHighWatermark(Long.parseLong(words[1]));
            case "epoch" -> log.assignEpochStartOffset(Integer.parseInt(words[1]), Long.parseLong(words[2]));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static void open(File directory, int segmentBytes) throws Exception {
        directory.mkdirs();
        Map<String, Object> settings = new HashMap<>();
        settings.put("internal.segment.bytes", segmentBytes);
        settings.put("index.interval.bytes", 100);
        log = UnifiedLog.create(directory, new LogConfig(settings), 0L, 0L, SCHEDULER, new BrokerTopicStats(), Time.SYSTEM, DAY_MS,
            new ProducerStateManagerConfig(DAY_MS, false), DAY_MS, new LogDirFailureChannel(1), true, Optional.empty());
    }

    private static void append(MemoryRecords records) throws Exception {
        try {
            log.appendAsFollower(records, Integer.MAX_VALUE);
        } catch (UnexpectedAppendOffsetException error) {
            long end = log.logEndOffset();
            if (end != log.logStartOffset() || error.firstOffset >= end || error.lastOffset < end) throw error;
            log.truncateFullyAndStartAt(error.firstOffset, Optional.empty());
            log.appendAsFollower(records, Integer.MAX_VALUE);
        }
    }

    private static String state() {
        StringBuilder epochs = new StringBuilder();
        log.leaderEpochCache().epochEntries().forEach(entry -> epochs.append(entry.epoch()).append(':').append(entry.startOffset()).append(','));
        StringBuilder producers = new StringBuilder();
        new TreeMap<>(log.producerStateManager().activeProducers()).forEach((id, entry) -> {
            List<BatchMetadata> batches = new ArrayList<>(entry.batchMetadata());
            producers.append(id).append(':').append(batches.isEmpty() ? -1 : batches.get(batches.size() - 1).lastSeq()).append(',');
        });
        return log.logStartOffset() + " " + log.highWatermark() + " " + log.logEndOffset() + " [" + epochs + "] [" + producers + "]";
    }
}
