// Apache Kafka's command-line tools, run one after another in one JVM: starting a JVM for each would take most of the tests' time.
//
// One line in:   CLASS INPUT ARGUMENT...      all but the class in base64, "-" for nothing
// One line out:  EXIT_CODE OUTPUT ERRORS      both in base64, "-" for nothing
//
// A tool ends by Kafka's Exit class, which lets itself be replaced: instead of ending the JVM its shutdown hooks run and an Error unwinds the tool. Releases
// whose tools end the JVM themselves (before 2.0 some, before 1.0 all) are kept from it by a security manager, and the hooks that they leave with the JVM are
// taken back from it; `tools.py` gives the JVM the flags for both.
// System.in, out and err are set once to streams that change their target, since Scala's Console and the logger keep what they see first.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.security.Policy;
import java.security.ProtectionDomain;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

@SuppressWarnings({"unchecked", "removal"})
public class Tools {
    private static volatile InputStream input = InputStream.nullInputStream();
    private static volatile ByteArrayOutputStream output = new ByteArrayOutputStream();
    private static volatile ByteArrayOutputStream errors = new ByteArrayOutputStream();
    private static volatile Integer ended;
    private static final List<Runnable> hooks = new ArrayList<>();
    private static Field hooksOfJvm;
    private static final Set<Thread> hooksBefore = new HashSet<>();

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
        catchExits();
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
        takeBackHooks();
        return ended != null ? ended : code;
    }

    private static void catchExits() throws Exception {
        try {
            Class<?> exit = Class.forName("org.apache.kafka.common.utils.Exit");
            replace(exit, "ShutdownHookAdder", "setShutdownHookAdder", (proxy, method, given) -> hooks.add((Runnable) given[1]));
            for (String setter : new String[] {"setExitProcedure", "setHaltProcedure"}) {
                replace(exit, "Procedure", setter, (proxy, method, given) -> { throw end((Integer) given[0]); });
            }
        } catch (ClassNotFoundException release) {
            hooksOfJvm = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
            hooksOfJvm.setAccessible(true);
            hooksBefore.addAll(((Map<Thread, Thread>) hooksOfJvm.get(null)).keySet());
            Policy.setPolicy(new Policy() { // JMX asks it, not the security manager
                @Override
                public boolean implies(ProtectionDomain domain, Permission permission) {
                    return true;
                }
            });
            System.setSecurityManager(new SecurityManager() {
                @Override
                public void checkExit(int code) {
                    throw end(code);
                }

                @Override
                public void checkPermission(Permission permission) {}
            });
        }
    }

    private static void replace(Class<?> exit, String type, String setter, InvocationHandler handler) throws Exception {
        Class<?> wanted = Class.forName(exit.getName() + "$" + type);
        exit.getMethod(setter, wanted).invoke(null, Proxy.newProxyInstance(exit.getClassLoader(), new Class<?>[] {wanted}, handler));
    }

    private static void takeBackHooks() {
        if (hooksOfJvm == null) return;
        try {
            Map<Thread, Thread> left = (Map<Thread, Thread>) hooksOfJvm.get(null);
            Set<Thread> found = new HashSet<>(left.keySet());
            found.removeAll(hooksBefore);
            left.keySet().removeAll(found);
            for (Thread hook : found) hook.run();
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
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
