// SPDX-License-Identifier: Apache-2.0
package org.meron;

/** Options of an export. */
public final class ExportOptions {
    Dtype dtype; // null: each param's own
    long maxFileBytes;
    String mapping;
    boolean overwrite;
    CheckpointTensor[] tensors = {};

    /** Each param's own dtype, files of at most 5 GB. */
    public ExportOptions() {}

    /** Of the floating-point values in the files; null, the default: each param's own. */
    public ExportOptions dtype(Dtype value) {
        dtype = value;
        return this;
    }

    /** A file is closed before it would exceed so many bytes; 0, the default: 5 GB. */
    public ExportOptions maxFileBytes(long value) {
        maxFileBytes = ContextOptions.notNegative("maxFileBytes", value);
        return this;
    }

    /** Where params have other names in the files: the text of a JSON object, "PARAM": "NAME". */
    public ExportOptions mapping(String json) {
        mapping = json;
        return this;
    }

    /** True: replaces an existing model. */
    public ExportOptions overwrite(boolean value) {
        overwrite = value;
        return this;
    }

    /** Tensors of the program's own, of kind "values" and of rank 0, whole. */
    public ExportOptions tensors(CheckpointTensor... values) {
        tensors = Arguments.all(values, "values").clone();
        return this;
    }
}
