// SPDX-License-Identifier: Apache-2.0
package org.meron;

/**
 * What a call failed with, grouped by how much it damages: -1xx the call alone, -2xx a resource of
 * this process or host, -3xx the group (on all of its ranks), -4xx the whole context.
 */
public enum Status {
    /** Null, a wrong size, an unknown name or number. */
    ARGUMENT(-100),
    /** Null, of another kind, or of another context. */
    HANDLE(-101),
    /** Its object was closed. */
    STALE(-102),
    /** Valid, but not in the object's present state. */
    STATE(-103),
    /** A name or an object was given twice. */
    DUPLICATE(-104),
    /** Valid, but this build or this plan does not offer it. */
    UNSUPPORTED(-105),
    /** Text that does not parse; the message has line and key. */
    PARSE(-106),
    /** A gradient holds NaN or infinity; the step changed nothing. */
    NONFINITE(-107),
    /** An interrupt or should_stop ended a wait, or the object was closed; the operation goes on. */
    CANCELLED(-108),
    /** Memory is missing, or the context's limit is reached; the message has figures. */
    NO_MEMORY(-200),
    /** A file, socket or mapping failed. */
    IO(-201),
    /** What was asked for does not exist. */
    NOT_FOUND(-202),
    /** A drive gave other bytes than were written; the message says where. */
    CORRUPT(-203),
    /** A drive is full; the message has need and free bytes. */
    NO_SPACE(-204),
    /** A device has failed: it is of no use any more in this process. */
    DEVICE(-205),
    /** A deadline passed; the message says who has not arrived. */
    TIMEOUT(-300),
    /** A rank's process is gone. */
    PEER_DEAD(-301),
    /** A rank closed its context while others still need it. */
    PEER_CLOSED(-302),
    /** Ranks made different calls; the message has both. */
    MISMATCH(-303),
    /** A rank called Group.abort; the message has its reason. */
    ABORTED(-304),
    /** The token is missing or wrong, or the peer is another user. */
    AUTH(-305),
    /** A rank is of another version. */
    VERSION(-306),
    /** This process is a fork of the one that opened the context. */
    FORKED(-400),
    /** The context was closed. */
    CLOSED(-401),
    /** A defect of Meron: please report it. */
    INTERNAL(-402),
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
