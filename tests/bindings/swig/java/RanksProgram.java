// SPDX-License-Identifier: Apache-2.0
import java.util.Arrays;
import org.meron.AdamW;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.Gather;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.Plan;
import org.meron.ReduceOp;
import org.meron.Unit;
import org.meron.Update;
import org.meron.View;

/** Programs for test_java.py, which starts them under `meron run` or alone. The first argument selects one. */
public final class RanksProgram {
    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "train": train(arguments[1]); break;
            case "wait": waits(); break;
            case "die": dies(); break;
            case "version": System.out.println(org.meron.Meron.version()); break;
            default: throw new IllegalArgumentException(arguments[0]);
        }
    }

    /** Three steps under a plan; rank 0 prints a hash of the bits. */
    private static void train(String plan) {
        try (Plan chosen = Plan.preset(plan); Context context = Context.options().plan(chosen).open()) {
            Suite.equal("shm", context.transport());
            final int n = 5000;
            final Param weight = context.param("w", Dtype.F32, n);
            final Unit unit = context.unit("u", weight);
            final float[] values = new float[n];
            for (int i = 0; i < n; ++i) values[i] = (float) Math.cos(i);
            try (Update update = unit.update()) {
                update.write(weight, values);
                update.publish();
            }
            final Optimizer optimizer = context.adamw(new AdamW().maxNorm(1), unit);
            for (int step = 0; step < 3; ++step) {
                final View gradient = weight.gradient(true);
                for (int i = 0; i < n; ++i) {
                    gradient.put(i, (float) Math.sin(i + step * 2 + context.rank()));
                }
                unit.reduce();
                optimizer.step();
            }
            try (Gather full = unit.gather()) {
                full.view(weight).get(values);
            }
            if (context.rank() == 0) System.out.println(Arrays.hashCode(values));
            final float[] ranks = {1};
            context.world().allReduce(ranks, ReduceOp.SUM);
            Suite.equal((float) context.worldSize(), ranks[0]);
        }
    }

    /** Rank 1 never comes; rank 0 is killed, interrupted or told to end from outside. */
    private static void waits() throws Exception {
        try (Context context = Context.open()) {
            if (context.rank() == 0) {
                System.out.println("waiting");
                context.world().barrier();
            } else {
                Thread.sleep(600_000);
            }
        }
    }

    private static void dies() {
        try (Context context = Context.open()) {
            if (context.rank() == 1) Runtime.getRuntime().halt(3);
            try {
                context.world().barrier();
            } catch (org.meron.MeronException error) {
                System.out.println(error.status() + " " + error.peer());
            }
        }
    }
}
