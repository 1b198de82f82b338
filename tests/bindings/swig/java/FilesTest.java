// SPDX-License-Identifier: Apache-2.0
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.meron.Io;
import org.meron.IoBuffer;
import org.meron.IoOptions;
import org.meron.IoRequest;
import org.meron.MeronException;
import org.meron.Status;

/** Files: what is written is read, memory lives as long as its request, and errors name the file. */
public final class FilesTest {
    private static final int BYTES = 1 << 20;

    public static void main(String[] arguments) throws Exception {
        final Suite suite = new Suite("java_files");
        suite.test("what was written is read", FilesTest::readsWhatItWrote);
        suite.test("memory of a dropped request is kept until that has ended", FilesTest::kept);
        suite.test("close ends what is under way", FilesTest::closes);
        suite.test("errors name the file", FilesTest::errors);
        suite.finish();
    }

    private interface OnFile {
        void run(Path path) throws Exception;
    }

    private static void withFile(OnFile body) throws Exception {
        final Path path = Files.createTempFile("meron", ".io");
        try {
            body.run(path);
        } finally {
            Files.deleteIfExists(path);
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    private static ByteBuffer filled(int bytes, int value) {
        final ByteBuffer out = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
        for (int i = 0; i < bytes; ++i) out.put(i, (byte) value);
        return out;
    }

    private static Status statusOf(Runnable body) {
        try {
            body.run();
        } catch (MeronException error) {
            return error.status();
        }
        return null;
    }

    private static void readsWhatItWrote() throws Exception {
        withFile(path -> {
            final IoOptions options =
                    new IoOptions().blockBytes(65536).depth(4).threads(2).timeout(Duration.ofMinutes(1));
            try (Io io = new Io(options)) {
                io.write(path, filled(BYTES, 1), 0);
                final ByteBuffer part = filled(100, 2);
                part.position(10).limit(20);
                io.write(path, part, 4001);
                final ByteBuffer back = filled(12, 0);
                io.read(path, back, 4000);
                check(back.get(0) == 1 && back.get(1) == 2 && back.get(10) == 2 && back.get(11) == 1,
                        "other bytes");
                final IoBuffer buffer = io.buffer(40_000);
                final ByteBuffer memory = buffer.bytes();
                check(memory.get(39_999) == 0, "the buffer is not 0");
                final IoRequest request = io.readBegin(path, memory, 0);
                check(request.await(Duration.ofMinutes(1)) && request.done(), "it does not end");
                check(memory.get(39_999) == 1, "the buffer has other bytes");
                check(io.pending() == 0 && io.blockBytes() == 65536, "other counts");
                request.close();
                check(statusOf(request::await) == Status.STALE, "a closed request can be waited for");
            }
        });
    }

    private static void kept() throws Exception {
        withFile(path -> {
            final Io io = new Io();
            for (int round = 1; round <= 50; ++round) {
                io.writeBegin(path, filled(BYTES, round), 0); // nothing refers to it, nor to its memory
                if (round % 10 == 0) System.gc();
                io.await();
            }
            for (byte each : Files.readAllBytes(path)) check(each == 50, "other bytes");
            io.close();
        });
    }

    private static void closes() throws Exception {
        withFile(path -> {
            final Io io = new Io(new IoOptions().blockBytes(4096));
            final IoRequest request = io.writeBegin(path, filled(4 * BYTES, 7), 0);
            final IoBuffer buffer = io.buffer(4096);
            final ByteBuffer memory = buffer.bytes();
            io.close();
            io.close();
            request.await();
            check(Files.size(path) == 4 * BYTES, "the file is shorter");
            memory.put(0, (byte) 1); // it outlives its io
            check(statusOf(() -> io.await()) == Status.CLOSED, "a closed io can be used");
        });
    }

    private static void errors() throws Exception {
        withFile(path -> {
            try (Io io = new Io()) {
                Files.delete(path);
                try {
                    io.read(path, filled(1, 0), 0);
                    throw new AssertionError("a file that is not there was read");
                } catch (MeronException error) {
                    check(error.status() == Status.NOT_FOUND, error.getMessage());
                    check(error.subject().equals(path.toString()), error.subject());
                }
                io.write(path, filled(100, 0), 0);
                try {
                    io.readBegin(path, filled(40, 0), 80);
                    throw new AssertionError("more was read than there is");
                } catch (MeronException error) {
                    check(error.status() == Status.IO, error.getMessage());
                    check(error.getMessage().contains("20 are there"), error.getMessage());
                }
                check(statusOf(() -> io.write(path, ByteBuffer.allocate(4), 0)) == Status.ARGUMENT,
                        "memory of the heap is taken");
                check(statusOf(() -> io.read(path, filled(1, 0), -1)) == Status.ARGUMENT,
                        "a negative offset is taken");
                check(statusOf(() -> new Io(new IoOptions().blockBytes(1))) == Status.ARGUMENT,
                        "a block of one byte is taken");
            }
        });
    }
}
