// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

/** Destination of the full tensors. */
public enum GatherMode {
    /** Read-only, in place where the plan allows it. */
    VIEW,
    /** A private, writable copy that belongs to the gather. */
    COPY,
    /** Into the caller's memory. */
    INTO;

    /** The number, as in the headers. */
    public int code() {
        return ordinal();
    }
}
