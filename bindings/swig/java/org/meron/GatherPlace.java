// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** Where the views of a gather are; a copy is in the host's memory. */
public enum GatherPlace {
    /** In the memory of the context's device, where it has one; else in the host's. */
    DEVICE,
    /** In the host's memory. */
    HOST;

    /** The number, as in meron/gather.h. */
    public int code() {
        return ordinal();
    }
}
