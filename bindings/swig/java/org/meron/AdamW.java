// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/** AdamW (Loshchilov and Hutter, arXiv 1711.05101). */
public final class AdamW extends UpdateRule<AdamW> {
    /** The defaults. */
    public AdamW() {
        super(Abi.MERON_OPTIMIZER_ADAMW);
    }

    @Override
    AdamW self() {
        return this;
    }

    /** First: 0 or more, below 1; second: 0 or more, below 1. */
    public AdamW betas(double first, double second) {
        beta1 = first;
        beta2 = second;
        return this;
    }

    /** Above 0. */
    public AdamW epsilon(double value) {
        epsilon = value;
        return this;
    }
}
