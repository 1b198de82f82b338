// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** Options of a write without a context. */
public final class WriteOptions {
    long step;
    String extra;
    String optimizers;
    boolean overwrite;

    /** Step 0, and nothing else. */
    public WriteOptions() {}

    /** The program's count, 0 or more. */
    public WriteOptions step(long value) {
        step = ContextOptions.notNegative("step", value);
        return this;
    }

    /** The program's own state: the text of a JSON object. */
    public WriteOptions extra(String json) {
        extra = json;
        return this;
    }

    /** The manifest's list of optimizers: the text of a JSON array (docs/checkpoint-format.md). */
    public WriteOptions optimizers(String json) {
        optimizers = json;
        return this;
    }

    /** True: replaces a checkpoint of that name. */
    public WriteOptions overwrite(boolean value) {
        overwrite = value;
        return this;
    }
}
