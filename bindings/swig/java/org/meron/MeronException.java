// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.charset.StandardCharsets;

/** An error of the library. {@link #getMessage} names the failure, the rank, the object and the remedy. */
public final class MeronException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** No rank. */
    public static final int RANK_NONE = -1;

    private final int code;
    private final String operation;
    private final String subject;
    private final String advice;
    private final int rank;
    private final int peer;

    /** An error that Java found before the library was called. */
    public MeronException(Status status, String message) {
        this(status.code(), message, "", "", "", RANK_NONE, RANK_NONE);
    }

    private MeronException(int code, String message, String operation, String subject, String advice,
            int rank, int peer) {
        super(message);
        this.code = code;
        this.operation = operation;
        this.subject = subject;
        this.advice = advice;
        this.rank = rank;
        this.peer = peer;
    }

    /** Called by the JNI layer (java.i), with UTF-8. */
    private static MeronException of(int code, byte[] message, byte[] operation, byte[] subject,
            byte[] advice, int rank, int peer) {
        final boolean dead = code == Status.PEER_DEAD.code();
        final String whole = text(message);
        final MeronException made = new MeronException(code, dead ? Wire.explain(whole) : whole,
                text(operation), text(subject), text(advice), rank, peer);
        final Throwable stopped = Hooks.takeThrown();
        final Throwable cause = dead ? Wire.takeThrown()
                : code == Status.CANCELLED.code() ? stopped : null;
        if (cause != null) made.initCause(cause);
        return made;
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** Status of the error. */
    public Status status() {
        return Status.of(code);
    }

    /** The status code, for example -300. */
    public int code() {
        return code;
    }

    /** The operation that failed, for example "gather"; "" where none applies. */
    public String operation() {
        return operation;
    }

    /** The tensor, unit, file or key concerned; "" where none applies. */
    public String subject() {
        return subject;
    }

    /** The remedy, as one sentence; "" if none is known. */
    public String advice() {
        return advice;
    }

    /** The rank that reports the error, or RANK_NONE. */
    public int rank() {
        return rank;
    }

    /** The rank that caused it when it is another one (dead, late, diverging), or RANK_NONE. */
    public int peer() {
        return peer;
    }
}
