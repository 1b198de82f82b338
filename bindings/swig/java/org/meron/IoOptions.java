// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import java.time.Duration;
import org.meron.abi.Abi;
import org.meron.abi.meron_io_options;

/** Options of an io. */
public final class IoOptions {
    /** The interface that moves the bytes. */
    public enum Backend {
        /** io_uring if the host allows it, else threads. */
        AUTO,
        /** io_uring. */
        IO_URING,
        /** Threads of this process that call pread and pwrite. */
        THREADS
    }

    private Backend backend;
    private int blockBytes;
    private int depth;
    private int threads;
    private boolean singleSubmit;
    private boolean overlapEvents;
    private long timeout;

    /** The library's defaults. */
    public IoOptions() {
        final meron_io_options initial = Abi.meron_io_options_init();
        backend = Backend.values()[initial.getBackend()];
        blockBytes = initial.getBlock_bytes();
        depth = initial.getDepth();
        threads = initial.getThreads();
        singleSubmit = initial.getSingle_submit() != 0;
        overlapEvents = initial.getOverlap_events() != 0;
        initial.delete();
    }

    /** The interface that moves the bytes. */
    public IoOptions backend(Backend value) {
        backend = Arguments.required(value, "value");
        return this;
    }

    /** Of one call of the kernel: a multiple of 4096; default 1 MiB. */
    public IoOptions blockBytes(int value) {
        blockBytes = value;
        return this;
    }

    /** Pending calls of io_uring, 1 to 4096; default 32. */
    public IoOptions depth(int value) {
        depth = value;
        return this;
    }

    /** Of the backend of threads, 1 to 256: as many calls at a time. */
    public IoOptions threads(int value) {
        threads = value;
        return this;
    }

    /** True: submit each call to the kernel alone. */
    public IoOptions singleSubmit(boolean value) {
        singleSubmit = value;
        return this;
    }

    /** False: the next calls begin after the last ones have ended. */
    public IoOptions overlapEvents(boolean value) {
        overlapEvents = value;
        return this;
    }

    /** A wait fails after this time without any transfer; by default 600 s. */
    public IoOptions timeout(Duration value) {
        timeout = Math.max(Operation.nanoseconds(value), 1);
        return this;
    }

    long ioOpen() {
        return Abi.meron_io_open(
                backend.ordinal(),
                blockBytes,
                depth,
                threads,
                singleSubmit ? 1 : 0,
                overlapEvents ? 1 : 0,
                timeout);
    }
}
