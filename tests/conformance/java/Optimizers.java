// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import org.meron.Adagrad;
import org.meron.Adam;
import org.meron.AdamW;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.Lion;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.OptimizerGroup;
import org.meron.Sgd;
import org.meron.Unit;
import org.meron.UpdateRule;
import org.meron.View;
import org.meron.abi.Abi;

/** The operations on optimizers. */
final class Optimizers {
    private Optimizers() {}

    /** Executes the statement and returns true if this class has its operation. */
    static boolean execute(Session session, Table.Statement statement) throws Exception {
        final String name = statement.name;
        switch (statement.operation) {
            case "optimizer": optimizer(session, statement); return true;
            case "step":
                Operations.finishOrKeep(
                        session, statement, session.find(Optimizer.class, name).stepBegin());
                return true;
            case "optimizer_is": optimizerIs(session.find(Optimizer.class, name), statement);
                return true;
            case "learning_rate":
                session.find(Optimizer.class, name).learningRate(statement.number("lr", 0));
                return true;
            case "set_steps":
                session.find(Optimizer.class, name).steps((long) statement.number("steps", 0));
                return true;
            case "skip":
                session.find(Optimizer.class, name).skip(params(session, statement));
                return true;
            case "param_steps":
                Values.equal("steps", session.find(Optimizer.class, name)
                        .paramSteps(session.find(Param.class, statement.wanted("param"))),
                        (long) statement.number("is", 0));
                return true;
            case "set_param_steps":
                session.find(Optimizer.class, name).paramSteps(
                        session.find(Param.class, statement.wanted("param")),
                        (long) statement.number("steps", 0));
                return true;
            case "optimizer_group": optimizerGroup(session, statement); return true;
            case "set_optimizer_group":
                setGroup(session.find(Optimizer.class, name), statement);
                return true;
            case "optimizer_group_is":
                optimizerGroupIs(session.find(Optimizer.class, name), statement);
                return true;
            case "state": state(session, statement); return true;
            case "state_read": stateRead(session, statement); return true;
            case "state_write": stateWrite(session, statement); return true;
            case "offload": offload(session.find(Optimizer.class, name), statement.get("folder"));
                return true;
            case "reload": session.find(Optimizer.class, name).reload(); return true;
            default: return false;
        }
    }

    private static void offload(Optimizer optimizer, String folder) {
        if (folder == null) optimizer.offload();
        else optimizer.offload(Path.of(folder));
    }

    private static void optimizer(Session session, Table.Statement statement) {
        final Unit[] units = session.units(statement);
        final Context context = session.context();
        final String kind = statement.get("kind", "adamw");
        final boolean ofSgd = statement.get("nesterov") != null || statement.get("dampening") != null;
        final boolean ofAdagrad = statement.get("lr_decay") != null;
        final Optimizer made;
        if (ofAdagrad && !kind.equals("adagrad")) {
            optimizerRaw(kind, statement, units);
            return;
        } else if (kind.equals("sgd")) {
            final Sgd rule = with(statement, new Sgd());
            if (statement.get("beta1") != null) rule.momentum(statement.number("beta1", 0));
            if (statement.get("dampening") != null) {
                rule.dampening(statement.number("dampening", 0));
            }
            if (statement.get("nesterov") != null) {
                rule.nesterov(statement.number("nesterov", 0) == 1);
            }
            made = context.sgd(rule, units);
        } else if (ofSgd || !Set.of("adamw", "adam", "adagrad", "lion").contains(kind)) {
            optimizerRaw(kind, statement, units);
            return;
        } else if (kind.equals("adam")) {
            final Adam rule = with(statement, new Adam());
            if (statement.get("epsilon") != null) rule.epsilon(statement.number("epsilon", 0));
            if (hasBetas(statement)) rule.betas(first(statement), second(statement));
            made = context.adam(rule, units);
        } else if (kind.equals("adagrad")) {
            final Adagrad rule = with(statement, new Adagrad());
            if (statement.get("epsilon") != null) rule.epsilon(statement.number("epsilon", 0));
            if (ofAdagrad) rule.lrDecay(statement.number("lr_decay", 0));
            made = context.adagrad(rule, units);
        } else if (kind.equals("lion")) {
            final Lion rule = with(statement, new Lion());
            if (hasBetas(statement)) rule.betas(first(statement), second(statement));
            made = context.lion(rule, units);
        } else {
            final AdamW rule = with(statement, new AdamW());
            if (statement.get("epsilon") != null) rule.epsilon(statement.number("epsilon", 0));
            if (hasBetas(statement)) rule.betas(first(statement), second(statement));
            made = context.adamw(rule, units);
        }
        session.keep(statement.name, made);
    }

    private static boolean hasBetas(Table.Statement statement) {
        return statement.get("beta1") != null || statement.get("beta2") != null;
    }

    private static double first(Table.Statement statement) {
        return statement.number("beta1", 0.9);
    }

