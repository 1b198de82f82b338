// SPDX-License-Identifier: Apache-2.0
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import org.meron.Dtype;
import org.meron.Io;
import org.meron.IoBuffer;
import org.meron.IoOptions;
import org.meron.IoRequest;

/** The operations on files. */
final class FileOperations {
    private FileOperations() {}

    /** Executes the statement and returns true if this class has its operation. */
    static boolean execute(Session session, Table.Statement statement) throws IOException {
        final String name = statement.name;
        switch (statement.operation) {
            case "io": io(session, statement); return true;
            case "io_is": ioIs(session.find(Io.class, name), statement); return true;
            case "io_write":
                session.find(Io.class, name).write(
                        file(session, statement), memory(session, statement, true), offset(statement));
                return true;
            case "io_read": {
                final ByteBuffer into = memory(session, statement, false);
                session.find(Io.class, name).read(
                        file(session, statement), into, offset(statement));
                session.values.checkData(statement, into, dtype(statement), 0);
                return true;
            }
            case "io_write_begin":
            case "io_read_begin": begin(session, statement); return true;
            case "io_data":
                session.values.checkData(
                        statement, session.memories.get(name), dtype(statement), 0);
                return true;
            case "io_wait": session.find(Io.class, name).await(); return true;
            case "io_request_wait": session.find(IoRequest.class, name).await(); return true;
            case "io_buffer": buffer(session, statement); return true;
            default: return false;
        }
    }

    private static Dtype dtype(Table.Statement statement) {
        return Operations.dtype(statement.wanted("dtype"));
    }

    private static long offset(Table.Statement statement) {
        return (long) statement.number("offset", 0);
    }

    /** A file of the rank's own, which goes with the session. */
    private static Path file(Session session, Table.Statement statement) throws IOException {
        final Path path = Path.of(System.getProperty("java.io.tmpdir"),
                "meron-" + ProcessHandle.current().pid() + "-" + session.title + "-" + session.rank
                        + "-" + statement.wanted("file"));
        if (session.files.add(path)) Files.deleteIfExists(path);
        return path;
    }

    private static ByteBuffer memory(Session session, Table.Statement statement, boolean write) {
        final int count = Integer.parseInt(statement.wanted("count"));
        final String values = write ? statement.wanted("with") : "fill:0";
        final ByteBuffer own = session.values.buffer(values, dtype(statement), count);
        if (statement.get("buffer") == null) return own;
        final ByteBuffer pinned =
                session.find(IoBuffer.class, statement.get("buffer")).bytes();
        pinned.put(own.duplicate()).flip();
        return pinned.slice().order(ByteOrder.nativeOrder());
    }

    private static void io(Session session, Table.Statement statement) {
        final IoOptions options = new IoOptions();
        final String backend = statement.get("backend");
        if ("threads".equals(backend)) options.backend(IoOptions.Backend.THREADS);
        if ("io_uring".equals(backend)) options.backend(IoOptions.Backend.IO_URING);
        if (statement.get("block") != null) options.blockBytes((int) statement.number("block", 0));
        if (statement.get("depth") != null) options.depth((int) statement.number("depth", 0));
        if (statement.get("threads") != null) options.threads((int) statement.number("threads", 0));
        session.keep(statement.name, new Io(options));
    }

    private static void ioIs(Io io, Table.Statement statement) {
        expect(statement, "block", io.blockBytes());
        expect(statement, "depth", io.depth());
        expect(statement, "threads", io.threads());
        expect(statement, "requests", io.requests());
        expect(statement, "pending", io.pending());
        expect(statement, "bytes_read", io.bytesRead());
        expect(statement, "bytes_written", io.bytesWritten());
        expect(statement, "buffer_bytes", io.bufferBytes());
        Values.has(io.describe(), statement);
    }

    private static void expect(Table.Statement statement, String key, long found) {
        if (statement.get(key) != null) {
            Values.equal(key, found, (long) statement.number(key, 0));
        }
    }

    private static void begin(Session session, Table.Statement statement) throws IOException {
        final boolean write = statement.operation.equals("io_write_begin");
        final ByteBuffer memory = memory(session, statement, write);
        final Path path = file(session, statement);
        final Io io = session.find(Io.class, statement.wanted("io"));
        session.keep(statement.name, write ? io.writeBegin(path, memory, offset(statement))
                                           : io.readBegin(path, memory, offset(statement)));
        session.memories.put(statement.name, memory);
    }

    private static void buffer(Session session, Table.Statement statement) {
        final int bytes = Integer.parseInt(statement.wanted("bytes"));
        final IoBuffer made = session.find(Io.class, statement.wanted("io")).buffer(bytes);
        session.keep(statement.name, made);
        final ByteBuffer memory = made.bytes();
        Values.equal("the buffer's bytes", memory.capacity(), bytes);
        Values.equal("its place in a page", memory.alignmentOffset(0, 4096), 0);
        while (memory.hasRemaining()) Values.check(memory.get() == 0, "the buffer is not 0");
    }
}
