import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes short transactions, each of which begins as soon as the one before is committed:
 *
 *     ShortTransactions bootstrap topic partitions milliseconds transactions
 *
 * One producer writes a record to each partition of the topic in each transaction, another one commits an offset of a
 * group. Each makes so many transactions; where that is 0, until the input ends. Says "error KIND WHAT" of each
 * failure, and "made KIND COUNT" at the end.
 */
public class ShortTransactions {
    private static volatile boolean isStopping = false;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        int transactions = Integer.parseInt(arguments[4]);
        if (transactions == 0) {
            Thread input = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) { }
                } catch (java.io.IOException gone) {
                    // it has ended, too
                }
                isStopping = true;
            });
            input.setDaemon(true);
            input.start();
        }
        List<Thread> threads = new ArrayList<>();
        for (String kind : List.of("produce", "offsets")) {
            Thread thread = new Thread(() -> make(kind, arguments[0], topic, partitions, Long.parseLong(arguments[3]), transactions));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) thread.join();
    }

    private static void make(String kind, String bootstrap, String topic, int partitions, long milliseconds, int transactions) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", "java-" + kind);
        settings.put("linger.ms", "0");
        ConsumerGroupMetadata group = new ConsumerGroupMetadata("java");
        int made = 0;
        while (!isStopping && (transactions == 0 || made < transactions)) {
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
                producer.initTransactions();
                while (!isStopping && (transactions == 0 || made < transactions)) {
                    try {
                        long begun = System.nanoTime();
                        producer.beginTransaction();
                        if (kind.equals("produce")) {
                            for (int partition = 0; partition < partitions; partition++) producer.send(new ProducerRecord<>(topic, partition, null, new byte[20]));
                        } else {
                            producer.sendOffsetsToTransaction(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(made)), group);
                        }
                        long left = milliseconds - (System.nanoTime() - begun) / 1_000_000;
                        if (left > 0) Thread.sleep(left);
                        producer.commitTransaction();
                        made++;
                    } catch (KafkaException failure) {
                        System.out.println("error " + kind + " " + told(failure));
                        producer.abortTransaction();
                    }
                }
                producer.close(Duration.ofSeconds(10));
            } catch (KafkaException failure) {
                System.out.println("error " + kind + " begins again: " + told(failure));
            } catch (InterruptedException interrupted) {
                return;
            }
        }
        System.out.println("made " + kind + " " + made);
    }

    private static String told(Throwable failure) {
        String said = failure.toString();
        while (failure.getCause() != null) {
            failure = failure.getCause();
            said += " <- " + failure;
        }
        return said.replace('\n', ' ');
    }
}
