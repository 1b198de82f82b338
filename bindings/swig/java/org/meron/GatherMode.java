// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** Where gathered tensors are to be. */
public enum GatherMode {
    /** Read-only, in place where the plan allows it. */
    VIEW,
    /** A private, writable copy that belongs to the gather. */
    COPY,
    /** In the caller's memory: see Unit.gatherInto. */
    INTO;

    /** The number, as in meron/gather.h. */
    public int code() {
        return ordinal();
    }
}
