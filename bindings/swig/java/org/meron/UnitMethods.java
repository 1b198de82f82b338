// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/** Calls of meron_unit that need nothing of Java's own. */
abstract class UnitMethods extends Handle {
    UnitMethods(Release release) {
        super(release);
    }

    /** The context that it is of. */
    abstract Context context();

    @Override
    void requireOpen() {
        context().requireOpen();
    }

    /**
     * The unit's name.
     *
     * <p>Never blocks.
     *
     * <p>Throws ARGUMENT, HANDLE, STALE, FORKED.
     */
    public String name() {
        requireOpen();
        return call(handle -> Abi.meron_unit_name(handle));
    }

    /**
     * Declares the reduced gradient of a unit as used by an optimizer of the trainer's own. If
     * the codec has feedback, the next gradient makes up for what was lost of this one.
     *
     * <p>Blocks only while another thread of this rank begins an operation.
     *
     * <p>Throws STATE (there is none, or a reduction or step is pending), HANDLE, STALE.
     */
    public void consume() {
        requireOpen();
        call(handle -> Abi.meron_reduce_consume(handle));
    }

    /**
     * Multiplies the codec's feedback, which is what it has lost of gradients so far. Call it
     * if a loss scale changes that is not a part of options.divisor, with the new scale divided
     * by the old one. Does nothing if the plan has no feedback.
     *
     * <p>`factor`: of the next gradients to those before, 0 or more; 0 drops the feedback.
     *
     * <p>Blocks while another thread of this rank begins an operation and, if there is feedback,
     * while a save copies it.
     *
     * <p>Throws ARGUMENT (the factor), STATE (a reduction is pending), HANDLE, STALE.
     */
    public void scaleFeedback(double factor) {
        requireOpen();
        call(handle -> Abi.meron_reduce_scale_feedback(handle, factor));
    }
}
