// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/** Lion (Chen et al., arXiv 2302.06675). Keeps an average of gradients. */
public final class Lion extends UpdateRule<Lion> {
    /** The defaults. */
    public Lion() {
        super(Abi.MERON_OPTIMIZER_LION);
    }

    @Override
    Lion self() {
        return this;
    }

    /**
     * First: of the direction of the update; 0 or more, below 1; second: of the stored average;
     * 0 or more, below 1.
     */
    public Lion betas(double first, double second) {
        beta1 = first;
        beta2 = second;
        return this;
    }
}
