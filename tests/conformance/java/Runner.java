// SPDX-License-Identifier: Apache-2.0
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.meron.MeronException;
import org.meron.abi.Abi;

/** Runs the conformance cases through the package org.meron. ../README.md says how it is called. */
public final class Runner {
    private static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);
    /** Words of `needs` that this runner has. */
    private static final Set<String> HAS = Set.of("callbacks", "dlpack", "loans", "raw");
    private static final AtomicBoolean failed = new AtomicBoolean();

    private static String transport;
    private static String job = "conformance";
    private static int ranks = 1;

    private Runner() {}

    public static void main(String[] arguments) throws Exception {
        String only = null;
        List<Table.Case> cases = null;
        try {
            cases = Table.read(Path.of(arguments[0]));
            for (int i = 1; i < arguments.length; i += 2) {
                switch (arguments[i]) {
                    case "--transport": transport = arguments[i + 1]; break;
                    case "--ranks": ranks = Integer.parseInt(arguments[i + 1]); break;
                    case "--job": job = arguments[i + 1]; break;
                    case "--only": only = arguments[i + 1]; break;
                    default: throw new Table.Malformed("unknown option " + arguments[i]);
                }
            }
            if (transport == null) throw new Table.Malformed("--transport is missing");
        } catch (IOException | RuntimeException error) {
            System.err.println("usage: cases.txt --transport self|local|shm|custom [--ranks N] [--job TEXT] "
                    + "[--only CASE]: " + error);
            System.exit(2);
        }
        if (only != null) {
            final String name = only;
            cases.removeIf(one -> !one.name.equals(name));
        }
        if (transport.equals("shm")) {
            ranks = Integer.parseInt(System.getenv("MERON_WORLD_SIZE"));
            runRank(Integer.parseInt(System.getenv("MERON_RANK")), cases);
        } else {
            final List<Thread> threads = new ArrayList<>();
            final List<Table.Case> all = cases;
            for (int r = 0; r < ranks; ++r) {
                final int rank = r;
                threads.add(new Thread(() -> runRank(rank, all), "rank " + rank));
                threads.get(r).start();
            }
            for (Thread thread : threads) thread.join();
        }
        System.exit(failed.get() ? 1 : 0);
    }

    private static void runRank(int rank, List<Table.Case> cases) {
        for (Table.Case one : cases) {
            if (!one.transports.contains(transport) || !one.ranks.contains("" + ranks)) continue;
            for (String plan : one.plans) {
                final String title = one.name + " " + plan;
                if (rank == 0) say("# " + title);
                String lacking = "";
                for (String need : one.needs) {
                    if (!HAS.contains(need)) lacking = need;
                }
                if (!lacking.isEmpty()) {
                    if (rank == 0) say("ok " + title + " # SKIP needs " + lacking);
                    continue;
                }
                final String wrong = runCase(rank, one, plan);
                if (!wrong.isEmpty()) {
                    failed.set(true);
                    say("not ok " + title + ": " + wrong);
                } else if (rank == 0) {
                    say("ok " + title);
                }
            }
        }
    }

    /** Returns the error, or "". */
    private static String runCase(int rank, Table.Case one, String plan) {
        final Session session = new Session(rank, ranks, transport, job, one.name, plan);
        String wrong = "";
        for (Table.Statement statement : one.statements) {
            try {
                execute(session, statement);
            } catch (Throwable error) {
                wrong = "rank " + rank + ": line " + statement.line + ": " + statement.operation
                        + ": " + error;
                break;
            }
        }
        try {
            session.end();
        } catch (Throwable error) {
            if (wrong.isEmpty()) wrong = "rank " + rank + ": at the end: " + error;
        }
        return wrong;
    }

    private static void execute(Session session, Table.Statement statement) throws Exception {
        if (statement.get("on") != null && !statement.list("on").contains("" + session.rank)) return;
        try {
            if (!Operations.execute(session, statement) && !Params.execute(session, statement)
                    && !Gathers.execute(session, statement)
                    && !Gradients.execute(session, statement)
                    && !Optimizers.execute(session, statement)
                    && !Schedules.execute(session, statement)
                    && !Calls.execute(session, statement)
                    && !FileOperations.execute(session, statement)
                    && !Checkpoints.execute(session, statement)) {
                throw new Table.Malformed("unknown operation " + statement.operation);
            }
        } catch (MeronException error) {
            checkFailure(statement, error);
            return;
        }
        Values.check(statement.get("fails") == null, "it did not fail with " + statement.get("fails"));
    }

    private static void checkFailure(Table.Statement statement, MeronException error) {
        final String code = Abi.meron_status_name(error.code());
        final String expected = statement.get("fails");
        if (expected == null || !List.of(expected.split("\\|")).contains(code)) {
            throw new Values.Failed(code + " instead of "
                    + (expected == null ? "success" : expected) + ": " + error.getMessage());
        }
        final String message = error.getMessage();
        final String says = statement.get("says");
        Values.check(says == null || Values.holds(message, says), "the message lacks " + says + ": "
                + message);
        final String peer = statement.get("peer");
        if (peer != null) Values.equal("the peer", "" + error.peer(), peer);
        if (error.operation().isEmpty()) return;
        // The full message contains each part of the error.
        final String advice = error.advice().isEmpty() ? "" : error.advice().substring(1);
        for (String part : new String[] {error.operation(), error.subject(), advice}) {
            Values.check(Values.holds(message, part), "the message lacks " + part + ": " + message);
        }
    }

    /** One line, whole, at once: ranks that are processes share the output. */
    private static synchronized void say(String line) {
        try {
            OUT.write((line.replaceAll("\\s+", " ") + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            System.exit(1); // the reader has closed the pipe
        }
    }
}
