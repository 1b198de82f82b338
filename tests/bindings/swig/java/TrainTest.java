// SPDX-License-Identifier: Apache-2.0
import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.function.BiFunction;
import org.meron.Adagrad;
import org.meron.Adam;
import org.meron.AdamW;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.Gather;
import org.meron.Lion;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.OptimizerGroup;
import org.meron.Plan;
import org.meron.ReduceOp;
import org.meron.ReduceOptions;
import org.meron.Sgd;
import org.meron.Status;
import org.meron.Unit;
import org.meron.Update;
import org.meron.View;

/** Write, reduce, step: what training takes, on one rank and on several. */
public final class TrainTest {
    private static final int N = 1000;

    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_train");
        for (String plan : new String[] {"zero0", "zero1", "zero2", "zero3"}) {
            suite.test(plan + " on one rank", () -> trains(Suite.alone(plan)));
            suite.test(plan + " on two local ranks",
                    () -> Suite.ranks(2, plan, TrainTest::trains));
        }
        suite.test("three ranks step to the same bits as one", TrainTest::sameBits);
        suite.test("gradients of one's own and an optimizer of one's own", TrainTest::ownOptimizer);
        suite.test("rules", TrainTest::rules);
        suite.test("optimizer groups and states", TrainTest::groupsAndStates);
        suite.test("a skipped param keeps its values and its count", TrainTest::skipped);
        suite.test("Adagrad decays its rate", TrainTest::decayed);
        for (String plan : new String[] {"zero0", "zero1", "zero2", "zero3"}) {
            suite.test(plan + ": one wait for many units", () -> waitsForMany(plan));
        }
        suite.finish();
    }

    private static void trains(Context context) {
        try (context) {
            final Param weight = context.param("weight", Dtype.F32, 10, N / 10);
            final Param bias = context.param("bias", Dtype.F32);
            final Unit unit = context.unit("layer", weight, bias);
            Suite.equal("weight", weight.name());
            Suite.equal("[10, 100]", Arrays.toString(weight.shape()));
            Suite.equal(0, bias.shape().length);
            Suite.equal((long) N, weight.count());

            try (Update update = unit.update()) {
                update.write(weight, Floats.ramp(N, 1));
                final View part = update.view(bias);
                Suite.equal(bias.shardCount(), part.count());
                if (part.count() > 0) part.put(0, 7);
                update.publish();
            }
            Suite.equal(1L, unit.version());
            try (Gather full = unit.gather()) {
                final FloatBuffer values = full.view(weight).floats();
                for (int i = 0; i < N; ++i) Suite.equal((float) i, values.get(i));
                Suite.equal(7f, full.view(bias).get(0));
                Suite.equal(Unit.State.AVAILABLE, unit.state());
                Suite.equal(1, unit.leases());
            }

            try (Optimizer optimizer =
                    context.adamw(new AdamW().learningRate(0.5).weightDecay(0), unit)) {
                final float[] gradient = new float[N];
                Arrays.fill(gradient, context.rank() + 1f);
                weight.gradient().put(gradient);
                bias.gradient(true).put(0, 0f);
                unit.reduce();
                Suite.check(unit.isReduced(), "the unit waits for a step");
                optimizer.step();
                Suite.equal(1L, optimizer.steps());
                final double mean = (context.worldSize() + 1) / 2.0;
                Suite.check(Math.abs(optimizer.norm() - mean * Math.sqrt(N)) < 1e-3, "norm");
                final View moment = optimizer.state(weight, Optimizer.State.EXP_AVG);
                Suite.equal(weight.shardCount(), moment.count());
                if (moment.count() > 0) {
                    Suite.check(Math.abs(moment.get(0) - 0.1 * mean) < 1e-6, "first moment");
                }
            }
            try (Gather full = unit.gather()) {
                final float[] values = new float[N];
                full.view(weight).get(values);
                for (int i = 0; i < N; ++i) {
                    Suite.check(Math.abs(values[i] - (i - 0.5f)) < 1e-3, "stepped value " + i);
                }
            }
            context.world().barrier();
        }
    }

    /** Hyperparameters with exact results, for a value of 2 and a gradient of 2. */
    private static void rules() throws Exception {
        stepped(1.875f, 2, (context, unit) -> context.adam(
                new Adam().learningRate(0.25).betas(0.5, 0.75).epsilon(2), unit));
        stepped(1.625f, 1, (context, unit) -> context.adagrad(
                new Adagrad().learningRate(0.5).epsilon(1).weightDecay(0.5), unit));
        stepped(1.5f, 1, (context, unit) -> context.lion(
                new Lion().learningRate(0.25).betas(0.5, 0.75).weightDecay(0.5), unit));
        stepped(1f, 0, (context, unit) -> context.sgd(new Sgd().learningRate(0.5), unit));
        stepped(1f, 1, (context, unit) -> context.sgd(
                new Sgd().learningRate(0.5).momentum(0.5).dampening(0.5), unit));
        stepped(1.25f, 1, (context, unit) -> context.sgd(
                new Sgd().learningRate(0.25).momentum(0.5).nesterov(true), unit));
    }

    private static void stepped(
            float value, int states, BiFunction<Context, Unit, Optimizer> make)
            throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param weight = context.param("w", Dtype.F32, N);
            final Unit unit = context.unit("u", weight);
            final float[] twos = new float[N];
            Arrays.fill(twos, 2);
            try (Update update = unit.update()) {
                update.write(weight, twos);
                update.publish();
            }
            try (Optimizer optimizer = make.apply(context, unit)) {
                weight.gradient().put(twos);
                unit.reduce();
                optimizer.step();
                Suite.equal(states, optimizer.states());
                final float[] master = optimizer.readState(weight, Optimizer.State.MASTER);
                for (int i = 0; i < N; ++i) Suite.equal(value, master[i]);
                if (states > 0) return;
                Suite.fails(Status.ARGUMENT,
                        () -> optimizer.readState(weight, Optimizer.State.EXP_AVG));
            }
        }
    }

    private static void groupsAndStates() throws Exception {
        try (Plan plan = Plan.parse("{\"optimizer\": {\"dtype\": \"bf16\"}}");
                Context context = Context.options().rank(0, 1).plan(plan).open()) {
            final Param weight = context.param("w", Dtype.F32, 6);
            final Param bias = context.param("b", Dtype.F32, 3);
            final Unit unit = context.unit("u", weight, bias);
            final Optimizer optimizer = context.adamw(unit);
            Suite.equal(1, optimizer.addGroup(optimizer.group(0).weightDecay(0), bias));
            Suite.equal(2, optimizer.groups());
            Suite.equal(0.01, optimizer.group(0).weightDecay());
            Suite.equal(0.0, optimizer.group(1).weightDecay());
            optimizer.setGroup(1, optimizer.group(1).learningRate(0.5).betas(0.5, 0.75).epsilon(1));
            Suite.equal(0.5, optimizer.group(1).learningRate());
            Suite.equal(0.75, optimizer.group(1).beta2());
            Suite.equal(1e-3, optimizer.learningRate());
            Suite.fails(Status.DUPLICATE,
                    () -> optimizer.addGroup(new OptimizerGroup(), weight, bias));
            Suite.fails(Status.ARGUMENT, () -> optimizer.group(2));
            Suite.fails(Status.ARGUMENT, () -> optimizer.setGroup(-1, new OptimizerGroup()));

            final float[] values = {1, 2, 3, 4, 5, 6};
            optimizer.writeState(weight, Optimizer.State.EXP_AVG, values);
            Suite.check(Arrays.equals(values,
                    optimizer.readState(weight, Optimizer.State.EXP_AVG)), "a state that was written");
            Suite.equal(0f, optimizer.readState(bias, Optimizer.State.EXP_AVG_SQ)[2]);
            Suite.fails(Status.UNSUPPORTED,
                    () -> optimizer.state(weight, Optimizer.State.EXP_AVG));
            Suite.fails(Status.ARGUMENT,
                    () -> optimizer.writeState(bias, Optimizer.State.EXP_AVG, values));
            Suite.fails(Status.ARGUMENT, () -> optimizer.readState(
                    weight, Optimizer.State.EXP_AVG, FloatBuffer.allocate(6))); // not a direct one
            Suite.equal(0L, optimizer.nvmeBytes());
            optimizer.steps(7);
            Suite.equal(7L, optimizer.steps());
            Suite.fails(Status.ARGUMENT, () -> optimizer.steps(-1));
        }
    }

    private static void skipped() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param weight = context.param("w", Dtype.F32, 6);
            final Param bias = context.param("b", Dtype.F32, 3);
            final Param loose = context.param("loose", Dtype.F32, 2);
            final Unit unit = context.unit("u", weight, bias);
            final Optimizer optimizer = context.sgd(new Sgd().learningRate(0.5), unit);
            final Runnable step = () -> {
                unit.reduce(Map.of(weight, filled(6, 2), bias, filled(3, 2)), new ReduceOptions());
                optimizer.step();
            };
            optimizer.skip(bias);
            step.run();
            Suite.equal(1L, optimizer.paramSteps(weight));
            Suite.equal(0L, optimizer.paramSteps(bias));
            Suite.check(Arrays.equals(filled(6, -1),
                    optimizer.readState(weight, Optimizer.State.MASTER)), "a step");
            Suite.check(Arrays.equals(filled(3, 0),
                    optimizer.readState(bias, Optimizer.State.MASTER)), "a skipped step");
            optimizer.skip();
            step.run();
            Suite.equal(1L, optimizer.paramSteps(bias));
            Suite.check(Arrays.equals(filled(3, -1),
                    optimizer.readState(bias, Optimizer.State.MASTER)), "the next step");
            optimizer.paramSteps(bias, 9);
            Suite.equal(9L, optimizer.paramSteps(bias));
            optimizer.steps(4);
            Suite.equal(4L, optimizer.paramSteps(bias));
            Suite.fails(Status.ARGUMENT, () -> optimizer.skip(weight, loose));
            Suite.fails(Status.ARGUMENT, () -> optimizer.paramSteps(loose));
            Suite.fails(Status.ARGUMENT, () -> optimizer.paramSteps(loose, 1));
            Suite.fails(Status.ARGUMENT, () -> optimizer.paramSteps(bias, -1));
            Suite.fails(Status.ARGUMENT, () -> optimizer.paramSteps(bias, (1L << 53) + 1));
        }
    }

    private static void decayed() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param weight = context.param("w", Dtype.F32, 6);
            final Unit unit = context.unit("u", weight);
            for (double wrong : new double[] {-0.5, Double.NaN, Double.POSITIVE_INFINITY}) {
                Suite.fails(Status.ARGUMENT,
                        () -> context.adagrad(new Adagrad().lrDecay(wrong), unit));
            }
            try (Optimizer optimizer = context.adagrad(
                    new Adagrad().learningRate(0.5).epsilon(3).lrDecay(1), unit)) {
                for (int gradient = 3; gradient <= 4; ++gradient) {
                    unit.reduce(Map.of(weight, filled(6, gradient)), new ReduceOptions());
                    optimizer.step();
                }
                Suite.check(Arrays.equals(filled(6, -0.375f),
                        optimizer.readState(weight, Optimizer.State.MASTER)), "two steps");
                optimizer.setGroup(0, optimizer.group(0).lrDecay(0.25));
                Suite.equal(0.25, optimizer.group(0).lrDecay());
                optimizer.addGroup(optimizer.group(0).lrDecay(0.125), weight);
                Suite.equal(0.125, optimizer.group(1).lrDecay());
            }
            try (Optimizer optimizer = context.adamw(unit)) {
                Suite.fails(Status.ARGUMENT,
                        () -> optimizer.setGroup(0, optimizer.group(0).lrDecay(0.5)));
            }
        }
    }

    private static float[] filled(int count, float value) {
        final float[] made = new float[count];
        Arrays.fill(made, value);
        return made;
    }

    /** The values after three steps, as bits. */
    private static int[] stepped(Context context, int microBatches) {
        final Param weight = context.param("w", Dtype.F32, N);
        final Unit unit = context.unit("u", weight);
        try (Update update = unit.update()) {
            update.write(weight, Floats.ramp(N, 0.01f));
            update.publish();
        }
        final Optimizer optimizer = context.adamw(new AdamW().maxNorm(1), unit);
        for (int step = 0; step < 3; ++step) {
            for (int m = 0; m < microBatches; ++m) {
                final int number = (step * microBatches + m) * context.worldSize() + context.rank();
                final View gradient = weight.gradient();
                for (int i = 0; i < N; ++i) {
                    gradient.put(i, gradient.get(i) + (float) Math.sin(i * 0.1 + number));
                }
                unit.reduce(new ReduceOptions().boundary(m + 1 == microBatches)
                        .divisor(microBatches));
            }
            optimizer.step();
        }
        final int[] bits = new int[N];
        try (Gather full = unit.gather()) {
            for (int i = 0; i < N; ++i) bits[i] = Float.floatToRawIntBits(full.view(weight).get(i));
        }
        context.world().barrier();
        return bits;
    }

    private static void sameBits() throws Exception {
        final int[] wanted;
        try (Context alone = Suite.alone("zero0")) {
            wanted = stepped(alone, 3);
        }
        for (String plan : new String[] {"zero0", "zero3"}) {
            Suite.ranks(3, plan, context -> Suite.check(
                    Arrays.equals(wanted, stepped(context, 1)), plan + " differs from one rank"));
        }
    }

    private static void ownOptimizer() throws Exception {
        Suite.ranks(2, "zero2", context -> {
            final Param weight = context.param("w", Dtype.F32, N);
            final Param frozen =
                    context.param("f", Dtype.F32, new long[] {3}, true, context.world());
            Suite.check(frozen.frozen(), "frozen");
            final Unit unit = context.unit("u", weight, frozen);
            final float[] gradient = new float[N];
            Arrays.fill(gradient, context.rank());
            unit.reduce(Map.of(weight, gradient), new ReduceOptions().op(ReduceOp.SUM));
            final View reduced = weight.reduced();
            Suite.equal(weight.shardCount(), reduced.count());
            for (long i = 0; i < reduced.count(); ++i) Suite.equal(1f, reduced.get(i));
            unit.discard();
            Suite.fails(Status.STALE, () -> reduced.get(0));
            Suite.fails(Status.STATE, weight::reduced);
            Suite.fails(Status.ARGUMENT,
                    () -> unit.reduce(Map.of(weight, "no gradient"), new ReduceOptions()));
            context.world().barrier();
        });
    }

    private static void waitsForMany(String plan) throws Exception {
        final CountDownLatch begun = new CountDownLatch(1);
        Suite.ranks(2, plan, context -> {
            final Param[] params = new Param[3];
            final Unit[] units = new Unit[3];
            for (int i = 0; i < 3; ++i) {
                params[i] = context.param("w" + i, Dtype.F32, 50);
                units[i] = context.unit("u" + i, params[i]);
            }
            Suite.check(context.awaitReductions(Duration.ZERO, units), "nothing was begun");
            if (context.rank() == 1) begun.await();
            final float[] gradient = new float[50];
            Arrays.fill(gradient, 2 * context.rank());
            units[0].reduceBegin(Map.of(params[0], gradient), new ReduceOptions()).close();
            units[1].reduceBegin(Map.of(params[1], gradient), new ReduceOptions().boundary(false))
                    .close();
            units[1].reduceFinishBegin(new ReduceOptions().op(ReduceOp.SUM)).close();
            if (context.rank() == 0) {
                Suite.check(!context.awaitReductions(Duration.ofMillis(1), units), "it is early");
                begun.countDown();
            }
            context.awaitReductions(units);
            for (int i = 0; i < 2; ++i) {
                final View reduced = params[i].reduced();
                for (long k = 0; k < reduced.count(); ++k) Suite.equal(1f + i, reduced.get(k));
            }
            context.world().barrier();

            Suite.fails(Status.ARGUMENT, () -> context.awaitReductions());
            try (Context other = Suite.alone(plan)) {
                final Unit foreign = other.unit("u", other.param("w", Dtype.F32, 50));
                Suite.fails(Status.HANDLE, () -> context.awaitReductions(units[2], foreign));
            }
            if (context.rank() == 0) { // rank 1 closes instead
                units[2].reduceBegin().close();
                Suite.fails(Status.PEER_CLOSED, () -> context.awaitReductions(units));
            }
        });
    }
}
