// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** What is loaded. */
public final class LoadOptions {
    boolean lenient;
    boolean valuesOnly;
    boolean rank0Only;
    boolean perNode;
    String mapping;
    String claimed;
    Unit[] units = {};

    /** Everything is loaded, and must fit. */
    public LoadOptions() {}

    /** True: ignores params and tensors that the other side lacks. */
    public LoadOptions lenient(boolean value) {
        lenient = value;
        return this;
    }

    /** Whether only values are loaded, and masters by them: optimizers keep their states. */
    public LoadOptions valuesOnly(boolean value) {
        valuesOnly = value;
        return this;
    }

    /** Whether only rank 0 sees the files, and sends each rank what it needs. */
    public LoadOptions rank0Only(boolean value) {
        rank0Only = value;
        return this;
    }

    /**
     * True: each node has its own folder. One of its ranks reads the node's files for all; the nodes may
     * differ from those at the save.
     */
    public LoadOptions perNode(boolean value) {
        perNode = value;
        return this;
    }

    /**
     * Where params have other names in the files: the text of a JSON object, "PARAM": "TENSOR", or
     * "PARAM": ["TENSOR", ...], one after the other along the first dimension.
     */
    public LoadOptions mapping(String json) {
        mapping = json;
        return this;
    }

    /** Names of values that the program reads itself: they are not unexpected. */
    public LoadOptions claimed(String... names) {
        claimed = Arguments.all(names, "names").length == 0 ? null : String.join("\n", names);
        return this;
    }

    /**
     * The units that are loaded, the same on all ranks; by default all. They have all units of the
     * optimizers. Others stay as they are. Throws ARGUMENT if there are none.
     */
    public LoadOptions units(Unit... values) {
        units = some(values);
        return this;
    }

    /** The library would take an empty list for all. */
    static Unit[] some(Unit... values) {
        if (Arguments.all(values, "values").length == 0) {
            throw new MeronException(Status.ARGUMENT, "no units are given: leave them out for all");
        }
        return values.clone();
    }
}
