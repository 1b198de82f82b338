// SPDX-License-Identifier: Apache-2.0
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.Gather;
import org.meron.GatherMode;
import org.meron.MeronException;
import org.meron.Param;
import org.meron.Status;
import org.meron.Unit;

/** Errors that another rank causes: one that is missing, differs, aborts or has closed is named. */
public final class PeersTest {
    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_peers");
        suite.test("timeout names who is missing", PeersTest::timeout);
        suite.test("mismatch has both calls", PeersTest::mismatch);
        suite.test("aborted has the reason", PeersTest::aborted);
        suite.test("a peer that closed is named", PeersTest::peerClosed);
        suite.test("token", PeersTest::token);
        suite.test("an update whose wait fails", PeersTest::updateGivenUp);
        suite.test("an update whose body throws", PeersTest::updateBodyThrows);
        suite.finish();
    }

    private static void timeout() throws Exception {
        final MeronException error = Suite.fails(Status.TIMEOUT, () -> Context.options().rank(0, 2)
                .transport("local").job("nobody").timeout(Duration.ofMillis(200)).open());
        Suite.check(error.getMessage().contains("1"), "rank 1 is named: " + error.getMessage());
    }

    private static void mismatch() throws Exception {
        Suite.ranks(2, "zero3", context -> {
            final Unit one = context.unit("one", context.param("a", Dtype.F32, 600));
            final Unit two = context.unit("two", context.param("b", Dtype.F32, 600));
            context.world().barrier();
            final MeronException error = Suite.fails(Status.MISMATCH, () -> {
                (context.rank() == 0 ? one : two).gatherBegin(GatherMode.VIEW).await();
                context.world().barrier();
            });
            Suite.check(error.getMessage().contains("one") && error.getMessage().contains("two"),
                    error.getMessage());
            Suite.fails(Status.MISMATCH, () -> context.world().check()); // sticky
        });
    }

    private static void aborted() throws Exception {
        final CountDownLatch opened = new CountDownLatch(1);
        Suite.ranks(2, "zero3", context -> {
            if (context.rank() == 1) opened.countDown();
            if (context.rank() == 0) {
                opened.await();
                context.world().abort("the disk is full");
                Suite.fails(Status.ABORTED, () -> context.world().barrier());
            } else {
                final MeronException error =
                        Suite.fails(Status.ABORTED, () -> context.world().barrier());
                Suite.check(error.getMessage().contains("the disk is full"), error.getMessage());
                Suite.equal(1, error.rank());
                Suite.equal(0, error.peer());
            }
        });
    }

    private static void peerClosed() throws Exception {
        final CountDownLatch left = new CountDownLatch(1);
        Suite.ranks(2, "zero3", context -> {
            if (context.rank() == 0) {
                context.close();
                left.countDown();
                return;
            }
            left.await();
            final MeronException error =
                    Suite.fails(Status.PEER_CLOSED, () -> context.world().barrier());
            Suite.equal(0, error.peer());
        });
    }

    private static void token() throws Exception {
        Suite.fails(Status.AUTH,
                () -> Context.options().rank(0, 2).transport("shm").token("short").open());
    }

    /** Peers continue an update after its begin: cancelling it breaks the group, and the error says so. */
    private static void updateGivenUp() throws Exception {
        Suite.ranks(2, "zero3", context -> {
            final Unit unit = context.unit("u", context.param("w", Dtype.F32, 600));
            context.world().barrier();
            if (context.rank() == 0) {
                final Gather held = unit.gather();
                Suite.fails(Status.ABORTED, () -> { // while it is held, the update cannot continue
                    while (true) {
                        context.world().check();
                        Thread.sleep(1);
                    }
                });
                held.close();
                return;
            }
            unit.gather().close();
            Thread.currentThread().interrupt();
            Suite.fails(Status.CANCELLED, unit::update);
            Suite.check(Thread.interrupted(), "the flag stays");
            Suite.fails(Status.ABORTED, () -> context.world().check());
        });
    }

    /** The error is the body's own, and no half of the values becomes a version. */
    private static void updateBodyThrows() throws Exception {
        Suite.ranks(2, "zero3", context -> {
            final Param weight = context.param("w", Dtype.F32, 600);
            final Unit unit = context.unit("u", weight);
            unit.update(update -> update.write(weight, new float[600]));
            try {
                unit.update(update -> {
                    if (context.rank() == 1) throw new ArithmeticException("nothing is written");
                });
                Suite.equal(0, context.rank());
            } catch (ArithmeticException own) {
                Suite.equal(1, context.rank());
            }
            Suite.equal(2L, unit.version());
            try {
                context.update(update -> {
                    update.write(weight, new float[600]);
                    if (context.rank() == 1) throw new ArithmeticException("half is written");
                }, unit);
                Suite.equal(0, context.rank());
            } catch (ArithmeticException own) {
                Suite.equal(1, context.rank());
            } catch (MeronException broken) {
                Suite.equal(0, context.rank()); // rank 1 was faster
            }
            final MeronException broken =
                    Suite.fails(Status.ABORTED, () -> unit.gather().close());
            Suite.check(broken.getMessage().contains("rank 1 gave up the update of unit 'u'"),
                    broken.getMessage());
        });
    }
}
