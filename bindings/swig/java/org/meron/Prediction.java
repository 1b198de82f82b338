// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.meron_prediction;

/** What the plan predicts for this rank and the units made so far. Bytes. */
public final class Prediction {
    /** Of parameters, held. */
    public final long paramBytes;

    /** Of gradients, held. */
    public final long gradientBytes;

    /** Of optimizer states, held. */
    public final long optimizerBytes;

    /** Most held of parameters, gradients, optimizer states and staging memory. */
    public final long peakBytes;

    /** Parts of peers made visible in place, per optimizer step. */
    public final long gatherMappedBytes;

    /** Parts of peers copied, per optimizer step. */
    public final long gatherCopiedBytes;

    /** Gradients read from peers, per optimizer step. */
    public final long reduceBytes;

    /** Of parameters, from the first gather to the update: on top of paramBytes, within peakBytes. */
    public final long secondCopyBytes;

    /** Of what gathers take, from ranks that share no memory with this one, as it is on the wire. */
    public final long farGatherBytes;

    /** Of what reductions take, likewise. */
    public final long farReduceBytes;

    /** Read from tier nvme, per optimizer step. */
    public final long nvmeReadBytes;

    /** Written to it, per optimizer step. */
    public final long nvmeWrittenBytes;

    /** In use there. */
    public final long nvmeBytes;

    /** On the device at all times, where ranks exchange on their devices. */
    public final long deviceBytes;

    Prediction(meron_prediction from) {
        paramBytes = from.getParam_bytes();
        gradientBytes = from.getGradient_bytes();
        optimizerBytes = from.getOptimizer_bytes();
        peakBytes = from.getPeak_bytes();
        gatherMappedBytes = from.getGather_mapped_bytes();
        gatherCopiedBytes = from.getGather_copied_bytes();
        reduceBytes = from.getReduce_bytes();
        secondCopyBytes = from.getSecond_copy_bytes();
        farGatherBytes = from.getFar_gather_bytes();
        farReduceBytes = from.getFar_reduce_bytes();
        nvmeReadBytes = from.getNvme_read_bytes();
        nvmeWrittenBytes = from.getNvme_written_bytes();
        nvmeBytes = from.getNvme_bytes();
        deviceBytes = from.getDevice_bytes();
        from.delete();
    }
}
