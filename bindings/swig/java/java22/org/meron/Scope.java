// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.Buffer;
import java.nio.ByteBuffer;

/** Buffers whose accesses throw IllegalStateException once the scope has ended. For Java 22 and later. */
final class Scope {
    /** True if this version of Java can end a buffer. */
    static boolean endsBuffers() {
        return true;
    }

    private final Arena arena = Arena.ofShared();

    /** The memory at an address. */
    @SuppressWarnings("restricted") // the library says where its memory is
    ByteBuffer buffer(long address, long bytes) {
        return MemorySegment.ofAddress(address).reinterpret(bytes, arena, null).asByteBuffer();
    }

    /** Ends the scope's buffers. */
    void end() {
        try {
            arena.close();
        } catch (IllegalStateException inUse) {
            return; // a channel transfers from one of them: they remain as before Java 22
        }
    }

    /** True unless the buffer was of a scope that has ended. */
    static boolean isCurrent(Buffer buffer) {
        return MemorySegment.ofBuffer(buffer).scope().isAlive();
    }
}
