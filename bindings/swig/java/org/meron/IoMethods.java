// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/** Calls of meron_io that need nothing of Java's own. */
abstract class IoMethods extends Handle {
    IoMethods(Release release) {
        super(release);
    }

    /**
     * What a person should know about its speed, a line each: the backend and what the kernel
     * has granted it, why it is not a faster one, and which files go through the page cache,
     * and why.
     *
     * <p>Never blocks.
     *
     * <p>Throws ARGUMENT, NO_MEMORY, HANDLE, STALE, FORKED.
     */
    public String describe() {
        requireOpen();
        return call(handle -> Abi.meron_io_describe(handle));
    }
}
