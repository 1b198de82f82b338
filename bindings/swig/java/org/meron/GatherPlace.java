// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

/** Where a view is. */
public enum GatherPlace {
    /** In the device's memory, where the context has one; else the host's. */
    DEVICE,
    /** In the host's memory. */
    HOST;

    /** The number, as in the headers. */
    public int code() {
        return ordinal();
    }
}
