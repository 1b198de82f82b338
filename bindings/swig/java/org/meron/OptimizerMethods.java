// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/** Calls of meron_optimizer that need nothing of Java's own. */
abstract class OptimizerMethods extends Handle {
    OptimizerMethods(Release release) {
        super(release);
    }

    /** The context that it is of. */
    abstract Context context();

    @Override
    void requireOpen() {
        context().requireOpen();
    }

    /**
     * Sets the learning rate of the next steps for params of group 0; the same on all ranks (it
     * is part of the step's fingerprint).
     *
     * <p>Never blocks.
     *
     * <p>Throws ARGUMENT, HANDLE, STALE.
     */
    public void learningRate(double learningRate) {
        requireOpen();
        call(handle -> Abi.meron_optimizer_set_learning_rate(handle, learningRate));
    }

    /**
     * Sets max_norm of the next steps: larger gradients are scaled down to it, smaller ones
     * stay; 0 does not clip. The same on all ranks (it is part of the step's fingerprint).
     *
     * <p>Never blocks.
     *
     * <p>Throws ARGUMENT, HANDLE, STALE.
     */
    public void maxNorm(double maxNorm) {
        requireOpen();
        call(handle -> Abi.meron_optimizer_set_max_norm(handle, maxNorm));
    }

    /**
     * Sets the number of steps that the optimizer and all of its params have taken, for an
     * optimizer that continues from a checkpoint, beside its states
     * (meron_optimizer_write_state). Adam's bias corrections, the first step of SGD with a
     * momentum (which takes no average) and the random rounding of states in 16 or 8 bits
     * depend on it. All ranks set the same number, because the fingerprint of the next step
     * includes it. Changes nothing else.
     *
     * <p>`steps`: at most 2^53.
     *
     * <p>Never blocks.
     *
     * <p>Throws ARGUMENT, STATE (a step is pending), HANDLE, STALE.
     */
    public void steps(long steps) {
        requireOpen();
        call(handle -> Abi.meron_optimizer_set_steps(handle, steps));
    }

    /**
     * Restores the states that meron_optimizer_offload moved, bit for bit.
     *
     * <p>Blocks as meron_optimizer_offload.
     *
     * <p>Throws STATE (they are not offloaded), NO_MEMORY, IO, CORRUPT (the drive returned other
     * bytes), TIMEOUT, HANDLE, STALE.
     */
    public void reload() {
        requireOpen();
        call(handle -> Abi.meron_optimizer_reload(handle));
    }
}
