// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.ByteBuffer;
import java.time.Duration;
import org.meron.abi.Abi;
import org.meron.abi.custom_transport;

/**
 * Callbacks of the library into a trainer's transport. Must not refer to the Context, which may be
 * collected while the library's side is still open. Exceptions of the trainer's methods do not pass
 * through C: they become a status, and are kept for the resulting error.
 */
final class Wire extends custom_transport {
    /** The exception of a method, and the method's name. */
    private static final class Failure {
        final String where;
        final Throwable thrown;

        Failure(String where, Throwable thrown) {
            this.where = where;
            this.thrown = thrown;
        }
    }

    private interface Method {
        long call() throws Exception;
    }

    /** The last failure on this thread that no error has told of yet. */
    private static final ThreadLocal<Failure> untold = new ThreadLocal<>();

    private final CustomTransport transport;
    /** Of a method that cannot answer with an error; the next one that can does it. */
    private volatile Failure broken;

    private Wire(CustomTransport transport, String name, int maxMessage) {
        super(name, maxMessage);
        this.transport = transport;
    }

    /** Null for null. */
    static Wire of(CustomTransport transport) {
        if (transport == null) return null;
        final int most = transport.maxMessage();
        if (most < 4096) {
            throw new MeronException(Status.ARGUMENT, "the custom transport's maxMessage must be 4096 "
                    + "or more, not " + most);
        }
        return new Wire(transport, transport.name(), most);
    }

    /** The message of a PEER_DEAD error, with what the transport threw on this thread. */
    static String explain(String message) {
        final Failure failure = untold.get();
        return failure == null ? message
                : message + " (the transport threw in " + failure.where + ": " + failure.thrown + ")";
    }

    static Throwable takeThrown() {
        final Failure failure = untold.get();
        if (failure == null) return null;
        untold.remove();
        return failure.thrown;
    }

    @Override
    public long send(int peer, long tag, ByteBuffer message) {
        return answer("send to rank ", peer, () -> transport.send(
                peer, tag, message.asReadOnlyBuffer().order(message.order())));
    }

    @Override
    public long receive(int peer, long tag, ByteBuffer place) {
        return answer("receive from rank ", peer, () -> transport.receive(peer, tag, place));
    }

    @Override
    public long test(long request) {
        return answer("test of request ", request, () -> transport.test(request));
    }

    @Override
    public void cancel(long request) {
        remember("cancel", () -> {
            transport.cancel(request);
            return 0;
        });
    }

    @Override
    public void idle(long nanoseconds) {
        remember("idle", () -> {
            try {
                transport.idle(Duration.ofNanos(nanoseconds));
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt(); // which ends the wait with CANCELLED
            }
            return 0;
        });
    }

    /** After an exception nothing moves to that peer any more. */
    @Override
    public boolean alive(int peer) {
        return answer("alive of rank ", peer, () -> transport.alive(peer) ? 1 : 0) == 1;
    }

    /** This one causes no error: its exceptions go to the thread's handler. */
    @Override
    public void closed() {
        try {
            transport.closed();
        } catch (Throwable error) {
            final Thread thread = Thread.currentThread();
            thread.getUncaughtExceptionHandler().uncaughtException(thread, error);
        }
    }

    private long answer(String where, long whom, Method method) {
        Failure failure = broken;
        if (failure == null) {
            try {
                final long value = method.call();
                if (value >= CustomTransport.NOT_YET) return value;
                throw new IllegalStateException(value + " was returned: neither 0 or more, nor NOT_YET");
            } catch (Throwable error) {
                failure = new Failure(where + whom, error);
            }
        }
        untold.set(failure);
        return Abi.MERON_E_IO;
    }

    private void remember(String where, Method method) {
        try {
            method.call();
        } catch (Throwable error) {
            broken = new Failure(where, error);
        }
    }
}
