// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import org.meron.Context;
import org.meron.ContextOptions;
import org.meron.Dtype;
import org.meron.Group;
import org.meron.Meron;
import org.meron.Operation;
import org.meron.Param;
import org.meron.Pending;
import org.meron.Plan;
import org.meron.Prediction;
import org.meron.ReduceOp;
import org.meron.Stats;
import org.meron.abi.Abi;

/** The operations on the library, plans, contexts, groups and futures. README.md defines them. */
final class Operations {
    private static final double DEADLINE = 20; // of a context's operations, in seconds
    private static final int ATTEMPTS = 20_000; // of a millisecond: what asks again and again

    private Operations() {}

    /** Executes the statement and returns true if this class has its operation. */
    static boolean execute(Session session, Table.Statement statement) throws Exception {
        final String name = statement.name;
        switch (statement.operation) {
            case "library": library(); return true;
            case "system": Values.has(Meron.systemInfo(), statement); return true;
            case "plan":
                session.keep(name, statement.get("preset") != null
                        ? Plan.preset(statement.get("preset"))
                        : Plan.parse(statement.wanted("json")));
                return true;
            case "plan_json": planJson(session.find(Plan.class, name), statement); return true;
            case "plan_same":
                Values.equal("the plan", session.find(Plan.class, name).json(),
                        session.find(Plan.class, statement.wanted("other")).json());
                return true;
            case "plan_predict":
                Values.has(session.find(Plan.class, name).predict(statement.wanted("model"),
                        (int) statement.number("ranks", 0), (int) statement.number("micro_batches", 1),
                        (int) statement.number("gathers", 2), (int) statement.number("node", 0),
                        (int) statement.number("states", 2), statement.number("table", 0) == 1),
                        statement);
                return true;
            case "open": open(session, statement); return true;
            case "open_version": openVersion(session, statement); return true;
            case "use": session.currentName = name; return true;
            case "close":
                session.held(name.isEmpty() ? session.currentName : name).release();
                return true;
            case "context":
                Values.equal("the rank", session.context().rank(), session.rank);
                Values.equal("the ranks", session.context().worldSize(), session.world);
                Values.equal("the transport", session.context().transport(), session.transport);
                return true;
            case "progress": session.context().progress(); return true;
            case "stop": session.stop = name.equals("1"); return true;
            case "mark":
                session.marked.put(session.currentName, session.context().stats());
                return true;
            case "counted":
                for (String[] pair : statement.arguments) {
                    if (!pair[0].equals("on")) {
                        counted(session, pair[0], Long.parseLong(pair[1]));
                    }
                }
                return true;
            case "predicted": predicted(session, statement); return true;
            case "flight_record":
                Values.has(session.context().flightRecord(), statement);
                return true;
            case "group": {
                final int[] ranks =
                        statement.list("ranks").stream().mapToInt(Integer::parseInt).toArray();
                final Group made = session.context().group(ranks);
                if (made != null) session.keep(name, made);
                return true;
            }
            case "group_is": {
                final List<String> ranks = statement.list("ranks");
                Values.equal("the group's size", session.group(name).size(), ranks.size());
                Values.equal("the world's rank", ranks.get(session.group(name).rank()),
                        "" + session.rank);
                return true;
            }
            case "group_status": {
                final boolean until = "broken".equals(statement.get("until"));
                for (int i = 0; i < (until ? ATTEMPTS : 1); ++i) {
                    if (i > 0) Thread.sleep(1);
                    session.group(name).check();
                }
                return true;
            }
            case "abort": session.group(name).abort(statement.wanted("reason")); return true;
            case "barrier":
                finishOrKeep(session, statement, session.group(name).barrierBegin());
                return true;
            case "broadcast":
            case "all_reduce": collective(session, statement); return true;
            case "wait": wait(session, statement); return true;
            case "wait_any": waitAny(session, statement); return true;
            case "finish": finish(session, statement); return true;
            case "poll": poll(session, statement); return true;
            case "release": session.held(name).release(); return true;
            case "sleep": Thread.sleep(Math.round(1000 * statement.number("s", 0))); return true;
            default: return false;
        }
    }

