// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** How values of several ranks are combined: in f32, in rank order. */
public enum ReduceOp {
    /** Their sum. */
    SUM,
    /** Their sum divided by the group's size. */
    MEAN;

    /** The number, as in meron/group.h. */
    public int code() {
        return ordinal();
    }
}
