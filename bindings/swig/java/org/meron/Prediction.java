// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.meron_prediction;

/** The plan's predictions for this rank and its current units, in bytes. */
public final class Prediction {
    /** Of values, held. */
    public final long paramBytes;

    /** Of gradients, held. */
    public final long gradientBytes;

    /** Of optimizer states, held. */
    public final long optimizerBytes;

    /** Maximum held at once on this rank. */
    public final long peakBytes;

    /** As in meron_stats, per optimizer step; so are those below. */
    public final long gatherMappedBytes;

    /** Parts of peers copied. */
    public final long gatherCopiedBytes;

    /** Gradients read from peers. */
    public final long reduceBytes;

    /**
     * Of values, from the first gather to the update (of frozen ones permanently): in addition
     * to param_bytes, within the peak.
     */
    public final long secondaryPartitionBytes;

    /** Gathered from ranks that share no memory, as on the wire. */
    public final long interNodeGatherBytes;

    /** Reduced from such ranks, likewise. */
    public final long interNodeReduceBytes;

    /** Read from this rank's file on tier nvme. */
    public final long nvmeReadBytes;

    /** Written to it. */
    public final long nvmeWrittenBytes;

    /** In use there, at all times. */
    public final long nvmeBytes;

    /** On the device at all times, if ranks exchange on their devices. */
    public final long deviceBytes;

    Prediction(meron_prediction from) {
        paramBytes = from.getParam_bytes();
        gradientBytes = from.getGradient_bytes();
        optimizerBytes = from.getOptimizer_bytes();
        peakBytes = from.getPeak_bytes();
        gatherMappedBytes = from.getGather_mapped_bytes();
        gatherCopiedBytes = from.getGather_copied_bytes();
        reduceBytes = from.getReduce_bytes();
        secondaryPartitionBytes = from.getSecondary_partition_bytes();
        interNodeGatherBytes = from.getInter_node_gather_bytes();
        interNodeReduceBytes = from.getInter_node_reduce_bytes();
        nvmeReadBytes = from.getNvme_read_bytes();
        nvmeWrittenBytes = from.getNvme_written_bytes();
        nvmeBytes = from.getNvme_bytes();
        deviceBytes = from.getDevice_bytes();
        from.delete();
    }
}
