// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import org.meron.Context;
import org.meron.Prediction;
import org.meron.Stats;

/** Counters of one rank in training, and the predictions of the plan, in bytes. */
final class Figures {
    private static final int FIELDS = 10;

    // In all steps together, and what was planned for one step.
    final long mapped;
    final long copied;
    final long reduced;
    final long plannedMapped;
    final long plannedCopied;
    final long plannedReduced;
    final long peak;
    final long plannedPeak;
    final long arenaPages;
    final boolean betweenNodes; // some of the peers share no memory with this rank

    private Figures(LongBuffer from) {
        mapped = from.get();
        copied = from.get();
        reduced = from.get();
        plannedMapped = from.get();
        plannedCopied = from.get();
        plannedReduced = from.get();
        peak = from.get();
        plannedPeak = from.get();
        arenaPages = from.get();
        betweenNodes = from.get() > 0;
    }

    /** The figures of all ranks since `before`, from all to all. Collective. */
    static Figures[] collect(Context context, Options options, Stats before) {
        final Stats after = context.stats();
        final Prediction plan = context.predict(options.accumulate, 2); // forward, backward
        final Figures[] out = new Figures[context.worldSize()];
        for (int r = 0; r < out.length; ++r) {
            final ByteBuffer bytes =
                    ByteBuffer.allocateDirect(8 * FIELDS).order(ByteOrder.nativeOrder());
            if (r == context.rank()) {
                bytes.asLongBuffer().put(new long[] {
                    after.gatherMappedBytes - before.gatherMappedBytes,
                    after.gatherCopiedBytes - before.gatherCopiedBytes,
                    after.reduceBytes - before.reduceBytes, plan.gatherMappedBytes,
                    plan.gatherCopiedBytes, plan.reduceBytes, after.peakBytes, plan.peakBytes,
                    after.arenaPagesBytes, plan.interNodeGatherBytes + plan.interNodeReduceBytes});
            }
            context.world().broadcast(bytes, r);
            out[r] = new Figures(bytes.asLongBuffer());
        }
        return out;
    }

    boolean bytesAsPlanned(int steps) {
        return mapped == steps * plannedMapped && copied == steps * plannedCopied
                && reduced == steps * plannedReduced;
    }

    double memoryDifference() {
        return plannedPeak == 0 ? 0.0 : (double) peak / plannedPeak - 1.0;
    }

    /**
     * Counted bytes equal the plan's to the byte, and peak memory is within 5 % of it. Between nodes,
     * messages in flight are not part of the plan's memory.
     */
    boolean asPlanned(int steps) {
        final double difference = memoryDifference();
        return bytesAsPlanned(steps) && difference >= -0.05
                && (difference <= 0.05 || betweenNodes);
    }
}
