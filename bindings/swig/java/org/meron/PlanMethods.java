// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

import org.meron.abi.Abi;

/** Calls of meron_plan that need nothing of Java's own. */
abstract class PlanMethods extends Handle {
    PlanMethods(Release release) {
        super(release);
    }

    /**
     * The plan as JSON that meron_plan_parse reads back to an equal plan.
     *
     * <p>Never blocks.
     *
     * <p>Throws ARGUMENT, HANDLE, STALE.
     */
    public String json() {
        requireOpen();
        return call(handle -> Abi.meron_plan_json(handle));
    }

    /**
     * The plan as a table for people, several lines.
     *
     * <p>Never blocks.
     *
     * <p>Throws ARGUMENT, HANDLE, STALE.
     */
    public String table() {
        requireOpen();
        return call(handle -> Abi.meron_plan_table(handle));
    }
}
