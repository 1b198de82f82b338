// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.lang.ref.Reference;
import java.nio.Buffer;
import java.nio.file.Path;
import java.util.function.Function;
import org.meron.abi.Abi;
import org.meron.abi.meron_io_info;

/**
 * Files read and written past the page cache, beside the threads that compute, as DeepSpeed's DeepNVMe
 * does it. Needs no Context, and knows no ranks.
 *
 * <p>Memory is a direct buffer of any type, from its position to its limit, which it keeps. Its bytes are
 * moved as they are, in any order. Offsets are in bytes; offset, length and memory need no alignment,
 * though multiples of the page are the fastest. A pending request must not touch bytes of a file that other
 * code writes. Any thread may use it; an interrupt does not end a wait.
 */
public final class Io extends IoMethods {
    private final IoLifetime lifetime;

    /** Opens one with the defaults. */
    public Io() {
        this(new IoOptions());
    }

    /** Opens one. Throws ARGUMENT; UNSUPPORTED for IO_URING where the host forbids it. */
    public Io(IoOptions options) {
        this(new IoLifetime(Arguments.required(options, "options").ioOpen()));
    }

    private Io(IoLifetime lifetime) {
        super(lifetime);
        this.lifetime = lifetime;
    }

    /**
     * Fills a buffer from byte `offset` of a file on, and waits for it. Throws NOT_FOUND; IO if the file
     * is too short, or for an error of the drive; ARGUMENT if it is no file; TIMEOUT if no transfer
     * progresses.
     */
    public void read(Path path, Buffer into, long offset) {
        Arguments.required(path, "path");
        Buffers.writable(into, "into");
        transfer(into, handle -> Abi.meron_io_read(handle, path.toString(), into, offset));
    }

    /**
     * Writes a buffer to byte `offset` of a file and on, and waits for the kernel. Creates the file if it
     * does not exist; its other content stays. Data that must survive a loss of power needs a sync.
     * Throws as read, and NO_SPACE.
     */
    public void write(Path path, Buffer data, long offset) {
        Arguments.required(path, "path");
        Buffers.direct(data, "data");
        transfer(data, handle -> Abi.meron_io_write(handle, path.toString(), data, offset));
    }

    /** Begins a read into a buffer, which is kept; the file is opened here. Throws as read. */
    public IoRequest readBegin(Path path, Buffer into, long offset) {
        Arguments.required(path, "path");
        Buffers.writable(into, "into");
        return begin(into,
                handle -> Abi.meron_io_read_begin(handle, path.toString(), into, offset));
    }

    /** Begins a write of a buffer, which is kept; the file is made, and grows, here. */
    public IoRequest writeBegin(Path path, Buffer data, long offset) {
        Arguments.required(path, "path");
        Buffers.direct(data, "data");
        return begin(data,
                handle -> Abi.meron_io_write_begin(handle, path.toString(), data, offset));
    }

    /**
     * Waits for every request that no call has waited for, as long as transfers progress. Throws their
     * first error after all have ended; TIMEOUT.
     */
    public void await() {
        call(handle -> Abi.meron_io_wait(handle, Abi.MERON_TIMEOUT_DEFAULT));
        lifetime.sweep();
        lifetime.tell();
    }

    /** Makes pinned memory of so many bytes, which are 0. */
    public IoBuffer buffer(int bytes) {
        return new IoBuffer(call(handle -> Abi.meron_io_buffer_create(handle, bytes)));
    }

    /** Whether io_uring moves the bytes, and not threads. */
    public boolean usesIoUring() {
        return info(meron_io_info::getBackend) == Abi.MERON_IO_BACKEND_URING;
    }

    /** Bytes of one call of the kernel. */
    public long blockBytes() {
        return info(meron_io_info::getBlock_bytes);
    }

    /** Calls under way at a time, of io_uring. */
    public long depth() {
        return info(meron_io_info::getDepth);
    }

    /** Of the backend of threads. */
    public long threads() {
        return info(meron_io_info::getThreads);
    }

    /** Bytes of reads that have ended well. */
    public long bytesRead() {
        return info(meron_io_info::getBytes_read);
    }

    /** Bytes of writes that have ended well. */
    public long bytesWritten() {
        return info(meron_io_info::getBytes_written);
    }

    /** Calls of the kernel that have ended. */
    public long calls() {
        return info(meron_io_info::getCalls);
    }

    /** Of them, those past the page cache. */
    public long directCalls() {
        return info(meron_io_info::getDirect_calls);
    }

    /** Reads and writes that were begun. */
    public long requests() {
        return info(meron_io_info::getRequests);
    }

    /** Of them, those under way or not waited for. */
    public long pending() {
        return info(meron_io_info::getPending);
    }

    /** Bytes of buffers that are not gone. */
    public long bufferBytes() {
        return info(meron_io_info::getBuffer_bytes);
    }

    /**
     * Waits for pending requests, at most about five seconds, and closes. Throws the first error of
     * requests that no call has waited for; it is closed even then.
     */
    @Override
    public void close() {
        super.close();
        lifetime.tell();
    }

    @Override
    MeronException stale() {
        return new MeronException(Status.CLOSED, "the Io was closed: open another one");
    }

    private interface Transfer {
        int apply(long handle);
    }

    private interface Beginning {
        long apply(long handle);
    }

    private void transfer(Buffer memory, Transfer transfer) {
        lifetime.sweep();
        try {
            call(handle -> transfer.apply(handle));
        } catch (MeronException error) {
            if (error.status() == Status.TIMEOUT || error.status() == Status.CLOSED) {
                IoLifetime.hold(memory);
            }
            throw error;
        } finally {
            Reference.reachabilityFence(memory);
        }
    }

    private IoRequest begin(Buffer memory, Beginning beginning) {
        lifetime.sweep();
        return new IoRequest(this, lifetime, call(handle -> beginning.apply(handle)), memory);
    }

    private long info(Function<meron_io_info, ? extends Number> field) {
        final meron_io_info info = call(handle -> Abi.meron_io_get_info(handle));
        try {
            return field.apply(info).longValue();
        } finally {
            info.delete();
        }
    }
}
