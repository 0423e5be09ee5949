// One client of Apache Kafka in a bank (tests/processes/crash/transfers.py), as tests/processes/crash/transfer_client.py is one of librdkafka.
//
//     TransferClient work  BOOTSTRAP NAME TRANSACTIONAL_ID HISTORY
//     TransferClient watch BOOTSTRAP NAME HISTORY
//
// `work` is a member of the group: it makes two entries of each transfer in one transaction with the offsets. Each fifth transaction is aborted and done
// again. A producer that cannot go on ends the process with code 3. `watch` follows all entries; "last" on stdin has it read all once from the beginning.
//
// stdin     the end of it has `work` finish
// stdout    ready, seen N, error WHAT, fatal WHAT

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class TransferClient {
    private static final String TRANSFERS = "transfers", ENTRIES = "entries", GROUP = "bank";
    private static final int PARTITIONS = 3, PAUSE_MS = 100, LOOK_MS = 300, BEGIN_AGAIN = 3;
    private static final CountDownLatch ending = new CountDownLatch(1);

    private static String bootstrap, name;
    private static FileOutputStream history;
    private static int number = 0;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[1];
        name = arguments[2];
        history = new FileOutputStream(arguments[arguments.length - 1], true);
        Thread listening = new Thread(TransferClient::listen);
        listening.setDaemon(true);
        listening.start();
        try {
            if (arguments[0].equals("work")) work(arguments[3]);
            else watch();
        } catch (KafkaException error) {
            say("fatal " + String.valueOf(error).replace('\n', ' '));
            Runtime.getRuntime().halt(BEGIN_AGAIN);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void listen() {
        try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
            input.readLine();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        ending.countDown();
    }

    private static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    private static void write(String what, String fields) {
        String line = "{\"what\":\"" + what + "\",\"time_ns\":" + System.nanoTime() + ",\"client\":\"" + name + "\"" + (fields.isEmpty() ? "" : "," + fields) + "}\n";
        try {
            history.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static KafkaConsumer<String, String> consumer(Object... more) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", name);
        settings.put("enable.auto.commit", false);
        settings.put("isolation.level", "read_committed");
        for (int at = 0; at < more.length; at += 2) settings.put((String) more[at], more[at + 1]);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    // --- work ---

    private static void work(String transactionalId) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap, "client.id", name, "transactional.id", transactionalId, "transaction.timeout.ms", 6000, "linger.ms", 2);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
                KafkaConsumer<String, String> consumer = consumer(
                        "group.id", GROUP, "auto.offset.reset", "earliest", "max.poll.records", 5, "session.timeout.ms", 4000,
                        "heartbeat.interval.ms", 500, "max.poll.interval.ms", 12000, "partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor")) {
            again("init", producer::initTransactions);
            write("transactional", "");
            consumer.subscribe(List.of(TRANSFERS));
            say("ready");
            for (int count = 1; ending.getCount() > 0;) {
                ConsumerRecords<String, String> records;
                try {
                    records = consumer.poll(Duration.ofMillis(300));
                } catch (KafkaException error) {
                    say("error poll: " + error);
                    continue;
                }
                if (records.isEmpty()) continue;
                transaction(producer, consumer, records, count++);
                ending.await(PAUSE_MS, TimeUnit.MILLISECONDS);
            }
        }
    }

    private static void transaction(
            KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer, ConsumerRecords<String, String> records, int count) throws Exception {
        producer.beginTransaction();
        List<String> written = new ArrayList<>();
        try {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                // number:debtor:creditor:amount
                String[] transfer = record.value().split(":");
                entry(producer, written, count, transfer[0], transfer[1], "-" + transfer[3]);
                entry(producer, written, count, transfer[0], transfer[2], transfer[3]);
                offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            again("offsets", () -> producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata()));
            if (count % 5 != 0) {
                int ending = end(written, true);
                again("commit", producer::commitTransaction);
                write("ended", "\"number\":" + ending + ",\"commits\":true");
                return;
            }
        } catch (KafkaException error) {
            say("error transaction: " + String.valueOf(error).replace('\n', ' '));
        }
        int ending = end(written, false);
        again("abort", producer::abortTransaction);
        write("ended", "\"number\":" + ending + ",\"commits\":false");
        rewind(consumer);
    }

    private static void entry(KafkaProducer<String, String> producer, List<String> written, int count, String transfer, String account, String amount) {
        int partition = Integer.parseInt(account) % PARTITIONS;
        String value = name + "/" + count + ":" + transfer + ":" + account + ":" + amount;
        write("send", "\"number\":" + number++ + ",\"topic\":\"" + ENTRIES + "\",\"partition\":" + partition + ",\"value\":\"" + value + "\"");
        written.add("[\"" + ENTRIES + "\"," + partition + ",\"" + value + "\"]");
        producer.send(new ProducerRecord<>(ENTRIES, partition, null, value));
    }

    private static int end(List<String> written, boolean commits) {
        write("ending", "\"number\":" + number + ",\"commits\":" + commits + ",\"records\":[" + String.join(",", written) + "]");
        return number++;
    }

    /** Calls that ran out of time may be made again; others are errors. */
    private static void again(String what, Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                say("error " + what + ", again: " + error);
            }
        }
    }

    private static void rewind(KafkaConsumer<String, String> consumer) throws Exception {
        while (ending.getCount() > 0) {
            try {
                Set<TopicPartition> keys = consumer.assignment();
                Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(keys);
                for (TopicPartition key : keys) {
                    if (committed.get(key) == null) consumer.seekToBeginning(List.of(key));
                    else consumer.seek(key, committed.get(key).offset());
                }
                return;
            } catch (KafkaException error) {
                say("error rewind: " + error);
            }
        }
    }

    // --- watch ---

    private static void watch() throws Exception {
        List<TopicPartition> keys = new ArrayList<>();
        for (int partition = 0; partition < PARTITIONS; partition++) keys.add(new TopicPartition(ENTRIES, partition));
        try (KafkaConsumer<String, String> consumer = consumer("auto.offset.reset", "none", "fetch.max.wait.ms", 100)) {
            consumer.assign(keys);
            for (TopicPartition key : keys) consumer.seek(key, 0);
            say("ready");
            long seen = 0;
            while (ending.getCount() > 0) {
                long looked = System.nanoTime();
                while (System.nanoTime() < looked + TimeUnit.MILLISECONDS.toNanos(LOOK_MS)) seen += take(consumer);
                Map<TopicPartition, Long> ends = ends(consumer, keys);
                while (!isThere(consumer, ends)) seen += take(consumer);
                List<String> told = new ArrayList<>();
                ends.forEach((key, end) -> told.add("[\"" + ENTRIES + "\"," + key.partition() + "," + end + "]"));
                write("stable", "\"ends\":[" + String.join(",", told) + "]");
                say("seen " + seen / 2);
            }
            readEverything(consumer, keys);
        }
    }

    private static boolean isThere(KafkaConsumer<String, String> consumer, Map<TopicPartition, Long> ends) {
        return ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
    }

    private static Map<TopicPartition, Long> ends(KafkaConsumer<String, String> consumer, List<TopicPartition> keys) {
        while (true) {
            try {
                return consumer.endOffsets(keys);
            } catch (TimeoutException error) {
                say("error ends, again: " + error);
            }
        }
    }

    private static int take(KafkaConsumer<String, String> consumer) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
        for (TopicPartition key : records.partitions()) {
            List<String> shown = new ArrayList<>();
            for (ConsumerRecord<String, String> record : records.records(key)) shown.add("[" + record.offset() + ",\"" + record.value() + "\"]");
            write("polled", "\"topic\":\"" + ENTRIES + "\",\"partition\":" + key.partition() + ",\"records\":[" + String.join(",", shown) + "]");
        }
        return records.count();
    }

    private static void readEverything(KafkaConsumer<String, String> consumer, List<TopicPartition> keys) {
        List<String> pairs = new ArrayList<>(), ranges = new ArrayList<>();
        Map<TopicPartition, Long> ends = ends(consumer, keys);
        for (TopicPartition key : keys) {
            pairs.add("[\"" + ENTRIES + "\"," + key.partition() + "]");
            ranges.add("[\"" + ENTRIES + "\"," + key.partition() + ",0," + ends.get(key) + "]");
            consumer.seek(key, 0);
        }
        write("full read", "\"partitions\":[" + String.join(",", pairs) + "]");
        while (!isThere(consumer, ends)) take(consumer);
        write("full read ended", "\"ranges\":[" + String.join(",", ranges) + "]");
    }
}
