// The topologies of bench/streams_workloads.py for Apache Kafka Streams, two stream threads, at least once.
//
//     StreamsRate BOOTSTRAP APPLICATION STATE_DIRECTORY WORKLOAD CACHE_BYTES COMMIT_INTERVAL_MS
//
// A number below 0 leaves the setting at its default.
//
// stdin     process N   processes until the threads have processed N records, those of repartition topics included
//           run         processes until the next line comes
// stdout    ready
//           done S T    S seconds from RUNNING until all is written and the application is closed, T seconds until RUNNING
//           running
//           error WHAT

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

public class StreamsRate {
    private static final long WINDOW_MS = 60_000;
    private static final long GRACE_MS = 600_000;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        if (Long.parseLong(arguments[4]) >= 0) settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, Long.parseLong(arguments[4]));
        if (Long.parseLong(arguments[5]) >= 0) settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, Long.parseLong(arguments[5]));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        say("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            CountDownLatch running = new CountDownLatch(1);
            long begun = System.nanoTime();
            KafkaStreams streams = new KafkaStreams(topology(arguments[3]), settings);
            streams.setStateListener((now, before) -> {
                if (now == KafkaStreams.State.RUNNING) running.countDown();
                if (now == KafkaStreams.State.ERROR) {
                    say("error the application has ended");
                    Runtime.getRuntime().halt(1);
                }
            });
            streams.start();
            running.await();
            long from = System.nanoTime();
            if (line.equals("run")) {
                say("running");
                input.readLine();
                streams.close(Duration.ofSeconds(60));
                say("done 0 0");
                continue;
            }
            double wanted = Double.parseDouble(line.split(" ")[1]);
            while (processed(streams) < wanted) Thread.sleep(5);
            streams.close(Duration.ofSeconds(600));
            say("done " + (System.nanoTime() - from) / 1e9 + " " + (from - begun) / 1e9);
        }
    }

    private static double processed(KafkaStreams streams) {
        double sum = 0;
        for (var metric : streams.metrics().entrySet()) {
            if (metric.getKey().name().equals("process-total") && metric.getKey().group().equals("stream-thread-metrics")) {
                sum += (Double) metric.getValue().metricValue();
            }
        }
        return sum;
    }

    private static Topology topology(String workload) {
        StreamsBuilder builder = new StreamsBuilder();
        Serde<Long> longs = Serdes.Long();
        switch (workload) {
            case "filter and map" -> builder.<String, String>stream("in").filter((key, value) -> !value.startsWith("1"))
                    .map((key, value) -> KeyValue.pair("k-" + key, value.toUpperCase(Locale.ROOT))).to("out");
            case "word count" -> builder.<String, String>stream("in").flatMapValues(line -> Arrays.asList(line.split(" ")))
                    .groupBy((key, word) -> word).count().toStream().to("out", Produced.valueSerde(longs));
            case "windowed count" -> builder.<String, String>stream("in").groupByKey()
                    .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMillis(WINDOW_MS), Duration.ofMillis(GRACE_MS))).count().toStream()
                    .to("out", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, WINDOW_MS), longs));
            case "stream-table join" -> builder.<String, String>stream("in").join(builder.<String, String>table("table"), (one, other) -> one + other)
                    .to("out");
            case "stream-stream join" -> {
                KStream<String, String> left = builder.stream("in"), right = builder.stream("right");
                left.join(right, (one, other) -> one + other, JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(WINDOW_MS), Duration.ofMillis(GRACE_MS)))
                        .to("out");
            }
            default -> throw new IllegalArgumentException(workload);
        }
        return builder.build();
    }

    private static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }
}
