// SPDX-License-Identifier: Apache-2.0
package org.meron;

import org.meron.abi.Abi;
import org.meron.abi.meron_flat_info;

/**
 * Params of a unit that have one dtype and are all trained or all frozen, one after another in memory.
 * {@link Unit#flats} lists them; {@link Param#flat} and {@link Param#flatOffset} are the place of a param. A
 * gather copies a flat into a buffer at once: {@link Unit#gatherInto}.
 *
 * <p>The layout depends only on the unit's params: it is the same on all ranks and under all plans.
 */
public final class Flat implements Gatherable {
    final Unit unit;
    private final int index;
    private final Dtype dtype;
    private final long count;
    private final boolean frozen;

    Flat(Unit unit, int index) {
        this.unit = unit;
        this.index = index;
        final meron_flat_info info = unit.call(handle -> Abi.meron_unit_flat(handle, index));
        dtype = Dtype.of(info.getDtype());
        count = info.getElements();
        frozen = info.getFrozen() != 0;
        info.delete();
    }

    /** Its index in Unit.flats. */
    public int index() {
        return index;
    }

    /** Of its values. */
    @Override
    public Dtype dtype() {
        return dtype;
    }

    /** Elements, with the padding behind each param. */
    @Override
    public long count() {
        return count;
    }

    /** True if its params are frozen. */
    public boolean frozen() {
        return frozen;
    }

    @Override
    public String toString() {
        return "Flat[" + index + " of " + unit.name() + ": " + count + " " + dtype + "]";
    }
}
