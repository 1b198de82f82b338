// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.meron.Context;
import org.meron.MeronException;
import org.meron.Plan;
import org.meron.Stats;

/** From the command line to the exit code: 0, 1 (something was not as planned), 2 (bad input). */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) {
        int code;
        try {
            code = meet(arguments);
        } catch (MeronException error) {
            System.err.println("language_model: " + error.getMessage());
            code = 1;
        } catch (OutOfMemoryError | ArithmeticException | NegativeArraySizeException error) {
            System.err.println(
                    "language_model: no memory left: lower --width, --layers or --batch");
            code = 1;
        }
        System.exit(code);
    }

    /**
     * The user's input is checked before the ranks meet, and reported after: every rank finds the same error, and one
     * rank reports it.
     */
    private static int meet(String[] arguments) {
        Options options = null;
        Plan plan = null;
        byte[] text = null;
        String problem = null;
        try {
            options = Options.parse(arguments);
            if (!options.help) {
                plan = loadPlan(options.plan);
                text = loadText(options);
                tryOutput(options.json);
            }
        } catch (BadInput error) {
            problem = error.getMessage();
        }

        try (Context context = Context.options().plan(plan).open()) {
            int code = 0;
            if (problem != null) {
                if (context.rank() == 0) System.err.println("language_model: " + problem);
                code = 2;
            } else if (options.help) {
                if (context.rank() == 0) System.out.print(Options.HELP);
            } else {
                try {
                    code = run(context, plan, options, text);
                } catch (BadInput error) {
                    if (context.rank() == 0) System.err.println("language_model: " + error.getMessage());
                    code = 2;
                }
            }
            // `meron run` ends the job when a rank leaves with an error: let rank 0 have said why.
            context.world().barrier();
            return code;
        }
    }

    /**
     * Trains; rank 0 reports. Returns the exit code. Throws on all ranks if there is nothing to
     * resume or to start from.
     */
    private static int run(Context context, Plan plan, Options options, byte[] text)
            throws BadInput {
        final boolean speaks = context.rank() == 0;
        final Trainer trainer = new Trainer(context, options, text);
        final Saver saver = new Saver(context, options);
        if (options.resume != null || options.from != null) {
            final String loaded = options.resume != null
                    ? saver.resume(trainer) : Pretrained.startFrom(context, options);
            if (speaks && !options.quiet) System.out.println(loaded);
        }
        final float[] losses = new float[options.steps - trainer.first()];
        final Report report =
                new Report(options, context, plan, trainer, text.length, losses);
        if (speaks && !options.quiet) report.begin();

        final Stats before = context.stats();
        final double seconds = trainer.train(losses, saver);
        final Figures[] figures = Figures.collect(context, options, before);
        if (options.export != null) Pretrained.publish(context, options);

        int code = 0;
        for (Figures each : figures) {
            if (!each.asPlanned(losses.length)) code = 1;
        }
        if (!speaks) return code;
        report.summary(seconds, figures);
        if (code != 0) System.err.println("language_model: counters and plan differ");
        try {
            if (options.json != null) Files.writeString(Path.of(options.json), report.json());
        } catch (IOException error) {
            System.err.println("language_model: cannot write " + error.getMessage());
            code = 1;
        }
        return code;
    }

    /** A preset's name, or a file of JSON. */
    private static Plan loadPlan(String name) throws BadInput {
        final boolean preset = name.indexOf('.') < 0 && name.indexOf('/') < 0;
        try {
            if (preset) return Plan.preset(name);
            return Plan.parse(new String(Text.read(name), StandardCharsets.UTF_8));
        } catch (BadInput error) {
            throw new BadInput("--plan: " + error.getMessage()
                    + "; name zero0 to zero3, mics(N), hpz(N), zeropp(N) or a JSON file");
        } catch (MeronException error) {
            throw new BadInput("--plan " + name + ": " + error.getMessage());
        }
    }

    private static byte[] loadText(Options options) throws BadInput {
        final byte[] text;
        try {
            text = Text.load(options.data);
        } catch (BadInput error) {
            throw new BadInput("--data: " + error.getMessage() + "; name files that have text in "
                    + "them, or leave --data out to train on the licences in "
                    + Text.DEFAULT_FOLDER);
        }
        if (text.length > options.context) return text;
        throw new BadInput("--data: the text has " + text.length + " bytes, and one example takes "
                + (options.context + 1) + "; name more text, or lower --context");
    }

    private static void tryOutput(String path) throws BadInput {
        if (path == null) return;
        try {
            Files.newOutputStream(
                    Path.of(path), StandardOpenOption.CREATE, StandardOpenOption.APPEND).close();
        } catch (IOException | RuntimeException error) {
            throw new BadInput("--json: cannot write " + path + ": " + error.getMessage());
        }
    }
}
