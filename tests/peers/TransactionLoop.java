import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Consumes, transforms and produces in transactions until everything of an input of so many records is committed:
 *
 *     TransactionLoop loop  bootstrap input output group transactional-id records
 *     TransactionLoop write bootstrap output transactional-id        one transaction that is left open: "open" is said
 *     TransactionLoop read  bootstrap output                         values that a read_committed consumer is given
 *
 * Each fifth transaction is aborted and done again. Says "ready" when it has an id, and each transaction's end.
 */
public class TransactionLoop {
    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "loop" -> loop(arguments[1], arguments[2], arguments[3], arguments[4], arguments[5], Long.parseLong(arguments[6]));
            case "write" -> write(arguments[1], arguments[2], arguments[3]);
            case "read" -> read(arguments[1], arguments[2]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", "20000");
        settings.put("linger.ms", "2");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        if (group != null) settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "25");
        settings.put("session.timeout.ms", "6000");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void loop(String bootstrap, String input, String output, String group, String transactionalId, long total) {
        boolean ended = false;
        int number = 0;
        while (!ended) {
            try (KafkaProducer<String, String> producer = producer(bootstrap, transactionalId); KafkaConsumer<String, String> consumer = consumer(bootstrap, group)) {
                producer.initTransactions();
                System.out.println("ready");
                consumer.subscribe(List.of(input));
                while (!ended) {
                    ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                    if (records.isEmpty()) {
                        ended = isDone(consumer, total);
                        continue;
                    }
                    number++;
                    boolean aborts = number % 5 == 0;
                    try {
                        producer.beginTransaction();
                        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                        for (ConsumerRecord<String, String> record : records) {
                            producer.send(new ProducerRecord<>(output, record.key(), (aborts ? "aborted " : "made ") + record.value()));
                            offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                        }
                        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                        if (aborts) {
                            producer.abortTransaction();
                            rewind(consumer);
                            System.out.println("aborted");
                        } else {
                            producer.commitTransaction();
                            System.out.println("committed " + records.count());
                        }
                    } catch (ProducerFencedException fenced) {
                        throw fenced;
                    } catch (KafkaException failure) {
                        System.out.println("failed " + failure);
                        try {
                            producer.abortTransaction();
                            rewind(consumer);
                        } catch (KafkaException again) {
                            System.out.println("begins again " + again);
                            break;
                        }
                    }
                }
            }
        }
        System.out.println("ended");
    }

    private static boolean isDone(KafkaConsumer<String, String> consumer, long total) {
        if (consumer.assignment().isEmpty()) return false;
        try {
            Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
            if (ends.values().stream().mapToLong(Long::longValue).sum() < total) return false;
            return ends.entrySet().stream().allMatch(end -> committed.get(end.getKey()) != null && committed.get(end.getKey()).offset() == end.getValue());
        } catch (KafkaException failure) {
            return false;
        }
    }

    private static void rewind(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata offset = committed.get(partition);
            if (offset == null) consumer.seekToBeginning(List.of(partition));
            else consumer.seek(partition, offset.offset());
        }
    }

    private static void write(String bootstrap, String output, String transactionalId) throws Exception {
        KafkaProducer<String, String> producer = producer(bootstrap, transactionalId);
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(output, "open", "open")).get();
        System.out.println("open");
        Thread.sleep(Long.MAX_VALUE);
    }

    private static void read(String bootstrap, String output) {
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, null)) {
            List<TopicPartition> partitions = consumer.partitionsFor(output).stream().map(item -> new TopicPartition(output, item.partition())).toList();
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            consumer.seekToBeginning(partitions);
            while (partitions.stream().anyMatch(item -> consumer.position(item) < ends.get(item))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) System.out.println("value " + record.value());
            }
        }
        System.out.println("ended");
    }
}
