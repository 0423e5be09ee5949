// Apache Kafka's own message classes as a judge, over stdin and stdout: one line in, one line out.
//
//   apis                                  key:low-high of requests, separated by blanks
//   random KIND KEY VERSION SEED          base64 of a random message, blank, its JSON
//   json KIND KEY VERSION BASE64          the message in these bytes as JSON
//   again KIND KEY VERSION BASE64         decoded and encoded again
//   fromjson KIND KEY VERSION BASE64      base64 of the message that this JSON (in base64) describes
//   frame KEY VERSION CORRELATION BASE64  a request as it is sent: Kafka's header, then this body
//   answer KEY VERSION BASE64             correlation id of a response as it was sent, blank, its body as JSON
//   lock DIRECTORY / unlock               takes and gives back the lock that a broker holds on a log directory
//
// KIND is request or response. An error is a line that starts with "!".

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.RandomAccessFile;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

public class Judge {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static RandomAccessFile lockFile;
    private static FileLock lock;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            String answer;
            try {
                answer = answer(line.split(" "));
            } catch (InvocationTargetException error) {
                answer = "!" + error.getCause();
            } catch (Exception | StackOverflowError error) {
                answer = "!" + error;
            }
            out.println(answer.replace('\n', ' '));
        }
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "apis":
                StringBuilder text = new StringBuilder();
                for (ApiMessageType type : ApiMessageType.values()) {
                    text.append(type.apiKey()).append(':').append(type.lowestSupportedVersion()).append('-')
                        .append(type.highestSupportedVersion(true)).append(' ');
                }
                return text.toString().trim();
            case "lock":
                lockFile = new RandomAccessFile(new File(words[1], ".lock"), "rw");
                lock = lockFile.getChannel().tryLock();
                return lock == null ? "taken" : "locked";
            case "unlock":
                if (lock != null) lock.release();
                lockFile.close();
                return "unlocked";
            default:
        }
        if (words[0].equals("frame")) return frame(Short.parseShort(words[1]), Short.parseShort(words[2]), Integer.parseInt(words[3]), words[4]);
        if (words[0].equals("answer")) return response(Short.parseShort(words[1]), Short.parseShort(words[2]), words[3]);
        boolean request = words[1].equals("request");
        short key = Short.parseShort(words[2]);
        short version = Short.parseShort(words[3]);
        switch (words[0]) {
            case "random": {
                ApiMessage message = random(request, key, version, new Random(Long.parseLong(words[4])));
                return encode(message, version) + " " + json(message, version);
            }
            case "json":
                return json(decode(request, key, version, words[4]), version);
            case "again":
                return encode(decode(request, key, version, words[4]), version);
            case "fromjson": {
                JsonNode node = JSON.readTree(Base64.getDecoder().decode(words[4]));
                Method read = converter(make(request, key)).getMethod("read", JsonNode.class, short.class);
                return encode((ApiMessage) read.invoke(null, node, version), version);
            }
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String frame(short key, short version, int correlation, String base64) {
        RequestHeaderData header = new RequestHeaderData();
        header.setRequestApiKey(key).setRequestApiVersion(version).setCorrelationId(correlation).setClientId("judge");
        byte[] head = Base64.getDecoder().decode(encode(header, ApiMessageType.fromApiKey(key).requestHeaderVersion(version)));
        byte[] body = Base64.getDecoder().decode(encode(decode(true, key, version, base64), version).replace("-", ""));
        byte[] both = Arrays.copyOf(head, head.length + body.length);
        System.arraycopy(body, 0, both, head.length, body.length);
        return Base64.getEncoder().encodeToString(both);
    }

    private static String response(short key, short version, String base64) throws Exception {
        ByteBuffer bytes = ByteBuffer.wrap(Base64.getDecoder().decode(base64));
        ResponseHeaderData header = new ResponseHeaderData();
        header.read(new ByteBufferAccessor(bytes), ApiMessageType.fromApiKey(key).responseHeaderVersion(version));
        ApiMessage message = make(false, key);
        message.read(new ByteBufferAccessor(bytes), version);
        if (bytes.hasRemaining()) throw new IllegalArgumentException(bytes.remaining() + " bytes are left over");
        return header.correlationId() + " " + json(message, version);
    }

    private static ApiMessage make(boolean request, short key) {
        ApiMessageType type = ApiMessageType.fromApiKey(key);
        return request ? type.newRequest() : type.newResponse();
    }

    private static ApiMessage decode(boolean request, short key, short version, String base64) {
        ByteBuffer bytes = ByteBuffer.wrap(Base64.getDecoder().decode(base64.equals("-") ? "" : base64));
        ApiMessage message = make(request, key);
        message.read(new ByteBufferAccessor(bytes), version);
        if (bytes.hasRemaining()) throw new IllegalArgumentException(bytes.remaining() + " bytes are left over");
        return message;
    }

    private static String encode(ApiMessage message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(bytes), cache, version);
        bytes.flip();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return copy.length == 0 ? "-" : Base64.getEncoder().encodeToString(copy);
    }

    private static Class<?> converter(ApiMessage message) throws ClassNotFoundException {
        return Class.forName(message.getClass().getName().replaceAll("Data$", "DataJsonConverter"));
    }

    private static String json(ApiMessage message, short version) throws Exception {
        Method write = converter(message).getMethod("write", message.getClass(), short.class, boolean.class);
        return JSON.writeValueAsString(write.invoke(null, message, version, false));
    }

    private static ApiMessage random(boolean request, short key, short version, Random random) {
        ApiMessageType type = ApiMessageType.fromApiKey(key);
        Schema schema = (request ? type.requestSchemas() : type.responseSchemas())[version];
        Struct struct = (Struct) value(schema, random, 0);
        ByteBuffer bytes = ByteBuffer.allocate(schema.sizeOf(struct));
        schema.write(bytes, struct);
        bytes.flip();
        ApiMessage message = make(request, key);
        message.read(new ByteBufferAccessor(bytes), version);
        if (bytes.hasRemaining()) throw new IllegalStateException("the schema wrote more than the message reads");
        return message;
    }

    private static Object value(Type type, Random random, int depth) {
        if (type.isNullable() && random.nextInt(4) == 0) return null;
        if (type instanceof Schema) {
            Schema schema = (Schema) type;
            Struct struct = new Struct(schema);
            for (var bound : schema.fields()) struct.set(bound, value(bound.def.type, random, depth + 1));
            return struct;
        }
        if (type instanceof TaggedFields) {
            NavigableMap<Integer, Object> tags = new TreeMap<>();
            for (var entry : tagged((TaggedFields) type).entrySet()) {
                if (random.nextBoolean()) tags.put(entry.getKey(), value(entry.getValue().type, random, depth + 1));
            }
            return tags;
        }
        if (type.isArray()) {
            int size = random.nextInt(depth > 3 ? 2 : 4);
            List<Object> items = new ArrayList<>();
            for (int index = 0; index < size; index++) items.add(value(type.arrayElementType().get(), random, depth + 1));
            return items.toArray();
        }
        switch (type.toString()) {
            case "BOOLEAN":
                return random.nextBoolean();
            case "INT8":
                return (byte) random.nextInt();
            case "INT16":
                return (short) random.nextInt();
            case "UINT16":
                return random.nextInt(65536);
            case "INT32":
                return random.nextInt();
            case "UINT32":
                return random.nextLong() & 0xffffffffL;
            case "INT64":
                return random.nextLong();
            case "FLOAT64":
                return random.nextGaussian();
            case "UUID":
                return random.nextInt(4) == 0 ? Uuid.ZERO_UUID : new Uuid(random.nextLong(), random.nextLong());
            case "STRING":
            case "COMPACT_STRING":
            case "NULLABLE_STRING":
            case "COMPACT_NULLABLE_STRING": {
                StringBuilder text = new StringBuilder();
                int size = random.nextInt(12);
                for (int index = 0; index < size; index++) text.appendCodePoint(random.nextInt(8) == 0 ? 0xe0 + random.nextInt(5000) : 0x20 + random.nextInt(90));
                return text.toString();
            }
            case "RECORDS":
            case "COMPACT_RECORDS":
            case "NULLABLE_RECORDS":
            case "COMPACT_NULLABLE_RECORDS":
                return records(bytes(random));
            case "BYTES":
            case "COMPACT_BYTES":
            case "NULLABLE_BYTES":
            case "COMPACT_NULLABLE_BYTES":
                return bytes(random);
            default:
                throw new IllegalArgumentException("no random value for " + type);
        }
    }

    // The two releases keep these in different places.
    private static Object records(ByteBuffer content) {
        for (String name : List.of("org.apache.kafka.common.record.MemoryRecords", "org.apache.kafka.common.record.internal.MemoryRecords")) {
            try {
                return Class.forName(name).getMethod("readableRecords", ByteBuffer.class).invoke(null, content);
            } catch (ClassNotFoundException error) {
                continue;
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }
        throw new IllegalStateException("no MemoryRecords");
    }

    @SuppressWarnings("unchecked")
    private static Map<Integer, Field> tagged(TaggedFields type) {
        try {
            java.lang.reflect.Field field = TaggedFields.class.getDeclaredField("fields");
            field.setAccessible(true);
            return (Map<Integer, Field>) field.get(type);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static ByteBuffer bytes(Random random) {
        byte[] content = new byte[random.nextInt(40)];
        random.nextBytes(content);
        return ByteBuffer.wrap(content);
    }
}
