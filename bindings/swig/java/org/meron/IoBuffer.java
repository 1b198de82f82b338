// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.meron.abi.Abi;
import org.meron.abi.meron_io_buffer_info;

/**
 * Pinned, page-aligned memory: the fastest to read into and write from. Made by Io.buffer, which it may
 * outlive. Unless it is closed, its memory is released when the last ByteBuffer that shows it is collected.
 *
 * <p><b>Do not touch its ByteBuffers after an explicit close.</b> On Java 22 and later they throw
 * IllegalStateException then; before, their memory is gone.
 */
public final class IoBuffer extends Handle {
    private final ByteBuffer bytes; // what the Cleaner watches: all buffers of this memory refer to it
    private final Loan loan;
    private final boolean registered;

    IoBuffer(long handle) {
        this(new Release(handle, Abi::meron_io_buffer_release), new Loan());
    }

    private IoBuffer(Release release, Loan loan) {
        this(release, loan, memory(release, loan));
    }

    private IoBuffer(Release release, Loan loan, ByteBuffer bytes) {
        super(release, bytes);
        this.loan = loan;
        this.bytes = bytes;
        final meron_io_buffer_info info = call(Abi::meron_io_buffer_get_info);
        registered = info.getRegistered() != 0;
        info.delete();
    }

    private static ByteBuffer memory(Release release, Loan loan) {
        final meron_io_buffer_info info = Abi.meron_io_buffer_get_info(release.get());
        try {
            final ByteBuffer ending = loan.lend(null, info.address(), info.getBytes());
            return ending == null ? info.memory(0, info.getBytes()) : ending;
        } finally {
            info.delete();
        }
    }

    /** All of it, in the machine's byte order, to read and write. Throws STALE after close. */
    public ByteBuffer bytes() {
        handle();
        return bytes.duplicate().order(ByteOrder.nativeOrder());
    }

    /** True if the kernel has pinned it; otherwise the kernel pins it at each call. */
    public boolean registered() {
        return registered;
    }

    /** Releases the memory, after the last request that uses it has ended. Never blocks. */
    @Override
    public void close() {
        loan.end("the buffer was closed");
        super.close();
    }
}
