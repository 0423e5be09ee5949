// Clients of Apache Kafka at work on one topic: an idempotent producer, two members of a group that commit what they have read, and one that asks all the
// time what the group has committed. Each writes what it does and sees into a history, as JSON lines (jesenska.testing.faults.history says which).
//
//     RecordedClients BOOTSTRAP TOPIC PARTITIONS GROUP HISTORY
//
// All settings are those that Kafka's clients have by themselves, but for commits by hand and a beginning for the group.
//
// stdout    error CLIENT: what a callback or a call was told as an error
// stdin     its end asks for the end: the producer delivers what it has; everything is read once from the beginning; the group commits all of that; the exit
//           code is 0 then. It is 1 where that takes longer than END_SECONDS

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class RecordedClients {
    private static final int MEMBERS = 2;
    // Records that may wait for their acknowledgement, how many are sent between two pauses, and those.
    private static final int WINDOW = 100, BURST = 10, PAUSE_MS = 20;
    private static final int POLL_MS = 200, LOOK_MS = 300, AGAIN_MS = 50, END_SECONDS = 240;

    private static String bootstrap, topic, group;
    private static final List<TopicPartition> partitions = new ArrayList<>();
    private static FileOutputStream history;
    private static final CountDownLatch produced = new CountDownLatch(1), ended = new CountDownLatch(1);
    private static Map<TopicPartition, Long> committed = Map.of();

    private interface Work {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        for (int number = 0; number < Integer.parseInt(arguments[2]); number++) partitions.add(new TopicPartition(topic, number));
        group = arguments[3];
        history = new FileOutputStream(arguments[4], true);
        Thread producing = thread(RecordedClients::produce);
        List<Thread> others = new ArrayList<>();
        for (int number = 0; number < MEMBERS; number++) {
            String name = "java-member-" + number;
            others.add(thread(() -> readInGroup(name)));
        }
        others.add(thread(RecordedClients::lookAtOffsets));
        while (System.in.read() >= 0) {}
        Thread limit = new Thread(RecordedClients::endLate);
        limit.setDaemon(true);
        limit.start();
        produced.countDown();
        producing.join();
        guarded(() -> awaitCommits(readEverything()));
        ended.countDown();
        for (Thread other : others) other.join();
        history.close();
    }

    private static Thread thread(Work work) {
        Thread thread = new Thread(() -> guarded(work));
        thread.start();
        return thread;
    }

    /** What fails ends the process: whoever started it sees that at once. */
    private static void guarded(Work work) {
        try {
            work.run();
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    /** What takes too long ends the process, with what each thread does. */
    private static void endLate() {
        guarded(() -> {
            Thread.sleep(TimeUnit.SECONDS.toMillis(END_SECONDS));
            Thread.getAllStackTraces().forEach((thread, stack) -> System.err.println(thread + "\n    " + Arrays.toString(stack).replace(", ", "\n    ")));
            throw new AssertionError("it has not come to its end after " + END_SECONDS + " s; the group has committed " + committed);
        });
    }

    private static synchronized void error(String client, Object text) {
        System.out.println("error " + client + ": " + String.valueOf(text).replace('\n', ' '));
        System.out.flush();
    }

    private static Map<String, Object> settings(String name, Object... more) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "client.id", name));
        for (int index = 0; index < more.length; index += 2) all.put((String) more[index], more[index + 1]);
        return all;
    }

    // --- history ---

    /** One operation; its time is that of the line. */
    private static void write(String what, String client, String fields) {
        synchronized (history) {
            String line = "{\"what\":\"" + what + "\",\"time_ns\":" + System.nanoTime() + ",\"client\":\"" + client + "\"," + fields + "}\n";
            try {
                history.write(line.getBytes(StandardCharsets.UTF_8));
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            }
        }
    }

    private static String place(TopicPartition key) {
        return "\"topic\":\"" + key.topic() + "\",\"partition\":" + key.partition();
    }

    private static String pair(TopicPartition key) {
        return "[\"" + key.topic() + "\"," + key.partition();
    }

    private static String listed(Collection<String> items) {
        return "[" + String.join(",", items) + "]";
    }

    private static String pairs(Collection<TopicPartition> keys) {
        return listed(keys.stream().map(key -> pair(key) + "]").toList());
    }

    private static void polled(String client, ConsumerRecords<String, String> found) {
        for (TopicPartition key : found.partitions()) {
            List<String> records = new ArrayList<>();
            for (ConsumerRecord<String, String> record : found.records(key)) records.add("[" + record.offset() + ",\"" + record.value() + "\"]");
            write("polled", client, place(key) + ",\"records\":" + listed(records));
        }
    }

    private static void found(String client, long beganNs, TopicPartition key, OffsetAndMetadata offset) {
        write("found", client, "\"began_ns\":" + beganNs + ",\"group\":\"" + group + "\"," + place(key) + ",\"offset\":" + (offset == null ? -1 : offset.offset()));
    }

    // --- producer ---

    private static void produce() throws Exception {
        String name = "java-producer";
        write("producer", name, "\"acks\":-1,\"idempotent\":true,\"max_in_flight\":5");
        Semaphore slots = new Semaphore(WINDOW);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings(name), new StringSerializer(), new StringSerializer())) {
            for (int count = 0; produced.getCount() > 0; count++) {
                if (count % BURST == 0 && produced.await(PAUSE_MS, TimeUnit.MILLISECONDS)) break;
                slots.acquire();
                int number = count;
                TopicPartition key = partitions.get(count % partitions.size());
                String value = name + "-" + count;
                write("send", name, "\"number\":" + number + "," + place(key) + ",\"value\":\"" + value + "\"");
                producer.send(new ProducerRecord<>(topic, key.partition(), null, value), (where, failed) -> guarded(() -> {
                    if (failed == null) {
                        String offset = ",\"offset\":" + (where.hasOffset() ? where.offset() : -1);
                        write("acknowledged", name, "\"number\":" + number + "," + place(key) + offset + ",\"value\":\"" + value + "\"");
                    } else {
                        write("failed", name, "\"number\":" + number + ",\"certain\":false");
                        error(name, "record " + number + ": " + failed);
                    }
                    slots.release();
                }));
            }
            producer.flush();
        }
    }

    // --- group ---

    private static void readInGroup(String name) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> owed = new HashMap<>();
        int number = 0;
        Map<String, Object> settings = settings(name, "group.id", group, "enable.auto.commit", false, "auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> taken) {
                    owed.keySet().removeAll(taken);
                    Set<TopicPartition> rest = new HashSet<>(consumer.assignment());
                    rest.removeAll(taken);
                    write("assigned", name, "\"partitions\":" + pairs(rest) + ",\"reset\":[]");
                }

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> given) {
                    List<String> reset = new ArrayList<>();
                    long beganNs = System.nanoTime();
                    try {
                        consumer.committed(new HashSet<>(given)).forEach((key, offset) -> found(name, beganNs, key, offset));
                    } catch (KafkaException failed) {
                        error(name, "committed: " + failed);
                    }
                    for (TopicPartition key : given) {
                        Long position = null;
                        try {
                            position = consumer.position(key);
                        } catch (KafkaException failed) {
                            error(name, "position: " + failed);
                        }
                        reset.add(pair(key) + "," + position + "]");
                    }
                    write("assigned", name, "\"partitions\":" + pairs(consumer.assignment()) + ",\"reset\":" + listed(reset));
                }
            });
            while (ended.getCount() > 0) {
                try {
                    ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(POLL_MS));
                    polled(name, records);
                    for (TopicPartition key : records.partitions()) owed.put(key, new OffsetAndMetadata(last(records.records(key)).offset() + 1));
                    if (owed.isEmpty()) continue;
                    Map<TopicPartition, OffsetAndMetadata> now = Map.copyOf(owed);
                    Map<TopicPartition, String> commits = new HashMap<>();
                    for (Map.Entry<TopicPartition, OffsetAndMetadata> each : now.entrySet()) {
                        String fields = "\"number\":" + number++ + ",\"group\":\"" + group + "\"," + place(each.getKey()) + ",\"offset\":" + each.getValue().offset();
                        write("commit", name, fields + ",\"back\":false");
                        commits.put(each.getKey(), fields);
                    }
                    consumer.commitSync(now);
                    for (String fields : commits.values()) write("committed", name, fields);
                    owed.clear();
                } catch (KafkaException failed) {
                    error(name, failed);
                    ended.await(AGAIN_MS, TimeUnit.MILLISECONDS);
                }
            }
        }
    }

    private static ConsumerRecord<String, String> last(List<ConsumerRecord<String, String>> records) {
        return records.get(records.size() - 1);
    }

    private static void lookAtOffsets() throws Exception {
        String name = "java-looker";
        try (Admin admin = Admin.create(settings(name))) {
            for (boolean isLast = false; !isLast;) {
                isLast = ended.await(LOOK_MS, TimeUnit.MILLISECONDS);
                long beganNs = System.nanoTime();
                Map<TopicPartition, OffsetAndMetadata> answer;
                try {
                    answer = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
                } catch (ExecutionException failed) {
                    error(name, failed.getCause());
                    continue;
                }
                Map<TopicPartition, Long> offsets = new HashMap<>();
                for (TopicPartition key : partitions) {
                    OffsetAndMetadata offset = answer.get(key);
                    found(name, beganNs, key, offset);
                    if (offset != null) offsets.put(key, offset.offset());
                }
                synchronized (RecordedClients.class) {
                    committed = offsets;
                    RecordedClients.class.notifyAll();
                }
            }
        }
    }

    private static void awaitCommits(Map<TopicPartition, Long> ends) throws InterruptedException {
        synchronized (RecordedClients.class) {
            while (!ends.entrySet().stream().allMatch(end -> committed.getOrDefault(end.getKey(), 0L) >= end.getValue())) RecordedClients.class.wait();
        }
    }

    // --- everything ---

    /** Reads each partition to its end, and says where that is. */
    private static Map<TopicPartition, Long> readEverything() {
        String name = "java-last-reader";
        Map<String, Object> settings = settings(name, "auto.offset.reset", "none", "enable.auto.commit", false);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            write("full read", name, "\"partitions\":" + pairs(partitions));
            Map<TopicPartition, Long> begins = consumer.beginningOffsets(partitions), ends = consumer.endOffsets(partitions);
            consumer.assign(partitions);
            begins.forEach(consumer::seek);
            while (!ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue())) {
                polled(name, consumer.poll(Duration.ofMillis(POLL_MS)));
            }
            List<String> ranges = new ArrayList<>();
            for (TopicPartition key : partitions) ranges.add(pair(key) + "," + begins.get(key) + "," + ends.get(key) + "]");
            write("full read ended", name, "\"ranges\":" + listed(ranges));
            return ends;
        }
    }
}
