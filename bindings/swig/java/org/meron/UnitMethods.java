// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
package org.meron;

/** Calls of meron_unit that need nothing of Java's own. */
abstract class UnitMethods extends Handle {
    UnitMethods(Release release) {
        super(release);
    }
}
