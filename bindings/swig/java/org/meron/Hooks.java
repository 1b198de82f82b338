// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.util.function.BooleanSupplier;
import org.meron.abi.callbacks;

/**
 * Callbacks of the library while a context is open. Must not refer to the Context, which may be collected
 * while the library's side is still open. Exceptions of the trainer's functions do not pass through C.
 */
final class Hooks extends callbacks {
    /** Exception of the last should_stop of this thread, and the cause of the error of the wait that it ended. */
    private static final ThreadLocal<Throwable> thrown = new ThreadLocal<>();

    private final LogSink sink;
    private final BooleanSupplier stop;

    Hooks(LogSink sink, BooleanSupplier stop) {
        super(sink != null);
        this.sink = sink;
        this.stop = stop;
    }

    static Throwable takeThrown() {
        final Throwable out = thrown.get();
        if (out != null) thrown.remove();
        return out;
    }

    @Override
    public void log(int level, String message) {
        try {
            sink.log(LogSink.Level.of(level), message);
        } catch (Throwable error) {
            final Thread thread = Thread.currentThread();
            thread.getUncaughtExceptionHandler().uncaughtException(thread, error);
        }
    }

    @Override
    public boolean should_stop() {
        if (Thread.currentThread().isInterrupted()) return true;
        try {
            return stop != null && stop.getAsBoolean();
        } catch (Throwable error) {
            thrown.set(error);
            return true;
        }
    }
}
