// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicBoolean;
import org.meron.AdamW;
import org.meron.Checkpoint;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.ExportOptions;
import org.meron.Operation;
import org.meron.LoadOptions;
import org.meron.MeronException;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.Status;
import org.meron.Unit;
import org.meron.Update;
import org.meron.View;

/** Views of states beside saves, exports and loads. */
public final class StatesTest {
    private static final int FEW = 8;
    private static final int MANY = 1 << 20;

    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_states");
        suite.test("a save, an export and a load end views of states", StatesTest::ends);
        suite.test("a state that is written during a save is not seen", StatesTest::notSeen);
        suite.test("an export is of one moment beside a thread that writes to views",
                StatesTest::ofOneMoment);
        suite.test("a save leaves gradients alone; nothing is loaded beside them, or saved in an update",
                StatesTest::gradientsAndUpdates);
        suite.finish();
    }

    /** A context with a unit of one param, its optimizer, and a folder. */
    private static final class Model implements AutoCloseable {
        final Path folder = Files.createTempDirectory("meron-states");
        final Context context = Suite.alone("zero3");
        final Param weight;
        final Unit unit;
        final Optimizer optimizer;

        Model(Dtype dtype, int count) throws Exception {
            weight = context.param("w", dtype, count);
            unit = context.unit("u", weight);
            optimizer = context.adamw(new AdamW(), unit);
        }

        View average() {
            return optimizer.state(weight, Optimizer.State.EXP_AVG);
        }

        View master() {
            return optimizer.state(weight, Optimizer.State.MASTER);
        }

        Operation saveBegin(String name) {
            return context.saveBegin(folder, name, optimizer);
        }

        void save(String name) {
            context.save(folder, name, optimizer);
        }

        void export() {
            context.export(folder.resolve("exported"), new ExportOptions().dtype(Dtype.F32).overwrite(true));
        }

        void load(String name) {
            context.load(folder, name, new LoadOptions(), optimizer).close();
        }

        float[] read(Path path, String kind) {
            final FloatBuffer values = ByteBuffer.allocateDirect((int) (4 * weight.shardCount()))
                    .order(ByteOrder.nativeOrder()).asFloatBuffer();
            try (Checkpoint saved = Checkpoint.open(path)) {
                saved.read(kind, "w", 0, weight.shardCount(), values);
            }
            final float[] out = new float[values.capacity()];
            values.rewind();
            values.get(out);
            return out;
        }

        @Override
        public void close() throws IOException {
            optimizer.close();
            context.close();
            Suite.removeAll(folder);
        }
    }

    private interface Call {
        void run(Model model);
    }

    private static float[] filled(int count, float value) {
        final float[] out = new float[count];
        java.util.Arrays.fill(out, value);
        return out;
    }

    private static boolean all(float[] values, float wanted) {
        for (float value : values) {
            if (value != wanted) return false;
        }
        return true;
    }

    private static void ends() throws Exception {
        endsWith("a save", true, model -> model.saveBegin("next").finish());
        endsWith("an export", true, Model::export);
        endsWith("a load", false, model -> model.load("first"));
    }

    private static void endsWith(String call, boolean keepsRead, Call body) throws Exception {
        try (Model model = new Model(Dtype.F32, FEW)) {
            model.average().put(filled(FEW, 1));
            model.save("first");
            final View average = model.average();
            final View master = model.master(); // the param itself: read-only
            body.run(model);
            try {
                average.put(0, 2);
                throw new AssertionError("written after " + call);
            } catch (MeronException error) {
                Suite.equal(Status.STALE, error.status());
                Suite.check(error.getMessage().contains(call + " has ended"), error.getMessage());
            }
            Suite.fails(Status.STALE, () -> average.put(filled(FEW, 2)));
            Suite.fails(Status.STALE, () -> average.floats());
            if (keepsRead) {
                Suite.equal(0f, master.get(0));
            } else {
                Suite.fails(Status.STALE, () -> master.get(0));
            }
            Suite.equal(1f, model.average().get(FEW - 1));
        }
    }

    private static void notSeen() throws Exception {
        try (Model model = new Model(Dtype.F32, MANY)) {
            model.average().put(filled(MANY, 1));
            final Operation saving = model.saveBegin("a");
            model.average().put(filled(MANY, 2));
            saving.finish();
            Suite.check(all(model.read(model.folder, "exp_avg"), 1), "values of a later moment");
        }
    }

    private static void ofOneMoment() throws Exception {
        try (Model model = new Model(Dtype.BF16, MANY)) {
            final AtomicBoolean stop = new AtomicBoolean();
            final FutureTask<Integer> writer = new FutureTask<>(() -> {
                int ended = 0;
                View view = model.master();
                for (int number = 1; !stop.get(); number = number % 100 + 1) {
                    try {
                        view.put(filled(MANY, number));
                    } catch (MeronException error) {
                        Suite.equal(Status.STALE, error.status());
                        view = model.master();
                        ++ended;
                    }
                }
                return ended;
            });
            new Thread(writer, "writer").start();
            try {
                for (int number = 0; number < 20; ++number) {
                    model.export();
                    final float[] values = model.read(model.folder.resolve("exported"), "values");
                    Suite.check(all(values, values[0]), "two moments in export " + number);
                }
            } finally {
                stop.set(true);
            }
            Suite.check(writer.get() > 0, "no view has ended");
        }
    }

    private static void gradientsAndUpdates() throws Exception {
        try (Model model = new Model(Dtype.F32, FEW)) {
            model.save("first");
            model.weight.gradient().put(filled(FEW, 1));
            model.save("second");
            model.export();
            Suite.fails(Status.STATE, () -> model.load("second"));
            model.unit.reduce();
            model.unit.discard();
            try (Update update = model.unit.update()) {
                update.view(model.weight).put(filled(FEW, 1));
                refused(model);
                update.publish();
            }
        }
    }

    private static void refused(Model model) throws Exception {
        Suite.fails(Status.STATE, () -> model.saveBegin("next"));
        Suite.fails(Status.STATE, model::export);
        Suite.fails(Status.STATE, () -> model.load("first"));
    }
}
