// SPDX-License-Identifier: Apache-2.0
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.time.Duration;
import java.util.Map;
import org.meron.AdamW;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.Gather;
import org.meron.MeronException;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.Plan;
import org.meron.ReduceOptions;
import org.meron.Status;
import org.meron.Unit;
import org.meron.Update;
import org.meron.View;
import org.meron.abi.Abi;

/** Every class of error comes as a MeronException with its fields, and bad input crashes nothing. */
public final class ErrorsTest {
    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_errors");
        suite.test("argument", ErrorsTest::argument);
        suite.test("handle and stale", ErrorsTest::handles);
        suite.test("state", ErrorsTest::state);
        suite.test("duplicate", ErrorsTest::duplicate);
        suite.test("unsupported and parse", ErrorsTest::parse);
        suite.test("not finite", ErrorsTest::nonfinite);
        suite.test("no memory", ErrorsTest::memory);
        suite.test("closed", ErrorsTest::closed);
        suite.test("texts", ErrorsTest::texts);
        suite.test("null is refused by the name of the parameter", NullArguments::refused);
        suite.test("codes of later versions", () -> Suite.equal(Status.UNKNOWN, Status.of(-999)));
        suite.finish();
    }

    private static void argument() throws Exception {
        final MeronException error =
                Suite.fails(Status.ARGUMENT, () -> Plan.preset("zero9").close());
        Suite.equal(-100, error.code());
        Suite.check(error.getMessage().contains("zero9"), error.getMessage());
        Suite.check(!error.operation().isEmpty(), "an operation");
        Suite.check(!error.advice().isEmpty(), "advice");
        Suite.equal(MeronException.RANK_NONE, error.peer());
        Suite.fails(Status.ARGUMENT, () -> Context.options().rank(2, 2).open());
        Suite.fails(Status.ARGUMENT, () -> Context.options().transport("pigeons").open());
        Suite.fails(Status.ARGUMENT, () -> Context.options().hostMemoryLimit(-1));
        Suite.fails(Status.ARGUMENT, () -> Context.options().timeout(Duration.ofSeconds(-1)));
        try (Context context = Suite.alone("zero3")) {
            Suite.fails(Status.ARGUMENT, () -> context.param("w", Dtype.F32, -1));
            Suite.fails(Status.ARGUMENT, () -> context.param("", Dtype.F32, 1));
            Suite.fails(Status.ARGUMENT, () -> context.param("w", Dtype.F32, new long[17]));
            Suite.fails(Status.ARGUMENT, () -> context.group(5));
            final Param weight = context.param("w", Dtype.F32, 8);
            final Unit unit = context.unit("u", weight);
            Suite.fails(Status.ARGUMENT,
                    () -> context.adamw(new AdamW().learningRate(-1), unit));
            try (Update update = unit.update()) {
                final MeronException wrong =
                        Suite.fails(Status.ARGUMENT, () -> update.write(weight, 1, 2, 3));
                Suite.equal("w", wrong.subject());
                Suite.equal(0, wrong.rank());
                Suite.fails(Status.ARGUMENT,
                        () -> update.write(weight, ByteBuffer.allocateDirect(31), Dtype.F32));
                update.publish();
            }
        }
    }

    private static void handles() throws Exception {
        final Context context = Suite.alone("zero3");
        final Param weight = context.param("w", Dtype.F32, 8);
        final Unit unit = context.unit("u", weight);
        final Unit closed = context.unit("v", context.param("x", Dtype.F32, 8));
        closed.close();
        closed.close(); // twice is fine
        Suite.fails(Status.STALE, closed::gather);
        Suite.fails(Status.STALE, () -> context.update(closed));
        final Gather gather = unit.gather();
        final View view = gather.view(weight);
        gather.close();
        Suite.fails(Status.STALE, () -> view.get(0));
        Suite.fails(Status.STALE, view::floats);
        Suite.fails(Status.STALE, () -> gather.view(weight));
        Suite.fails(Status.STALE, gather::await);
        Suite.equal(0, unit.leases());
        final View part;
        try (Update update = unit.update()) {
            part = update.view(weight);
            update.publish();
            Suite.fails(Status.STALE, update::publish);
            Suite.fails(Status.STALE, () -> update.view(weight));
        }
        Suite.fails(Status.STALE, () -> part.put(0, 1));
        final View gradient = weight.gradient();
        unit.reduce();
        Suite.fails(Status.STALE, () -> gradient.put(0, 1));
        unit.discard();

        // Values that were never handles, or are those of other things, below the natural layer.
        Suite.fails(Status.HANDLE, () -> Abi.meron_plan_json(0));
        Suite.fails(Status.HANDLE, () -> Abi.meron_plan_json(12345));
        Suite.fails(Status.HANDLE, () -> Abi.meron_future_wait(-1, 0));
        Suite.fails(Status.HANDLE, () -> Abi.meron_gather_begin(new long[] {7}, 0, null, 0, 0, null));
        Suite.fails(Status.ARGUMENT, () -> Abi.meron_gather_begin(null, 0, null, 0, 0, null));
        Suite.fails(Status.ARGUMENT, () -> Abi.meron_gather_begin(new long[0], 0, null, 0, 0, null));
        Suite.fails(Status.ARGUMENT, () -> Abi.dlpack_delete(0));
        final long plan = Abi.meron_plan_preset("zero1");
        Suite.equal(0, Abi.meron_plan_release(plan));
        Suite.fails(Status.STALE, () -> Abi.meron_plan_release(plan));
        context.close();
        try (Context one = Suite.alone("zero3"); Context two = Suite.alone("zero3")) {
            final Param other = one.param("w", Dtype.F32, 8);
            Suite.fails(Status.HANDLE, () -> two.unit("u", other));
        }
    }

    private static void state() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param weight = context.param("w", Dtype.F32, 8);
            final Unit unit = context.unit("u", weight);
            final Optimizer optimizer = context.adamw(unit);
            final MeronException error = Suite.fails(Status.STATE, optimizer::step);
            Suite.equal("u", error.subject());
            Suite.fails(Status.STATE, weight::reduced);
            Suite.fails(Status.STATE, unit::discard);
            try (Gather held = unit.gather()) {
                Suite.fails(Status.STATE, unit::update);
                Suite.check(held.done(), "full");
            }
            try (Update update = unit.update()) {
                Suite.fails(Status.STATE, unit::gather);
                update.view(weight);
                Suite.equal(Unit.State.UPDATING, unit.state());
                update.publish();
            }
        }
    }

    private static void duplicate() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param weight = context.param("w", Dtype.F32, 8);
            Suite.equal("w", Suite.fails(Status.DUPLICATE,
                    () -> context.param("w", Dtype.F32, 8)).subject());
            Suite.fails(Status.DUPLICATE, () -> context.unit("u", weight, weight));
            final Unit unit = context.unit("u", weight);
            Suite.fails(Status.DUPLICATE, () -> context.gather(unit, unit));
            Suite.fails(Status.DUPLICATE, () -> context.update(unit, unit));
            context.adamw(unit).learningRate(1);
            Suite.fails(Status.DUPLICATE, () -> context.adamw(unit));
        }
    }

    private static void parse() throws Exception {
        final MeronException error =
                Suite.fails(Status.PARSE, () -> Plan.parse("{\n \"preset\": }"));
        Suite.check(error.getMessage().contains("2"), "the line is named: " + error.getMessage());
        Suite.fails(Status.PARSE, () -> Plan.parse(""));
        try (Context context = Suite.alone("zero3")) {
            final Param weight = context.param("w", Dtype.F32, 8);
            final Unit unit = context.unit("u", weight);
            try (Gather gather = unit.gather()) {
                final long number = handle(gather);
                final long param = handle(weight);
                Abi.dlpack_delete(Abi.meron_gather_dlpack(number, param));
                Suite.equal(1, unit.leases()); // the tensor's own lease was released
            }
            final FloatBuffer into = ByteBuffer.allocateDirect(32).order(ByteOrder.nativeOrder())
                    .asFloatBuffer();
            try (Gather gather = unit.gatherInto(Map.of(weight, into))) {
                final long number = handle(gather);
                final long param = handle(weight);
                Suite.fails(
                        Status.UNSUPPORTED, () -> Abi.meron_gather_dlpack(number, param));
            }
        }
    }

    /** DLPack is below the natural layer, which keeps its handles to itself. */
    private static long handle(Object object) throws Exception {
        Class<?> type = object.getClass();
        while (!type.getSimpleName().equals("Handle")) type = type.getSuperclass();
        final Method handle = type.getDeclaredMethod("handle");
        handle.setAccessible(true);
        return (long) handle.invoke(object);
    }

    private static void nonfinite() throws Exception {
        Suite.ranks(2, "zero3", context -> {
            final Param weight = context.param("w", Dtype.F32, 1000);
            final Unit unit = context.unit("u", weight);
            final Optimizer optimizer = context.adamw(unit);
            if (context.rank() == 1) weight.gradient().put(5, Float.NaN);
            unit.reduce();
            Suite.fails(Status.NONFINITE, () -> optimizer.step());
            Suite.equal(0L, optimizer.steps());
            unit.reduce(Map.of(weight, new float[1000]), new ReduceOptions());
            optimizer.step(); // usable as before
            context.world().barrier();
        });
    }

    private static void memory() throws Exception {
        try (Context context = Context.options().rank(0, 1).hostMemoryLimit(1 << 20).open()) {
            final Param weight = context.param("w", Dtype.F32, 1 << 20);
            Suite.check(Suite.fails(Status.NO_MEMORY, () -> context.unit("u", weight)).getMessage()
                    .matches("(?s).*\\d.*"), "figures");
        }
    }

    private static void closed() throws Exception {
        final Context context = Suite.alone("zero3");
        final Param weight = context.param("w", Dtype.F32, 8);
        final Unit unit = context.unit("u", weight);
        final Optimizer optimizer = context.adamw(unit);
        final Gather gather = unit.gather();
        final View view = gather.view(weight);
        context.close();
        context.close();
        for (Suite.Body use : new Suite.Body[] {context::stats, context::progress,
                () -> context.param("x", Dtype.F32, 1), () -> context.unit("y"), unit::gather,
                unit::update, unit::reduce, unit::version, unit::discard, weight::gradient,
                weight::reduced, weight::shardCount, optimizer::step, optimizer::norm,
                gather::done, () -> gather.view(weight), () -> view.get(0), view::bytes,
                () -> context.world().check(), () -> context.world().barrier(),
                () -> context.predict(1, 1), context::saveProgress, context::planJson,
                () -> context.group(0), context::flightRecord}) {
            Suite.fails(Status.CLOSED, use);
        }
        for (AutoCloseable any : new AutoCloseable[] {gather, optimizer, unit, weight}) any.close();
    }

    private static void texts() throws Exception {
        Suite.fails(Status.ARGUMENT, () -> Plan.preset("zero3\0"));
        Suite.fails(Status.ARGUMENT, () -> Plan.preset("zero\uD800"));
        try (Context context = Suite.alone("zero3")) {
            final String name = "Gewicht \u00e4 \u91cd \uD83D\uDE00"; // two, three and four bytes
            Suite.equal(name, context.param(name, Dtype.F32, 1).name());
            Suite.equal(name, Suite.fails(Status.DUPLICATE,
                    () -> context.param(name, Dtype.F32, 1)).subject());
            Suite.fails(Status.ARGUMENT,
                    () -> context.param("x".repeat(513), Dtype.F32, 1));
        }
    }
}
