// Apache Kafka's command-line tools, run one after another in one JVM: starting a JVM for each would take most of the tests' time.
//
// One line in:   CLASS INPUT ARGUMENT...      all but the class in base64, "-" for nothing
// One line out:  EXIT_CODE OUTPUT ERRORS      both in base64, "-" for nothing
//
// A tool ends by Kafka's Exit class, which lets itself be replaced: instead of ending the JVM its shutdown hooks run and an Error unwinds the tool.
// System.in, out and err are set once to streams that change their target, since Scala's Console and the logger keep what they see first.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    private static volatile InputStream input = InputStream.nullInputStream();
    private static volatile ByteArrayOutputStream output = new ByteArrayOutputStream();
    private static volatile ByteArrayOutputStream errors = new ByteArrayOutputStream();
    private static volatile Integer ended;
    private static final List<Runnable> hooks = new ArrayList<>();

    private static class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        System.setIn(new InputStream() {
            @Override
            public int read() throws java.io.IOException {
                return input.read();
            }

            @Override
            public int read(byte[] bytes, int offset, int size) throws java.io.IOException {
                return input.read(bytes, offset, size);
            }
        });
        System.setOut(new PrintStream(switching(false), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(switching(true), true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> { throw end(code); });
        Exit.setHaltProcedure((code, message) -> { throw end(code); });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        String line;
        while ((line = questions.readLine()) != null) {
            String[] words = line.split(" ");
            output = new ByteArrayOutputStream();
            errors = new ByteArrayOutputStream();
            input = new ByteArrayInputStream(bytes(words[1]));
            String[] given = new String[words.length - 2];
            for (int index = 0; index < given.length; index++) given[index] = new String(bytes(words[index + 2]), StandardCharsets.UTF_8);
            int code = run(words[0], given);
            answers.println(code + " " + text(output) + " " + text(errors));
            answers.flush();
        }
    }

    private static int run(String name, String[] arguments) {
        ended = null;
        int code = 0;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            code = codeOf(error.getCause());
        } catch (ReflectiveOperationException error) {
            code = codeOf(error);
        }
        for (Runnable hook : hooks) {
            try {
                hook.run();
            } catch (Throwable error) {
                code = code == 0 ? codeOf(error) : code;
            }
        }
        hooks.clear();
        return ended != null ? ended : code;
    }

    // Some tools catch everything, their own end included: the first code is the one that a shell would see.
    private static Ended end(int code) {
        if (ended == null) ended = code;
        return new Ended();
    }

    private static int codeOf(Throwable error) {
        if (error instanceof Ended) return 0;
        error.printStackTrace();
        return 1;
    }

    private static OutputStream switching(boolean ofErrors) {
        return new OutputStream() {
            @Override
            public void write(int value) {
                (ofErrors ? errors : output).write(value);
            }

            @Override
            public void write(byte[] bytes, int offset, int size) {
                (ofErrors ? errors : output).write(bytes, offset, size);
            }
        };
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? new byte[0] : Base64.getDecoder().decode(text);
    }

    private static String text(ByteArrayOutputStream stream) {
        return stream.size() == 0 ? "-" : Base64.getEncoder().encodeToString(stream.toByteArray());
    }
}
