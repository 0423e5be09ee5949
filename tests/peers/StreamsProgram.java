// A program of Kafka Streams with exactly_once_v2: a word count, and a join of two streams by key.
//
//     StreamsProgram BOOTSTRAP APPLICATION STATE_DIRECTORY
//
// lines   words with spaces between them    -> counts   each word with 1, 2, 3 and so on
// left, right                               -> pairs    the left and the right value of each key, once, with "+" between them
//
// stdin     its end has the program stop
// stdout    ready; error WHAT: what has ended a thread, which is replaced

import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

public class StreamsProgram {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 8000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 5000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 500);

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream("lines");
        lines.flatMapValues(line -> Arrays.asList(line.split(" "))).groupBy((key, word) -> word, Grouped.as("words")).count().toStream()
                .mapValues(String::valueOf).to("counts");
        KStream<String, String> left = builder.stream("left"), right = builder.stream("right");
        left.join(right, (one, other) -> one + "+" + other, JoinWindows.ofTimeDifferenceAndGrace(Duration.ofHours(1), Duration.ofHours(1))).to("pairs");

        CountDownLatch ending = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            say("error " + error + (error.getCause() == null ? "" : " by " + error.getCause()));
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) say("ready");
            if (now == KafkaStreams.State.ERROR) {
                say("error the program has no thread left");
                Runtime.getRuntime().halt(1);
            }
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
