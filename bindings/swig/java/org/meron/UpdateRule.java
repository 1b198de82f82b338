// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.meron_optimizer_options;

/**
 * How an optimizer updates, with the numbers of optimizer group 0: {@link AdamW}, {@link Adam}, {@link
 * Adagrad}, {@link Lion} or {@link Sgd}.
 *
 * @param <R> the rule itself
 */
public abstract class UpdateRule<R extends UpdateRule<R>> {
    final int kind;
    final int defaultsOf; // the same for the library
    double learningRate;
    double beta1; // of Sgd the momentum
    double beta2;
    double epsilon;
    double weightDecay;
    double maxNorm;
    double dampening;
    boolean nesterov;
    double lrDecay; // of Adagrad

    /** The rule's defaults. */
    UpdateRule(int kind) {
        this.kind = kind;
        final meron_optimizer_options initial = Abi.meron_optimizer_rule_init(kind);
        defaultsOf = initial.getDefaults_of();
        learningRate = initial.getLearning_rate();
        beta1 = initial.getBeta1();
        beta2 = initial.getBeta2();
        epsilon = initial.getEpsilon();
        weightDecay = initial.getWeight_decay();
        maxNorm = initial.getMax_norm();
        dampening = initial.getDampening();
        nesterov = initial.getNesterov() != 0;
        lrDecay = initial.getLr_decay();
        initial.delete();
    }

    abstract R self();

    /** 0 or more. */
    public R learningRate(double value) {
        learningRate = value;
        return self();
    }

    /** 0 or more. */
    public R weightDecay(double value) {
        weightDecay = value;
        return self();
    }

    /** Gradients are scaled to at most this global 2-norm; default 0: no clipping. */
    public R maxNorm(double value) {
        maxNorm = value;
        return self();
    }
}
