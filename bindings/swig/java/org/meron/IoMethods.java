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
     * Describes the speed for people, one line per fact: the backend and the kernel's grants,
     * the reason if it is not a faster one, and the files that use the page cache with the
     * reason.
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
