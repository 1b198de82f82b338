// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;

/**
 * How AdamW (Loshchilov and Hutter, arXiv 1711.05101) updates. By default the learning rate is 1e-3, the
 * weight decay 0.01.
 */
public final class AdamW extends UpdateRule<AdamW> {
    /** The library's defaults. */
    public AdamW() {
        super(Abi.MERON_ADAMW);
    }

    @Override
    AdamW self() {
        return this;
    }

    /** The decay rates of the two moments, 0 or more and below 1; default 0.9, 0.999. */
    public AdamW betas(double first, double second) {
        beta1 = first;
        beta2 = second;
        return this;
    }

    /** Above 0; default 1e-8. */
    public AdamW epsilon(double value) {
        epsilon = value;
        return this;
    }
}
