// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.meron.Adagrad;
import org.meron.Adam;
import org.meron.AdamW;
import org.meron.Context;
import org.meron.DlpackTensor;
import org.meron.Dtype;
import org.meron.Future;
import org.meron.Gather;
import org.meron.GatherMode;
import org.meron.GatherPlace;
import org.meron.Lion;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.ParamGroup;
import org.meron.ReduceOp;
import org.meron.ReduceOptions;
import org.meron.Sgd;
import org.meron.Unit;
import org.meron.Update;
import org.meron.UpdateRule;
import org.meron.View;
import org.meron.abi.Abi;
import org.meron.abi.meron_source_list;

/** The operations on params, units, updates, gathers, gradients and optimizers. */
final class Tensors {
    private Tensors() {}

    /** Whether the operation is one of these. */
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
            case "owned": owned(session, statement); return true;
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
            case "gather":
            case "gather_begin": gather(session, statement); return true;
            case "wait_stream": session.find(Gather.class, name).waitStream(0); return true;
            case "release_on_stream":
                session.find(Gather.class, name).releaseOnStream(0);
                session.held(name).released = true;
                return true;
            case "full": {
                final View view = tensor(session, statement);
                session.values.checkData(statement, view.bytes(), view.dtype(), 0);
                if ("1".equals(statement.get("same"))) checkSame(session, view);
                return true;
            }
            case "overwrite":
                assign(session, tensor(session, statement), statement.wanted("with"));
                return true;
            case "dlpack": dlpack(session, statement); return true;
            case "gradient": gradient(session, statement); return true;
            case "reduce": reduce(session, statement); return true;
            case "reduce_finish":
                Operations.finishOrKeep(session, statement, session.find(Unit.class, name)
                        .reduceFinish(new ReduceOptions()
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
            case "discard": session.find(Unit.class, name).discard(); return true;
            case "destroy": session.find(Unit.class, name).destroy(); return true;
            case "optimizer": optimizer(session, statement); return true;
            case "step":
                Operations.finishOrKeep(
                        session, statement, session.find(Optimizer.class, name).step());
                return true;
            case "optimizer_is": optimizerIs(session.find(Optimizer.class, name), statement);
                return true;
            case "learning_rate":
                session.find(Optimizer.class, name).learningRate(statement.number("lr", 0));
                return true;
            case "set_steps":
                session.find(Optimizer.class, name).steps((long) statement.number("steps", 0));
                return true;
            case "param_group": paramGroup(session, statement); return true;
            case "set_param_group":
                setParamGroup(session.find(Optimizer.class, name), statement);
                return true;
            case "param_group_is":
                paramGroupIs(session.find(Optimizer.class, name), statement);
                return true;
            case "state": state(session, statement); return true;
            case "state_read": stateRead(session, statement); return true;
            case "state_write": stateWrite(session, statement); return true;
            case "offload":
                session.find(Optimizer.class, name).offload(statement.get("folder"));
                return true;
            case "reload": session.find(Optimizer.class, name).reload(); return true;
            default: return false;
        }
    }

