// SPDX-License-Identifier: Apache-2.0
import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Queue;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.meron.CheckpointTensor;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.Operation;
import org.meron.Gather;
import org.meron.LogSink;
import org.meron.MeronException;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.Plan;
import org.meron.SaveOptions;
import org.meron.Status;
import org.meron.Unit;
import org.meron.Update;
import org.meron.View;

/** Objects die in any order, by close or by the collector, on any thread: nothing crashes or hangs. */
public final class LifetimeTest {
    private static final int ORDERS = 10_000;
    private static final int PER_COLLECTION = 200;

    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_lifetime");
        suite.test(ORDERS + " orders of closing, with the collector forced", LifetimeTest::orders);
        suite.test("the same on two ranks at once", LifetimeTest::ordersOnRanks);
        suite.test("a dropped gather gives its lease back", LifetimeTest::dropped);
        suite.test("memory of a dropped operation is kept until that has ended", LifetimeTest::kept);
        suite.test("a dropped update that wrote nothing is published unchanged",
                LifetimeTest::droppedUpdate);
        suite.test("try with resources", LifetimeTest::resources);
        suite.test("an update that an exception leaves is not published",
                LifetimeTest::updateLeft);
        suite.test("a step that failed and was dropped is logged once",
                LifetimeTest::failureIsLogged);
        suite.test("a failed save that was closed is raised by the next", LifetimeTest::failedSave);
        suite.finish();
    }

    /** Everything that can be made from a context, in the order of making; the context last. */
    private static List<AutoCloseable> everything(Context context) {
        final List<AutoCloseable> out = new ArrayList<>();
        final Param one = context.param("one", Dtype.F32, 300);
        final Param two = context.param("two", Dtype.F32, 300);
        final Unit unit = context.unit("unit", one);
        final Unit other = context.unit("other", two);
        final Optimizer optimizer = context.adamw(unit);
        final Gather gather = unit.gather();
        final Operation barrier = context.world().barrierBegin();
        gather.view(one).floats().get(0);
        final Update update = other.update();
        update.view(two).put(0, 1);
        out.addAll(List.<AutoCloseable>of(one, two, unit, other, optimizer, gather, barrier, update,
                unit.gather(), Plan.preset("zero1"), context.world(), context));
        return out;
    }

    /** Closes some objects in a random order and drops the others. */
    private static void scatter(List<AutoCloseable> objects, Random random) throws Exception {
        Collections.shuffle(objects, random);
        for (AutoCloseable object : objects) {
            if (random.nextInt(3) > 0) object.close();
        }
        objects.clear();
    }

    private static void orders() throws Exception {
        final Random random = new Random(1);
        List<AutoCloseable> last = new ArrayList<>();
        for (int order = 0; order < ORDERS; ++order) {
            final Context context = Suite.alone(order % 2 == 0 ? "zero3" : "zero1");
            final List<AutoCloseable> objects = everything(context);
            // Those that are dropped must not pile up memory until the collector looks: most
            // contexts are closed here, the others are left to it.
            final boolean left = random.nextInt(20) == 0;
            scatter(objects, random);
            if (!left) context.close();
            if (order % PER_COLLECTION == 0) System.gc();
            last = objects;
        }
        Reference.reachabilityFence(last);
        System.gc();
    }

    private static void ordersOnRanks() throws Exception {
        for (int order = 0; order < 50; ++order) {
            final int seed = order;
            Suite.ranks(2, "zero3", context -> {
                final List<AutoCloseable> objects = everything(context);
                objects.remove(context);
                final Random random = new Random(2 * seed + context.rank());
                for (AutoCloseable object : objects) {
                    if (object instanceof Update) ((Update) object).publish();
                    if (object instanceof Gather) object.close();
                }
                objects.remove(context.world());
                context.world().barrier();
                scatter(objects, random);
                if (random.nextInt(10) == 0) System.gc();
            });
        }
    }

    private static void dropped() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Unit unit = context.unit("u", context.param("w", Dtype.F32, 1000));
            unit.gather();
            untilCollected(() -> unit.leases() == 0);
            unit.update(update -> { }); // which waits for leases
        }
    }

    private static void kept() throws Exception {
        Suite.ranks(2, "zero3", context -> {
            if (context.rank() == 0) {
                ByteBuffer memory = ByteBuffer.allocateDirect(1 << 20);
                final WeakReference<ByteBuffer> alive = new WeakReference<>(memory);
                context.world().broadcastBegin(memory, 1).close();
                memory = null;
                for (int i = 0; i < 5; ++i) {
                    System.gc();
                    Thread.sleep(5);
                    Suite.check(alive.get() != null, "the library still writes this memory");
                }
                context.world().barrier();
                untilCollected(() -> {
                    context.progress();
                    return alive.get() == null;
                });
            } else {
                Thread.sleep(100);
                context.world().broadcast(ByteBuffer.allocateDirect(1 << 20), 1);
                context.world().barrier();
            }
            context.world().barrier();
        });
    }

    private static void droppedUpdate() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Unit unit = context.unit("u", context.param("w", Dtype.F32, 1000));
            unit.update();
            untilCollected(() -> unit.version() == 1);
            context.world().check();
        }
    }

    private static void resources() throws Exception {
        final Context leaked;
        final Gather gather;
        try (Context context = Suite.alone("zero3")) {
            leaked = context;
            final Param weight = context.param("w", Dtype.F32, 8);
            final Unit unit = context.unit("u", weight);
            try (Update update = unit.update()) {
                update.write(weight, 1, 2, 3, 4, 5, 6, 7, 8);
                update.publish();
            }
            Suite.equal(1L, unit.version());
            try (Gather full = unit.gather()) {
                gather = full;
                Suite.equal(8f, full.view(weight).get(7));
            }
            Suite.equal(0, unit.leases());
        }
        Suite.check(leaked.toString().contains("closed"), "closed");
        gather.close();
    }

    private static void updateLeft() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param weight = context.param("w", Dtype.F32, 8);
            final Unit unit = context.unit("u", weight);
            View written = null;
            try (Update update = unit.update()) {
                written = update.view(weight);
                update.write(weight, 1, 2, 3, 4, 5, 6, 7, 8);
                throw new IllegalStateException("in the block");
            } catch (IllegalStateException wanted) {
                Suite.equal("in the block", wanted.getMessage());
            }
            Suite.equal(0L, unit.version());
            final View left = written;
            Suite.fails(Status.STALE, () -> left.put(0, 1));
            Suite.check(Suite.fails(Status.ABORTED, unit::gather).getMessage()
                    .contains("gave up the update of unit 'u'"), "the error names the update");
        }
    }

    /** Also if the collector has not found the operation when the context closes. */
    private static void failureIsLogged() throws Exception {
        for (boolean collected : new boolean[] {true, false}) {
            final Queue<String> errors = new ConcurrentLinkedQueue<>();
            try (Context context = Context.options().rank(0, 1).transport("self").threads(1)
                    .arenaReserve(1 << 26).log((level, message) -> {
                        if (level == LogSink.Level.ERROR) errors.add(message);
                    }).open()) {
                final Param weight = context.param("w", Dtype.F32, 8);
                final Unit unit = context.unit("u", weight);
                weight.gradient().put(3, Float.NaN);
                unit.reduce();
                context.adamw(unit).stepBegin();
                if (collected) {
                    untilCollected(() -> {
                        context.world().barrier();
                        return !errors.isEmpty();
                    });
                }
            }
            Suite.equal(1, errors.size());
            Suite.check(errors.peek().contains("'w'"), errors.peek());
        }
    }

    private static void failedSave() throws Exception {
        final Path folder = Files.createTempDirectory("meron");
        try (Context context = Suite.alone("zero3")) {
            final Unit unit = context.unit("u", context.param("w", Dtype.F32, 8));
            unit.update(update -> { });
            final FloatBuffer own = ByteBuffer.allocateDirect(4000)
                    .order(ByteOrder.nativeOrder()).asFloatBuffer();
            final SaveOptions options =
                    new SaveOptions().tensors(new CheckpointTensor("own", own, 1000));
            limitFiles("16");
            final Operation dropped;
            try {
                dropped = context.saveBegin(folder, "one", options);
                while (context.saveProgress().saving) Thread.sleep(1);
            } finally {
                limitFiles("unlimited");
            }
            dropped.close();
            try {
                context.save(folder, "two", options);
                throw new AssertionError("the failure of \"one\" is lost");
            } catch (MeronException told) {
                Suite.check(!Files.exists(folder.resolve("two")), "the save told, and did nothing");
            }
            context.save(folder, "three", options);
        } finally {
            Suite.removeAll(folder);
        }
    }

    /** No file of this process grows beyond so many bytes. */
    private static void limitFiles(String bytes) throws Exception {
        final String process = Long.toString(ProcessHandle.current().pid());
        final Process limiter = new ProcessBuilder("prlimit", "--pid", process,
                "--fsize=" + bytes + ":").inheritIO().start(); // the soft limit
        Suite.equal(0, limiter.waitFor());
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void untilCollected(Condition condition) throws Exception {
        for (int i = 0; i < 1000 && !condition.holds(); ++i) {
            System.gc();
            Thread.sleep(5);
        }
        Suite.check(condition.holds(), "the collector and the Cleaner have had their time");
    }
}
