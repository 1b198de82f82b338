// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/**
 * Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011); weight decay is part of the gradient. Keeps
 * the sum of squared gradients.
 */
public final class Adagrad extends UpdateRule<Adagrad> {
    /** The defaults. */
    public Adagrad() {
        super(Abi.MERON_OPTIMIZER_ADAGRAD);
    }

    @Override
    Adagrad self() {
        return this;
    }

    /** Above 0. */
    public Adagrad epsilon(double value) {
        epsilon = value;
        return this;
    }

    /** 0 or more: the rate of step t is lr / (1 + (t - 1) lr_decay). */
    public Adagrad lrDecay(double value) {
        lrDecay = value;
        return this;
    }
}
