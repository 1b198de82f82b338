// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.meron.Checkpoint;
import org.meron.CheckpointTensor;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.ExportOptions;
import org.meron.Io;
import org.meron.IoOptions;
import org.meron.Optimizer;
import org.meron.Plan;
import org.meron.SaveOptions;
import org.meron.Schedule;
import org.meron.Status;
import org.meron.Unit;
import org.meron.WriteOptions;

/** A number below 0 is refused by its name: as C's unsigned number it would be a huge one. */
public final class NumbersTest {
    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_numbers");
        suite.test("options", NumbersTest::options);
        suite.test("arguments", NumbersTest::arguments);
        suite.test("the newest checkpoint stays the newest", NumbersTest::newest);
        suite.finish();
    }

    private static void refused(String name, Suite.Body body) throws Exception {
        final String text = Suite.fails(Status.ARGUMENT, body).getMessage();
        Suite.check(text.contains(name) && text.contains("must be 0 or more, not -1"), text);
    }

    private static void options() throws Exception {
        refused("step", () -> new SaveOptions().step(-1));
        refused("keep", () -> new SaveOptions().keep(-1));
        refused("step", () -> new WriteOptions().step(-1));
        refused("maxFileBytes", () -> new ExportOptions().maxFileBytes(-1));
        refused("partFrom", () -> tensor(1).partFrom(-1));
        refused("block_bytes", () -> new Io(new IoOptions().blockBytes(-1)).close());
        refused("depth", () -> new Io(new IoOptions().depth(-1)).close());
        refused("threads", () -> new Io(new IoOptions().threads(-1)).close());
    }

    private static void arguments() throws Exception {
        final String model = "{\"parameters\": 1000, \"layers\": 1, \"dtype\": \"f32\"}";
        try (Plan plan = Plan.preset("zero3")) {
            refused("ranks", () -> plan.predict(model, -1, 1, 1, false));
            refused("micro_batches", () -> plan.predict(model, 2, -1, 1, false));
        }
        try (Context context = Suite.alone("zero3");
                Unit unit = context.unit("u", context.param("w", Dtype.F32, 8));
                Optimizer optimizer = context.adamw(unit);
                Schedule schedule = context.schedule(unit)) { // its default is no limit
            refused("number", () -> optimizer.group(-1));
            refused("steps", () -> optimizer.steps(-1));
            refused("kind", () -> schedule.startPass(-1));
            refused("index", () -> schedule.enter(-1));
            refused("gathers_per_micro_batch", () -> context.predict(1, -1));
        }
        final Path file = Files.createTempFile("meron", ".io");
        try (Io io = new Io()) {
            final ByteBuffer memory = ByteBuffer.allocateDirect(8);
            refused("offset", () -> io.read(file, memory, -1));
            refused("offset", () -> io.write(file, memory, -1));
        } finally {
            Files.delete(file);
        }
    }

    private static void newest() throws Exception {
        final Path folder = Files.createTempDirectory("meron");
        try {
            refused("a size of the shape", () -> Checkpoint.write(
                    folder, "first", new WriteOptions(), tensor(-1)));
            Checkpoint.write(folder, "first", new WriteOptions().step(1), tensor(1));
            refused("step", () -> Checkpoint.write(
                    folder, "second", new WriteOptions().step(-1), tensor(1)));
            Checkpoint.write(folder, "third", new WriteOptions().step(2), tensor(1));
            try (Checkpoint newest = Checkpoint.open(folder)) {
                Suite.equal(2L, newest.step());
                refused("begin", () -> newest.read("extra", "t", -1, 1, floats()));
            }
        } finally {
            Suite.removeAll(folder);
        }
    }

    private static FloatBuffer floats() {
        return ByteBuffer.allocateDirect(4).order(ByteOrder.nativeOrder()).asFloatBuffer();
    }

    private static CheckpointTensor tensor(long size) {
        return new CheckpointTensor("t", floats(), size);
    }
}
