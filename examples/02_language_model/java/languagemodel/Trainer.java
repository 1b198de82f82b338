// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.util.Arrays;
import org.meron.AdamW;
import org.meron.Context;
import org.meron.Dtype;
import org.meron.Gather;
import org.meron.Operation;
import org.meron.Optimizer;
import org.meron.Param;
import org.meron.ReduceOp;
import org.meron.ReduceOptions;
import org.meron.Unit;
import org.meron.Update;
import org.meron.View;

/**
 * Training with parameters, gradients and optimizer states partitioned over the ranks.
 *
 * <p>Every layer is a unit. It is gathered before its forward pass and released after it, gathered again
 * for its backward pass, which adds the gradients to the unit's bucket; their reduction runs while the
 * layers below compute. The plan decides which states are sharded: no line here depends on it.
 */
final class Trainer {
    private static final int MOST_TENSORS = 4;

    private final Context context;
    private final Options options;
    private final int textLength;
    private final Model model;
    private final Param[][] params; // [layer][tensor]
    private final Unit[] units;
    private final Operation[] reductions;
    private final Optimizer optimizer;
    private int first; // steps that were taken before this run
    private long position; // micro-batches that all ranks took in them
    /** Of the model's current layer: the model computes on arrays, in f32. */
    private final float[][] weights = new float[MOST_TENSORS][];
    private final float[][] gradients = new float[MOST_TENSORS][];
    /** Elements of all params. */
    final long parameters;

    /** Makes the model's layers, with their initial values, and the optimizer. Collective. */
    Trainer(Context context, Options options, byte[] text) {
        this.context = context;
        this.options = options;
        textLength = text.length;
        model = new Model(text, options.batch, options.context, options.width, options.layers);
        params = new Param[model.layers()][];
        units = new Unit[model.layers()];
        reductions = new Operation[model.layers()];

        final int[] largest = new int[MOST_TENSORS];
        long count = 0;
        for (int l = 0; l < units.length; ++l) {
            createLayer(l);
            for (int i = 0; i < params[l].length; ++i) {
                count += params[l][i].count();
                largest[i] = Math.max(largest[i], size(l, i));
            }
        }
        parameters = count;
        for (int i = 0; i < MOST_TENSORS; ++i) {
            weights[i] = new float[largest[i]];
            gradients[i] = new float[largest[i]];
        }
        for (int l = 0; l < units.length; ++l) writeInitialValues(l);
        optimizer = context.adamw(
                // More momentum would carry the first steps past what they aim at.
                new AdamW().learningRate(options.learningRate).betas(0.6, 0.999).maxNorm(1.0),
                units);
    }

    int layers() {
        return units.length;
    }

    Optimizer optimizer() {
        return optimizer;
    }

    /** Steps that were taken before this run. */
    int first() {
        return first;
    }

    /** So many steps were taken before this run, and in them all ranks took so many micro-batches. */
    void goOnFrom(int steps, long microBatches) {
        first = steps;
        position = microBatches;
    }

    /** Number of micro-batches of all ranks after `step` steps. */
    long microBatches(int step) {
        return position + (long) (step - first) * options.accumulate * context.worldSize();
    }

    // ---- Setting up --------------------------------------------------------------------------------

    private void createLayer(int l) {
        final Model.Tensor[] tensors = model.tensors(l);
        params[l] = new Param[tensors.length];
        for (int i = 0; i < tensors.length; ++i) {
            params[l][i] = context.param(
                    "layers." + l + "." + tensors[i].name, options.dtype, tensors[i].shape);
        }
        units[l] = context.unit("layers." + l, params[l]);
    }

    /** Every rank computes the same initial values; Meron keeps this rank's part of them. */
    private void writeInitialValues(int l) {
        final Model.Tensor[] tensors = model.tensors(l);
        try (Update update = units[l].update()) {
            for (int i = 0; i < tensors.length; ++i) {
                update.write(params[l][i], Model.initialValues(
                        tensors[i], options.seed, (long) l * MOST_TENSORS + i, size(l, i)));
            }
            update.publish();
        }
    }

    private int size(int l, int i) {
        return Math.toIntExact(params[l][i].count());
    }

    // ---- Training ----------------------------------------------------------------------------------

