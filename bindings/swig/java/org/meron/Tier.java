// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

/** Memory of a view, by its tier. */
public enum Tier {
    /** In the device's memory, if the context has a device; else the host's. */
    DEVICE,
    /** In the host's memory. */
    HOST;

    /** The number, as in the headers. */
    public int code() {
        return ordinal();
    }
}
