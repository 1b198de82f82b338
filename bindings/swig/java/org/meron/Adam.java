// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;

/**
 * How Adam (Kingma and Ba, arXiv 1412.6980) updates; weight decay is part of the gradient. By default the
 * learning rate is 1e-3, the weight decay 0.
 */
public final class Adam extends UpdateRule<Adam> {
    /** The defaults. */
    public Adam() {
        super(Abi.MERON_ADAM);
        weightDecay = 0;
    }

    @Override
    Adam self() {
        return this;
    }

    /** The decay rates of the two moments, 0 or more and below 1; default 0.9, 0.999. */
    public Adam betas(double first, double second) {
        beta1 = first;
        beta2 = second;
        return this;
    }

    /** Above 0; default 1e-8. */
    public Adam epsilon(double value) {
        epsilon = value;
        return this;
    }
}
