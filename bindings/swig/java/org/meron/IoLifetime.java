// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.meron.abi.Abi;

/** The library's side of an Io, and the memory of abandoned requests. */
final class IoLifetime extends Handle.Release {
    /** Memory that a drive has not released: it may still write there. */
    private static final Queue<Object> HELD = new ConcurrentLinkedQueue<>();

    private static final class Abandoned {
        final long request;
        final Object memory;

        Abandoned(long request, Object memory) {
            this.request = request;
            this.memory = memory;
        }
    }

    private final ArrayDeque<Abandoned> abandoned = new ArrayDeque<>();
    private MeronException failed; // error of one of them, not reported yet; guarded by its lock

    IoLifetime(long io) {
        super(io, Abi::meron_io_close);
    }

    /** Keeps memory for good. */
    static void hold(Object memory) {
        HELD.add(memory);
    }

    @Override
    void end(long last) {
        try {
            super.end(last);
        } finally {
            synchronized (abandoned) {
                for (Abandoned each : abandoned) {
                    if (underWay(each.request)) hold(each.memory);
                    new Handle.Release(each.request, Abi::meron_future_release).run();
                }
                abandoned.clear();
            }
        }
    }

    /** Releases a request; keeps its memory until it has ended. */
    void release(long request, Object memory) {
        synchronized (abandoned) {
            abandoned.add(new Abandoned(request, memory));
        }
        sweep();
    }

    /** Releases those abandoned requests that have ended. */
    void sweep() {
        synchronized (abandoned) {
            for (Iterator<Abandoned> each = abandoned.iterator(); each.hasNext(); ) {
                final Abandoned next = each.next();
                if (underWay(next.request)) {
                    if (get() != 0) continue;
                    hold(next.memory);
                }
                each.remove();
                new Handle.Release(next.request, Abi::meron_future_release).run();
            }
        }
    }

    /** Throws what sweeping has found, once. */
    void tell() {
        final MeronException told;
        synchronized (abandoned) {
            told = failed;
            failed = null;
        }
        if (told != null) throw told;
    }

    private boolean underWay(long request) {
        try {
            return Abi.meron_future_wait(request, 0) == Abi.MERON_IN_PROGRESS;
        } catch (MeronException error) {
            if (mayUseMemory(error)) return true;
            if (failed == null) failed = error;
            return false;
        }
    }

    /** True if the drive may still use the memory of a request after its wait has thrown this. */
    static boolean mayUseMemory(MeronException error) {
        return error.status() != Status.IO && error.status() != Status.NO_SPACE
                && error.status() != Status.NOT_FOUND && error.status() != Status.ARGUMENT;
    }
}
