// SPDX-License-Identifier: Apache-2.0
import java.util.ArrayList;
import java.util.List;
import org.meron.Dtype;
import org.meron.Param;
import org.meron.ReduceOp;
import org.meron.Unit;
import org.meron.Update;
import org.meron.View;

/** The operations on params, units and updates. */
final class Params {
    private Params() {}

    /** Executes the statement and returns true if this class has its operation. */
    static boolean execute(Session session, Table.Statement statement) throws Exception {
        final String name = statement.name;
        switch (statement.operation) {
            case "param":
                session.keep(name, session.context().param(statement.get("name", name),
                        Operations.dtype(statement.wanted("dtype")),
                        shape(statement.wanted("shape")), "1".equals(statement.get("frozen")),
                        statement.get("group") == null ? null
                                : session.group(statement.get("group"))));
                return true;
            case "param_is": paramIs(session.find(Param.class, name), statement); return true;
            case "shard_range": shardRange(session, statement); return true;
            case "unit": unit(session, statement); return true;
            case "unit_is": unitIs(session.find(Unit.class, name), statement); return true;
            case "update":
                session.keep(name, session.context().update(session.units(statement)));
                return true;
            case "write": write(session, statement); return true;
            case "write_view": writeView(session, statement); return true;
            case "publish":
                session.find(Update.class, name).publish();
                session.held(name).released = true;
                return true;
            case "destroy": session.find(Unit.class, name).destroy(); return true;
            default: return false;
        }
    }

    private static long[] shape(String text) {
        if (text.equals("scalar")) return new long[0];
        final String[] sizes = text.split("x");
        final long[] out = new long[sizes.length];
        for (int i = 0; i < out.length; ++i) out[i] = Long.parseLong(sizes[i]);
        return out;
    }

    private static void expect(Table.Statement statement, String key, Object found) {
        if (statement.get(key) != null) Values.equal(key, "" + found, statement.get(key));
    }

    private static void paramIs(Param param, Table.Statement statement) {
        Values.check(param.shardCount() <= param.count(), "owns more than there is");
        final StringBuilder shape = new StringBuilder();
        for (long size : param.shape()) shape.append(shape.length() > 0 ? "x" : "").append(size);
        expect(statement, "shape", shape.length() == 0 ? "scalar" : shape);
        expect(statement, "dtype", param.dtype().name().toLowerCase());
        expect(statement, "count", param.count());
        expect(statement, "frozen", param.frozen() ? 1 : 0);
        expect(statement, "name", param.name());
    }

    private static void shardRange(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.name);
        Values.check(param.shardOffset() + param.shardCount() <= param.count(), "beyond the end");
        final float[] total = {param.shardCount()};
        session.context().world().allReduce(total, ReduceOp.SUM);
        final int copies = "1".equals(statement.get("all")) ? session.world : 1;
        Values.equal("what all ranks own", (long) total[0], copies * param.count());
    }

    private static void unit(Session session, Table.Statement statement) {
        final List<Param> params = new ArrayList<>();
        for (String name : statement.list("params")) params.add(session.find(Param.class, name));
        session.keep(statement.name, session.context().unit(
                statement.get("name", statement.name), params.toArray(new Param[0])));
    }

    private static void unitIs(Unit unit, Table.Statement statement) {
        expect(statement, "name", unit.name());
        expect(statement, "params", java.util.Arrays.stream(unit.params()).map(Param::name)
                .collect(java.util.stream.Collectors.joining(",")));
        expect(statement, "flats", java.util.Arrays.stream(unit.flats())
                .map(flat -> flat.dtype().name().toLowerCase() + ":" + flat.count())
                .collect(java.util.stream.Collectors.joining(",")));
        expect(statement, "state", unit.state().name().toLowerCase());
        expect(statement, "version", unit.version());
        expect(statement, "leases", unit.leases());
        expect(statement, "reduced", unit.isReduced() ? 1 : 0);
        expect(statement, "param_codec", unit.paramCodec().name().toLowerCase());
        expect(statement, "gradient_codec", unit.gradientCodec().name().toLowerCase());
        checkError(statement, "param_error", unit.paramError(), unit.paramWorstBlock());
        checkError(statement, "gradient_error", unit.gradientError(), unit.gradientWorstBlock());
    }

    /** Errors are 0, or above 0 and at most what is given. */
    private static void checkError(Table.Statement statement, String name, double... errors) {
        if (statement.get(name) == null) return;
        final double most = statement.number(name, 0);
        for (double error : errors) {
            Values.check(most == 0 ? error == 0 : error > 0 && error <= most,
                    name + " is " + error + ", not up to " + most);
        }
    }

    private static void write(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final Dtype dtype = Operations.dtype(statement, param);
        session.find(Update.class, statement.name).write(param,
                session.values.buffer(
                        statement.wanted("with"), dtype, Operations.count(statement, param)),
                dtype);
    }

    private static void writeView(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final View view = session.find(Update.class, statement.name).view(param);
        if (statement.get("before") != null) {
            session.values.checkEqual(Values.get(view.bytes(), view.dtype()),
                    statement.get("before"), view.offset());
        }
        session.values.assign(view, statement.wanted("with"));
    }
}
