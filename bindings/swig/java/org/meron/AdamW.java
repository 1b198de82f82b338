// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.meron_optimizer_options;

/** How AdamW (Loshchilov and Hutter, arXiv 1711.05101) updates. */
public final class AdamW {
    double learningRate;
    double beta1;
    double beta2;
    double epsilon;
    double weightDecay;
    double maxNorm;

    /** The library's defaults. */
    public AdamW() {
        final meron_optimizer_options initial = Abi.meron_optimizer_options_init();
        learningRate = initial.getLearning_rate();
        beta1 = initial.getBeta1();
        beta2 = initial.getBeta2();
        epsilon = initial.getEpsilon();
        weightDecay = initial.getWeight_decay();
        maxNorm = initial.getMax_norm();
        initial.delete();
    }

    /** 0 or more; default 1e-3. */
    public AdamW learningRate(double value) {
        learningRate = value;
        return this;
    }

    /** The decay rates of the two moments, 0 or more and below 1; default 0.9, 0.999. */
    public AdamW betas(double first, double second) {
        beta1 = first;
        beta2 = second;
        return this;
    }

    /** Above 0; default 1e-8. */
    public AdamW epsilon(double value) {
        epsilon = value;
        return this;
    }

    /** 0 or more; default 0.01. */
    public AdamW weightDecay(double value) {
        weightDecay = value;
        return this;
    }

    /** Gradients are scaled to at most this global 2-norm; default 0: no clipping. */
    public AdamW maxNorm(double value) {
        maxNorm = value;
        return this;
    }
}
