// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;

/**
 * How Lion (Chen et al., arXiv 2302.06675) updates. It keeps an average of gradients, EXP_AVG. By default
 * the learning rate is 1e-4, the weight decay 0.
 */
public final class Lion extends UpdateRule<Lion> {
    /** The defaults. */
    public Lion() {
        super(Abi.MERON_LION);
        learningRate = 1e-4;
        beta2 = 0.99;
        weightDecay = 0;
    }

    @Override
    Lion self() {
        return this;
    }

    /**
     * Of the direction that is taken, and of the average that is kept: 0 or more and below 1; default
     * 0.9, 0.99.
     */
    public Lion betas(double first, double second) {
        beta1 = first;
        beta2 = second;
        return this;
    }
}