    static void finishOrKeep(Session session, Table.Statement statement, Operation operation) {
        if ("none".equals(statement.get("future"))) {
            operation.close();
        } else if (statement.get("future") != null) {
            session.keep(statement.get("future"), operation);
        } else {
            operation.finish();
        }
    }

    static Dtype dtype(String name) {
        for (Dtype dtype : Dtype.values()) {
            if (dtype.name().equalsIgnoreCase(name)) return dtype;
        }
        throw new Table.Malformed("unknown dtype " + name);
    }

    static int count(Table.Statement statement, Param param) {
        return (int) statement.number("count", param.count());
    }

    static Dtype dtype(Table.Statement statement, Param param) {
        final String name = statement.get("dtype");
        return name == null ? param.dtype() : dtype(name);
    }

    private static void library() {
        Values.equal("the version", Abi.meron_version(), Abi.MERON_VERSION);
        Values.equal("the version", Meron.version(), Abi.MERON_VERSION_MAJOR + "."
                + Abi.MERON_VERSION_MINOR + "." + Abi.MERON_VERSION_PATCH);
        for (Dtype dtype : Dtype.values()) {
            Values.equal("bytes", Abi.meron_dtype_size(dtype.code()), (long) dtype.bytes());
        }
        Values.equal("names",
                List.of(Abi.meron_status_name(0), Abi.meron_status_name(-100),
                        Abi.meron_status_name(-300), Abi.meron_status_name(-402)),
                List.of("MERON_OK", "MERON_E_ARGUMENT", "MERON_E_TIMEOUT", "MERON_E_INTERNAL"));
    }

    private static void planJson(Plan plan, Table.Statement statement) {
        Values.has(plan.json(), statement);
        try (Plan again = Plan.parse(plan.json())) {
            Values.equal("the plan read back", again.json(), plan.json());
        }
    }

    private static void open(Session session, Table.Statement statement) {
        final String name = statement.name.isEmpty() ? "ctx" : statement.name;
        final String job =
                session.job + "." + session.title + "." + session.plan + "." + name;
        final ContextOptions options = Context.options()
                .rank((int) statement.number("rank", session.rank),
                        (int) statement.number("world", session.world))
                .transport(statement.get("transport", session.transport))
                .job(statement.get("job", job)).token(statement.get("token"))
                .timeout(seconds(statement.number("timeout", DEADLINE)))
                .arenaReserve(64 << 20).threads(1);
        if (statement.get("limit") != null) {
            options.hostMemoryLimit(Long.parseLong(statement.get("limit")));
        }
        if (statement.get("device") != null) options.device(statement.get("device"));
        final boolean usual = statement.get("rank") == null && statement.get("world") == null
                && statement.get("transport") == null;
        if (session.transport.equals("custom") && usual) {
            options.custom(Mailbox.join(job, session.rank, session.world));
        }
        if (statement.get("stoppable") != null) options.shouldStop(() -> session.stop);
        final Context context;
        if (statement.get("plan") != null) {
            context = options.plan(session.find(Plan.class, statement.get("plan"))).open();
        } else {
            try (Plan plan = Plan.preset(session.plan)) {
                context = options.plan(plan).open();
            }
        }
        session.keep(name, context);
        session.currentName = name;
    }

    /** Raw: the natural layer says for itself which headers it was built from. */
    private static void openVersion(Session session, Table.Statement statement) {
        final int version = (int) statement.number("minor", 0) << 8;
        Abi.meron_context_close(Abi.meron_context_open(version, session.rank, session.world,
                session.transport.equals("custom") ? "self" : session.transport,
                session.job + "." + session.title, null, 0, 0, 0, 1, 0, null, null, null));
    }

    static Duration seconds(double seconds) {
        return Duration.ofNanos(Math.round(1e9 * seconds));
    }

