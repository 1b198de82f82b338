// SPDX-License-Identifier: Apache-2.0
import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.meron.AdamW;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.Gather;
import org.meron.MeronException;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.Plan;
import org.meron.ReduceOp;
import org.meron.Status;
import org.meron.Unit;
import org.meron.Update;

/** A custom transport in Java, and the errors of one that throws, answers wrongly, or has lost its peer. */
public final class TransportTest {
    private static final int N = 700;

    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_transport");
        for (String plan : new String[] {"zero0", "zero3"}) {
            suite.test("it trains as local does: " + plan, () -> trains(plan));
        }
        suite.test("many callbacks in one call", TransportTest::manyCallbacks);
        for (String method : new String[] {"send", "receive", "test", "idle", "alive"}) {
            suite.test(method + " throws", () -> throwing(method));
        }
        suite.test("an Error is an exception too", TransportTest::throwsError);
        suite.test("cancel and closed throw", TransportTest::throwsAtTheEnd);
        suite.test("an answer that is none", TransportTest::lies);
        suite.test("the peer is gone", TransportTest::peerGone);
        suite.test("a send that throws while the context opens", TransportTest::throwsInOpen);
        suite.test("an interrupt ends a wait over it", TransportTest::interrupted);
        suite.test("a dropped context ends its transport", TransportTest::dropped);
        suite.test("options that are refused", TransportTest::refused);
        suite.finish();
    }

    // ---- What works -----------------------------------------------------------------------------------

    private static String train(Context context) {
        final Param weight = context.param("w", Dtype.F32, N);
        final Unit unit = context.unit("u", weight);
        final float[] values = new float[N];
        for (int i = 0; i < N; ++i) values[i] = i / 8f;
        try (Update update = unit.update()) {
            update.write(weight, values);
            update.publish();
        }
        try (Optimizer optimizer = context.adamw(new AdamW().maxNorm(1), unit)) {
            for (int step = 0; step < 3; ++step) {
                final float[] gradient = new float[N];
                for (int i = 0; i < N; ++i) gradient[i] = (i % 7 + context.rank()) / 3f;
                unit.reduce(java.util.Map.of(weight, gradient), new org.meron.ReduceOptions());
                optimizer.step();
            }
        }
        try (Gather full = unit.gather()) {
            full.view(weight).get(values);
        }
        context.world().barrier();
        return Arrays.toString(values);
    }

    private static void trains(String plan) throws Exception {
        final Queue<String> local = new ConcurrentLinkedQueue<>();
        Suite.ranks(3, plan, context -> local.add(train(context)));
        for (String found : Line.ranks(3, plan, (context, line) -> {
            Suite.equal("custom", context.transport());
            return train(context);
        })) {
            Suite.equal(local.peek(), found);
        }
    }

    /** Each makes references for Java, and one call is to leave none behind. */
    private static void manyCallbacks() throws Exception {
        final String job = Line.job();
        final List<Callable<Integer>> bodies = new ArrayList<>();
        for (int r = 0; r < 2; ++r) {
            final int rank = r;
            bodies.add(() -> {
                final AtomicInteger sent = new AtomicInteger();
                final Line line = new Line(Mailbox.join(job, rank, 2)) {
                    @Override
                    public int maxMessage() {
                        return 4096;
                    }

                    @Override
                    public String name() {
                        return "Leitung";
                    }

                    @Override
                    public long send(int peer, long tag, ByteBuffer message) throws Exception {
                        Suite.check(message.remaining() <= 4096, "the limit");
                        sent.incrementAndGet();
                        return super.send(peer, tag, message);
                    }
                };
                try (Context context = Line.options(rank, 2, line).open()) {
                    Suite.equal("Leitung", context.transport());
                    final ByteBuffer data =
                            ByteBuffer.allocateDirect(8 << 20).order(ByteOrder.nativeOrder());
                    data.putFloat(4 << 20, 1f);
                    context.world().allReduce(data, Dtype.F32, ReduceOp.SUM);
                    Suite.equal(2f, data.getFloat(4 << 20));
                    context.world().barrier();
                }
                return sent.get();
            });
        }
        for (int sent : Line.together(bodies)) Suite.check(sent > 500, sent + " messages");
    }

    // ---- What does not --------------------------------------------------------------------------------

    /** Barriers, until one fails; the peer does not hear of that through the line, but so. */
    private static MeronException barriers(Context context, Line peer) {
        try {
            for (int i = 0; i < 1000; ++i) context.world().barrier();
        } catch (MeronException error) {
            peer.peersLive = false;
            return error;
        }
        throw new AssertionError("no barrier failed");
    }

    private static void explained(MeronException error, Throwable cause, String says) {
        Suite.equal(Status.PEER_DEAD, error.status());
        Suite.check(error.getCause() == cause, "the cause is " + error.getCause());
        Suite.check(error.getMessage().contains(says), error.getMessage());
    }

    private static void throwing(String method) throws Exception {
        Line.ranks(2, "zero3", (context, line) -> {
            context.world().barrier();
            if (context.rank() == 1) {
                line.failing = method;
                final MeronException error = barriers(context, line.other);
                explained(error, line.thrown, "the cable is cut");
                Suite.check(error.getMessage().contains("the transport threw in " + method),
                        error.getMessage());
                Suite.equal(0, error.peer());
                final MeronException next =
                        Suite.fails(Status.ARGUMENT, () -> Plan.preset("zero9"));
                Suite.check(next.getCause() == null, "the cause belongs to one error");
            } else {
                barriers(context, line.other);
            }
            return null;
        });
    }

    private static void throwsError() throws Exception {
        Line.ranks(2, "zero3", (context, line) -> {
            if (context.rank() == 1) {
                line.thrown = new StackOverflowError("too deep for größe 😀");
                line.failing = "test";
                explained(barriers(context, line.other), line.thrown, "too deep for größe 😀");
            } else {
                barriers(context, line.other);
            }
            return null;
        });
    }

    /** Rank 0 closes during a barrier: its cancelled calls throw, and the close continues. */
    private static void throwsAtTheEnd() throws Exception {
        final Queue<Throwable> uncaught = new ConcurrentLinkedQueue<>();
        final String job = Line.job();
        final Line line = new Line(Mailbox.join(job, 0, 2)) {
            @Override
            public void closed() {
                super.closed();
                throw new IllegalStateException("from closed");
            }
        };
        final Line other = new Line(Mailbox.join(job, 1, 2));
        Line.together(List.of(() -> {
            final Context context = Line.options(0, 2, line).open();
            context.world().barrierBegin();
            line.failing = "cancel";
            Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> uncaught.add(error));
            context.close();
            other.peersLive = false;
            return null;
        }, () -> {
            try (Context context = Line.options(1, 2, other).open()) {
                barriers(context, line);
            }
            return null;
        }));
        Suite.equal(1, line.closed.get());
        Suite.equal("from closed", uncaught.remove().getMessage());
    }

    private static void lies() throws Exception {
        Line.ranks(2, "zero3", (context, line) -> {
            if (context.rank() == 1) {
                line.lie = -7;
                final MeronException error = barriers(context, line.other);
                Suite.equal(Status.PEER_DEAD, error.status());
                Suite.check(error.getMessage().contains("-7 was returned"), error.getMessage());
            } else {
                barriers(context, line.other);
            }
            return null;
        });
    }

    private static void peerGone() throws Exception {
        final String job = Line.job();
        final Line first = new Line(Mailbox.join(job, 0, 2));
        final Line second = new Line(Mailbox.join(job, 1, 2));
        Line.together(List.of(() -> {
            try (Context context = Line.options(0, 2, first).open()) {
                context.world().barrier();
                final long begin = System.nanoTime();
                final MeronException error = barriers(context, second);
                Suite.equal(Status.PEER_DEAD, error.status());
                Suite.equal(1, error.peer());
                Suite.check(error.getCause() == null, "nothing was thrown");
                Suite.check(System.nanoTime() - begin < 5e9, "long before the deadline");
            }
            return null;
        }, () -> {
            try (Context context = Line.options(1, 2, second).open()) {
                context.world().barrier();
                Thread.sleep(200);
                first.peersLive = false; // as if this process had died: no peer gets its close message
                Thread.sleep(1000);
            }
            return null;
        }));
    }

    private static void throwsInOpen() throws Exception {
        final Line line = new Line(Mailbox.join(Line.job(), 0, 2));
        line.failing = "send";
        explained(Suite.fails(Status.PEER_DEAD, () -> Line.options(0, 2, line).open().close()),
                line.thrown, "send to rank 1");
    }

    private static void interrupted() throws Exception {
        Line.ranks(2, "zero3", (context, line) -> {
            if (context.rank() == 0) {
                final Thread waiting = Thread.currentThread();
                final Thread ender = new Thread(waiting::interrupt);
                final org.meron.Operation barrier = context.world().barrierBegin();
                ender.start();
                Suite.fails(Status.CANCELLED, barrier::await);
                ender.join();
                Suite.check(Thread.interrupted(), "the interrupt flag stays set");
                barrier.finish();
            } else {
                Thread.sleep(500);
                context.world().barrier();
            }
            context.world().barrier();
            return null;
        });
    }

    private static void dropped() throws Exception {
        final AtomicInteger ended = new AtomicInteger();
        final List<WeakReference<Line>> lines = new ArrayList<>();
        for (int i = 0; i < 20; ++i) lines.add(openAndDrop(ended));
        LifetimeTest.untilCollected(() -> ended.get() == 20);
        LifetimeTest.untilCollected(() -> lines.stream().allMatch(line -> line.get() == null));
    }

    private static WeakReference<Line> openAndDrop(AtomicInteger ended) {
        final Line line = new Line(Mailbox.join(Line.job(), 0, 1)) {
            @Override
            public void closed() {
                ended.incrementAndGet();
            }
        };
        Line.options(0, 1, line).open();
        return new WeakReference<>(line);
    }

    private static void refused() throws Exception {
        Suite.fails(Status.ARGUMENT,
                () -> Line.options(0, 1, new Line(null) {
                    @Override
                    public int maxMessage() {
                        return 100;
                    }
                }).open());
        Suite.fails(Status.ARGUMENT,
                () -> Context.options().rank(0, 1).transport("custom").open());
    }
}
