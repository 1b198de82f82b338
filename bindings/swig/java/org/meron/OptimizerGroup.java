// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.meron_optimizer_group;

/** Hyperparameters of the params of one group. The rule ignores those that it does not use. */
public final class OptimizerGroup {
    final int defaultsOf; // the rule, for the library
    double learningRate;
    double beta1;
    double beta2;
    double epsilon;
    double weightDecay;
    double lrDecay;

    /**
     * The defaults of AdamW, for an optimizer of it. For another rule start from {@link
     * Optimizer#group}, which gives the numbers of a group that exists.
     */
    public OptimizerGroup() {
        this(Abi.meron_optimizer_group_init());
    }

    OptimizerGroup(meron_optimizer_group from) {
        defaultsOf = from.getDefaults_of();
        learningRate = from.getLearning_rate();
        beta1 = from.getBeta1();
        beta2 = from.getBeta2();
        epsilon = from.getEpsilon();
        weightDecay = from.getWeight_decay();
        lrDecay = from.getLr_decay();
        from.delete();
    }

    /** 0 or more; default 1e-3. */
    public OptimizerGroup learningRate(double value) {
        learningRate = value;
        return this;
    }

    /**
     * 0 or more and below 1; default 0.9, 0.999. Of Sgd the first is the momentum, 0 in all groups or in
     * none.
     */
    public OptimizerGroup betas(double first, double second) {
        beta1 = first;
        beta2 = second;
        return this;
    }

    /** Above 0; default 1e-8. */
    public OptimizerGroup epsilon(double value) {
        epsilon = value;
        return this;
    }

    /** 0 or more; default 0.01. */
    public OptimizerGroup weightDecay(double value) {
        weightDecay = value;
        return this;
    }

    /** Of Adagrad: 0 or more; default 0. Of another rule 0. */
    public OptimizerGroup lrDecay(double value) {
        lrDecay = value;
        return this;
    }

    /** The learning rate. */
    public double learningRate() {
        return learningRate;
    }

    /** The first of the betas; of Sgd the momentum. */
    public double beta1() {
        return beta1;
    }

    /** The second of the betas. */
    public double beta2() {
        return beta2;
    }

    /** Epsilon. */
    public double epsilon() {
        return epsilon;
    }

    /** The weight decay. */
    public double weightDecay() {
        return weightDecay;
    }

    /** The decay of the learning rate; of Adagrad. */
    public double lrDecay() {
        return lrDecay;
    }
}