    private static long field(Object object, String name) throws ReflectiveOperationException {
        final StringBuilder camel = new StringBuilder();
        for (String word : name.split("_")) {
            camel.append(camel.length() == 0 ? word
                    : Character.toUpperCase(word.charAt(0)) + word.substring(1));
        }
        return object.getClass().getField(camel.toString()).getLong(object);
    }

    private static void counted(Session session, String name, long wanted)
            throws ReflectiveOperationException {
        final Stats before = session.marked.get(session.currentName);
        long found = field(session.context().stats(), name);
        if (Counters.GROWING.contains(name) && before != null) found -= field(before, name);
        Values.equal(name, found, wanted);
    }

    /** Over a custom transport messages have memory of their own. */
    private static boolean staged(Session session, String name, long wanted) {
        return name.equals("peak_bytes") && session.transport.equals("custom")
                && session.context().stats().peakBytes > wanted;
    }

    private static void predicted(Session session, Table.Statement statement)
            throws ReflectiveOperationException {
        final Prediction plan = session.context().predict(
                (int) statement.number("micro_batches", 1), (int) statement.number("gathers", 2));
        final long steps = (long) statement.number("steps", 1);
        for (String name : new String[] {"param_bytes", "gradient_bytes", "optimizer_bytes",
                "peak_bytes", "gather_mapped_bytes", "gather_copied_bytes", "reduce_bytes",
                "inter_node_gather_bytes", "inter_node_reduce_bytes", "nvme_read_bytes", "nvme_written_bytes",
                "nvme_bytes", "device_bytes"}) {
            final long wanted = field(plan, name) * (Counters.GROWING.contains(name) ? steps : 1);
            if (!staged(session, name, wanted)) counted(session, name, wanted);
        }
    }

    private static void collective(Session session, Table.Statement statement) {
        final Dtype dtype = dtype(statement.wanted("dtype"));
        final int count = Integer.parseInt(statement.wanted("count"));
        final ByteBuffer data = session.values.buffer(statement.wanted("with"), dtype, count);
        final Group group = session.group(statement.name);
        if (statement.operation.equals("broadcast")) {
            group.broadcast(data, Integer.parseInt(statement.wanted("root")));
        } else {
            group.allReduce(data, dtype, op(statement.wanted("op")));
        }
        session.values.checkData(statement, data, dtype, 0);
    }

    static ReduceOp op(String name) {
        return ReduceOp.valueOf(name.toUpperCase());
    }

    static void ended(Table.Statement statement, boolean ended) {
        Values.check(ended != "1".equals(statement.get("pending")), "ended: " + ended);
    }

    private static void wait(Session session, Table.Statement statement) {
        final Pending item = (Pending) session.held(statement.name).item;
        final String limit = statement.get("timeout");
        if (limit != null) {
            ended(statement, item.await(seconds(Double.parseDouble(limit))));
        } else {
            item.await();
            ended(statement, true);
        }
    }

    private static void waitAny(Session session, Table.Statement statement) {
        final List<String> names = statement.list("futures");
        final Pending[] pending = new Pending[names.size()];
        for (int i = 0; i < pending.length; ++i) {
            pending[i] = (Pending) session.held(names.get(i)).item;
        }
        final String limit = statement.get("timeout");
        final int found = limit == null ? Pending.awaitAny(pending)
                : Pending.awaitAny(seconds(Double.parseDouble(limit)), pending);
        ended(statement, found >= 0);
        if (statement.get("is") != null) {
            Values.equal("the index", found, (int) statement.number("is", 0));
        }
    }

    private static void finish(Session session, Table.Statement statement) throws Exception {
        try (AutoCloseable item = session.held(statement.name).item) {
            ((Pending) item).await();
        }
    }

    private static void poll(Session session, Table.Statement statement) throws Exception {
        final Pending item = (Pending) session.held(statement.name).item;
        final int attempts = "1".equals(statement.get("pending")) ? 1 : ATTEMPTS;
        boolean ended = false;
        for (int i = 0; i < attempts && !ended; ++i) {
            if (i > 0) Thread.sleep(1);
            ended = item.done();
        }
        ended(statement, ended);
    }
}