    // ---- Params, units, updates --------------------------------------------------------------------

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
        Values.check(param.ownedCount() <= param.count(), "owns more than there is");
        final StringBuilder shape = new StringBuilder();
        for (long size : param.shape()) shape.append(shape.length() > 0 ? "x" : "").append(size);
        expect(statement, "shape", shape.length() == 0 ? "scalar" : shape);
        expect(statement, "dtype", param.dtype().name().toLowerCase());
        expect(statement, "count", param.count());
        expect(statement, "frozen", param.frozen() ? 1 : 0);
        expect(statement, "name", param.name());
    }

    private static void owned(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.name);
        Values.check(param.ownedOffset() + param.ownedCount() <= param.count(), "beyond the end");
        final float[] total = {param.ownedCount()};
        session.context().world().allReduce(total, ReduceOp.SUM);
        final int copies = "1".equals(statement.get("all")) ? session.world : 1;
        Values.equal("what all ranks own", (long) total[0], copies * param.count());
    }

    /** Every rank of the world has these bytes: the sums of the CRC's halves are multiples of it. */
    private static void checkSame(Session session, View view) {
        final long crc = Values.crc(view.bytes());
        final float[] sums = {crc >> 16, crc & 0xffff};
        session.context().world().allReduce(sums, ReduceOp.SUM);
        Values.check(sums[0] == session.world * (crc >> 16)
                && sums[1] == session.world * (crc & 0xffff), "the ranks differ");
    }

    private static void unit(Session session, Table.Statement statement) {
        final List<Param> params = new ArrayList<>();
        for (String name : statement.list("params")) params.add(session.find(Param.class, name));
        session.keep(statement.name, session.context().unit(
                statement.get("name", statement.name), params.toArray(new Param[0])));
    }

    private static void unitIs(Unit unit, Table.Statement statement) {
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

    private static int count(Table.Statement statement, Param param) {
        return (int) statement.number("count", param.count());
    }

    private static Dtype dtype(Table.Statement statement, Param param) {
        final String name = statement.get("dtype");
        return name == null ? param.dtype() : Operations.dtype(name);
    }

    private static void write(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final Dtype dtype = dtype(statement, param);
        session.find(Update.class, statement.name).write(param,
                session.values.buffer(statement.wanted("with"), dtype, count(statement, param)),
                dtype);
    }

    private static void writeView(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final View view = session.find(Update.class, statement.name).view(param);
        if (statement.get("before") != null) {
            session.values.checkEqual(Values.get(view.bytes(), view.dtype()),
                    statement.get("before"), view.offset());
        }
        assign(session, view, statement.wanted("with"));
    }

    private static void assign(Session session, View view, String text) {
        final int count = Math.toIntExact(view.count());
        Values.put(view.bytes(), session.values.of(text, count, view.offset()), view.dtype());
    }

    // ---- Gathers -----------------------------------------------------------------------------------

    private static void gather(Session session, Table.Statement statement) {
        final GatherMode mode = GatherMode.valueOf(statement.get("mode", "view").toUpperCase());
        final Unit[] units = session.units(statement);
        Map<Param, ByteBuffer> into = null;
        if (mode == GatherMode.INTO) {
            into = new LinkedHashMap<>();
            for (Unit unit : units) {
                for (Param param : unit.params()) {
                    into.put(param, session.values.buffer(
                            "fill:-1", param.dtype(), Math.toIntExact(param.count())));
                }
            }
        }
        final Gather made = mode == GatherMode.VIEW
                ? session.context().begin(
                        GatherPlace.valueOf(statement.get("place", "device").toUpperCase()), units)
                : session.context().begin(mode, into, units);
        if (statement.operation.equals("gather")) {
            try {
                made.await();
            } catch (RuntimeException error) {
                made.close();
                throw error;
            }
        }
        session.keep(statement.name, made);
        if (mode == GatherMode.VIEW) session.views.add(made);
    }

    private static View tensor(Session session, Table.Statement statement) {
        final Gather gather = session.find(Gather.class, statement.name);
        final Param param = session.find(Param.class, statement.wanted("param"));
        final View view = gather.view(param);
        Values.equal("the dtype", view.dtype(), param.dtype());
        Values.equal("the elements", view.count(), param.count());
        Values.equal("writable", view.writable(), !session.views.contains(gather));
        return view;
    }

    private static void dlpack(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final DlpackTensor tensor =
                session.find(Gather.class, statement.wanted("gather")).dlpack(param);
        session.keep(statement.name, tensor);
        Values.equal("the dtype", tensor.dtype(), param.dtype());
        Values.equal("the shape", Arrays.toString(tensor.shape()), Arrays.toString(param.shape()));
        Values.check(!tensor.view().writable(), "the tensor is not read-only");
        session.values.checkData(statement, tensor.view().bytes(), tensor.dtype(), 0);
    }

    // ---- Gradients and optimizers ------------------------------------------------------------------

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
            final Dtype dtype = dtype(statement, param);
            plain &= dtype == Dtype.F32 && !params.contains(param);
            params.add(param);
            data.add(session.values.buffer(
                    pair[1].substring(at + 1), dtype, count(statement, param)));
        }
        final Future future;
        if (statement.get("from") != null) {
            final Gather from = session.find(Gather.class, statement.get("from"));
            final Map<Param, View> gradients = new LinkedHashMap<>();
            for (Param param : unit.params()) gradients.put(param, from.view(param));
            future = unit.reduce(gradients, options);
        } else if (params.isEmpty()) {
            future = unit.reduce(options);
        } else if (plain) {
            final Map<Param, Object> gradients = new LinkedHashMap<>();
            for (int i = 0; i < params.size(); ++i) {
                gradients.put(params.get(i), data.get(i).asFloatBuffer());
            }
            future = unit.reduce(gradients, options);
        } else {
            reduceRaw(unit, params, data, statement);
            return;
        }
        Operations.finishOrKeep(session, statement, future);
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
                        dtype(statement, params.get(i)).code());
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

    private static void optimizer(Session session, Table.Statement statement) {
        final Unit[] units = session.units(statement);
        final Context context = session.context();
        final double first = statement.number("beta1", 0.9);
        final double second = statement.number("beta2", 0.999);
        final String kind = statement.get("kind", "adamw");
        final boolean ofSgd = statement.get("nesterov") != null || statement.get("dampening") != null;
        final Optimizer made;
        if (kind.equals("sgd")) {
            made = context.sgd(with(statement, new Sgd()).momentum(statement.number("beta1", 0))
                    .dampening(statement.number("dampening", 0))
                    .nesterov(statement.number("nesterov", 0) == 1), units);
        } else if (ofSgd || !Set.of("adamw", "adam", "adagrad", "lion").contains(kind)) {
            optimizerRaw(kind, statement, units);
            return;
        } else if (kind.equals("adam")) {
            made = context.adam(with(statement, new Adam()).betas(first, second)
                    .epsilon(statement.number("epsilon", 1e-8)), units);
        } else if (kind.equals("adagrad")) {
            made = context.adagrad(with(statement, new Adagrad())
                    .epsilon(statement.number("epsilon", 1e-10)), units);
        } else if (kind.equals("lion")) {
            made = context.lion(with(statement, new Lion()).betas(first, second), units);
        } else {
            final AdamW rule = with(statement, new AdamW());
            if (statement.get("epsilon") != null) rule.epsilon(statement.number("epsilon", 0));
            if (statement.get("beta1") != null || statement.get("beta2") != null) {
                rule.betas(first, second);
            }
            made = context.adamw(rule, units);
        }
        session.keep(statement.name, made);
    }

    private static <R extends UpdateRule<R>> R with(Table.Statement statement, R rule) {
        if (statement.get("lr") != null) rule.learningRate(statement.number("lr", 0));
        if (statement.get("weight_decay") != null) {
            rule.weightDecay(statement.number("weight_decay", 0));
        }
        if (statement.get("max_norm") != null) rule.maxNorm(statement.number("max_norm", 0));
        return rule;
    }

    /** A rule that there is not, or with SGD's options: the natural layer has no words for them. */
    private static void optimizerRaw(String kind, Table.Statement statement, Unit... units) {
        final List<String> names = List.of("adamw", "adam", "adagrad", "lion", "sgd");
        final int code = names.contains(kind) ? names.indexOf(kind) : Integer.parseInt(kind);
        final long[] handles = new long[units.length];
        for (int i = 0; i < units.length; ++i) handles[i] = Session.handle(units[i]);
        Abi.meron_optimizer_release(Abi.meron_optimizer_create(handles, code, 1e-3, 0.9, 0.999, 1e-8,
                0.01, 0, statement.number("dampening", 0),
                (int) statement.number("nesterov", 0)));
    }

    private static void optimizerIs(Optimizer optimizer, Table.Statement statement) {
        if (statement.get("steps") != null) {
            Values.equal("steps", optimizer.steps(), (long) statement.number("steps", 0));
        }
        if (statement.get("norm") != null) {
            Values.equal("norm", optimizer.norm(), statement.number("norm", 0));
        }
        if (statement.get("lr") != null) {
            Values.equal("lr", optimizer.learningRate(), statement.number("lr", 0));
        }
        if (statement.get("groups") != null) {
            Values.equal("groups", optimizer.groups(), (int) statement.number("groups", 0));
        }
        if (statement.get("states") != null) {
            Values.equal("states", optimizer.states(), (int) statement.number("states", 0));
        }
        if (statement.get("nvme_bytes") != null) {
            Values.equal("nvme_bytes", optimizer.nvmeBytes(),
                    (long) statement.number("nvme_bytes", 0));
        }
    }

    /** A group's numbers, those that the statement gives instead of its own. */
    private static ParamGroup numbers(ParamGroup group, Table.Statement statement) {
        return group.learningRate(statement.number("lr", group.learningRate()))
                .betas(statement.number("beta1", group.beta1()),
                        statement.number("beta2", group.beta2()))
                .epsilon(statement.number("epsilon", group.epsilon()))
                .weightDecay(statement.number("weight_decay", group.weightDecay()));
    }

    private static void paramGroup(Session session, Table.Statement statement) {
        final Optimizer optimizer = session.find(Optimizer.class, statement.name);
        final Param[] params = statement.list("params").stream()
                .map(name -> session.find(Param.class, name)).toArray(Param[]::new);
        final int number = optimizer.addParamGroup(numbers(optimizer.group(0), statement), params);
        Values.equal("the group's number", number, (int) statement.number("number", number));
    }

    private static void setParamGroup(Optimizer optimizer, Table.Statement statement) {
        final int number = (int) statement.number("number", 0);
        optimizer.setGroup(number, numbers(optimizer.group(number), statement));
    }

    private static void paramGroupIs(Optimizer optimizer, Table.Statement statement) {
        final ParamGroup group = optimizer.group((int) statement.number("number", 0));
        Values.equal("lr", group.learningRate(), statement.number("lr", group.learningRate()));
        Values.equal("beta1", group.beta1(), statement.number("beta1", group.beta1()));
        Values.equal("beta2", group.beta2(), statement.number("beta2", group.beta2()));
        Values.equal("epsilon", group.epsilon(), statement.number("epsilon", group.epsilon()));
        Values.equal("weight_decay", group.weightDecay(),
                statement.number("weight_decay", group.weightDecay()));
    }

    private static Optimizer.State stateOf(Table.Statement statement) {
        return Optimizer.State.valueOf(statement.wanted("state").toUpperCase());
    }

    private static void stateRead(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final Optimizer optimizer = session.find(Optimizer.class, statement.name);
        final int count = (int) statement.number("count", param.ownedCount());
        final ByteBuffer out = session.values.buffer("fill:-1", Dtype.F32, count);
        if (statement.get("count") != null) {
            optimizer.readState(param, stateOf(statement), out.asFloatBuffer());
        } else {
            out.asFloatBuffer().put(optimizer.readState(param, stateOf(statement)));
        }
        session.values.checkData(statement, out, Dtype.F32, param.ownedOffset());
    }

    private static void stateWrite(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final int count = (int) statement.number("count", param.ownedCount());
        final double[] values =
                session.values.of(statement.wanted("with"), count, param.ownedOffset());
        final float[] data = new float[count];
        for (int k = 0; k < count; ++k) data[k] = (float) values[k];
        session.find(Optimizer.class, statement.name).writeState(param, stateOf(statement), data);
    }

    private static void state(Session session, Table.Statement statement) {
        final View view = session.find(Optimizer.class, statement.name)
                .state(session.find(Param.class, statement.wanted("param")), stateOf(statement));
        Values.equal("the dtype", view.dtype(), Dtype.F32);
        if (statement.get("set") != null) {
            assign(session, view, statement.get("set"));
        } else {
            session.values.checkData(statement, view.bytes(), view.dtype(), view.offset());
        }
    }
}
