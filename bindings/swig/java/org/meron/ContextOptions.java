// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.time.Duration;
import java.util.function.BooleanSupplier;
import org.meron.abi.Abi;
import org.meron.abi.meron_context_options;

/** Options of a context. Created by Context.options(); for one thread. */
public final class ContextOptions {
    private int rank;
    private int worldSize;
    private String transport;
    private CustomTransport custom;
    private String job;
    private String token;
    private long timeout;
    private long hostMemoryLimit;
    private long arenaReserve;
    private int threads;
    private Plan plan;
    private LogSink log;
    private BooleanSupplier shouldStop;
    private String device;

    ContextOptions() {
        final meron_context_options initial = Abi.meron_context_options_init();
        rank = initial.getRank();
        worldSize = initial.getWorld_size();
        timeout = initial.getTimeout_ns();
        hostMemoryLimit = initial.getHost_memory_limit();
        arenaReserve = initial.getArena_reserve();
        threads = initial.getThreads();
        initial.delete();
    }

    /** This rank, and how many there are. Default: from the environment; without one, 0 of 1. */
    public ContextOptions rank(int rank, int worldSize) {
        this.rank = rank;
        this.worldSize = worldSize;
        return this;
    }

    /**
     * "self", "local" (ranks are threads of this process), "shm" (processes of this host), "custom";
     * "cluster" (processes of a host share memory, and a custom one joins the hosts), "mpi" (MPI does).
     */
    public ContextOptions transport(String transport) {
        this.transport = transport;
        return this;
    }

    /** A transport of the trainer's own, which the context takes unless another one is named. */
    public ContextOptions custom(CustomTransport custom) {
        this.custom = custom;
        return this;
    }

    /** For local: ranks of one process with an equal job meet. */
    public ContextOptions job(String job) {
        this.job = job;
        return this;
    }

    /** For shm: 64 hexadecimal digits, the same on all ranks. Default: from the environment. */
    public ContextOptions token(String token) {
        this.token = token;
        return this;
    }

    /** The deadline of every operation, above 0. Default: 600 s. */
    public ContextOptions timeout(Duration timeout) {
        this.timeout = Math.max(Operation.nanoseconds(timeout), 1); // 0 would mean the default
        return this;
    }

    /** Bytes that this rank may take. Default: the host's. */
    public ContextOptions hostMemoryLimit(long bytes) {
        hostMemoryLimit = notNegative("hostMemoryLimit", bytes);
        return this;
    }

    /** Bytes of address space per window. Default: the host's memory. */
    public ContextOptions arenaReserve(long bytes) {
        arenaReserve = notNegative("arenaReserve", bytes);
        return this;
    }

    /** For compute on this rank. Default: cores / ranks on this host. */
    public ContextOptions threads(int threads) {
        this.threads = (int) notNegative("threads", threads);
        return this;
    }

    /** The plan, which specifies the sharded states. The context keeps its own reference. Default: zero3. */
    public ContextOptions plan(Plan plan) {
        this.plan = plan;
        return this;
    }

    /**
     * The device of this rank: "cuda" (the calling thread's current device), "cuda:1"; "emulated", memory
     * of the host and threads, for tests without a device. Gathered views are then in the device's
     * memory, and gradients may be. Default: the host.
     */
    public ContextOptions device(String device) {
        this.device = device;
        return this;
    }

    /** Receives messages. Default: warnings and errors go to stderr. */
    public ContextOptions log(LogSink log) {
        this.log = log;
        return this;
    }

    /**
     * Called about ten times a second while a call waits; true, or an exception, ends the wait with
     * CANCELLED, and the exception becomes its cause. It may only look and release: each other call in
     * it throws an error of status STATE.
     */
    public ContextOptions shouldStop(BooleanSupplier shouldStop) {
        this.shouldStop = shouldStop;
        return this;
    }

    /**
     * Opens the context and meets the other ranks. Blocks until all have come, at most until the
     * deadline. Throws ARGUMENT (also a device of no such name), AUTH, TIMEOUT (who is missing), VERSION,
     * NO_MEMORY, IO, DUPLICATE; UNSUPPORTED where the device's module cannot work here, DEVICE.
     */
    public Context open() {
        final Wire wire = Wire.of(custom);
        final Hooks hooks = new Hooks(log, shouldStop);
        final long handle;
        try {
            handle = Abi.meron_context_open(Abi.MERON_VERSION, rank, worldSize, transport, job, token,
                    timeout, hostMemoryLimit, arenaReserve, threads,
                    plan == null ? 0 : plan.handle(), hooks, wire, device);
        } catch (RuntimeException | Error error) {
            hooks.delete();
            if (wire != null) wire.delete();
            throw error;
        } finally {
            java.lang.ref.Reference.reachabilityFence(plan);
        }
        return new Context(new Lifetime(handle, hooks, wire), device);
    }

    /** A number that must be 0 or more; ARGUMENT names the option. */
    static long notNegative(String what, long value) {
        if (value >= 0) return value;
        throw new MeronException(Status.ARGUMENT, what + " must be 0 or more, not " + value);
    }
}
