// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
// Both packages as a whole, as programs do: no name of one hides a name of the other.
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import org.meron.*;

/** Threads at once, interrupts and should_stop in waits, and callbacks that throw. */
public final class ThreadsTest {
    // MERON_TEST_INTERRUPTS says how often; each takes up to a tenth of a second.
    private static final int INTERRUPTS =
            Integer.parseInt(System.getenv().getOrDefault("MERON_TEST_INTERRUPTS", "40"));

    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_threads");
        suite.test("many threads gather at once", ThreadsTest::gathers);
        suite.test("threads wait for one future", ThreadsTest::oneFuture);
        suite.test("an operation becomes a CompletableFuture", ThreadsTest::completable);
        suite.test("one closes while others use it", ThreadsTest::closeMeanwhile);
        suite.test(INTERRUPTS + " interrupts in waits", ThreadsTest::interrupts);
        suite.test("an interrupt while the context opens", ThreadsTest::interruptInOpen);
        suite.test("should_stop ends a wait", ThreadsTest::shouldStop);
        suite.test("what should_stop throws is the cause", ThreadsTest::shouldStopThrows);
        suite.test("should_stop begins nothing", ThreadsTest::shouldStopBeginsNothing);
        suite.test("a log that throws", ThreadsTest::log);
        suite.finish();
    }

    private static void gathers() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param weight = context.param("w", Dtype.F32, 1000);
            final Unit unit = context.unit("u", weight);
            unit.update(update -> { });
            together(6, () -> {
                for (int i = 0; i < 2000; ++i) {
                    try (Gather full = unit.gather()) {
                        Suite.equal(0f, full.view(weight).get(i % 1000));
                    }
                    if (i % 500 == 0) System.gc();
                }
            });
            Suite.equal(0, unit.leases());
        }
    }

    private static void oneFuture() throws Exception {
        Suite.ranks(2, "zero3", context -> {
            if (context.rank() == 0) {
                try (Operation barrier = context.world().barrierBegin()) {
                    together(4, barrier::await);
                }
            } else {
                Thread.sleep(50);
                context.world().barrier();
            }
            context.world().barrier();
        });
    }

    private static void completable() throws Exception {
        Suite.ranks(2, "zero3", context -> {
            final Param weight = context.param("w", Dtype.F32, 1000);
            final Unit unit = context.unit("u", weight);
            final CompletableFuture<Void> barrier =
                    context.world().barrierBegin().toCompletableFuture();
            final CompletableFuture<Float> first = unit.gatherBegin().toCompletableFuture()
                    .thenCombine(barrier, (full, none) -> {
                        try (full) {
                            return full.view(weight).get(0);
                        }
                    });
            Suite.equal(0f, first.get());
            Suite.equal(0, unit.leases());
            weight.gradient().put(5, Float.NaN);
            unit.reduce();
            final Future<Void> step = context.adamw(unit).stepBegin().toCompletableFuture();
            try {
                step.get();
                throw new AssertionError("a step with a NaN succeeds");
            } catch (ExecutionException error) {
                Suite.equal(Status.NONFINITE, ((MeronException) error.getCause()).status());
            }
            context.world().barrier();
        });
    }

    private static void closeMeanwhile() throws Exception {
        for (int round = 0; round < 30; ++round) {
            final Context context = Suite.alone("zero3");
            final Param weight = context.param("w", Dtype.F32, 1000);
            final Unit unit = context.unit("u", weight);
            final AtomicInteger turns = new AtomicInteger();
            final FutureTask<Void> closer = new FutureTask<>(() -> {
                while (turns.get() < 50) Thread.onSpinWait();
                context.close();
                return null;
            });
            new Thread(closer).start();
            together(3, () -> {
                try {
                    while (true) {
                        unit.gather().close();
                        context.stats();
                        turns.incrementAndGet();
                    }
                } catch (MeronException error) {
                    Suite.check(error.status() == Status.CLOSED || error.status() == Status.STALE
                            || error.status() == Status.CANCELLED, "status " + error.status());
                }
            });
            closer.get();
        }
    }

    private static void interrupts() throws Exception {
        final CountDownLatch enough = new CountDownLatch(1);
        Suite.ranks(2, "zero3", context -> {
            if (context.rank() == 1) {
                enough.await();
                context.world().allReduce(new float[] {1}, ReduceOp.SUM);
                return;
            }
            final ByteBuffer memory =
                    ByteBuffer.allocateDirect(4).order(ByteOrder.nativeOrder());
            final Operation future =
                    context.world().allReduceBegin(memory, Dtype.F32, ReduceOp.SUM);
            final Thread waiting = Thread.currentThread();
            for (int i = 0; i < INTERRUPTS; ++i) {
                final Thread ender = new Thread(waiting::interrupt);
                ender.start();
                Suite.fails(Status.CANCELLED, future::await);
                ender.join();
                Suite.check(Thread.interrupted(), "the interrupt flag stays set");
                Suite.check(!future.done(), "the operation goes on");
            }
            Suite.check(!future.await(Duration.ofMillis(1)), "still under way");
            enough.countDown();
            future.finish();
            Suite.equal(1f, memory.getFloat(0));
        });
    }

    private static void interruptInOpen() throws Exception {
        final Thread opener = Thread.currentThread();
        final Thread ender = new Thread(() -> {
            try {
                Thread.sleep(100);
            } catch (InterruptedException error) {
                return;
            }
            opener.interrupt();
        });
        ender.start();
        Suite.fails(Status.CANCELLED,
                () -> Context.options().rank(0, 2).transport("local").job("interrupted").open());
        Suite.check(Thread.interrupted(), "the interrupt flag stays set");
    }

    private static void shouldStop() throws Exception {
        final AtomicInteger asked = new AtomicInteger();
        final MeronException error = Suite.fails(Status.CANCELLED,
                () -> Context.options().rank(0, 2).transport("local").job("stopped")
                        .shouldStop(() -> asked.incrementAndGet() == 3).open());
        Suite.equal(3, asked.get());
        Suite.check(error.getCause() == null, "no cause");
    }

    private static void shouldStopThrows() throws Exception {
        final MeronException error = Suite.fails(Status.CANCELLED,
                () -> Context.options().rank(0, 2).transport("local").job("thrown")
                        .shouldStop(() -> {
                            throw new IllegalStateException("the model diverged");
                        }).open());
        Suite.check(error.getCause() instanceof IllegalStateException, "the cause");
        Suite.equal("the model diverged", error.getCause().getMessage());
        final MeronException next = Suite.fails(
                Status.ARGUMENT, () -> org.meron.Plan.preset("zero9"));
        Suite.check(next.getCause() == null, "the cause belongs to one error");
    }

    private static void shouldStopBeginsNothing() throws Exception {
        final Queue<Status> refused = new ConcurrentLinkedQueue<>();
        final FutureTask<Void> late = new FutureTask<>(() -> {
            try (Context context =
                    Context.options().rank(1, 2).transport("local").job("looks").open()) {
                Thread.sleep(400);
                context.world().barrier();
            }
            return null;
        });
        new Thread(late).start();
        try (Context context = Context.options().rank(0, 2).transport("local").job("looks")
                        .shouldStop(() -> {
                            try {
                                Context.options().rank(0, 1).transport("self").open().close();
                            } catch (MeronException error) {
                                refused.add(error.status());
                            }
                            return false;
                        }).open()) {
            context.world().barrier();
        }
        late.get();
        Suite.check(!refused.isEmpty(), "should_stop was called");
        for (Status status : refused) Suite.equal(Status.STATE, status);
    }

    /** A wait of more than five seconds is warned of; what the sink throws goes to the handler. */
    private static void log() throws Exception {
        final Queue<String> messages = new ConcurrentLinkedQueue<>();
        final Queue<Throwable> uncaught = new ConcurrentLinkedQueue<>();
        final FutureTask<Void> late = new FutureTask<>(() -> {
            try (Context context = open(1, null)) {
                Thread.sleep(6000);
                context.world().barrier();
            }
            return null;
        });
        new Thread(late).start();
        final Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> uncaught.add(error));
        try (Context context = open(0, (level, message) -> {
            messages.add(level + " " + message);
            throw new IllegalArgumentException("from the log");
        })) {
            context.world().barrier();
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(before);
        }
        late.get();
        Suite.check(messages.peek().startsWith("WARNING ") && messages.peek().contains("1"),
                messages.peek());
        Suite.equal("from the log", uncaught.peek().getMessage());
    }

    private static Context open(int rank, LogSink sink) {
        return Context.options().rank(rank, 2).transport("local").job("log").log(sink).open();
    }

    /** Runs a body on some threads at once; throws the first failure. */
    private static void together(int count, Suite.Body body) throws Exception {
        final List<FutureTask<Void>> tasks = new ArrayList<>();
        for (int i = 0; i < count; ++i) {
            tasks.add(new FutureTask<>(() -> {
                body.run();
                return null;
            }));
            new Thread(tasks.get(i)).start();
        }
        for (FutureTask<Void> task : tasks) task.get();
    }
}
