// SPDX-License-Identifier: Apache-2.0
package org.meron;

import java.nio.Buffer;
import org.meron.abi.Abi;

/**
 * The strategy as a table: the ranks and the dtype of each kind of state. Pure data: it uses no device,
 * file or peer.
 */
public final class Plan extends PlanMethods {
    static final int ADAMW_STATES = 2; // that the rule keeps of an element

    private Plan(long handle) {
        super(new Release(handle, Abi::meron_plan_release));
    }

    /**
     * "zero0" to "zero3" (ZeRO, arXiv 1910.02054); for several nodes "mics", "hpz" and "zeropp" (MiCS,
     * arXiv 2205.00119, and ZeRO++, arXiv 2306.10209), each with the ranks of a group as its argument,
     * such as "mics(4)"; without one a group is a node's ranks. Throws ARGUMENT, which lists the known
     * ones.
     */
    public static Plan preset(String name) {
        return new Plan(Abi.meron_plan_preset(Arguments.required(name, "name")));
    }

    /** Reads JSON, as docs/plan.md describes it. Throws PARSE (line and key), UNSUPPORTED. */
    public static Plan parse(String json) {
        return new Plan(Abi.meron_plan_parse(Arguments.required(json, "json")));
    }

    /** The same where all ranks share memory. */
    public String predict(
            String model, int ranks, int microBatches, int gathersPerMicroBatch, boolean table) {
        return predict(model, ranks, microBatches, gathersPerMicroBatch, 0, table);
    }

    /** The same for AdamW. */
    public String predict(String model, int ranks, int microBatches, int gathersPerMicroBatch,
            int ranksPerNode, boolean table) {
        return predict(model, ranks, microBatches, gathersPerMicroBatch, ranksPerNode,
                ADAMW_STATES, table);
    }

    /**
     * Predicts bytes per link and step and peak bytes per tier, per rank.
     *
     * @param model           JSON: {"parameters": N, "layers": L, "dtype": "bf16"}, or units with
     *                        tensors
     * @param ranksPerNode    consecutive ranks that share memory; 0: all of them
     * @param optimizerStates of the update rule per element, besides the master: 2 for AdamW and
     *                        Adam, 1 for Adagrad, Lion and SGD with a momentum, 0 for SGD without one
     * @param table           true: a table for people, else JSON
     */
    public String predict(String model, int ranks, int microBatches, int gathersPerMicroBatch,
            int ranksPerNode, int optimizerStates, boolean table) {
        Arguments.required(model, "model");
        return call(handle -> Abi.meron_plan_predict(handle, model, ranks, microBatches,
                gathersPerMicroBatch, ranksPerNode, optimizerStates, table ? 1 : 0));
    }
}