    /** Makes a layer whole on this rank, until the gather is closed. */
    private Gather gather(int l) {
        final Gather full = units[l].gather();
        for (int i = 0; i < params[l].length; ++i) {
            final View view = full.view(params[l][i]);
            if (view.dtype() == Dtype.F32) {
                view.get(0, weights[i], 0, size(l, i));
            } else {
                Sixteen.widen(weights[i], view.shorts(), size(l, i), view.dtype());
            }
        }
        return full;
    }

    private void forward(int l) {
        try (Gather full = gather(l)) {
            assert full.done();
            model.forward(l, weights);
        }
    }

    /** Begins the reduction of the layer's gradients, and does not wait for it. */
    private void backward(int l, boolean boundary) {
        final View[] views = new View[params[l].length];
        for (int i = 0; i < views.length; ++i) {
            views[i] = params[l][i].gradient();
            if (views[i].dtype() == Dtype.F32) {
                views[i].get(0, gradients[i], 0, size(l, i)); // zero, or the sum so far
            } else {
                Arrays.fill(gradients[i], 0, size(l, i), 0f);
            }
        }
        try (Gather full = gather(l)) {
            assert full.done();
            model.backward(l, weights, gradients);
        }
        for (int i = 0; i < views.length; ++i) {
            if (views[i].dtype() == Dtype.F32) {
                views[i].put(0, gradients[i], 0, size(l, i));
            } else {
                Sixteen.addRounded(
                        views[i].shorts(), gradients[i], size(l, i), views[i].dtype());
            }
        }
        reductions[l] = units[l].reduceBegin(
                new ReduceOptions().boundary(boundary).divisor(options.accumulate));
    }

    /**
     * Micro-batches are numbered over all ranks: one process that takes N times as many sees the same
     * examples as N ranks.
     */
    private void chooseExamples(long round) {
        final long microBatch = position + round * context.worldSize() + context.rank();
        final long stream = (1L << 32) + microBatch; // initial values use those below
        final long places = textLength - options.context;
        for (int i = 0; i < options.batch; ++i) {
            model.windows[i] = (int) Long.remainderUnsigned(
                    Model.randomBits(options.seed, stream, i), places);
        }
    }

    /** Up to the peak over the first 100 steps, and down to a tenth of it over all steps. */
    private double learningRate(int step) {
        final double rise = (step + 1) / 100.0;
        final double fall = 1.0 - 0.9 * step / options.steps;
        return options.learningRate * (rise < fall ? rise : fall);
    }

    /** One step of the optimizer; the sum of the losses of this rank's micro-batches. */
    private float trainStep(int step) {
        float loss = 0f;
        for (int a = 0; a < options.accumulate; ++a) {
            chooseExamples((long) (step - first) * options.accumulate + a);
            for (int l = 0; l < units.length; ++l) forward(l);
            for (int l = units.length; l-- > 0; ) backward(l, a + 1 == options.accumulate);
            for (int l = units.length; l-- > 0; ) reductions[l].finish();
            loss += model.loss;
        }
        optimizer.learningRate(learningRate(step));
        optimizer.step();
        return loss;
    }

    /**
     * Takes the steps from first() on, shows progress on rank 0, saves, and fills `losses`, one per step,
     * with means over all ranks. Returns the seconds that it took.
     */
    double train(float[] losses, Saver saver) {
        final int every = Report.stepsPerReport(options.steps);
        final float microBatches = (float) (options.accumulate * context.worldSize());
        final long begin = System.nanoTime();
        for (int step = first + 1, known = 0; step <= options.steps; ++step) {
            final int done = step - first;
            losses[done - 1] = trainStep(step - 1);
            saver.afterStep(this, step, losses[done - 1] / options.accumulate);
            if (step % every != 0 && step != options.steps) continue;

            // The losses since the last report, of all ranks.
            final float[] recent = Arrays.copyOfRange(losses, known, done);
            context.world().allReduce(recent, ReduceOp.SUM);
            float mean = 0f;
            for (int s = known; s < done; ++s) {
                losses[s] = recent[s - known] / microBatches;
                mean += losses[s] / (float) (done - known);
            }
            known = done;
            if (context.rank() == 0 && !options.quiet) {
                Report.progress(first, step, options.steps, mean, seconds(begin));
            }
        }
        saver.finish();
        return seconds(begin);
    }

    private static double seconds(long begin) {
        return 1e-9 * (System.nanoTime() - begin);
    }
}
