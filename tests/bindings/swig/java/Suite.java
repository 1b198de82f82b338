// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Stream;
import org.meron.Context;
import org.meron.MeronException;
import org.meron.Plan;
import org.meron.Status;

/**
 * Runs test cases, each on a thread of its own and for a limited time, prints one line per failure,
 * and leaves a JUnit file at MERON_TEST_XML.
 */
final class Suite {
    interface Body {
        void run() throws Exception;
    }

    interface RankBody {
        void run(Context context) throws Exception;
    }

    private static final int SECONDS =
            Integer.parseInt(System.getenv().getOrDefault("MERON_TEST_SECONDS", "50"));

    private final String name;
    private final List<String> cases = new ArrayList<>();
    private int failures;

    Suite(String name) {
        this.name = name;
    }

    /** Runs one case. */
    void test(String title, Body body) {
        final long begin = System.nanoTime();
        final FutureTask<Void> task = new FutureTask<>(() -> {
            body.run();
            return null;
        });
        final Thread thread = new Thread(task, title);
        thread.setDaemon(true);
        thread.start();
        Throwable failure = null;
        try {
            task.get(SECONDS, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            failure = error.getCause();
        } catch (TimeoutException error) {
            failure = new AssertionError("did not end within " + SECONDS + " s");
            failure.setStackTrace(thread.getStackTrace());
        } catch (InterruptedException error) {
            failure = error;
        }
        record(title, (System.nanoTime() - begin) * 1e-9, failure);
    }

    /** Writes the JUnit file and ends the process. */
    void finish() throws IOException {
        final String file = System.getenv("MERON_TEST_XML");
        if (file != null) {
            Files.writeString(Path.of(file), "<testsuite name=\"" + name + "\" tests=\"" + cases.size()
                    + "\" failures=\"" + failures + "\">\n" + String.join("", cases)
                    + "</testsuite>\n");
        }
        System.out.println(name + ": " + cases.size() + " cases, " + failures + " failures");
        System.exit(failures == 0 ? 0 : 1);
    }

    private void record(String title, double seconds, Throwable failure) {
        String inner = "";
        if (failure != null) {
            ++failures;
            final StringWriter text = new StringWriter();
            failure.printStackTrace(new PrintWriter(text));
            System.out.println("FAILED " + name + ": " + title + "\n" + text);
            inner = "<failure>" + escape(text.toString()) + "</failure>";
        }
        cases.add("<testcase classname=\"" + name + "\" name=\"" + escape(title) + "\" time=\""
                + seconds + "\">" + inner + "</testcase>\n");
    }

    private static String escape(String text) {
        return text.replace("&", "&amp;").replace("<", "&lt;").replace("\"", "&quot;");
    }

    // ---- What tests have in common ---------------------------------------------------------------

    private static int jobs;

    /** Runs a body on each of some ranks of a local job, on threads; throws the first failure. */
    static void ranks(int count, String plan, RankBody body) throws Exception {
        final String job;
        synchronized (Suite.class) {
            job = "java-" + jobs++;
        }
        final List<FutureTask<Void>> tasks = new ArrayList<>();
        for (int r = 0; r < count; ++r) {
            final int rank = r;
            tasks.add(new FutureTask<>(() -> {
                try (Plan chosen = Plan.preset(plan);
                        Context context = Context.options().rank(rank, count).transport("local")
                                .job(job).threads(1).arenaReserve(1 << 26).plan(chosen)
                                .log((level, message) -> { }).open()) {
                    body.run(context);
                }
                return null;
            }));
            new Thread(tasks.get(r), "rank " + r).start();
        }
        Throwable first = null;
        for (FutureTask<Void> task : tasks) {
            try {
                task.get(SECONDS, TimeUnit.SECONDS);
            } catch (ExecutionException error) {
                if (first == null) first = error.getCause();
                else first.addSuppressed(error.getCause());
            }
        }
        if (first != null) throw new AssertionError("a rank failed: " + first, first);
    }

    /** A context of one rank. */
    static Context alone(String plan) {
        try (Plan chosen = Plan.preset(plan)) {
            return Context.options().rank(0, 1).transport("self").threads(1).arenaReserve(1 << 26)
                    .plan(chosen).open();
        }
    }

    /** Removes a folder and all that is in it. */
    static void removeAll(Path folder) throws IOException {
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(each -> each.toFile().delete());
        }
    }

    static void equal(Object wanted, Object found) {
        if (!wanted.equals(found)) throw new AssertionError("wanted " + wanted + ", found " + found);
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    /** Runs a body that must throw a MeronException of a status; returns it. */
    static MeronException fails(Status status, Body body) throws Exception {
        try {
            body.run();
        } catch (MeronException error) {
            if (error.status() == status) return error;
            throw new AssertionError("wanted " + status + ", found " + error.status(), error);
        }
        throw new AssertionError("nothing was thrown, wanted " + status);
    }
}
