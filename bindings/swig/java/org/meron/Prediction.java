// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.meron_prediction;

/** What the plan predicts for this rank and the units made so far. Bytes. */
public final class Prediction {
    /** Of this kind: bytes. */
    public final long paramBytes;

    /** Of this kind: bytes. */
    public final long gradientBytes;

    /** Of this kind: bytes. */
    public final long optimizerBytes;

    /** Of this kind: bytes. */
    public final long peakBytes;

    /** Per optimizer step, as are the two below. */
    public final long gatherMappedBytes;

    /** Of this kind: bytes. */
    public final long gatherCopiedBytes;

    /** Of this kind: bytes. */
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
