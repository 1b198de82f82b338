// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** A {@link Param} or a {@link Flat}, which {@link Unit#gatherInto} copies into one buffer. */
public interface Gatherable {
    /** Of the values that are gathered. */
    Dtype dtype();

    /** Elements. */
    long count();
}
