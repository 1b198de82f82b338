// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** Memory of the context's device that is not this library's: a gradient for Unit.reduce. */
public final class DeviceArray {
    final long address;
    final long count;
    final Dtype dtype;

    /**
     * Names memory, and neither owns nor keeps it.
     *
     * @param address of the first element, aligned to it. Nothing can check that it is valid memory of
     *     the device: any other number may crash the process.
     * @param count   elements, row-major
     * @param dtype   of the elements
     */
    public DeviceArray(long address, long count, Dtype dtype) {
        this.address = address;
        this.count = count;
        this.dtype = Arguments.required(dtype, "dtype");
    }
}
