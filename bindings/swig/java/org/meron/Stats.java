// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.meron_stats;

/** Counters since the context was opened, and the memory in use now, in bytes. */
public final class Stats {
    /** Shards of peers read in place, or fetched by devices. */
    public final long gatherMappedBytes;

    /** Parts of peers copied. */
    public final long gatherCopiedBytes;

    /** Gradients read from peers. */
    public final long reduceBytes;

    /** Read from peers by broadcast and all-reduce. */
    public final long collectiveBytes;

    /** Collectives begun. */
    public final long operations;

    /** Nanoseconds spent waiting for peers. */
    public final long waitNs;

    /** Of values, held now. */
    public final long paramBytes;

    /** Of gradients, counted from the creation of a unit on. */
    public final long gradientBytes;

    /** Of optimizer states, held now. */
    public final long optimizerBytes;

    /** Of staging buffers, held now. */
    public final long stagingBytes;

    /** Of the control data that keeps the ranks in step, held now. */
    public final long controlBytes;

    /** Maximum of param + gradient + optimizer + staging. */
    public final long peakBytes;

    /** Bytes of pages in this rank's arena. */
    public final long arenaPagesBytes;

    /** Gathered from ranks that share no memory, as on the wire. */
    public final long interNodeGatherBytes;

    /** Reduced from such ranks, likewise. */
    public final long interNodeReduceBytes;

    /** Read from this rank's file on tier nvme. */
    public final long nvmeReadBytes;

    /** Written to it. */
    public final long nvmeWrittenBytes;

    /** Of that file, in use now. */
    public final long nvmeBytes;

    /** Copied from the host to this rank's device. */
    public final long deviceUpBytes;

    /** Copied from it to the host. */
    public final long deviceDownBytes;

    /** On the device at all times: entries of tier device. */
    public final long deviceBytes;

    Stats(meron_stats from) {
        gatherMappedBytes = from.getGather_mapped_bytes();
        gatherCopiedBytes = from.getGather_copied_bytes();
        reduceBytes = from.getReduce_bytes();
        collectiveBytes = from.getCollective_bytes();
        operations = from.getOperations();
        waitNs = from.getWait_ns();
        paramBytes = from.getParam_bytes();
        gradientBytes = from.getGradient_bytes();
        optimizerBytes = from.getOptimizer_bytes();
        stagingBytes = from.getStaging_bytes();
        controlBytes = from.getControl_bytes();
        peakBytes = from.getPeak_bytes();
        arenaPagesBytes = from.getArena_pages_bytes();
        interNodeGatherBytes = from.getInter_node_gather_bytes();
        interNodeReduceBytes = from.getInter_node_reduce_bytes();
        nvmeReadBytes = from.getNvme_read_bytes();
        nvmeWrittenBytes = from.getNvme_written_bytes();
        nvmeBytes = from.getNvme_bytes();
        deviceUpBytes = from.getDevice_up_bytes();
        deviceDownBytes = from.getDevice_down_bytes();
        deviceBytes = from.getDevice_bytes();
        from.delete();
    }
}
