// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Supplier;

/** Daemon threads that wait for operations whose end is wanted as a CompletableFuture. */
final class Waiters {
    private static final ExecutorService THREADS = Executors.newCachedThreadPool(body -> {
        final Thread thread = new Thread(body, "meron-wait");
        thread.setDaemon(true);
        return thread;
    });

    private Waiters() {}

    /** Waits on a thread of its own; the future completes with the result of the wait. */
    static <T> CompletableFuture<T> begin(Supplier<T> wait) {
        final CompletableFuture<T> out = new CompletableFuture<>();
        THREADS.execute(() -> {
            try {
                out.complete(wait.get());
            } catch (Throwable error) {
                out.completeExceptionally(error);
            }
        });
        return out;
    }
}
