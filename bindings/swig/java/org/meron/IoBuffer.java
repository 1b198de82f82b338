// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.meron.abi.Abi;
import org.meron.abi.meron_io_buffer_info;

/**
 * Pinned, page-aligned memory: the fastest to read into and write from. Made by Io.buffer, which it may
 * outlive. It goes with the last ByteBuffer that shows it; <b>after an explicit close those must not be
 * touched</b>.
 */
public final class IoBuffer extends Handle {
    private final ByteBuffer bytes;
    private final boolean registered;

    IoBuffer(long handle) {
        super(new Release(handle, Abi::meron_io_buffer_release));
        final meron_io_buffer_info info = Abi.meron_io_buffer_get_info(handle);
        try {
            registered = info.getRegistered() != 0;
            bytes = info.memory(0, info.getBytes());
        } finally {
            info.delete();
        }
        final Object kept = this;
        CLEANER.register(bytes, () -> java.lang.ref.Reference.reachabilityFence(kept));
    }

    /** All of it, in the machine's byte order, to read and write. */
    public ByteBuffer bytes() {
        handle();
        return bytes.duplicate().order(ByteOrder.nativeOrder());
    }

    /** True if the kernel has pinned it; otherwise the kernel pins it at each call. */
    public boolean registered() {
        return registered;
    }
}
