// SPDX-License-Identifier: Apache-2.0
package org.meron;

/**
 * What a call failed with, grouped by how much it damages: -1xx the call alone, -2xx a resource of
 * this process or host, -3xx the group (on all of its ranks), -4xx the whole context.
 */
public enum Status {
    ARGUMENT(-100), HANDLE(-101), STALE(-102), STATE(-103), DUPLICATE(-104), UNSUPPORTED(-105),
    PARSE(-106), NONFINITE(-107), CANCELLED(-108),
    NO_MEMORY(-200), IO(-201), NOT_FOUND(-202),
    TIMEOUT(-300), PEER_DEAD(-301), PEER_CLOSED(-302), MISMATCH(-303), ABORTED(-304), AUTH(-305),
    VERSION(-306),
    FORKED(-400), CLOSED(-401), INTERNAL(-402),
    /** A code that only a later version of the library has: see {@link MeronException#code}. */
    UNKNOWN(0);

    private final int code;

    Status(int code) {
        this.code = code;
    }

    /** The number, as in meron/base.h. */
    public int code() {
        return code;
    }

    /** The status of a code. */
    public static Status of(int code) {
        for (Status status : values()) {
            if (status.code == code) return status;
        }
        return UNKNOWN;
    }
}
