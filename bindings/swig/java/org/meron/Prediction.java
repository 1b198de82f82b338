// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.meron_prediction;

/** What the plan predicts for this rank and the units made so far. Bytes. */
public final class Prediction {
    /** Bytes: param. */
    public final long paramBytes;

    /** Bytes: gradient. */
    public final long gradientBytes;

    /** Bytes: optimizer. */
    public final long optimizerBytes;

    /** Bytes: peak. */
    public final long peakBytes;

    /** Per optimizer step, as are the two below. */
    public final long gatherMappedBytes;

    /** Bytes: gather copied. */
    public final long gatherCopiedBytes;

    /** Bytes: reduce. */
    public final long reduceBytes;

    Prediction(meron_prediction from) {
        paramBytes = from.getParam_bytes();
        gradientBytes = from.getGradient_bytes();
        optimizerBytes = from.getOptimizer_bytes();
        peakBytes = from.getPeak_bytes();
        gatherMappedBytes = from.getGather_mapped_bytes();
        gatherCopiedBytes = from.getGather_copied_bytes();
        reduceBytes = from.getReduce_bytes();
        from.delete();
    }
}
