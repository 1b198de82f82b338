// SPDX-License-Identifier: Apache-2.0
import java.lang.reflect.Field;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.Arrays;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.Operation;
import org.meron.GatherMode;
import org.meron.Group;
import org.meron.Meron;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.Plan;
import org.meron.ReduceOp;
import org.meron.Stats;
import org.meron.Status;
import org.meron.Unit;
import org.meron.abi.AbiConstants;

/** A context beside training: groups, plans, figures, and the constants of the headers. */
public final class ContextTest {
    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_context");
        suite.test("groups and collectives", () -> Suite.ranks(3, "zero3", ContextTest::groups));
        suite.test("plans", ContextTest::plans);
        suite.test("figures", ContextTest::figures);
        suite.test("enums equal the headers' constants", ContextTest::constants);
        suite.finish();
    }

    private static void groups(Context context) throws Exception {
        Suite.equal(3, context.world().size());
        final Group pair = context.group(2, 0);
        if (context.rank() == 1) {
            Suite.check(pair == null, "rank 1 is outside");
        } else {
            Suite.equal(context.rank() == 2 ? 0 : 1, pair.rank());
            final float[] values = {context.rank(), 1};
            pair.allReduce(values, ReduceOp.MEAN);
            Suite.equal("[1.0, 1.0]", Arrays.toString(values));
        }
        final ByteBuffer bytes = ByteBuffer.allocateDirect(8);
        if (context.rank() == 1) bytes.putLong(0, 42);
        bytes.position(4); // only what is between position and limit
        context.world().broadcast(bytes, 1);
        Suite.equal(42, bytes.getInt(4));
        final FloatBuffer sum = Floats.direct(new float[] {context.rank()});
        try (Operation future = context.world().allReduceBegin(sum, Dtype.F32, ReduceOp.SUM)) {
            while (!future.await(Duration.ofMillis(1))) context.progress();
            Suite.check(future.done(), "done after the wait");
        }
        Suite.equal(3f, sum.get(0));
        context.world().check();
        context.world().barrier();
    }

    private static void plans() throws Exception {
        try (Plan plan = Plan.parse("{\"preset\": \"zero2\"}"); Plan preset = Plan.preset("zero2")) {
            Suite.equal(preset.json(), plan.json());
            Suite.check(plan.table().contains("\n"), "a table has lines");
            final String model = "{\"parameters\": 1000, \"layers\": 2, \"dtype\": \"f32\"}";
            Suite.check(plan.predict(model, 2, 1, 2, false).startsWith("{"), "JSON");
            Suite.check(!plan.predict(model, 2, 1, 2, true).startsWith("{"), "a table");
        }
    }

    private static void figures() throws Exception {
        Suite.ranks(2, "zero3", context -> {
            final Param weight = context.param("w", Dtype.F32, 4096);
            final Unit unit = context.unit("u", weight);
            final Stats before = context.stats();
            unit.gather().close();
            unit.gather().close();
            final Stats after = context.stats();
            Suite.equal(context.predict(1, 2).gatherMappedBytes,
                    after.gatherMappedBytes - before.gatherMappedBytes);
            Suite.check(after.operations > before.operations, "operations are counted");
            Suite.check(context.flightRecord().contains("gather"), "the recorder has the gather");
            Suite.equal("local", context.transport());
            context.world().barrier();
        });
        Suite.check(Meron.systemInfo().contains("\"version\""), "system info");
        Suite.equal(Meron.version(), AbiConstants.MERON_VERSION_MAJOR + "."
                + AbiConstants.MERON_VERSION_MINOR + "." + AbiConstants.MERON_VERSION_PATCH);
    }

    /** Java's enums are written by hand: the compiled headers say whether they are right. */
    private static void constants() throws Exception {
        int compared = 0;
        for (Field field : AbiConstants.class.getFields()) {
            final int value = field.getInt(null);
            final String name = field.getName();
            if (name.startsWith("MERON_E_")) {
                Suite.equal(value, Status.valueOf(name.substring(8)).code());
            } else if (name.startsWith("MERON_OPTIMIZER_STATE_")) {
                Suite.equal(value, Optimizer.State.valueOf(name.substring(22)).ordinal());
            } else if (name.startsWith("MERON_UNIT_STATE_")) {
                Suite.equal(value, Unit.State.valueOf(name.substring(17)).ordinal());
            } else if (name.startsWith("MERON_GATHER_")) {
                Suite.equal(value, GatherMode.valueOf(name.substring(13)).code());
            } else if (name.matches("MERON_(F32|BF16|F16|F64|I64)")) {
                Suite.equal(value, Dtype.valueOf(name.substring(6)).code());
            } else if (name.startsWith("MERON_REDUCE_OP_")) {
                Suite.equal(value, ReduceOp.valueOf(name.substring(16)).code());
            } else {
                continue;
            }
            ++compared;
        }
        Suite.equal(Status.values().length - 1 + 3 + 4 + 3 + 5 + 4, compared);
    }
}
