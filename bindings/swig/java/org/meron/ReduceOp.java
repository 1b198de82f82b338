// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

/** The operation that combines values. */
public enum ReduceOp {
    /** Their sum. */
    SUM,
    /** Their sum, divided by the number of ranks. */
    MEAN,
    /** The largest of them, of an all-reduce alone. */
    MAX,
    /** The smallest of them, of an all-reduce alone. */
    MIN;

    /** The number, as in the headers. */
    public int code() {
        return ordinal();
    }
}
