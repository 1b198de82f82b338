// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.util.ArrayList;
import java.util.List;
import org.meron.Dtype;

/** The command line. */
final class Options {
    static final String HELP = "Trains a language model on the bytes of a text, partitioned over the ranks.\n"
            + "\n"
            + "usage: meron run -n RANKS -- java -cp CLASSES languagemodel.Main [options]\n"
            + "\n"
            + "  --data FILE...    text to train on (default: the licences in /usr/share/common-licenses)\n"
            + "  --plan PLAN       zero0 to zero3, mics(N), hpz(N), zeropp(N) or a JSON file (default: zero3)\n"
            + "  --steps N         optimizer steps (default: 400)\n"
            + "  --batch N         examples per micro-batch and rank (default: 64)\n"
            + "  --accumulate N    micro-batches per step and rank (default: 1)\n"
            + "  --width N         values that flow from layer to layer (default: 512)\n"
            + "  --layers N        residual blocks of two matrices each (default: 4)\n"
            + "  --context N       bytes that the model sees; must divide the width (default: 16)\n"
            + "  --lr RATE         peak learning rate (default: 0.002)\n"
            + "  --dtype DTYPE     of the parameters: f32, bf16 or f16 (default: f32)\n"
            + "  --seed N          of the initial values and the choice of examples (default: 1)\n"
            + "  --save DIR        save checkpoints there, in the background, and keep the newest two\n"
            + "  --save-every N    after every N steps too (default: at the end)\n"
            + "  --resume DIR      resume the newest checkpoint there, by any number of ranks and plan\n"
            + "  --from DIR        start from the weights of a model there, in Hugging Face's layout\n"
            + "  --export DIR      publish the model there at the end, in that layout; replaces another\n"
            + "  --json FILE       write all figures and the loss curve there\n"
            + "  --quiet           print nothing but errors\n"
            + "  --help            this text\n";

    final List<String> data = new ArrayList<>();
    String plan = "zero3";
    int steps = 400;
    int batch = 64;
    int accumulate = 1;
    int width = 512;
    int layers = 4;
    int context = 16;
    double learningRate = 2e-3;
    Dtype dtype = Dtype.F32;
    int seed = 1;
    String save; // folder of checkpoints; null: none
    int saveEvery; // steps; 0: at the end
    String resume; // folder of checkpoints, or one of them; null: none
    String from; // directory of published weights; null: none
    String export; // directory to publish in; null: none
    String json;
    boolean quiet;
    boolean help;

    static Options parse(String[] arguments) throws BadInput {
        final Options options = new Options();
        for (int next = 0; next < arguments.length; ) {
            final String name = arguments[next++];
            if (options.flag(name)) continue;
            if (!isKnown(name)) throw new BadInput(name + " is no option: --help lists them");
            if (next == arguments.length || arguments[next].startsWith("--")) {
                throw new BadInput(name + " needs a value: --help says which");
            }
            if (name.equals("--data")) {
                while (next < arguments.length && !arguments[next].startsWith("--")) {
                    options.data.add(arguments[next++]);
                }
            } else {
                options.set(name, arguments[next++]);
            }
        }
        if (options.saveEvery > 0 && options.save == null) {
            throw new BadInput("--save-every needs --save DIR: where to");
        }
        if (options.from != null && options.resume != null) {
            throw new BadInput("--from and --resume exclude each other: start from published weights, "
                    + "or resume a checkpoint");
        }
        if (options.width % options.context != 0) {
            throw new BadInput("--width " + options.width + " is no multiple of --context "
                    + options.context + ": take "
                    + (options.width / options.context + 1) * options.context + ", for example");
        }
        return options;
    }

    private boolean flag(String name) {
        quiet |= name.equals("--quiet");
        help |= name.equals("--help");
        return name.equals("--quiet") || name.equals("--help");
    }

    private static boolean isKnown(String name) {
        return name.matches(
                "--(data|plan|steps|batch|accumulate|width|layers|context|lr|dtype|seed|json|save"
                        + "|save-every|resume|from|export)");
    }

    private void set(String name, String text) throws BadInput {
        switch (name) {
            case "--plan": plan = text; break;
            case "--json": json = text; break;
            case "--save": save = text; break;
            case "--resume": resume = text; break;
            case "--from": from = text; break;
            case "--export": export = text; break;
            case "--save-every": saveEvery = whole(name, text, 1, 100_000_000); break;
            case "--steps": steps = whole(name, text, 1, 100_000_000); break;
            case "--batch": batch = whole(name, text, 1, 65536); break;
            case "--accumulate": accumulate = whole(name, text, 1, 65536); break;
            case "--width": width = whole(name, text, 1, 65536); break;
            case "--layers": layers = whole(name, text, 0, 1000); break;
            case "--context": context = whole(name, text, 1, 65536); break;
            case "--seed": seed = whole(name, text, 0, 1_000_000_000); break;
            case "--lr": learningRate = rate(name, text); break;
            default: dtype = dtype(name, text); break;
        }
    }

    private static int whole(String name, String text, int least, int most) throws BadInput {
        try {
            final int value = Integer.parseInt(text);
            if (value >= least && value <= most) return value;
        } catch (NumberFormatException error) {
            // said below
        }
        throw new BadInput(
                name + " " + text + ": must be a whole number from " + least + " to " + most);
    }

    private static double rate(String name, String text) throws BadInput {
        try {
            final double value = Double.parseDouble(text);
            if (value > 0.0 && value < Double.POSITIVE_INFINITY) return value;
        } catch (NumberFormatException error) {
            // said below
        }
        throw new BadInput(name + " " + text + ": must be a number above 0");
    }

    private static Dtype dtype(String name, String text) throws BadInput {
        for (Dtype dtype : Dtype.values()) {
            if (dtype.name().toLowerCase().equals(text)) return dtype;
        }
        throw new BadInput(name + " " + text + ": must be f32, bf16 or f16");
    }
}
