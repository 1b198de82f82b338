// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/** Adam (Kingma and Ba, arXiv 1412.6980); weight decay is part of the gradient. */
public final class Adam extends UpdateRule<Adam> {
    /** The defaults. */
    public Adam() {
        super(Abi.MERON_OPTIMIZER_ADAM);
    }

    @Override
    Adam self() {
        return this;
    }

    /** First: 0 or more, below 1; second: 0 or more, below 1. */
    public Adam betas(double first, double second) {
        beta1 = first;
        beta2 = second;
        return this;
    }

    /** Above 0. */
    public Adam epsilon(double value) {
        epsilon = value;
        return this;
    }
}
