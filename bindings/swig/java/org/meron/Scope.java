// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import java.nio.ByteBuffer;

/**
 * Buffers whose accesses throw once the scope has ended. Java before 22 has none, so this class makes
 * none; in java22/ is the one for Java 22 and later.
 */
final class Scope {
    /** True if this version of Java can end a buffer. */
    static boolean endsBuffers() {
        return false;
    }

    /** The memory at an address. */
    ByteBuffer buffer(long address, long bytes) {
        throw new UnsupportedOperationException("Java 22 or later can end a buffer");
    }

    /** Ends the scope's buffers. */
    void end() {}

    /** True unless the buffer was of a scope that has ended. */
    static boolean isCurrent(Buffer buffer) {
        return true;
    }
}
