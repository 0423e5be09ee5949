// One client of Apache Kafka that logs in again and again, as tests/conformance/secured/cells.py says: a cell a line on stdin, the outcomes of its steps on
// stdout.
//
//     in   {"id": "...", "topic": "...", "group": "...", "held": false, "properties": {...}}
//     out  {"id": "...", "steps": {"produce": "ok", "consume": "topic refused"}, "errors": {"consume": "..."}}
//
// A held cell says {"id": "...", "held": true} after its first two steps, waits for a line {"to_end": true}, and then does both steps again with the same
// clients. To the end means that it consumes until that fails, or the step's time is over.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLException;
import javax.security.auth.login.LoginException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.GroupAuthorizationException;
import org.apache.kafka.common.errors.SslAuthenticationException;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class SecuredClient implements AutoCloseable {
    private static final ObjectMapper json = new ObjectMapper();
    private static final BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private static final Duration CLOSE = Duration.ofMillis(200);
    private final JsonNode cell;
    private final long stepMs;
    private final ObjectNode steps = json.createObjectNode(), errors = json.createObjectNode();
    private KafkaProducer<String, String> producer;
    private KafkaConsumer<String, String> consumer;

    private interface Step {
        void run() throws Exception;
    }

    private SecuredClient(JsonNode cell) {
        this.cell = cell;
        this.stepMs = cell.get("step_ms").asLong();
    }

    public static void main(String[] arguments) throws Exception {
        String line;
        while ((line = input.readLine()) != null) {
            JsonNode cell = json.readTree(line);
            try (SecuredClient client = new SecuredClient(cell)) {
                client.run();
                ObjectNode answer = json.createObjectNode().put("id", cell.get("id").asText());
                answer.set("steps", client.steps);
                answer.set("errors", client.errors);
                say(answer);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void say(ObjectNode answer) throws Exception {
        System.out.println(json.writeValueAsString(answer));
        System.out.flush();
    }

    private void run() throws Exception {
        step("produce", this::produce);
        step("consume", this::consume);
        if (!cell.get("held").asBoolean()) return;
        say(json.createObjectNode().put("id", cell.get("id").asText()).put("held", true));
        boolean toEnd = json.readTree(input.readLine()).get("to_end").asBoolean();
        step("produce again", this::produce);
        step("consume again", () -> consumeAgain(toEnd));
    }

    private void step(String name, Step step) {
        try {
            step.run();
            steps.put(name, "ok");
        } catch (Throwable error) {
            steps.put(name, classOf(error));
            errors.put(name, String.valueOf(error) + " | " + String.valueOf(error.getCause()));
        }
    }

    private static String classOf(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof TopicAuthorizationException) return "topic refused";
            if (cause instanceof GroupAuthorizationException) return "group refused";
            if (cause instanceof AuthorizationException) return "cluster refused";
            if (cause instanceof SslAuthenticationException || cause instanceof SSLException) return "handshake failed";
            if (cause instanceof AuthenticationException) return "authentication failed";
            if (cause instanceof LoginException) return "login failed";
            if (cause instanceof java.util.concurrent.TimeoutException) return "timed out";
            if (cause instanceof org.apache.kafka.common.errors.TimeoutException) return "timed out";
        }
        return "other: " + error.getClass().getSimpleName();
    }

    private Properties settings() {
        Properties settings = new Properties();
        cell.get("properties").fields().forEachRemaining(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        settings.put("reconnect.backoff.ms", "20");
        settings.put("retry.backoff.ms", "20");
        return settings;
    }

    private void produce() throws Exception {
        if (producer == null) {
            Properties settings = settings();
            settings.put("max.block.ms", String.valueOf(stepMs));
            producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        }
        try {
            producer.send(new ProducerRecord<>(cell.get("topic").asText(), "x")).get(stepMs, TimeUnit.MILLISECONDS);
        } catch (ExecutionException error) {
            throw error.getCause() instanceof Exception ? (Exception) error.getCause() : error;
        }
    }

    private void consume() throws Exception {
        Properties settings = settings();
        settings.put("group.id", cell.get("group").asText());
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(Collections.singletonList(cell.get("topic").asText()));
        poll(false);
    }

    // To the end: what has been fetched before is given first.
    private void consumeAgain(boolean toEnd) throws Exception {
        if (consumer == null) throw new IllegalStateException("no consumer");
        poll(toEnd);
    }

    private void poll(boolean toEnd) throws Exception {
        long deadline = System.nanoTime() + stepMs * 1_000_000;
        while (System.nanoTime() < deadline) {
            if (!pollOnce().isEmpty() && !toEnd) return;
        }
        if (!toEnd) throw new java.util.concurrent.TimeoutException();
    }

    // 1.0 takes a number, 4.0 a Duration.
    @SuppressWarnings("unchecked")
    private ConsumerRecords<String, String> pollOnce() throws Exception {
        try {
            try {
                Method poll = KafkaConsumer.class.getMethod("poll", Duration.class);
                return (ConsumerRecords<String, String>) poll.invoke(consumer, Duration.ofMillis(100));
            } catch (NoSuchMethodException old) {
                return (ConsumerRecords<String, String>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 100L);
            }
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (error.getCause() instanceof Exception) throw (Exception) error.getCause();
            throw error;
        }
    }

    @Override
    public void close() {
        if (producer != null) close(producer);
        if (consumer != null) close(consumer);
    }

    private static void close(AutoCloseable client) {
        try {
            try {
                client.getClass().getMethod("close", Duration.class).invoke(client, CLOSE);
            } catch (NoSuchMethodException old) {
                client.getClass().getMethod("close", long.class, TimeUnit.class).invoke(client, CLOSE.toMillis(), TimeUnit.MILLISECONDS);
            }
        } catch (ReflectiveOperationException error) {
            System.err.println("A client does not close: " + error.getCause());
        }
    }
}
