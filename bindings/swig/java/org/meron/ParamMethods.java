// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

/** Calls of meron_param that need nothing of Java's own. */
abstract class ParamMethods extends Handle {
    ParamMethods(Release release) {
        super(release);
    }

    /** The context that it is of. */
    abstract Context context();

    @Override
    void requireOpen() {
        context().requireOpen();
    }
}
