// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** Element types. */
public enum Dtype {
    /** 32 bits: Java's float. */
    F32(4),
    /** bfloat16: the upper half of an F32, in a short. */
    BF16(2),
    /** IEEE half precision, in a short. */
    F16(2),
    /** 64 bits: Java's double. Of Group.allReduce alone. */
    F64(8),
    /** 64 bits: Java's long. Of Group.allReduce alone. */
    I64(8);

    private final int bytes;

    Dtype(int bytes) {
        this.bytes = bytes;
    }

    /** The number, as in meron/base.h. */
    public int code() {
        return ordinal();
    }

    /** Bytes per element. */
    public int bytes() {
        return bytes;
    }

    static Dtype of(int code) {
        return values()[code];
    }
}
