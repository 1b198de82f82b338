// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** Options of a save: its content, and the fate of other checkpoints. */
public final class SaveOptions {
    long step;
    long keep;
    String extra;
    boolean valuesOnly;
    boolean skipFrozen;
    boolean perNode;
    boolean overwrite;
    String mapping;
    CheckpointTensor[] tensors = {};
    Unit[] units = {};

    /** Everything is saved, and nothing happens to others. */
    public SaveOptions() {}

    /** The program's count, 0 (the default) or more: the newest checkpoint has the highest. */
    public SaveOptions step(long value) {
        step = ContextOptions.notNegative("step", value);
        return this;
    }

    /** So many complete checkpoints stay in the folder; 0, the default: all. */
    public SaveOptions keep(long value) {
        keep = ContextOptions.notNegative("keep", value);
        return this;
    }

    /** The program's own state: the text of a JSON object. Rank 0's is kept. */
    public SaveOptions extra(String json) {
        extra = json;
        return this;
    }

    /** True: leaves out masters and the states of optimizers. */
    public SaveOptions valuesOnly(boolean value) {
        valuesOnly = value;
        return this;
    }

    /** True: leaves out frozen params. */
    public SaveOptions skipFrozen(boolean value) {
        skipFrozen = value;
        return this;
    }

    /**
     * Whether each node has a folder of its own, such as one on a local disk. Ranks of a node give the
     * same.
     */
    public SaveOptions perNode(boolean value) {
        perNode = value;
        return this;
    }

    /** True: replaces a checkpoint of that name. */
    public SaveOptions overwrite(boolean value) {
        overwrite = value;
        return this;
    }

    /**
     * Where params are to have other names in the files, also for their states: the text of a JSON object,
     * "PARAM": "NAME"; "" leaves the param out.
     */
    public SaveOptions mapping(String json) {
        mapping = json;
        return this;
    }

    /**
     * Tensors of the program's own; those of all ranks together have each element of a tensor once.
     * Their buffers must stay as they are until Context.awaitCopied.
     */
    public SaveOptions tensors(CheckpointTensor... values) {
        tensors = Arguments.all(values, "values").clone();
        return this;
    }

    /**
     * The units that are saved, the same on all ranks; by default all. They have all units of the
     * optimizers and all params of the mapping. Throws ARGUMENT if there are none.
     */
    public SaveOptions units(Unit... values) {
        units = LoadOptions.some(values);
        return this;
    }
}