    private static double second(Table.Statement statement) {
        return statement.number("beta2", 0.999);
    }

    private static <R extends UpdateRule<R>> R with(Table.Statement statement, R rule) {
        if (statement.get("lr") != null) rule.learningRate(statement.number("lr", 0));
        if (statement.get("weight_decay") != null) {
            rule.weightDecay(statement.number("weight_decay", 0));
        }
        if (statement.get("max_norm") != null) rule.maxNorm(statement.number("max_norm", 0));
        return rule;
    }

    /** A rule that there is not, or another rule's options: the natural layer has no words for them. */
    private static void optimizerRaw(String kind, Table.Statement statement, Unit... units) {
        final List<String> names = List.of("adamw", "adam", "adagrad", "lion", "sgd");
        final int code = names.contains(kind) ? names.indexOf(kind) : Integer.parseInt(kind);
        final long[] handles = new long[units.length];
        for (int i = 0; i < units.length; ++i) handles[i] = Session.handle(units[i]);
        Abi.meron_optimizer_release(Abi.meron_optimizer_create(handles, code, 1e-3, 0.9, 0.999, 1e-8,
                0.01, 0, statement.number("dampening", 0),
                (int) statement.number("nesterov", 0), code + 1,
                statement.number("lr_decay", 0)));
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
    private static OptimizerGroup numbers(OptimizerGroup group, Table.Statement statement) {
        return group.learningRate(statement.number("lr", group.learningRate()))
                .betas(statement.number("beta1", group.beta1()),
                        statement.number("beta2", group.beta2()))
                .epsilon(statement.number("epsilon", group.epsilon()))
                .weightDecay(statement.number("weight_decay", group.weightDecay()))
                .lrDecay(statement.number("lr_decay", group.lrDecay()));
    }

    private static Param[] params(Session session, Table.Statement statement) {
        return statement.list("params").stream()
                .map(name -> session.find(Param.class, name)).toArray(Param[]::new);
    }

    private static void optimizerGroup(Session session, Table.Statement statement) {
        final Optimizer optimizer = session.find(Optimizer.class, statement.name);
        final int number = optimizer.addGroup(
                numbers(optimizer.group(0), statement), params(session, statement));
        Values.equal("the group's number", number, (int) statement.number("number", number));
    }

    private static void setGroup(Optimizer optimizer, Table.Statement statement) {
        final int number = (int) statement.number("number", 0);
        optimizer.setGroup(number, numbers(optimizer.group(number), statement));
    }

    private static void optimizerGroupIs(Optimizer optimizer, Table.Statement statement) {
        final OptimizerGroup group = optimizer.group((int) statement.number("number", 0));
        Values.equal("lr", group.learningRate(), statement.number("lr", group.learningRate()));
        Values.equal("beta1", group.beta1(), statement.number("beta1", group.beta1()));
        Values.equal("beta2", group.beta2(), statement.number("beta2", group.beta2()));
        Values.equal("epsilon", group.epsilon(), statement.number("epsilon", group.epsilon()));
        Values.equal("weight_decay", group.weightDecay(),
                statement.number("weight_decay", group.weightDecay()));
        Values.equal("lr_decay", group.lrDecay(), statement.number("lr_decay", group.lrDecay()));
    }

    private static Optimizer.State stateOf(Table.Statement statement) {
        return Optimizer.State.valueOf(statement.wanted("state").toUpperCase());
    }

    private static void stateRead(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final Optimizer optimizer = session.find(Optimizer.class, statement.name);
        final int count = (int) statement.number("count", param.shardCount());
        final ByteBuffer out = session.values.buffer("fill:-1", Dtype.F32, count);
        if (statement.get("count") != null) {
            optimizer.readState(param, stateOf(statement), out.asFloatBuffer());
        } else {
            out.asFloatBuffer().put(optimizer.readState(param, stateOf(statement)));
        }
        session.values.checkData(statement, out, Dtype.F32, param.shardOffset());
    }

    private static void stateWrite(Session session, Table.Statement statement) {
        final Param param = session.find(Param.class, statement.wanted("param"));
        final int count = (int) statement.number("count", param.shardCount());
        final double[] values =
                session.values.of(statement.wanted("with"), count, param.shardOffset());
        final float[] data = new float[count];
        for (int k = 0; k < count; ++k) data[k] = (float) values[k];
        session.find(Optimizer.class, statement.name).writeState(param, stateOf(statement), data);
    }

    private static void state(Session session, Table.Statement statement) {
        final View view = session.find(Optimizer.class, statement.name)
                .state(session.find(Param.class, statement.wanted("param")), stateOf(statement));
        Values.equal("the dtype", view.dtype(), Dtype.F32);
        if (statement.get("set") != null) {
            session.values.assign(view, statement.get("set"));
        } else {
            session.values.checkData(statement, view.bytes(), view.dtype(), view.offset());
        }
    }
}
