// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.meron.DlpackTensor;
import org.meron.Dtype;
import org.meron.Gather;
import org.meron.Operation;
import org.meron.Param;
import org.meron.ReduceOptions;
import org.meron.Unit;
import org.meron.View;
import org.meron.abi.Abi;
import org.meron.abi.meron_source_list;

/** The operations on gradients and their reductions. */
final class Gradients {
    private Gradients() {}

    /** Executes the statement and returns true if this class has its operation. */
    static boolean execute(Session session, Table.Statement statement) throws Exception {
        final String name = statement.name;
        switch (statement.operation) {
            case "gradient": gradient(session, statement); return true;
            case "reduce": reduce(session, statement); return true;
            case "reduce_finish":
                Operations.finishOrKeep(session, statement, session.find(Unit.class, name)
                        .reduceFinishBegin(new ReduceOptions()
                                .op(Operations.op(statement.get("op", "mean")))
                                .divisor(statement.number("divisor", 1))));
                return true;
            case "reduce_wait": reduceWait(session, statement); return true;
            case "reduced": {
                final View view = session.find(Param.class, name).reduced();
                Values.equal("the dtype", view.dtype(), Dtype.F32);
                session.values.checkData(statement, view.bytes(), view.dtype(), view.offset());
                return true;
            }
            case "clip": {
                final double norm = session.context().clipGradients(
                        statement.number("max_norm", 0), session.units(statement));
                Values.equal("the norm", norm, statement.number("is", norm));
                return true;
            }
            case "reduced_dlpack": reducedDlpack(session, statement); return true;
            case "discard": session.find(Unit.class, name).discard(); return true;
            default: return false;
        }
    }

    private static void gradient(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.name);
        final String text = statement.get("set");
        final View view = param.gradient(text != null);
        final int count = Math.toIntExact(view.count());
        final double[] total = text != null ? new double[count]
                : Values.get(view.bytes(), view.dtype());
        final double[] added =
                session.values.of(text != null ? text : statement.wanted("add"), count, 0);
        for (int k = 0; k < count; ++k) total[k] += added[k];
        Values.put(view.bytes(), total, view.dtype());
    }

    private static void reduce(Session session, Table.Statement statement) {
        final Unit unit = session.find(Unit.class, statement.name);
        final ReduceOptions options = new ReduceOptions()
                .op(Operations.op(statement.get("op", "mean")))
                .boundary(!"0".equals(statement.get("boundary")))
                .divisor(statement.number("divisor", 1));
        final List<Param> params = new ArrayList<>();
        final List<ByteBuffer> data = new ArrayList<>();
        boolean plain = true; // what a map of floats can say
        for (String[] pair : statement.arguments) {
            if (!pair[0].equals("source")) continue;
            final int at = pair[1].indexOf('@');
            final Param param = session.find(Param.class, pair[1].substring(0, at));
            final Dtype dtype = Operations.dtype(statement, param);
            plain &= dtype == Dtype.F32 && !params.contains(param);
            params.add(param);
            data.add(session.values.buffer(
                    pair[1].substring(at + 1), dtype, Operations.count(statement, param)));
        }
        final Operation reduction;
        if (statement.get("from") != null) {
            final Gather from = session.find(Gather.class, statement.get("from"));
            final Map<Param, View> gradients = new LinkedHashMap<>();
            for (Param param : unit.params()) gradients.put(param, from.view(param));
            reduction = unit.reduceBegin(gradients, options);
        } else if (params.isEmpty()) {
            reduction = unit.reduceBegin(options);
        } else if (plain) {
            final Map<Param, Object> gradients = new LinkedHashMap<>();
            for (int i = 0; i < params.size(); ++i) {
                gradients.put(params.get(i), data.get(i).asFloatBuffer());
            }
            reduction = unit.reduceBegin(gradients, options);
        } else {
            reduceRaw(unit, params, data, statement);
            return;
        }
        Operations.finishOrKeep(session, statement, reduction);
    }

    private static void reducedDlpack(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final DlpackTensor tensor = param.reducedDlpack();
        session.keep(statement.name, tensor);
        Values.equal("the dtype", tensor.dtype(), Dtype.F32);
        Values.equal("the shape", java.util.Arrays.toString(tensor.shape()),
                "[" + param.shardCount() + "]");
        session.values.checkData(
                statement, tensor.view().bytes(), tensor.dtype(), param.shardOffset());
    }

    private static void reduceWait(Session session, Table.Statement statement) {
        final Unit[] units = session.units(statement);
        final String limit = statement.get("timeout");
        if (limit != null) {
            Operations.ended(statement, session.context().awaitReductions(
                    Operations.seconds(Double.parseDouble(limit)), units));
        } else {
            session.context().awaitReductions(units);
            Operations.ended(statement, true);
        }
    }

    /** 16 bits, or a param twice: the natural layer takes one float gradient per param. */
    private static void reduceRaw(
            Unit unit, List<Param> params, List<ByteBuffer> data, Table.Statement statement) {
        final meron_source_list sources = new meron_source_list();
        try {
            for (int i = 0; i < params.size(); ++i) {
                sources.add(Session.handle(params.get(i)), data.get(i),
                        Operations.dtype(statement, params.get(i)).code());
            }
            final long future = Abi.meron_reduce_begin(Session.handle(unit), sources,
                    Operations.op(statement.get("op", "mean")).code(),
                    "0".equals(statement.get("boundary")) ? 0 : 1, statement.number("divisor", 1),
                    0);
            Abi.meron_future_wait(future, Abi.MERON_TIMEOUT_DEFAULT);
            Abi.meron_future_release(future);
        } finally {
            sources.delete();
        }
    }
}
