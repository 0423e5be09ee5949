import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes transactions as fast as so many producers of Apache Kafka's can:
 *
 *     TransactionRate bootstrap topic producers transactions records-in-each record-bytes each-so-many-is-aborted
 *
 * Each producer makes a fifth of its transactions first, to be warm; then "ready" is said. A line of input begins the
 * others. At the end one line has the seconds of all, and one the milliseconds of each commit, without those of the
 * records before it.
 */
public class TransactionRate {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int producers = Integer.parseInt(arguments[2]);
        int transactions = Integer.parseInt(arguments[3]) / producers;
        int records = Integer.parseInt(arguments[4]);
        byte[] value = new byte[Integer.parseInt(arguments[5])];
        int abortEach = Integer.parseInt(arguments[6]);
        Arrays.fill(value, (byte) 'x');
        List<KafkaProducer<byte[], byte[]>> all = new ArrayList<>();
        for (int number = 0; number < producers; number++) all.add(producer(arguments[0], topic + "-" + number));
        ExecutorService threads = Executors.newFixedThreadPool(producers);
        List<Future<double[]>> warming = new ArrayList<>();
        for (KafkaProducer<byte[], byte[]> producer : all) {
            warming.add(threads.submit(() -> {
                producer.initTransactions();
                return make(producer, topic, Math.max(1, transactions / 5), records, value, abortEach);
            }));
        }
        for (Future<double[]> warm : warming) warm.get();
        System.out.println("ready");
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        long begun = System.nanoTime();
        List<Future<double[]>> running = new ArrayList<>();
        for (KafkaProducer<byte[], byte[]> producer : all) running.add(threads.submit(() -> make(producer, topic, transactions, records, value, abortEach)));
        List<double[]> made = new ArrayList<>();
        for (Future<double[]> run : running) made.add(run.get());
        System.out.println("seconds " + (System.nanoTime() - begun) / 1e9);
        StringBuilder commits = new StringBuilder("commits");
        for (double[] each : made) for (double milliseconds : each) commits.append(' ').append(milliseconds);
        System.out.println(commits);
        for (KafkaProducer<byte[], byte[]> producer : all) producer.close();
        threads.shutdown();
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transactionalId);
        settings.put("client.id", transactionalId);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static double[] make(KafkaProducer<byte[], byte[]> producer, String topic, int transactions, int records, byte[] value, int abortEach) {
        double[] commits = new double[transactions];
        for (int number = 0; number < transactions; number++) {
            producer.beginTransaction();
            for (int record = 0; record < records; record++) producer.send(new ProducerRecord<>(topic, value));
            producer.flush();
            long begun = System.nanoTime();
            if (abortEach > 0 && number % abortEach == abortEach - 1) producer.abortTransaction();
            else producer.commitTransaction();
            commits[number] = (System.nanoTime() - begun) / 1e6;
        }
        return commits;
    }
}
