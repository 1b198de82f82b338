// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.FutureTask;
import org.meron.Context;
import org.meron.DlpackTensor;
import org.meron.Dtype;
import org.meron.Gather;
import org.meron.GatherMode;
import org.meron.Param;
import org.meron.Status;
import org.meron.Unit;
import org.meron.Update;
import org.meron.View;

/** DLPack tensors for, and from, native libraries of this process: each deleter runs exactly once. */
public final class DlpackTest {
    private static final int ORDERS = 2_000;
    private static final int N = 300;

    static native int deleted();

    static native long foreign(long[] numbers, long[] shape, long[] strides);

    public static void main(String[] arguments) throws Exception {
        System.load(System.getProperty("meron.foreign"));
        final Suite suite = new Suite("java_dlpack");
        suite.test("what it is, and its lease", DlpackTest::lease);
        suite.test(ORDERS + " orders of closing and dropping", DlpackTest::orders);
        suite.test("readable after gather and context are closed", DlpackTest::outlives);
        suite.test("a buffer keeps its tensor", DlpackTest::buffersKeepTensors);
        suite.test("handed over, and taken again", DlpackTest::handedOver);
        suite.test("a tensor of another library", DlpackTest::taken);
        suite.test("a dropped tensor of another library", DlpackTest::dropped);
        suite.test("threads that close at once", DlpackTest::closedAtOnce);
        suite.test("tensors that are refused are given back", DlpackTest::refused);
        suite.finish();
    }

    /** A unit of one param, whose elements are their indices. */
    private static Unit filled(Context context, String name) {
        final Param param = context.param(name, Dtype.F32, N / 3, 3);
        final Unit unit = context.unit(name, param);
        try (Update update = unit.update()) {
            final float[] values = new float[N];
            for (int i = 0; i < N; ++i) values[i] = i;
            update.write(param, values);
            update.publish();
        }
        return unit;
    }

    private static Param only(Unit unit) {
        return unit.params()[0];
    }

