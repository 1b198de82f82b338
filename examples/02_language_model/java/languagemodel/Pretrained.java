// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.meron.Context;
import org.meron.ExportOptions;
import org.meron.LoadOptions;
import org.meron.MeronException;

/** Starts from published weights, and publishes the result, in Hugging Face's layout. */
final class Pretrained {
    /**
     * Published files name tensors as transformers names those of GPT-2, and this program by its layers.
     * GPT-2's matrices are inputs x outputs too.
     */
    private static final String[][] BLOCK_NAMES = {
        {"w1", "mlp.c_fc.weight"},
        {"b1", "mlp.c_fc.bias"},
        {"w2", "mlp.c_proj.weight"},
        {"b2", "mlp.c_proj.bias"},
    };

    private Pretrained() {}

    /** The published name of each param of a model of so many blocks: JSON, "PARAM": "TENSOR". */
    private static String names(int blocks) {
        final int head = blocks + 1;
        final List<String> pairs = new ArrayList<>();
        pairs.add(pair("layers.0.bytes", "transformer.wte.weight"));
        for (int l = 1; l < head; ++l) {
            for (String[] name : BLOCK_NAMES) {
                pairs.add(pair("layers." + l + "." + name[0],
                        "transformer.h." + (l - 1) + "." + name[1]));
            }
        }
        pairs.add(pair("layers." + head + ".w", "lm_head.weight"));
        pairs.add(pair("layers." + head + ".b", "lm_head.bias"));
        return "{" + String.join(", ", pairs) + "}";
    }

    private static String pair(String here, String published) {
        return "\"" + here + "\": \"" + published + "\"";
    }

    /**
     * Loads the weights of --from, at any number of ranks and under any plan, and returns what was loaded.
     * The optimizer starts anew. Collective. Throws on all ranks if there is nothing to start from.
     */
    static String startFrom(Context context, Options options) throws BadInput {
        final LoadOptions load = new LoadOptions()
                .valuesOnly(true) // a published model has no states of an optimizer
                .mapping(names(options.layers));
        try {
            context.load(Path.of(options.from), null, load).close();
        } catch (MeronException error) {
            throw new BadInput("--from " + options.from + ": " + error.getMessage());
        }
        return "started from the weights of " + options.from;
    }

    /** Publishes the weights in the directory of --export. Collective. */
    static void publish(Context context, Options options) {
        context.export(Path.of(options.export), new ExportOptions()
                .mapping(names(options.layers))
                .overwrite(true)); // of an earlier run
    }
}
