// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import org.meron.abi.Abi;

/**
 * The strategy as a table: per kind of state, over which ranks it is sharded and in which dtype. Pure
 * data: nothing here touches a device, file or peer.
 */
public final class Plan extends Handle {
    private Plan(long handle) {
        super(new Release(handle, Abi::meron_plan_release));
    }

    /** "zero0" to "zero3" (ZeRO, arXiv 1910.02054). Throws ARGUMENT, which lists the known ones. */
    public static Plan preset(String name) {
        return new Plan(Abi.meron_plan_preset(name));
    }

    /** Reads JSON, as docs/plan.md describes it. Throws PARSE (line and key), UNSUPPORTED. */
    public static Plan parse(String json) {
        return new Plan(Abi.meron_plan_parse(json));
    }

    /** JSON that parse reads back to an equal plan. */
    public String json() {
        return call(handle -> Abi.meron_plan_json(handle));
    }

    /** A table for people, several lines. */
    public String table() {
        return call(handle -> Abi.meron_plan_table(handle));
    }

    /**
     * Predicts bytes per link and step and peak bytes per tier, per rank.
     *
     * @param model  JSON: {"parameters": N, "layers": L, "dtype": "bf16"}, or units with tensors
     * @param table  whether it is to be a table for people, else JSON
     */
    public String predict(
            String model, int ranks, int microBatches, int gathersPerMicroBatch, boolean table) {
        return call(handle -> Abi.meron_plan_predict(
                handle, model, ranks, microBatches, gathersPerMicroBatch, table ? 1 : 0));
    }

    /**
     * Turns the header of a safetensors file into the model that predict reads.
     *
     * @param header    a direct buffer of the file's first bytes: 8 bytes of length, then the header
     * @param fileBytes the size of the whole file
     */
    public static String modelFromSafetensors(Buffer header, long fileBytes) {
        return Abi.meron_plan_model_from_safetensors(header, fileBytes);
    }
}
