// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;

/**
 * How stochastic gradient descent updates, as torch.optim.SGD; weight decay is part of the gradient. With
 * a momentum it keeps a state, EXP_AVG; without, none. By default the learning rate is 1e-3, the weight
 * decay 0.
 */
public final class Sgd extends UpdateRule<Sgd> {
    /** The defaults. */
    public Sgd() {
        super(Abi.MERON_SGD);
        beta1 = 0;
        weightDecay = 0;
    }

    @Override
    Sgd self() {
        return this;
    }

    /** 0 or more and below 1; default 0. It is the first of a ParamGroup's betas. */
    public Sgd momentum(double value) {
        beta1 = value;
        return this;
    }

    /** Of the gradient that is added to the state: 0 or more and below 1; default 0. */
    public Sgd dampening(double value) {
        dampening = value;
        return this;
    }

    /** Nesterov's momentum, which needs a momentum and no dampening; default false. */
    public Sgd nesterov(boolean value) {
        nesterov = value;
        return this;
    }
}
