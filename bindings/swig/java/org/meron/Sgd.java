// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/**
 * Stochastic gradient descent, as torch.optim.SGD; weight decay is part of the gradient. With a
 * momentum it keeps an average of gradients; without one, no state.
 */
public final class Sgd extends UpdateRule<Sgd> {
    /** The defaults. */
    public Sgd() {
        super(Abi.MERON_OPTIMIZER_SGD);
    }

    @Override
    Sgd self() {
        return this;
    }

    /** 0 or more, below 1; beta1 of an optimizer group. */
    public Sgd momentum(double value) {
        beta1 = value;
        return this;
    }

    /** Of the gradient that is added to the state; 0 or more, below 1. */
    public Sgd dampening(double value) {
        dampening = value;
        return this;
    }

    /** Nesterov's momentum, which needs a momentum and no dampening. */
    public Sgd nesterov(boolean value) {
        nesterov = value;
        return this;
    }
}
