// SPDX-License-Identifier: Apache-2.0
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.ReadOnlyBufferException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import org.meron.Context;
import org.meron.DeviceArray;
import org.meron.Dtype;
import org.meron.Flat;
import org.meron.Gather;
import org.meron.GatherMode;
import org.meron.Gatherable;
import org.meron.Tier;
import org.meron.Param;
import org.meron.ReduceOptions;
import org.meron.Status;
import org.meron.Unit;
import org.meron.Update;
import org.meron.View;

/** Gathers: their modes, views of every dtype, and those that stay on a device. */
public final class GatherTest {
    private static final int N = 1000;

    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_gather");
        suite.test("gather modes", GatherTest::gatherModes);
        suite.test("flats", GatherTest::flats);
        suite.test("16 bits", GatherTest::sixteenBits);
        suite.test("an async gather", () -> Suite.ranks(2, "zero3", GatherTest::polls));
        suite.test("a device", GatherTest::device);
        suite.finish();
    }

    private static void gatherModes() throws Exception {
        Suite.ranks(2, "zero3", context -> {
            final Param weight = context.param("w", Dtype.F32, N);
            final Unit unit = context.unit("u", weight);
            try (Update update = context.update(unit)) {
                update.write(weight, Floats.direct(Floats.ramp(N, 2)), Dtype.F32);
                update.publish();
            }
            try (Gather view = context.gather(unit)) {
                final View seen = view.view(weight);
                Suite.check(!seen.writable(), "a view is read-only");
                Suite.check(seen.floats().isReadOnly() && seen.bytes().isReadOnly(), "buffers too");
                Suite.equal(ByteOrder.nativeOrder(), seen.bytes().order());
                Suite.fails(Status.STATE, () -> seen.put(0, 1));
                try {
                    seen.floats().put(0, 1);
                    throw new AssertionError("a read-only buffer was written");
                } catch (ReadOnlyBufferException wanted) {
                    Suite.equal(0f, seen.get(0));
                }
                final float[] some = new float[4];
                seen.get(10, some, 1, 3);
                Suite.equal("[0.0, 20.0, 22.0, 24.0]", Arrays.toString(some));
                Suite.fails(Status.ARGUMENT, () -> seen.get(N));
                Suite.fails(Status.ARGUMENT, () -> seen.get(-1));
                Suite.fails(Status.ARGUMENT, () -> seen.bytes(4 * N - 3, 4));
                Suite.equal(22f, seen.bytes(44, 4).asFloatBuffer().get(0));
                Suite.fails(Status.ARGUMENT, seen::shorts);
            }
            try (Gather copy = unit.gatherCopy()) {
                final View mine = copy.view(weight);
                mine.put(3, 99);
                Suite.equal(99f, mine.floats().get(3));
            }
            final FloatBuffer into = Floats.direct(new float[N]);
            try (Gather gather = unit.gatherInto(Map.of(weight, into))) {
                Suite.equal(6f, into.get(3));
                gather.await();
            }
            Suite.fails(Status.ARGUMENT,
                    () -> unit.gatherInto(Map.of(weight, Floats.direct(new float[N - 1]))));
            Suite.fails(Status.ARGUMENT, () -> unit.gatherBegin(GatherMode.INTO));
            context.world().barrier();
        });
    }

    private static void flats() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param bias = context.param("bias", Dtype.F32, 3);
            final Param half = context.param("half", Dtype.BF16, 5);
            final Param weight = context.param("weight", Dtype.F32, 2, 7);
            final Unit unit = context.unit("u", bias, half, weight);
            try (Update update = unit.update()) {
                update.write(bias, 1, 2, 3);
                update.write(weight, new float[] {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13});
                update.publish();
            }
            final Flat[] flats = unit.flats();
            Suite.equal(2, flats.length);
            Suite.equal("Flat[0 of u: 64 F32]", flats[0].toString());
            Suite.equal(32L, flats[1].count());
            Suite.equal(Dtype.BF16, flats[1].dtype());
            Suite.check(!flats[0].frozen(), "they are trained");
            Suite.equal(0, weight.flat());
            Suite.equal(32L, weight.flatOffset());
            Suite.equal(1, half.flat());
            final FloatBuffer into = Floats.direct(new float[64]);
            try (Gather gather = unit.gatherInto(Map.of(flats[0], into))) {
                Suite.equal(3f, into.get(2));
                Suite.equal(13f, into.get(32 + 13));
                Suite.equal(13f, gather.view(weight).get(13));
                Suite.fails(Status.ARGUMENT, () -> gather.view(half));
            }
            final Buffer shorts = ByteBuffer.allocateDirect(10)
                    .order(ByteOrder.nativeOrder()).asShortBuffer();
            unit.gatherInto(Map.of(flats[0], into, half, shorts)).close();
            Suite.fails(Status.ARGUMENT,
                    () -> unit.gatherInto(Map.of(flats[0], Floats.direct(new float[63]))));
            Suite.fails(Status.DUPLICATE, () -> unit.gatherInto(Map.<Gatherable, FloatBuffer>of(
                    flats[0], into, bias, Floats.direct(new float[3]))));
            final Unit other = context.unit("v", context.param("x", Dtype.F32, 2));
            Suite.fails(Status.ARGUMENT, () -> other.gatherInto(Map.of(flats[0], into)));
        }
    }

    private static void sixteenBits() throws Exception {
        try (Context context = Suite.alone("zero3")) {
            final Param bf16 = context.param("b", Dtype.BF16, 4);
            final Param f16 = context.param("h", Dtype.F16, 4);
            final Unit unit = context.unit("u", bf16, f16);
            try (Update update = unit.update()) {
                update.write(bf16, 1, 2, 3, 4);
                update.write(f16, 1, 2, 3, 4);
                update.publish();
            }
            try (Gather full = unit.gather()) {
                Suite.equal((short) 0x3F80, full.view(bf16).shorts().get(0));
                Suite.equal((short) 0x3C00, full.view(f16).shorts().get(0));
                Suite.equal(Dtype.F16, full.view(f16).dtype());
                Suite.fails(Status.ARGUMENT, () -> full.view(bf16).floats());
                Suite.fails(Status.ARGUMENT, () -> full.view(bf16).get(0));
            }
        }
    }

    private static void polls(Context context) {
        final Param weight = context.param("w", Dtype.F32, N);
        final Unit unit = context.unit("u", weight);
        final Gather gather = unit.gatherBegin(GatherMode.VIEW);
        while (!gather.done()) Thread.onSpinWait();
        Suite.check(gather.await(Duration.ofSeconds(1)), "full");
        gather.close();
        context.world().barrier();
    }

    private static void device() throws Exception {
        try (Context context =
                Context.options().rank(0, 1).transport("self").device("emulated").open()) {
            final Param param = context.param("w", Dtype.F32, 3, 4);
            final Unit unit = context.unit("u", param);
            final float[] values = new float[12];
            for (int i = 0; i < 12; ++i) values[i] = i;
            try (Update update = unit.update()) {
                update.write(param, values);
                update.publish();
            }
            final Gather full = unit.gatherBegin(GatherMode.VIEW);
            full.waitStream(0);
            Suite.check(full.waitStream(0, Duration.ofSeconds(1)), "it is not full");
            final View view = full.view(param);
            final float[] seen = new float[12];
            view.get(seen);
            Suite.equal(Arrays.toString(values), Arrays.toString(seen));
            final long up = context.stats().deviceUpBytes;
            Suite.check(up >= 48, "nothing was copied up");
            try (Gather host = unit.gatherBegin(Tier.HOST)) {
                host.await();
                host.view(param).get(seen);
                Suite.equal(Arrays.toString(values), Arrays.toString(seen));
                Suite.check(host.view(param).address() != view.address(), "it is on the device");
            }
            Suite.equal(up, context.stats().deviceUpBytes);
            unit.reduce(Map.of(param, view), new ReduceOptions().stream(0));
            param.reduced().get(seen);
            Suite.equal(Arrays.toString(values), Arrays.toString(seen));
            unit.discard();
            unit.reduce(Map.of(param, new DeviceArray(view.address(), 12, Dtype.F32)),
                    new ReduceOptions());
            param.reduced().get(seen);
            Suite.equal(Arrays.toString(values), Arrays.toString(seen));
            Suite.equal(96L, context.stats().deviceDownBytes);
            full.releaseOnStream(0);
            full.close();
            Suite.equal(0, unit.leases());
            Suite.fails(Status.STALE, () -> view.get(0));
            Suite.fails(Status.STALE, () -> full.waitStream(0));
        }
        for (String name : new String[] {"gpu", "emulated:7"}) {
            Suite.fails(Status.ARGUMENT, () -> Context.options().rank(0, 1).device(name).open());
        }
        try (Context context = Suite.alone("zero3")) {
            final Unit unit = context.unit("u", context.param("w", Dtype.F32, 3));
            try (Gather full = unit.gather()) {
                Suite.fails(Status.ARGUMENT, () -> full.waitStream(0));
                Suite.fails(Status.ARGUMENT, () -> full.releaseOnStream(0));
            }
        }
    }
}
