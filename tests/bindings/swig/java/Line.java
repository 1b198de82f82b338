// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.meron.Context;
import org.meron.ContextOptions;
import org.meron.CustomTransport;
import org.meron.Plan;

/**
 * The custom transport of the tests: passes on to a mailbox until one of its methods is to fail. And
 * ranks that are connected so.
 */
class Line implements CustomTransport {
    final AtomicInteger closed = new AtomicInteger();
    private final CustomTransport mailbox;
    volatile String failing = "";
    volatile Throwable thrown = new IOException("the cable is cut");
    volatile long lie = 0;
    volatile boolean peersLive = true;
    Line other; // the peer's end

    Line(CustomTransport mailbox) {
        this.mailbox = mailbox;
    }

    /** Throws anything, checked or not, as Java code of others may. */
    @SuppressWarnings("unchecked")
    private static <T extends Throwable> void sneak(Throwable error) throws T {
        throw (T) error;
    }

    private void at(String method) {
        if (failing.equals(method)) Line.<RuntimeException>sneak(thrown);
    }

    @Override
    public long send(int peer, long tag, ByteBuffer message) throws Exception {
        at("send");
        Suite.check(message.isReadOnly() && message.isDirect() && message.position() == 0,
                "a read-only buffer of the library's memory");
        Suite.equal(ByteOrder.nativeOrder(), message.order());
        return lie < 0 ? lie : mailbox.send(peer, tag, message);
    }

    @Override
    public long receive(int peer, long tag, ByteBuffer place) throws Exception {
        at("receive");
        Suite.check(!place.isReadOnly() && place.isDirect(), "a writable buffer");
        return mailbox.receive(peer, tag, place);
    }

    @Override
    public long test(long request) throws Exception {
        at("test");
        return mailbox.test(request);
    }

    @Override
    public void cancel(long request) throws Exception {
        at("cancel");
        mailbox.cancel(request);
    }

    @Override
    public void idle(Duration timeout) throws Exception {
        at("idle");
        mailbox.idle(timeout);
    }

    @Override
    public boolean alive(int peer) throws Exception {
        at("alive");
        return peersLive;
    }

    @Override
    public void closed() {
        closed.incrementAndGet();
    }

    // ---- Ranks --------------------------------------------------------------------------------------

    interface RankBody<T> {
        T run(Context context, Line line) throws Exception;
    }

    private static int jobs;

    static synchronized String job() {
        return "transport-" + jobs++;
    }

    static ContextOptions options(int rank, int ranks, CustomTransport transport) {
        return Context.options().rank(rank, ranks).custom(transport).threads(1)
                .timeout(Duration.ofSeconds(10)).arenaReserve(1 << 26)
                .log((level, message) -> { });
    }

    /** Runs a body on some ranks; all results, in the order of ranks. Throws the first failure. */
    static <T> List<T> ranks(int count, String plan, RankBody<T> body) throws Exception {
        final String job = job();
        final List<Line> lines = new ArrayList<>();
        for (int r = 0; r < count; ++r) lines.add(new Line(Mailbox.join(job, r, count)));
        final List<Callable<T>> bodies = new ArrayList<>();
        for (int r = 0; r < count; ++r) {
            final int rank = r;
            bodies.add(() -> {
                final Line line = lines.get(rank);
                line.other = lines.get((rank + 1) % count);
                final T out;
                try (Plan chosen = Plan.preset(plan);
                        Context context = options(rank, count, line).plan(chosen).open()) {
                    out = body.run(context, line);
                }
                Suite.equal(1, line.closed.get());
                return out;
            });
        }
        return together(bodies);
    }

    static <T> List<T> together(List<Callable<T>> bodies) throws Exception {
        final List<FutureTask<T>> tasks = new ArrayList<>();
        for (Callable<T> body : bodies) {
            tasks.add(new FutureTask<>(body));
            new Thread(tasks.get(tasks.size() - 1), "rank " + (tasks.size() - 1)).start();
        }
        final List<T> out = new ArrayList<>();
        Throwable first = null;
        for (FutureTask<T> task : tasks) {
            try {
                out.add(task.get(45, TimeUnit.SECONDS));
            } catch (ExecutionException error) {
                if (first == null) first = error.getCause();
                else first.addSuppressed(error.getCause());
            }
        }
        if (first != null) throw new AssertionError("a rank failed: " + first, first);
        return out;
    }
}
