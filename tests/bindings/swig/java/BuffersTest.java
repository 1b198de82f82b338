// SPDX-License-Identifier: Apache-2.0
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import org.meron.CheckpointTensor;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.Gather;
import org.meron.Group;
import org.meron.Io;
import org.meron.IoBuffer;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.ReduceOp;
import org.meron.ReduceOptions;
import org.meron.Status;
import org.meron.Unit;
import org.meron.Update;
import org.meron.View;

/** Buffers that are passed: wrong ones are refused by name. Buffers of views: how long they last. */
public final class BuffersTest {
    private static final boolean ENDS = Runtime.version().feature() >= 22;

    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_buffers");
        suite.test("wrong buffers are refused by name", BuffersTest::wrong);
        suite.test("an array has all elements of a view", BuffersTest::lengths);
        suite.test("a buffer keeps its lease", BuffersTest::keepLeases);
        suite.test("memory of files goes with its last buffer", BuffersTest::ioMemory);
        if (ENDS) suite.test("buffers end with what they show", BuffersTest::end);
        suite.finish();
    }

    private static void refused(String words, Suite.Body body) throws Exception {
        final String text = Suite.fails(Status.ARGUMENT, body).getMessage();
        Suite.check(text.contains(words), "not \"" + words + "\" in: " + text);
    }

    private static ByteBuffer bytes(int count) {
        return ByteBuffer.allocateDirect(count).order(ByteOrder.nativeOrder());
    }

    private static void wrong() throws Exception {
        try (Context context = Suite.alone("zero3"); Io io = new Io()) {
            final Param weight = context.param("w", Dtype.F32, 8);
            final Unit unit = context.unit("u", weight);
            final Optimizer optimizer = context.adamw(unit);
            final Group world = context.world();
            final ByteBuffer swapped = ByteBuffer.allocateDirect(32); // big-endian unless set
            final FloatBuffer heap = FloatBuffer.allocate(8);
            unit.update(update -> {
                final Buffer[] others = {bytes(32).asIntBuffer(), bytes(64).asDoubleBuffer(),
                    bytes(64).asLongBuffer(), bytes(16).asShortBuffer(), bytes(16).asCharBuffer()};
                try {
                    for (Buffer other : others) {
                        refused(" and its elements are F32", () -> update.write(weight, other, Dtype.F32));
                    }
                    refused("values is not a direct", () -> update.write(weight, heap, Dtype.F32));
                    refused("values is BIG_ENDIAN", () -> update.write(weight, swapped, Dtype.F32));
                    refused("values is BIG_ENDIAN",
                            () -> update.write(weight, swapped.asFloatBuffer(), Dtype.F32));
                    refused("values is a FloatBuffer, and its elements are BF16",
                            () -> update.write(weight, Floats.direct(new float[4]), Dtype.BF16));
                    refused("values has 31 bytes",
                            () -> update.write(weight, bytes(31), Dtype.F32));
                    update.write(weight, bytes(32).asReadOnlyBuffer().order(ByteOrder.nativeOrder()),
                            Dtype.F32); // it is only read
                } catch (RuntimeException error) {
                    throw error;
                } catch (Exception error) {
                    throw new AssertionError(error);
                }
            });
            refused("the gradient of w is BIG_ENDIAN", () -> unit.reduce(
                    Map.of(weight, swapped.asFloatBuffer()), new ReduceOptions()));
            refused("w: F32 [8]] is an IntBuffer",
                    () -> unit.gatherInto(Map.of(weight, bytes(32).asIntBuffer())));
            refused("w: F32 [8]] is BIG_ENDIAN", () -> unit.gatherInto(Map.of(weight, swapped)));
            refused("w: F32 [8]] is a read-only", () -> unit.gatherInto(Map.of(
                    weight, Floats.direct(new float[8]).asReadOnlyBuffer())));
            refused("data is a read-only", () -> world.broadcast(swapped.asReadOnlyBuffer(), 0));
            refused("data is not a direct", () -> world.broadcast(ByteBuffer.allocate(4), 0));
            world.broadcast(swapped, 0); // bytes as they are
            refused("data is BIG_ENDIAN",
                    () -> world.allReduce(swapped, Dtype.F32, ReduceOp.SUM));
            refused("data is a FloatBuffer, and its elements are I64: pass a LongBuffer",
                    () -> world.allReduce(Floats.direct(new float[4]), Dtype.I64, ReduceOp.SUM));
            refused("values is BIG_ENDIAN", () -> optimizer.writeState(
                    weight, Optimizer.State.EXP_AVG, swapped.asFloatBuffer()));
            refused("out is a read-only", () -> optimizer.readState(weight,
                    Optimizer.State.EXP_AVG, Floats.direct(new float[8]).asReadOnlyBuffer()));
            refused("data is BIG_ENDIAN", () -> new CheckpointTensor("t", "F32", swapped, 8));
            refused("data is an IntBuffer",
                    () -> new CheckpointTensor("t", "F32", bytes(32).asIntBuffer(), 8));
            new CheckpointTensor("t", "U8", swapped, 32); // bytes have no order
            refused("into is a read-only",
                    () -> io.read(Path.of("f"), swapped.asReadOnlyBuffer(), 0));
            refused("data is not a direct", () -> io.write(Path.of("f"), heap, 0));
        }
    }

    private static void lengths() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param weight = context.param("w", Dtype.F32, 8);
            final Unit unit = context.unit("u", weight);
            final View gradient = weight.gradient(true);
            refused("from has 3 elements, and the view has 8", () -> gradient.put(new float[3]));
            refused("from has 9 elements, and the view has 8", () -> gradient.put(new float[9]));
            gradient.put(Floats.ramp(8, 1));
            gradient.put(6, new float[] {0, 5}, 1, 1);
            Suite.equal(5f, gradient.get(6));
            Suite.equal(7f, gradient.get(7));
            refused("elements 8 to 9 are not in the view, which has 8", () -> gradient.put(8, 1));
            unit.reduce();
            unit.discard();
            try (Gather full = unit.gather()) {
                final View view = full.view(weight);
                refused("to has 3 elements", () -> view.get(new float[3]));
                refused("to has 9 elements", () -> view.get(new float[9]));
            }
        }
    }

    private static void keepLeases() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param weight = context.param("w", Dtype.F32, 1000);
            final Unit unit = context.unit("u", weight);
            final float[] ones = new float[1000];
            Arrays.fill(ones, 1);
            unit.update(update -> update.write(weight, ones));
            // Only a buffer that was made from a buffer is left.
            FloatBuffer values = unit.gather().view(weight).floats().slice();
            for (int i = 0; i < 5; ++i) {
                System.gc();
                Thread.sleep(10);
                Suite.equal(1, unit.leases());
                Suite.equal(1f, values.get(999));
            }
            values = null;
            LifetimeTest.untilCollected(() -> unit.leases() == 0);
        }
    }

    private static void ioMemory() throws Exception {
        try (Io io = new Io()) {
            for (int i = 0; i < 20; ++i) io.buffer(1 << 16).bytes().put(0, (byte) 1);
            ByteBuffer kept = io.buffer(1 << 16).bytes().slice();
            kept.put(9, (byte) 7);
            LifetimeTest.untilCollected(() -> io.bufferBytes() == 1 << 16);
            Suite.equal((byte) 7, kept.get(9));
            kept = null;
            LifetimeTest.untilCollected(() -> io.bufferBytes() == 0);
            final IoBuffer closed = io.buffer(1 << 16);
            closed.close();
            Suite.fails(Status.STALE, closed::bytes);
            Suite.equal(0L, io.bufferBytes());
        }
    }

    /** Java 22 and later. */
    private static void end() throws Exception {
        final Context context = Suite.alone("zero3");
        final Param weight = context.param("w", Dtype.F32, 8);
        final Unit unit = context.unit("u", weight);
        final Gather closed = unit.gather();
        final FloatBuffer first = closed.view(weight).floats();
        final FloatBuffer slice = first.slice();
        Suite.equal(0f, first.get(7));
        closed.close();
        ended(() -> first.get(0));
        ended(() -> slice.get(0));
        Suite.fails(Status.STALE, () -> unit.reduce(Map.of(weight, first), new ReduceOptions()));
        final FloatBuffer published;
        try (Update update = unit.update()) {
            published = update.view(weight).floats();
            published.put(0, 1f);
            update.publish();
        }
        ended(() -> published.put(0, 2f));
        final FloatBuffer gradient = weight.gradient().floats();
        unit.reduce();
        ended(() -> gradient.put(0, 1f));
        final FloatBuffer last = unit.gather().view(weight).floats();
        Suite.equal(1f, last.get(0));
        final ByteBuffer memory;
        try (Io io = new Io(); IoBuffer buffer = io.buffer(4096)) {
            memory = buffer.bytes();
            memory.put(0, (byte) 1);
        }
        ended(() -> memory.get(0));
        context.close();
        ended(() -> last.get(0));
    }

    private static void ended(Runnable access) {
        try {
            access.run();
        } catch (IllegalStateException wanted) {
            return;
        }
        throw new AssertionError("a buffer outlives what it shows");
    }
}
