// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/base.h by tools/generate/generate.py: do not edit.
package org.meron;

/**
 * Status of a failed call, grouped by the extent of the damage: -1xx the call alone, -2xx a
 * resource of this process or host, -3xx the group (on all of its ranks), -4xx the whole context.
 */
public enum Status {
    /** A null pointer, a wrong size, an unknown enum value. */
    ARGUMENT(-100),
    /** A null handle, of another kind, or of another context. */
    HANDLE(-101),
    /** A handle whose object was released or closed. */
    STALE(-102),
    /** The call is valid, but not in the object's present state. */
    STATE(-103),
    /** A name or an object given twice. */
    DUPLICATE(-104),
    /** Valid, but this build or this plan does not offer it. */
    UNSUPPORTED(-105),
    /** Text that does not parse; the message has line and key. */
    PARSE(-106),
    /** Gradients hold NaN or infinity, or a step makes a value infinite. */
    NONFINITE(-107),
    /** should_stop ended a wait, or a rank cancelled the save. */
    CANCELLED(-108),
    /** No memory, or the context's limit is reached; the message has the figures. */
    NO_MEMORY(-200),
    /** A file, a socket or a mapping failed. */
    IO(-201),
    /** A file or a key does not exist. */
    NOT_FOUND(-202),
    /** A drive returned other bytes than were written: the message says where. */
    CORRUPT(-203),
    /** A drive is full; the message has need and free bytes. */
    NO_SPACE(-204),
    /** A device has failed: this process cannot use it any more. */
    DEVICE(-205),
    /** A deadline passed: the message says who has not arrived. */
    TIMEOUT(-300),
    /** A rank's process is gone: the error's peer. */
    PEER_DEAD(-301),
    /** A rank, the error's peer, closed its context too early. */
    PEER_CLOSED(-302),
    /** Ranks made different calls: the message has both. */
    MISMATCH(-303),
    /** A rank called meron_group_abort, or cancelled an update. */
    ABORTED(-304),
    /** A wrong token, a peer of another user, or a link in a checkpoint. */
    AUTH(-305),
    /** A rank, the caller's headers or a file are of another version. */
    VERSION(-306),
    /** This process is a fork of the one that opened the context. */
    FORKED(-400),
    /** Closed by another thread during the call; then MERON_E_STALE. */
    CLOSED(-401),
    /** A defect of Meron: please report it. */
    INTERNAL(-402),
    /** A code that only a later library has: see {@link MeronException#code}. */
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
