// Apache Kafka Streams as a judge: topologies that are described as JSON are built with its DSL and run by its
// TopologyTestDriver. One description in a line of stdin, its outcome in a line of stdout.
// tests/units/pipeline/streams/topology_spec.py documents both.
//
// State is kept in memory, but where the description says on_disk. Wall-clock time begins at 0.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;
import org.apache.kafka.streams.test.TestRecord;

@SuppressWarnings({"unchecked", "rawtypes", "deprecation"})
public class StreamsJudge {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final List<String> NOT_TABLES = List.of("JOINTHIS", "JOINOTHER", "OUTERTHIS", "OUTEROTHER", "SHARED", "-this-join", "-other-join",
            "-shared-join", "SUBSCRIPTION", "subscription", "SUPPRESS", "held");

    private static final List<String> NOT_COMPARED = List.of("SHARED", "-shared-join", "SUBSCRIPTION", "subscription", "SUPPRESS", "held");

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            ObjectNode outcome;
            try {
                outcome = new StreamsJudge(JSON.readTree(line)).run();
            } catch (Exception | StackOverflowError error) {
                outcome = JSON.createObjectNode().put("judge", error + " at " + error.getStackTrace()[0]);
            }
            out.println(JSON.writeValueAsString(outcome));
        }
    }

    private final JsonNode description;
    private final Map<String, Object> nodes = new HashMap<>();
    /** Types of a node's keys and values, by its name: the step that made it. */
    private final Map<String, JsonNode> made = new HashMap<>();
    private final Map<String, JsonNode> written = new LinkedHashMap<>();
    private final ObjectNode seen = JSON.createObjectNode();
    private final StreamsBuilder builder = new StreamsBuilder();

    private StreamsJudge(JsonNode description) {
        this.description = description;
    }

    private ObjectNode run() throws Exception {
        Path disk = description.path("on_disk").asBoolean() ? Files.createTempDirectory("streams-judge") : null;
        try {
            return run(disk);
        } finally {
            if (disk != null) Utils.delete(disk.toFile());
        }
    }

    private ObjectNode run(Path disk) {
        ObjectNode outcome = JSON.createObjectNode();
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "judge");
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        if (disk != null) settings.put(StreamsConfig.STATE_DIR_CONFIG, disk.toString());
        else settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        description.path("settings").fields().forEachRemaining(setting -> settings.put(setting.getKey(), setting.getValue().asText()));
        TopologyTestDriver driver;
        if (!description.has("steps") || !description.has("input")) throw new Nonsense("steps and input are needed");
        try {
            for (JsonNode step : description.get("steps")) build(step);
            Topology topology = builder.build(settings);
            outcome.put("describe", topology.describe().toString().replaceAll("extractor class: [^)]*", "extractor class: -"));
            driver = new TopologyTestDriver(topology, settings, Instant.ofEpochMilli(0));
        } catch (Nonsense error) {
            throw error;
        } catch (Exception error) {
            outcome.set("error", failure("build", -1, error));
            return outcome;
        }
        int at = 0;
        try {
            for (JsonNode input : description.get("input")) {
                if (input.has("advance_ms")) driver.advanceWallClockTime(Duration.ofMillis(input.get("advance_ms").asLong()));
                else pipe(driver, input);
                at++;
            }
        } catch (Exception error) {
            outcome.set("error", failure("input", at, error));
        }
        outcome.set("output", output(driver));
        outcome.set("seen", seen);
        outcome.set("internal", internal(driver));
        outcome.set("stores", stores(driver));
        double dropped = 0;
        for (var metric : driver.metrics().entrySet()) {
            if (metric.getKey().name().equals("dropped-records-total")) dropped += (Double) metric.getValue().metricValue();
        }
        outcome.put("dropped", (long) dropped);
        try {
            driver.close();
        } catch (Exception error) {
            if (!outcome.has("error")) throw error;
        }
        return outcome;
    }

    /** The description is wrong, and not the topology. */
    private static class Nonsense extends RuntimeException {
        Nonsense(String text) {
            super(text);
        }
    }

    private static ObjectNode failure(String when, int at, Throwable error) {
        ObjectNode failure = JSON.createObjectNode().put("when", when).put("at", at).put("kind", error.getClass().getSimpleName());
        return failure.put("text", String.valueOf(error.getMessage()) + (error.getCause() == null ? "" : " | " + error.getCause()));
    }

    private static void pipe(TopologyTestDriver driver, JsonNode input) {
        RecordHeaders headers = new RecordHeaders();
        for (JsonNode header : input.path("headers")) headers.add(header.get(0).asText(), bytes(header.get(1)));
        byte[] value = bytes(input.get("value"));
        if (input.get("value").isNumber()) value = ByteBuffer.allocate(8).putLong(input.get("value").asLong()).array();
        driver.createInputTopic(input.get("topic").asText(), new ByteArraySerializer(), new ByteArraySerializer())
            .pipeInput(new TestRecord<>(bytes(input.get("key")), value, headers, input.get("timestamp").asLong()));
    }

    private static byte[] bytes(JsonNode value) {
        return value == null || value.isNull() ? null : value.asText().getBytes(StandardCharsets.UTF_8);
    }

    // ---- what came out ----

    private ObjectNode output(TopologyTestDriver driver) {
        ObjectNode topics = JSON.createObjectNode();
        for (var entry : written.entrySet()) {
            ArrayNode records = topics.putArray(entry.getKey());
            JsonNode types = entry.getValue();
            if (!driver.producedTopicNames().contains(entry.getKey())) continue;
            for (var record : driver.createOutputTopic(entry.getKey(), new ByteArrayDeserializer(), new ByteArrayDeserializer()).readRecordsToList()) {
                ArrayNode written = records.addArray();
                written.add(readKey(types.get("key").asText(), record.key())).add(readValue(types.get("value").asText(), record.value())).add(record.timestamp());
                if (description.path("headers").asBoolean()) {
                    ArrayNode headers = written.addArray();
                    for (Header header : record.headers()) headers.addArray().add(header.key()).add(new String(header.value(), StandardCharsets.UTF_8));
                }
            }
        }
        return topics;
    }

    /** The records of internal topics as hexadecimal bytes. */
    private static ObjectNode internal(TopologyTestDriver driver) {
        ObjectNode topics = JSON.createObjectNode();
        for (String topic : new TreeSet<>(driver.producedTopicNames())) {
            if (!topic.startsWith("judge-") || NOT_COMPARED.stream().anyMatch(topic::contains)) continue;
            ArrayNode records = topics.putArray(topic);
            for (var record : driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer()).readRecordsToList()) {
                records.addArray().add(hexadecimal(record.key())).add(hexadecimal(record.value())).add(record.timestamp());
            }
        }
        return topics;
    }

    private static String hexadecimal(byte[] data) {
        return data == null ? null : HexFormat.of().formatHex(data);
    }

    private static JsonNode readKey(String type, byte[] data) {
        if (data == null) return JSON.nullNode();
        if (type.equals("window") || type.equals("session")) {
            int further = type.equals("window") ? 8 : 16;
            ByteBuffer times = ByteBuffer.wrap(data, data.length - further, further);
            ObjectNode key = JSON.createObjectNode().put("key", new String(data, 0, data.length - further, StandardCharsets.UTF_8));
            if (type.equals("session")) key.put("end", times.getLong());
            return key.put("start", times.getLong());
        }
        return readValue(type, data);
    }

    private static JsonNode readValue(String type, byte[] data) {
        if (data == null) return JSON.nullNode();
        if (type.equals("long")) return JSON.getNodeFactory().numberNode(ByteBuffer.wrap(data).getLong());
        return JSON.getNodeFactory().textNode(new String(data, StandardCharsets.UTF_8));
    }

    private ObjectNode stores(TopologyTestDriver driver) {
        ObjectNode all = JSON.createObjectNode();
        for (var entry : new TreeMap<>(driver.getAllStateStores()).entrySet()) {
            StateStore store = entry.getValue();
            if (NOT_TABLES.stream().anyMatch(entry.getKey()::contains)) continue;
            ArrayNode content = JSON.createArrayNode();
            if (store instanceof SessionStore) {
                try (KeyValueIterator items = ((SessionStore) store).findSessions(null, null, 0, Long.MAX_VALUE)) {
                    while (items.hasNext()) stored(content.addArray(), (KeyValue) items.next());
                }
            } else if (store instanceof WindowStore) {
                try (KeyValueIterator items = ((WindowStore) store).all()) {
                    while (items.hasNext()) stored(content.addArray(), (KeyValue) items.next());
                }
            } else if (store instanceof KeyValueStore) {
                try (KeyValueIterator items = ((KeyValueStore) store).all()) {
                    while (items.hasNext()) stored(content.addArray(), (KeyValue) items.next());
                }
            } else {
                continue;
            }
            all.set(entry.getKey(), content);
        }
        return all;
    }

    private static void stored(ArrayNode row, KeyValue item) {
        row.add(shown(item.key));
        if (item.value instanceof ValueAndTimestamp) {
            ValueAndTimestamp value = (ValueAndTimestamp) item.value;
            row.add(shown(value.value())).add(value.timestamp());
        } else {
            row.add(shown(item.value));
        }
    }

    private static JsonNode shown(Object value) {
        if (value instanceof Windowed) {
            Windowed key = (Windowed) value;
            return JSON.createObjectNode().put("key", text(key.key())).put("start", key.window().start()).put("end", key.window().end());
        }
        if (value == null) return JSON.nullNode();
        if (value instanceof Long) return JSON.getNodeFactory().numberNode((Long) value);
        return JSON.getNodeFactory().textNode(value.toString());
    }

    // ---- the topology ----

    private <T> T node(JsonNode name) {
        if (!nodes.containsKey(name.asText())) throw new Nonsense("no step has made " + name.asText());
        return (T) nodes.get(name.asText());
    }

    private Serde keys(JsonNode name) {
        JsonNode step = made.get(name.asText());
        switch (step.get("key").asText()) {
            case "window":
                return WindowedSerdes.timeWindowedSerdeFrom(String.class, step.get("size_ms").asLong());
            case "session":
                return WindowedSerdes.sessionWindowedSerdeFrom(String.class);
            default:
                return serde(step.get("key").asText());
        }
    }

    private Serde values(JsonNode name) {
        return serde(made.get(name.asText()).get("value").asText());
    }

    private static Serde serde(String type) {
        return type.equals("long") ? Serdes.Long() : Serdes.String();
    }

    /** What a processor is to be called, if the step says it. */
    private static Named called(JsonNode step) {
        return Named.as(step.get("named").asText());
    }

    private static Duration ms(JsonNode of, String name) {
        return Duration.ofMillis(of.path(name).asLong());
    }

    private void build(JsonNode step) {
        Object result = result(step, step.get("do").asText(), step.path("of"));
        if (result != null && step.path("as").isTextual()) {
            nodes.put(step.get("as").asText(), result);
            made.put(step.get("as").asText(), step);
        }
    }

    private Object result(JsonNode step, String what, JsonNode of) {
        switch (what) {
            case "stream": {
                List<String> topics = new ArrayList<>();
                for (JsonNode topic : step.get("topics")) topics.add(topic.asText());
                Consumed consumed = Consumed.with(serde(step.get("key").asText()), serde(step.get("value").asText()));
                return builder.stream(topics, step.has("named") ? consumed.withName(step.get("named").asText()) : consumed);
            }
            case "table": {
                Consumed consumed = Consumed.with(serde(step.get("key").asText()), serde(step.get("value").asText()));
                String topic = step.get("topic").asText();
                if (step.has("named")) consumed = consumed.withName(step.get("named").asText());
                return step.has("store") ? builder.table(topic, consumed, Materialized.as(step.get("store").asText())) : builder.table(topic, consumed);
            }
            case "global_table": {
                Consumed consumed = Consumed.with(serde(step.get("key").asText()), serde(step.get("value").asText()));
                String topic = step.get("topic").asText();
                if (step.has("named")) consumed = consumed.withName(step.get("named").asText());
                return step.has("store") ? builder.globalTable(topic, consumed, Materialized.as(step.get("store").asText())) : builder.globalTable(topic, consumed);
            }
            case "add_state_store":
                builder.addStateStore(storeOf(step));
                return null;
            case "filter":
            case "filter_not":
                return filtered(step, what.equals("filter"), predicate(step.get("predicate").asText()));
            case "map_values":
                return mappedValues(step);
            case "map": {
                Of2 map = function2(step.get("function").asText());
                KeyValueMapper mapper = (key, value) -> map.of(key, value);
                return step.has("named") ? this.<KStream>node(of).map(mapper, called(step)) : this.<KStream>node(of).map(mapper);
            }
            case "flat_map": {
                Of2 map = function2(step.get("function").asText());
                KeyValueMapper mapper = (key, value) -> map.of(key, value);
                return step.has("named") ? this.<KStream>node(of).flatMap(mapper, called(step)) : this.<KStream>node(of).flatMap(mapper);
            }
            case "flat_map_values": {
                Of2 map = function2(step.get("function").asText());
                ValueMapper mapper = value -> map.of(null, value);
                return step.has("named") ? this.<KStream>node(of).flatMapValues(mapper, called(step)) : this.<KStream>node(of).flatMapValues(mapper);
            }
            case "select_key": {
                Of2 map = function2(step.get("function").asText());
                KeyValueMapper mapper = (key, value) -> map.of(key, value);
                return step.has("named") ? this.<KStream>node(of).selectKey(mapper, called(step)) : this.<KStream>node(of).selectKey(mapper);
            }
            case "peek":
                return step.has("named") ? this.<KStream>node(of).peek(witness(step), called(step)) : this.<KStream>node(of).peek(witness(step));
            case "foreach":
                this.<KStream>node(of).foreach(witness(step));
                return null;
            case "merge":
                if (step.has("named")) return this.<KStream>node(of.get(0)).merge(this.<KStream>node(of.get(1)), called(step));
                return this.<KStream>node(of.get(0)).merge(this.<KStream>node(of.get(1)));
            case "split":
                return split(step);
            case "branch": {
                List<Predicate> predicates = new ArrayList<>();
                for (JsonNode name : step.get("predicates")) predicates.add(predicate(name.asText()));
                KStream[] branches = this.<KStream>node(of).branch(predicates.toArray(new Predicate[0]));
                for (int index = 0; index < branches.length; index++) {
                    nodes.put(step.get("as").get(index).asText(), branches[index]);
                    made.put(step.get("as").get(index).asText(), step);
                }
                return null;
            }
            case "through":
                return this.<KStream>node(of).through(step.get("topic").asText(), Produced.with(keys(of), values(of)));
            case "repartition": {
                Repartitioned repartitioned = Repartitioned.with(keys(of), values(of));
                return this.<KStream>node(of).repartition(step.has("name") ? repartitioned.withName(step.get("name").asText()) : repartitioned);
            }
            case "to": {
                Produced produced = Produced.with(keys(of), values(of));
                if (step.has("topics")) {
                    for (JsonNode topic : step.get("topics")) written.put(topic.asText(), made.get(of.asText()));
                    Of2 name = function2(step.get("function").asText());
                    TopicNameExtractor extractor = (key, value, context) -> (String) name.of(key, value);
                    this.<KStream>node(of).to(extractor, step.has("named") ? produced.withName(step.get("named").asText()) : produced);
                    return null;
                }
                written.put(step.get("topic").asText(), made.get(of.asText()));
                this.<KStream>node(of).to(step.get("topic").asText(), step.has("named") ? produced.withName(step.get("named").asText()) : produced);
                return null;
            }
            case "to_table":
                if (step.has("named")) return this.<KStream>node(of).toTable(called(step), kept(step, keys(of), values(of)));
                return this.<KStream>node(of).toTable(kept(step, keys(of), values(of)));
            case "to_stream": {
                if (!step.has("function")) return step.has("named") ? this.<KTable>node(of).toStream(called(step)) : this.<KTable>node(of).toStream();
                Of2 map = function2(step.get("function").asText());
                return this.<KTable>node(of).toStream((key, value) -> map.of(key, value));
            }
            case "group_by_key": {
                Grouped grouped = Grouped.with(keys(of), values(of));
                return this.<KStream>node(of).groupByKey(step.has("name") ? grouped.withName(step.get("name").asText()) : grouped);
            }
            case "group_by": {
                Of2 map = function2(step.get("function").asText());
                Grouped grouped = Grouped.with(serde(step.get("key").asText()), serde(step.get("value").asText()));
                if (step.has("name")) grouped = grouped.withName(step.get("name").asText());
                if (node(of) instanceof KTable) return this.<KTable>node(of).groupBy((key, value) -> (KeyValue) map.of(key, value), grouped);
                return this.<KStream>node(of).groupBy((key, value) -> map.of(key, value), grouped);
            }
            case "cogroup": {
                CogroupedKStream together = null;
                for (int index = 0; index < of.size(); index++) {
                    Of2 add = function2(step.get("aggregators").get(index).asText());
                    KGroupedStream grouped = node(of.get(index));
                    Aggregator aggregator = (key, value, aggregate) -> add.of(aggregate, value);
                    together = together == null ? grouped.cogroup(aggregator) : together.cogroup(grouped, aggregator);
                }
                return together;
            }
            case "windowed_by":
                return windowed(of, step.get("windows"));
            case "count":
            case "reduce":
            case "aggregate":
                return aggregated(step, what, node(of));
            case "suppress":
                return this.<KTable>node(of).suppress(step.has("named") ? suppressed(step).withName(step.get("named").asText()) : suppressed(step));
            case "join":
                return joined(step, of.get(0), of.get(1));
            case "transform": {
                String[] names = names(step);
                TransformerSupplier supplier = () -> new OldProgram(step);
                return step.has("named") ? this.<KStream>node(of).transform(supplier, called(step), names) : this.<KStream>node(of).transform(supplier, names);
            }
            case "flat_transform": {
                String[] names = names(step);
                TransformerSupplier supplier = () -> new OldProgram(step);
                return this.<KStream>node(of).flatTransform(supplier, names);
            }
            case "process": {
                String[] names = names(step);
                if (step.has("named")) return this.<KStream>node(of).process(() -> new Program(step), called(step), names);
                return this.<KStream>node(of).process(() -> new Program(step), names);
            }
            case "process_values": {
                String[] names = names(step);
                return this.<KStream>node(of).processValues(() -> new ValueProgram(step), names);
            }
            case "flat_transform_values": {
                String[] names = names(step);
                return this.<KStream>node(of).flatTransformValues((ValueTransformerWithKeySupplier) () -> new TableProgram(step, true), names);
            }
            case "transform_values": {
                String[] names = names(step);
                ValueTransformerWithKeySupplier supplier = () -> new TableProgram(step, false);
                if (node(of) instanceof KStream) {
                    if (step.has("named")) return this.<KStream>node(of).transformValues(supplier, called(step), names);
                    return this.<KStream>node(of).transformValues(supplier, names);
                }
                if (!step.has("store")) {
                    if (step.has("named")) return this.<KTable>node(of).transformValues(supplier, called(step), names);
                    return this.<KTable>node(of).transformValues(supplier, names);
                }
                Materialized kept = kept(step, keys(of), serde(step.get("value").asText()));
                if (step.has("named")) return this.<KTable>node(of).transformValues(supplier, kept, called(step), names);
                return this.<KTable>node(of).transformValues(supplier, kept, names);
            }
            default:
                throw new Nonsense("no step is called " + what);
        }
    }

    private static String[] names(JsonNode step) {
        List<String> names = new ArrayList<>();
        for (JsonNode name : step.path("stores")) names.add(name.asText());
        return names.toArray(new String[0]);
    }

    private static StoreBuilder storeOf(JsonNode step) {
        String name = step.get("store").asText();
        Serde values = serde(step.get("value").asText());
        switch (step.get("kind").asText()) {
            case "window":
                return Stores.windowStoreBuilder(Stores.inMemoryWindowStore(name, ms(step, "retention_ms"), ms(step, "size_ms"), false), Serdes.String(), values);
            case "session":
                return Stores.sessionStoreBuilder(Stores.inMemorySessionStore(name, ms(step, "retention_ms")), Serdes.String(), values);
            default:
                return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), Serdes.String(), values);
        }
    }

    /** How a table is kept: with its name if it has one. */
    private static Materialized kept(JsonNode step, Serde keys, Serde values) {
        Materialized materialized = step.has("store") ? Materialized.as(step.get("store").asText()) : Materialized.with(keys, values);
        if (step.has("retention_ms")) materialized = materialized.withRetention(ms(step, "retention_ms"));
        return materialized.withKeySerde(keys).withValueSerde(values);
    }

    private Object filtered(JsonNode step, boolean wanted, Predicate predicate) {
        JsonNode of = step.get("of");
        if (node(of) instanceof KStream) {
            KStream stream = node(of);
            if (step.has("named")) return wanted ? stream.filter(predicate, called(step)) : stream.filterNot(predicate, called(step));
            return wanted ? stream.filter(predicate) : stream.filterNot(predicate);
        }
        KTable table = node(of);
        if (step.has("named")) {
            Named name = called(step);
            if (!step.has("store")) return wanted ? table.filter(predicate, name) : table.filterNot(predicate, name);
            Materialized kept = kept(step, keys(of), values(of));
            return wanted ? table.filter(predicate, name, kept) : table.filterNot(predicate, name, kept);
        }
        if (!step.has("store")) return wanted ? table.filter(predicate) : table.filterNot(predicate);
        Materialized kept = kept(step, keys(of), values(of));
        return wanted ? table.filter(predicate, kept) : table.filterNot(predicate, kept);
    }

    private Object mappedValues(JsonNode step) {
        JsonNode of = step.get("of");
        Of2 map = function2(step.get("function").asText());
        ValueMapperWithKey mapper = (key, value) -> map.of(key, value);
        if (node(of) instanceof KStream) return step.has("named") ? this.<KStream>node(of).mapValues(mapper, called(step)) : this.<KStream>node(of).mapValues(mapper);
        if (step.has("named")) {
            if (!step.has("store")) return this.<KTable>node(of).mapValues(mapper, called(step));
            return this.<KTable>node(of).mapValues(mapper, called(step), kept(step, keys(of), serde(step.get("value").asText())));
        }
        if (!step.has("store")) return this.<KTable>node(of).mapValues(mapper);
        return this.<KTable>node(of).mapValues(mapper, kept(step, keys(of), serde(step.get("value").asText())));
    }

    private ForeachAction witness(JsonNode step) {
        ArrayNode list = seen.putArray(step.get("as").asText());
        return (key, value) -> list.addArray().add(shown(key)).add(shown(value));
    }

    private Object split(JsonNode step) {
        BranchedKStream branches = step.has("named") ? this.<KStream>node(step.get("of")).split(called(step)) : this.<KStream>node(step.get("of")).split();
        for (JsonNode branch : step.get("branches")) {
            branches = branches.branch(predicate(branch.get(0).asText()), Branched.withConsumer(stream -> branch(step, branch.get(1), (KStream) stream)));
        }
        if (step.has("default")) branches.defaultBranch(Branched.withConsumer(stream -> branch(step, step.get("default"), (KStream) stream)));
        else branches.noDefaultBranch();
        return null;
    }

    private void branch(JsonNode step, JsonNode name, KStream stream) {
        nodes.put(name.asText(), stream);
        made.put(name.asText(), step);
    }

    private Object windowed(JsonNode of, JsonNode windows) {
        Object grouped = node(of);
        boolean together = grouped instanceof CogroupedKStream;
        Object result;
        String kind = windows.get("kind").asText();
        if (kind.equals("session")) {
            SessionWindows sessions = SessionWindows.ofInactivityGapAndGrace(ms(windows, "gap_ms"), ms(windows, "grace_ms"));
            result = together ? ((CogroupedKStream) grouped).windowedBy(sessions) : ((KGroupedStream) grouped).windowedBy(sessions);
        } else if (kind.equals("sliding")) {
            SlidingWindows sliding = SlidingWindows.ofTimeDifferenceAndGrace(ms(windows, "difference_ms"), ms(windows, "grace_ms"));
            result = together ? ((CogroupedKStream) grouped).windowedBy(sliding) : ((KGroupedStream) grouped).windowedBy(sliding);
        } else {
            TimeWindows times = TimeWindows.ofSizeAndGrace(ms(windows, "size_ms"), ms(windows, "grace_ms"));
            if (kind.equals("hopping")) times = times.advanceBy(ms(windows, "advance_ms"));
            result = together ? ((CogroupedKStream) grouped).windowedBy(times) : ((KGroupedStream) grouped).windowedBy(times);
        }
        if (!windows.path("emit").asText().equals("when closed")) return result;
        if (result instanceof SessionWindowedKStream) return ((SessionWindowedKStream) result).emitStrategy(EmitStrategy.onWindowClose());
        return ((TimeWindowedKStream) result).emitStrategy(EmitStrategy.onWindowClose());
    }

    private Object aggregated(JsonNode step, String what, Object of) {
        Materialized kept = kept(step, Serdes.String(), serde(step.get("value").asText()));
        if (what.equals("count")) {
            if (step.has("named")) {
                if (of instanceof KGroupedTable) return ((KGroupedTable) of).count(called(step), kept);
                if (of instanceof KGroupedStream) return ((KGroupedStream) of).count(called(step), kept);
                if (of instanceof TimeWindowedKStream) return ((TimeWindowedKStream) of).count(called(step), kept);
                return ((SessionWindowedKStream) of).count(called(step), kept);
            }
            if (of instanceof KGroupedTable) return ((KGroupedTable) of).count(kept);
            if (of instanceof KGroupedStream) return ((KGroupedStream) of).count(kept);
            if (of instanceof TimeWindowedKStream) return ((TimeWindowedKStream) of).count(kept);
            return ((SessionWindowedKStream) of).count(kept);
        }
        if (what.equals("reduce")) {
            Of2 add = function2(step.get("adder").asText());
            Reducer adder = (one, other) -> add.of(one, other);
            if (of instanceof KGroupedTable) {
                Of2 cut = function2(step.get("subtractor").asText());
                return ((KGroupedTable) of).reduce(adder, (Reducer) (one, other) -> cut.of(one, other), kept);
            }
            if (of instanceof KGroupedStream) return ((KGroupedStream) of).reduce(adder, kept);
            if (of instanceof TimeWindowedKStream) return ((TimeWindowedKStream) of).reduce(adder, kept);
            return ((SessionWindowedKStream) of).reduce(adder, kept);
        }
        Object first = step.get("initial").isNumber() ? (Object) step.get("initial").asLong() : step.get("initial").isNull() ? null : step.get("initial").asText();
        Initializer initializer = () -> first;
        Merger merger = null;
        if (step.has("merger")) {
            Of2 merge = function2(step.get("merger").asText());
            merger = (key, one, other) -> merge.of(one, other);
        }
        if (of instanceof CogroupedKStream) return ((CogroupedKStream) of).aggregate(initializer, kept);
        if (of instanceof TimeWindowedCogroupedKStream) return ((TimeWindowedCogroupedKStream) of).aggregate(initializer, kept);
        if (of instanceof SessionWindowedCogroupedKStream) return ((SessionWindowedCogroupedKStream) of).aggregate(initializer, merger, kept);
        Of2 add = function2(step.get("adder").asText());
        Aggregator adder = (key, value, aggregate) -> add.of(aggregate, value);
        if (of instanceof KGroupedTable) {
            Of2 cut = function2(step.get("subtractor").asText());
            return ((KGroupedTable) of).aggregate(initializer, adder, (key, value, aggregate) -> cut.of(aggregate, value), kept);
        }
        if (of instanceof KGroupedStream) return ((KGroupedStream) of).aggregate(initializer, adder, kept);
        if (of instanceof TimeWindowedKStream) return ((TimeWindowedKStream) of).aggregate(initializer, adder, kept);
        return ((SessionWindowedKStream) of).aggregate(initializer, adder, merger, kept);
    }

    private static Suppressed suppressed(JsonNode step) {
        if (step.get("until").asText().equals("window closes")) {
            if (!step.has("max_records")) return Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded());
            return Suppressed.untilWindowCloses(Suppressed.BufferConfig.maxRecords(step.get("max_records").asLong()).shutDownWhenFull());
        }
        if (step.has("max_bytes")) {
            var bytes = Suppressed.BufferConfig.maxBytes(step.get("max_bytes").asLong());
            return Suppressed.untilTimeLimit(ms(step, "time_limit_ms"), step.get("when_full").asText().equals("shut down") ? bytes.shutDownWhenFull() : bytes.emitEarlyWhenFull());
        }
        if (!step.has("max_records")) return Suppressed.untilTimeLimit(ms(step, "time_limit_ms"), Suppressed.BufferConfig.unbounded());
        var buffer = Suppressed.BufferConfig.maxRecords(step.get("max_records").asLong());
        if (step.get("when_full").asText().equals("shut down")) return Suppressed.untilTimeLimit(ms(step, "time_limit_ms"), buffer.shutDownWhenFull());
        return Suppressed.untilTimeLimit(ms(step, "time_limit_ms"), buffer.emitEarlyWhenFull());
    }

    private Object joined(JsonNode step, JsonNode left, JsonNode right) {
        String how = step.get("how").asText();
        Of2 join = function2(step.get("joiner").asText());
        ValueJoiner joiner = (one, other) -> join.of(one, other);
        Object other = node(right);
        if (other instanceof GlobalKTable) {
            Of2 key = function2(step.get("function").asText());
            KStream stream = node(left);
            KeyValueMapper mapper = (k, v) -> key.of(k, v);
            return how.equals("inner") ? stream.join((GlobalKTable) other, mapper, joiner) : stream.leftJoin((GlobalKTable) other, mapper, joiner);
        }
        if (node(left) instanceof KStream && other instanceof KTable) {
            KStream stream = node(left);
            Joined with = Joined.with(keys(left), values(left), values(right));
            if (step.has("named")) with = with.withName(step.get("named").asText());
            return how.equals("inner") ? stream.join((KTable) other, joiner, with) : stream.leftJoin((KTable) other, joiner, with);
        }
        if (other instanceof KTable) return joinedTables(step, how, left, right, joiner);
        KStream stream = node(left);
        JsonNode windows = step.get("windows");
        JoinWindows within = JoinWindows.ofTimeDifferenceAndGrace(ms(windows, "before_ms"), ms(windows, "grace_ms")).after(ms(windows, "after_ms"));
        StreamJoined with = StreamJoined.with(keys(left), values(left), values(right));
        if (step.has("named")) with = with.withName(step.get("named").asText());
        if (step.has("store")) with = with.withStoreName(step.get("store").asText());
        if (how.equals("inner")) return stream.join((KStream) other, joiner, within, with);
        return how.equals("left") ? stream.leftJoin((KStream) other, joiner, within, with) : stream.outerJoin((KStream) other, joiner, within, with);
    }

    private Object joinedTables(JsonNode step, String how, JsonNode left, JsonNode right, ValueJoiner joiner) {
        KTable one = node(left);
        KTable other = node(right);
        Materialized kept = kept(step, keys(left), serde(step.get("value").asText()));
        if (step.has("foreign_key")) {
            Of2 extract = function2(step.get("foreign_key").asText());
            java.util.function.Function extractor = value -> extract.of(null, value);
            if (step.has("named")) {
                TableJoined name = TableJoined.as(step.get("named").asText());
                return how.equals("inner") ? one.join(other, extractor, joiner, name, kept) : one.leftJoin(other, extractor, joiner, name, kept);
            }
            return how.equals("inner") ? one.join(other, extractor, joiner, kept) : one.leftJoin(other, extractor, joiner, kept);
        }
        if (step.has("named")) {
            Named name = called(step);
            if (!step.has("store")) {
                if (how.equals("inner")) return one.join(other, joiner, name);
                return how.equals("left") ? one.leftJoin(other, joiner, name) : one.outerJoin(other, joiner, name);
            }
            if (how.equals("inner")) return one.join(other, joiner, name, kept);
            return how.equals("left") ? one.leftJoin(other, joiner, name, kept) : one.outerJoin(other, joiner, name, kept);
        }
        if (!step.has("store")) {
            if (how.equals("inner")) return one.join(other, joiner);
            return how.equals("left") ? one.leftJoin(other, joiner) : one.outerJoin(other, joiner);
        }
        if (how.equals("inner")) return one.join(other, joiner, kept);
        return how.equals("left") ? one.leftJoin(other, joiner, kept) : one.outerJoin(other, joiner, kept);
    }

    // ---- the functions that descriptions name ----

    private interface Of2 {
        Object of(Object one, Object other);
    }

    private static String text(Object value) {
        if (!(value instanceof Windowed)) return String.valueOf(value);
        Windowed key = (Windowed) value;
        return key.key() + "@" + key.window().start() + "/" + key.window().end();
    }

    private static int size(Object value) {
        return value == null ? 0 : ((String) value).length();
    }

    private static Predicate predicate(String name) {
        switch (name) {
            case "value is there":
                return (key, value) -> value != null;
            case "key is there":
                return (key, value) -> key != null;
            case "key is not b":
                return (key, value) -> !"b".equals(key);
            case "long value":
                return (key, value) -> value != null && size(value) > 2;
            case "odd length":
                return (key, value) -> size(value) % 2 == 1;
            case "even number":
                return (key, value) -> value != null && ((Long) value) % 2 == 0;
            case "above one":
                return (key, value) -> value != null && ((Long) value) > 1;
            case "always":
                return (key, value) -> true;
            default:
                throw new Nonsense("no predicate is called " + name);
        }
    }

    /** Functions of a key and a value, of two values, or of an aggregate and a value. */
    private static Of2 function2(String name) {
        switch (name) {
            // values to values
            case "upper":
                return (key, value) -> value == null ? null : ((String) value).toUpperCase(java.util.Locale.ROOT);
            case "reverse":
                return (key, value) -> value == null ? null : new StringBuilder((String) value).reverse().toString();
            case "length":
                return (key, value) -> value == null ? null : (Object) (long) size(value);
            case "or none":
                return (key, value) -> value == null ? "none" : value;
            case "null if even":
                return (key, value) -> size(value) % 2 == 0 ? null : value;
            case "text":
                return (key, value) -> value == null ? null : text(value);
            case "plus one":
                return (key, value) -> value == null ? null : (Object) ((Long) value + 1);
            case "with key":
                return (key, value) -> text(key) + "=" + text(value);
            // keys and values to keys
            case "key":
                return (key, value) -> key;
            case "value":
                return (key, value) -> value;
            case "first letter":
                return (key, value) -> size(value) == 0 ? null : ((String) value).substring(0, 1);
            case "topic by length":
                return (key, value) -> size(value) % 2 == 0 ? "out-even" : "out-odd";
            case "constant":
                return (key, value) -> "all";
            case "null key if even":
                return (key, value) -> size(value) % 2 == 0 ? null : key;
            case "window text":
                return (key, value) -> text(key);
            // pairs
            case "swap":
                return (key, value) -> KeyValue.pair(value, key);
            case "first letter and value":
                return (key, value) -> KeyValue.pair(size(value) == 0 ? null : ((String) value).substring(0, 1), value);
            case "key and length":
                return (key, value) -> KeyValue.pair(key, value == null ? null : (Object) (long) size(value));
            case "constant and value":
                return (key, value) -> KeyValue.pair("all", value);
            case "number and key":
                return (key, value) -> KeyValue.pair(text(value), text(key));
            // lists
            case "letters":
                return (key, value) -> {
                    List<Object> list = new ArrayList<>();
                    for (int index = 0; index < size(value); index++) list.add(KeyValue.pair(((String) value).substring(index, index + 1), value));
                    return list;
                };
            case "twice":
                return (key, value) -> List.of(KeyValue.pair(key, value), KeyValue.pair(key, value == null ? null : value + "'"));
            case "words":
                return (key, value) -> value == null ? List.of() : List.of(((String) value).split(" "));
            case "each letter":
                return (key, value) -> value == null ? List.of() : List.of(((String) value).split(""));
            // two values
            case "pair":
                return (one, other) -> "(" + text(one) + "," + text(other) + ")";
            case "null if same":
                return (one, other) -> one != null && one.equals(other) ? null : "(" + text(one) + "," + text(other) + ")";
            case "append":
                return (one, other) -> one + "+" + text(other);
            case "cut":
                return (one, other) -> one + "-" + text(other);
            case "merge":
                return (one, other) -> one + "|" + other;
            case "newest":
                return (one, other) -> other;
            case "oldest":
                return (one, other) -> one;
            case "larger":
                return (one, other) -> ((String) one).compareTo((String) other) >= 0 ? one : other;
            case "null if longer than five":
                return (one, other) -> size(one) + size(other) > 5 ? null : one + "+" + other;
            case "add length":
                return (one, other) -> (Long) one + size(other);
            case "cut length":
                return (one, other) -> (Long) one - size(other);
            case "sum":
                return (one, other) -> (Long) one + (Long) other;
            case "difference":
                return (one, other) -> (Long) one - (Long) other;
            default:
                throw new Nonsense("no function is called " + name);
        }
    }

    // ---- the processors that descriptions name ----

    private static class Program implements Processor<Object, Object, Object, Object> {
        private final JsonNode step;
        private final String name;
        private ProcessorContext<Object, Object> context;
        private StateStore store;
        private Cancellable schedule;
        private int calls;

        Program(JsonNode step) {
            this.step = step;
            this.name = step.get("processor").asText();
        }

        public void init(ProcessorContext<Object, Object> context) {
            this.context = context;
            if (step.path("stores").size() > 0) store = context.getStateStore(step.get("stores").get(0).asText());
            if (step.has("every_ms")) {
                PunctuationType type = step.get("time").asText().equals("stream") ? PunctuationType.STREAM_TIME : PunctuationType.WALL_CLOCK_TIME;
                schedule = context.schedule(ms(step, "every_ms"), type, this::punctuate);
            }
        }

        private void punctuate(long timestamp) {
            calls++;
            if (name.equals("two ticks")) {
                context.forward(new Record<>("tick", String.valueOf(calls), timestamp));
                if (calls == 2) schedule.cancel();
                return;
            }
            List<KeyValue<String, String>> held = new ArrayList<>();
            try (KeyValueIterator<String, String> all = ((KeyValueStore<String, String>) store).all()) {
                all.forEachRemaining(held::add);
            }
            for (KeyValue<String, String> item : held) {
                context.forward(new Record<>(item.key, item.value, timestamp));
                ((KeyValueStore<String, String>) store).delete(item.key);
            }
        }

        public void process(Record<Object, Object> record) {
            Object key = record.key();
            switch (name) {
                case "count seen":
                    context.forward(record.withValue(counted(store, key, record.value())));
                    break;
                case "hold":
                    if (key != null) ((KeyValueStore<Object, Object>) store).put(key, record.value());
                    break;
                case "changes": {
                    if (key == null) break;
                    Object old = ((KeyValueStore<Object, Object>) store).get(key);
                    ((KeyValueStore<Object, Object>) store).put(key, record.value());
                    context.forward(record.withValue(text(old) + ">" + text(record.value())));
                    break;
                }
                case "recent": {
                    if (key == null) break;
                    WindowStore<Object, Object> windows = (WindowStore<Object, Object>) store;
                    windows.put(key, record.value(), record.timestamp());
                    List<String> found = new ArrayList<>();
                    try (WindowStoreIterator<Object> items = windows.fetch(key, Math.max(0, record.timestamp() - 10), record.timestamp())) {
                        items.forEachRemaining(item -> found.add(item.key + ":" + item.value));
                    }
                    context.forward(record.withValue(String.join(" ", found)));
                    break;
                }
                case "look up": {
                    ValueAndTimestamp<Object> found = key == null ? null : ((TimestampedKeyValueStore<Object, Object>) store).get(key);
                    context.forward(record.withValue(text(record.value()) + "/" + (found == null ? "nothing" : found.value() + "@" + found.timestamp())));
                    break;
                }
                case "store calls":
                    if (key != null) context.forward(record.withValue(storeCalls((KeyValueStore<String, String>) store, (String) key, (String) record.value())));
                    break;
                case "window calls":
                    if (key != null) context.forward(record.withValue(windowCalls((WindowStore<String, String>) store, record)));
                    break;
                case "session calls":
                    if (key != null) context.forward(record.withValue(sessionCalls((SessionStore<String, String>) store, record)));
                    break;
                case "metadata":
                    context.forward(record.withValue(context.recordMetadata().filter(at -> at.topic() != null).map(at -> at.topic() + "-" + at.partition() + "@" + at.offset()).orElse("nowhere")));
                    break;
                case "later":
                    context.forward(record.withTimestamp(record.timestamp() + 5));
                    break;
                case "two ticks":
                    context.forward(record);
                    break;
                case "stream time":
                    context.forward(record.withValue(context.currentStreamTimeMs() + ";" + context.currentSystemTimeMs()));
                    break;
                default:
                    throw new Nonsense("no processor is called " + name);
            }
        }
    }

    private static String listed(KeyValueIterator items) {
        StringBuilder text = new StringBuilder();
        try (items) {
            while (items.hasNext()) {
                KeyValue item = (KeyValue) items.next();
                text.append(text.length() == 0 ? "" : ",").append(text(item.key)).append(':').append(text(item.value));
            }
        }
        return text.toString();
    }

    private static String storeCalls(KeyValueStore<String, String> store, String key, String value) {
        List<String> said = new ArrayList<>();
        said.add("had " + (value == null ? store.delete(key) : store.putIfAbsent(key, value)));
        said.add("all " + listed(store.all()));
        said.add("back " + listed(store.reverseAll()));
        said.add("range " + listed(store.range("b", "c")));
        said.add("from " + listed(store.range("b", null)));
        said.add("to back " + listed(store.reverseRange(null, "b")));
        said.add("prefix " + listed(store.prefixScan(key.isEmpty() ? "a" : key, Serdes.String().serializer())));
        if (size(value) > 2) store.put(key, value);
        return String.join(" | ", said);
    }

    private static String windowCalls(WindowStore<String, String> store, Record<Object, Object> record) {
        String key = (String) record.key();
        long at = record.timestamp();
        store.put(key, (String) record.value(), at / 5 * 5);
        List<String> said = new ArrayList<>();
        said.add("one " + store.fetch(key, at / 5 * 5));
        said.add("back " + listed(store.backwardFetch(key, Math.max(0, at - 20), at)));
        said.add("keys " + listed(store.fetch("a", "b", Math.max(0, at - 10), at + 10)));
        said.add("times " + listed(store.fetchAll(Math.max(0, at - 10), at + 10)));
        said.add("all " + listed(store.all()));
        return String.join(" | ", said);
    }

    private static String sessionCalls(SessionStore<String, String> store, Record<Object, Object> record) {
        String key = (String) record.key();
        long at = record.timestamp();
        long start = at;
        long end = at;
        StringBuilder values = new StringBuilder(text(record.value()));
        List<Windowed<String>> old = new ArrayList<>();
        try (KeyValueIterator<Windowed<String>, String> near = store.findSessions(key, Math.max(0, at - 5), at + 5)) {
            while (near.hasNext()) {
                KeyValue<Windowed<String>, String> item = near.next();
                old.add(item.key);
                start = Math.min(start, item.key.window().start());
                end = Math.max(end, item.key.window().end());
                values.append('+').append(item.value);
            }
        }
        old.forEach(store::remove);
        store.put(new Windowed<>(key, new org.apache.kafka.streams.kstream.internals.SessionWindow(start, end)), values.toString());
        List<String> said = new ArrayList<>();
        said.add("one " + store.fetchSession(key, start, end));
        said.add("key " + listed(store.fetch(key)));
        said.add("keys " + listed(store.fetch("a", "c")));
        return String.join(" | ", said);
    }

    private static Object counted(StateStore store, Object key, Object value) {
        if (key == null) return value;
        Long before = ((KeyValueStore<Object, Long>) store).get(key);
        long now = before == null ? 1 : before + 1;
        ((KeyValueStore<Object, Long>) store).put(key, now);
        return text(value) + "#" + now;
    }

    private static class ValueProgram implements FixedKeyProcessor<Object, Object, Object> {
        private final JsonNode step;
        private FixedKeyProcessorContext<Object, Object> context;
        private StateStore store;

        ValueProgram(JsonNode step) {
            this.step = step;
        }

        public void init(FixedKeyProcessorContext<Object, Object> context) {
            this.context = context;
            store = context.getStateStore(step.get("stores").get(0).asText());
        }

        public void process(FixedKeyRecord<Object, Object> record) {
            context.forward(record.withValue(counted(store, record.key(), record.value())));
        }
    }

    private static class TableProgram implements ValueTransformerWithKey<Object, Object, Object> {
        private final JsonNode step;
        private final boolean isTwice;
        private StateStore store;

        TableProgram(JsonNode step, boolean isTwice) {
            this.step = step;
            this.isTwice = isTwice;
        }

        public void init(org.apache.kafka.streams.processor.ProcessorContext context) {
            if (step.path("stores").size() > 0) store = context.getStateStore(step.get("stores").get(0).asText());
        }

        public Object transform(Object key, Object value) {
            Object made = store == null ? text(key) + "=" + text(value) : counted(store, key, value);
            if (!isTwice) return made;
            return value == null ? null : List.of(made, value);
        }

        public void close() {}
    }

    private static class OldProgram implements Transformer<Object, Object, Object> {
        private final JsonNode step;
        private StateStore store;

        OldProgram(JsonNode step) {
            this.step = step;
        }

        public void init(org.apache.kafka.streams.processor.ProcessorContext context) {
            store = context.getStateStore(step.get("stores").get(0).asText());
            if (!step.has("every_ms")) return;
            PunctuationType type = step.get("time").asText().equals("stream") ? PunctuationType.STREAM_TIME : PunctuationType.WALL_CLOCK_TIME;
            context.schedule(ms(step, "every_ms"), type, time -> context.forward("tick", String.valueOf(time)));
        }

        public Object transform(Object key, Object value) {
            if (size(value) % 3 == 2) return null;
            KeyValue<Object, Object> made = KeyValue.pair(size(value) == 0 ? key : ((String) value).substring(0, 1), counted(store, key, value));
            return step.get("do").asText().equals("transform") ? made : List.of(made, KeyValue.pair(key, value));
        }

        public void close() {}
    }
}