    private static void lease() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param weight = context.param("w", Dtype.BF16, 4, 1, 5);
            final Unit unit = context.unit("u", weight);
            final DlpackTensor tensor;
            try (Gather full = unit.gather()) {
                tensor = full.dlpack(weight);
                Suite.equal(2, unit.leases());
            }
            Suite.equal(1, unit.leases());
            Suite.fails(Status.STATE, unit::update);
            Suite.equal("[4, 1, 5]", Arrays.toString(tensor.shape()));
            Suite.equal("[5, 5, 1]", Arrays.toString(tensor.strides()));
            Suite.equal(Dtype.BF16, tensor.dtype());
            Suite.equal(20L, tensor.view().count());
            Suite.check(!tensor.view().writable(), "other ranks read it");
            Suite.check(tensor.address() != 0, "an address");
            final View view = tensor.view();
            tensor.close();
            tensor.close();
            Suite.equal(0, unit.leases());
            Suite.fails(Status.STALE, view::shorts);
            Suite.fails(Status.STALE, tensor::view);
            Suite.fails(Status.STALE, tensor::address);
            Suite.fails(Status.STALE, tensor::handOver);
            final Gather ended = unit.gather();
            ended.close();
            Suite.fails(Status.STALE, () -> ended.dlpack(weight));
            final ByteBuffer place = ByteBuffer.allocateDirect(40).order(ByteOrder.nativeOrder());
            try (Gather into = context.gatherBegin(
                    GatherMode.INTO, Collections.singletonMap(weight, place), unit)) {
                into.await();
                Suite.fails(Status.UNSUPPORTED, () -> into.dlpack(weight));
            }
        }
    }

    private static void orders() throws Exception {
        final Random random = new Random(7);
        for (int order = 0; order < ORDERS; ++order) {
            final Context context = Suite.alone(order % 2 == 0 ? "zero3" : "zero0");
            final Unit one = filled(context, "one");
            final Unit two = filled(context, "two");
            final Gather gather = context.gather(one, two);
            final DlpackTensor kept = gather.dlpack(only(one));
            final List<AutoCloseable> objects = new ArrayList<>(List.<AutoCloseable>of(gather,
                    gather.dlpack(only(one)), gather.dlpack(only(two)),
                    DlpackTensor.take(gather.dlpack(only(two)).handOver()), one, only(one), two));
            if (random.nextInt(20) > 0) objects.add(context);
            Collections.shuffle(objects, random);
            for (AutoCloseable object : objects) {
                if (object == context || random.nextBoolean()) object.close();
            }
            objects.clear();
            if (order % 100 == 0) System.gc();
            Suite.equal(299f, kept.view().get(N - 1));
            if (random.nextBoolean()) kept.close();
        }
        System.gc();
    }

    private static void outlives() throws Exception {
        final DlpackTensor tensor;
        try (Context context = Suite.alone("zero3")) {
            final Unit unit = filled(context, "w");
            try (Gather full = unit.gather()) {
                tensor = full.dlpack(only(unit));
            }
        }
        Suite.equal(299f, tensor.view().get(N - 1));
        tensor.close();
    }

    private static void buffersKeepTensors() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Unit unit = filled(context, "w");
            FloatBuffer values = null;
            try (Gather full = unit.gather()) {
                values = full.dlpack(only(unit)).view().floats().slice();
            }
            for (int i = 0; i < 5; ++i) {
                System.gc();
                Thread.sleep(10);
                Suite.equal(1, unit.leases());
                Suite.equal(299f, values.get(N - 1));
            }
            values = null;
            LifetimeTest.untilCollected(() -> unit.leases() == 0);
        }
    }

    private static void handedOver() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Unit unit = filled(context, "w");
            final long address;
            final View view;
            try (Gather full = unit.gather()) {
                final DlpackTensor given = full.dlpack(only(unit));
                view = given.view();
                address = given.handOver();
                given.close();
            }
            Suite.equal(1, unit.leases());
            Suite.fails(Status.STALE, () -> view.get(0));
            try (DlpackTensor again = DlpackTensor.take(address)) {
                Suite.equal(address, again.address());
                Suite.equal(7f, again.view().get(7));
            }
            Suite.equal(0, unit.leases());
        }
    }

    // ---- Tensors of another library -----------------------------------------------------------------

    /** A CPU tensor of f32 from byte 8 on. */
    private static long floats(long[] shape, long[] strides) {
        return foreign(new long[] {1, 1, 2, 32, 1, 0, 8}, shape, strides);
    }

    private static void taken() throws Exception {
        final int before = deleted();
        try (Context context = Suite.alone("zero3");
                DlpackTensor tensor = DlpackTensor.take(floats(new long[] {2, 3}, null))) {
            Suite.equal("[2, 3]", Arrays.toString(tensor.shape()));
            Suite.equal("[3, 1]", Arrays.toString(tensor.strides()));
            Suite.equal(Dtype.F32, tensor.dtype());
            Suite.check(tensor.view().writable(), "nobody said that it is read-only");
            Suite.equal((byte) 8, tensor.view().bytes().get(0));
            final Param weight = context.param("w", Dtype.F32, 2, 3);
            final Unit unit = context.unit("u", weight);
            try (Update update = unit.update()) {
                update.write(weight, tensor.view().bytes(), Dtype.F32);
                update.publish();
            }
            tensor.view().put(0, 5);
            Suite.equal(5f, tensor.view().get(0));
            try (Gather full = unit.gather()) {
                Suite.equal(tensor.view().get(5), full.view(weight).get(5));
                Suite.equal((byte) 8, full.view(weight).bytes().get(0));
            }
            Suite.equal(before, deleted());
        }
        Suite.equal(before + 1, deleted());
        for (long[] shape : new long[][] {{}, {0, 5}, {1, 4}}) {
            DlpackTensor.take(floats(shape, new long[] {9, 1})).close();
        }
        Suite.equal(before + 4, deleted());
    }

    private static void dropped() throws Exception {
        final int before = deleted();
        for (int i = 0; i < 100; ++i) DlpackTensor.take(floats(new long[] {i % 8}, null)).view();
        LifetimeTest.untilCollected(() -> deleted() == before + 100);
    }

    private static void closedAtOnce() throws Exception {
        for (int round = 1; round <= 200; ++round) {
            final int before = deleted();
            final DlpackTensor tensor = DlpackTensor.take(floats(new long[] {2}, null));
            final List<FutureTask<Void>> closers = new ArrayList<>();
            for (int i = 0; i < 3; ++i) {
                closers.add(new FutureTask<>(tensor::close, null));
                new Thread(closers.get(i)).start();
            }
            for (FutureTask<Void> closer : closers) closer.get();
            Suite.equal(before + 1, deleted());
        }
    }

    private static void refused() throws Exception {
        Suite.fails(Status.ARGUMENT, () -> DlpackTensor.take(0));
        final long[] shape = {2, 3};
        final int before = deleted();
        refuse(Status.UNSUPPORTED, "version 2", new long[] {2, 1, 2, 32, 1, 0, 0}, shape, null);
        refuse(Status.UNSUPPORTED, "device type 2", new long[] {1, 2, 2, 32, 1, 0, 0}, shape, null);
        refuse(Status.UNSUPPORTED, "64 bits", new long[] {1, 1, 2, 64, 1, 0, 0}, shape, null);
        refuse(Status.UNSUPPORTED, "code 0", new long[] {1, 1, 0, 32, 1, 0, 0}, shape, null);
        refuse(Status.UNSUPPORTED, "4 lanes", new long[] {1, 1, 2, 32, 4, 0, 0}, shape, null);
        refuse(Status.UNSUPPORTED, "aligned", new long[] {1, 1, 2, 32, 1, 0, 2}, shape, null);
        final long[] f32 = {1, 1, 2, 32, 1, 0, 0};
        refuse(Status.UNSUPPORTED, "row-major", f32, shape, new long[] {1, 2});
        refuse(Status.ARGUMENT, "-3", f32, new long[] {2, -3}, null);
        refuse(Status.ARGUMENT, "more elements", f32, new long[] {1L << 40, 1L << 40}, null);
        Suite.equal(before + 9, deleted());
    }

    private static void refuse(Status status, String says, long[] numbers, long[] shape,
            long[] strides) throws Exception {
        final String message = Suite.fails(status,
                () -> DlpackTensor.take(foreign(numbers, shape, strides)).close()).getMessage();
        Suite.check(message.contains(says), message);
    }
}
