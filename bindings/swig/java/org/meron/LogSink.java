// SPDX-License-Identifier: Apache-2.0
package org.meron;

/**
 * Receives the library's messages. Called on any thread that is inside a call, with no lock held. It
 * may only look and release: each other call in it throws an error of status STATE. Its exceptions
 * go to the thread's UncaughtExceptionHandler.
 */
@FunctionalInterface
public interface LogSink {
    /** Severity of a message. */
    enum Level {
        /** Something failed. */
        ERROR,
        /** A warning, such as for a long wait. */
        WARNING,
        /** For the curious. */
        INFO;

        static Level of(int code) {
            return code == 0 ? ERROR : code == 1 ? WARNING : INFO;
        }
    }

    /** Receives one message. */
    void log(Level level, String message);
}
