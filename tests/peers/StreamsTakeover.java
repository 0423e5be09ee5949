// A program of Kafka Streams that counts words, in three ways, with its stores in memory: so it has to restore them
// from their changelog topics.
//
//     StreamsTakeover BOOTSTRAP APPLICATION STATE_DIRECTORY LINES COUNTS
//
// LINES    words with spaces between them; the words are counted
// COUNTS   key and count, as text: of the store "counts" the word, of the store "by-window" word@start (windows of ten
//          seconds), of the store "by-session" word@start/end (a gap of five seconds)
//
// stdin    its end has the program stop
// stdout   restored STORE NUMBER: so many records were read from a changelog topic; ready; error WHAT

import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

public class StreamsTakeover {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.consumerPrefix("internal.leave.group.on.close"), true);

        String lines = arguments[3], counts = arguments[4];
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> words = builder.<String, String>stream(lines).flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.as("words"));
        words.count(Materialized.as("counts")).toStream().mapValues(String::valueOf).to(counts);
        words.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofDays(1))).count(Materialized.as("by-window")).toStream()
                .map((key, count) -> KeyValue.pair(key.key() + "@" + key.window().start(), "" + count)).to(counts);
        words.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(5), Duration.ofDays(1))).count(Materialized.as("by-session")).toStream()
                .map((key, count) -> KeyValue.pair(key.key() + "@" + key.window().start() + "/" + key.window().end(), "" + count)).to(counts);

        CountDownLatch ending = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            say("error " + error + (error.getCause() == null ? "" : " by " + error.getCause()));
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            public void onRestoreStart(TopicPartition partition, String store, long from, long to) {}

            public void onBatchRestored(TopicPartition partition, String store, long to, long number) {}

            public void onRestoreEnd(TopicPartition partition, String store, long number) {
                say("restored " + store + " " + number);
            }
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) say("ready");
            if (now == KafkaStreams.State.ERROR) ending.countDown();
        });
        streams.start();
        Thread listening = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException error) {
                say("error " + error);
            }
            ending.countDown();
        });
        listening.setDaemon(true);
        listening.start();
        ending.await();
        streams.close(Duration.ofSeconds(60));
    }

    private static synchronized void say(String text) {
        System.out.println(text.replace('\n', ' '));
        System.out.flush();
    }
}
