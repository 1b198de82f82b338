// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;

/**
 * How Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011) updates; weight decay is part of the gradient. It
 * keeps the sum of squared gradients, EXP_AVG_SQ. By default the learning rate is 1e-2, the weight decay
 * 0.
 */
public final class Adagrad extends UpdateRule<Adagrad> {
    /** The defaults. */
    public Adagrad() {
        super(Abi.MERON_ADAGRAD);
        learningRate = 1e-2;
        epsilon = 1e-10;
        weightDecay = 0;
    }

    @Override
    Adagrad self() {
        return this;
    }

    /** Above 0; default 1e-10. */
    public Adagrad epsilon(double value) {
        epsilon = value;
        return this;
    }
}
