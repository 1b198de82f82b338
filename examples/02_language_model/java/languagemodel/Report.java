// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.Locale;
import org.meron.Context;
import org.meron.Plan;

/** Output for people, and the JSON file. Everything here runs on rank 0 alone. */
final class Report {
    private final Options options;
    private final Context context;
    private final String plan;
    private final Trainer trainer;
    private final int textBytes;
    private final float[] losses;
    private double seconds;
    private Figures[] figures;

    Report(Options options, Context context, Plan plan, Trainer trainer, int textBytes,
            float[] losses) {
        this.options = options;
        this.context = context;
        this.plan = plan.json();
        this.trainer = trainer;
        this.textBytes = textBytes;
        this.losses = losses;
    }

    /** After how many steps the progress is shown: a fiftieth of them. */
    static int stepsPerReport(int steps) {
        return steps < 50 ? 1 : steps / 50;
    }

    private String dtype() {
        return options.dtype.name().toLowerCase(Locale.ROOT);
    }

    private float firstLoss() {
        return losses[0];
    }

    /** The mean over the last twentieth of the steps. */
    private float lastLoss() {
        final int count = losses.length < 20 ? 1 : losses.length / 20;
        double sum = 0.0;
        for (int step = losses.length - count; step < losses.length; ++step) sum += losses[step];
        return (float) (sum / count);
    }

    private static String format(String format, Object... values) {
        return String.format(Locale.ROOT, format, values);
    }

    // ---- Text --------------------------------------------------------------------------------------

    /** Says what is about to be trained. */
    void begin() {
        final int ranks = context.worldSize();
        System.out.println(format(
                "%,d parameters (%s) in %,d units over %d rank%s, plan %s, transport %s; "
                        + "%,d bytes of text",
                trainer.parameters, dtype(), trainer.layers(), ranks, ranks == 1 ? "" : "s",
                options.plan, context.transport(), textBytes));
    }

    private static int shown;

    /** Shows how far the training is, which began after step `first`: a log gets a line every tenth of the way. */
    static void progress(int first, int step, int steps, float loss, double seconds) {
        final double rate = (step - first) / seconds;
        final int percent = (int) (100L * step / steps);
        if (percent / 10 == shown && step != steps) return;
        shown = percent / 10;
        System.err.println(format("%3d %%  step %d/%d  loss %.3f  %.1f steps/s  %.0f s left", percent,
                step, steps, loss, rate, (steps - step) / rate));
    }

    /** The table at the end. */
    void summary(double seconds, Figures[] figures) {
        this.seconds = seconds;
        this.figures = figures;
        if (options.quiet) return;
        final int steps = losses.length;
        final double rate = steps / seconds;
        final StringBuilder out = new StringBuilder();
        out.append(format("%nloss    %.3f at first, %.3f at last: %.1f %% of its start%n",
                firstLoss(), lastLoss(), 100.0 * (lastLoss() / firstLoss())));
        out.append(format("speed   %.1f steps/s, %.0f examples/s, %.1f s in all%n", rate,
                rate * options.batch * options.accumulate * context.worldSize(), seconds));
        out.append(format("%n  %-14s%18s%18s%18s%18s%n", "", "gathered", "gathered", "reduced",
                "peak memory"));
        out.append(format("  %-14s%18s%18s%18s%18s%n", "rank", "in place, B/step",
                "copied, B/step", "B/step", "B"));
        for (int r = 0; r < figures.length; ++r) {
            final Figures f = figures[r];
            out.append(row("" + r, "counted", f.mapped / steps, f.copied / steps,
                    f.reduced / steps, f.peak));
            out.append(row("", "plan", f.plannedMapped, f.plannedCopied, f.plannedReduced,
                    f.plannedPeak));
            out.append(format("  %-14s%18s%18s%18s%18s%n", "",
                    verdict(f.mapped, steps * f.plannedMapped),
                    verdict(f.copied, steps * f.plannedCopied),
                    verdict(f.reduced, steps * f.plannedReduced),
                    format("%+.1f %%", 100.0 * f.memoryDifference())));
        }
        System.out.print(out);
    }

    private static String row(
            String rank, String what, long mapped, long copied, long reduced, long peak) {
        return format("  %-5s%-9s%,18d%,18d%,18d%,18d%n", rank, what, mapped, copied, reduced, peak);
    }

    private static String verdict(long counted, long planned) {
        return counted == planned ? "equal" : "DIFFERS";
    }

    // ---- JSON --------------------------------------------------------------------------------------

    /** The same document as the program in C writes. */
    String json() {
        boolean equal = true;
        for (Figures f : figures) equal &= f.bytesAsPlanned(losses.length);
        final StringBuilder out = new StringBuilder();
        out.append("{\n  \"example\": \"02_language_model\",\n  \"language\": \"java\",\n");
        out.append(format("  \"ranks\": %d,\n  \"transport\": \"%s\",\n  \"plan\": %s,\n",
                figures.length, context.transport(), plan));
        out.append(format("  \"parameters\": %d,\n  \"units\": %d,\n  \"dtype\": \"%s\",\n",
                trainer.parameters, trainer.layers(), dtype()));
        out.append(format("  \"text_bytes\": %d,\n  \"steps\": %d,\n  \"batch\": %d,\n", textBytes,
                losses.length, options.batch));
        out.append(format("  \"accumulate\": %d,\n  \"width\": %d,\n  \"layers\": %d,\n",
                options.accumulate, options.width, options.layers));
        out.append(format("  \"context\": %d,\n  \"learning_rate\": %s,\n  \"seed\": %d,\n",
                options.context, digits(options.learningRate, 17), options.seed));
        out.append(format("  \"seconds\": %.3f,\n  \"steps_per_second\": %.3f,\n", seconds,
                losses.length / seconds));
        out.append(format("  \"loss_first\": %s,\n  \"loss_last\": %s,\n  \"bytes_equal\": %b,\n",
                digits(firstLoss(), 9), digits(lastLoss(), 9), equal));
        out.append("  \"per_rank\": [\n");
        for (int r = 0; r < figures.length; ++r) {
            out.append(json(r, figures[r])).append(r + 1 < figures.length ? ",\n" : "\n");
        }
        out.append("  ],\n  \"losses\": [");
        for (int step = 0; step < losses.length; ++step) {
            out.append(step > 0 ? ", " : "").append(digits(losses[step], 9));
        }
        return out.append("]\n}\n").toString();
    }

    private static String json(int rank, Figures f) {
        final String pair = "     \"%s\": {\"counted\": %d, \"plan%s\": %d},\n";
        return format("    {\"rank\": %d,\n", rank)
                + format(pair, "gather_mapped_bytes", f.mapped, "_per_step", f.plannedMapped)
                + format(pair, "gather_copied_bytes", f.copied, "_per_step", f.plannedCopied)
                + format(pair, "reduce_bytes", f.reduced, "_per_step", f.plannedReduced)
                + format(pair, "peak_bytes", f.peak, "", f.plannedPeak)
                + format("     \"arena_pages_bytes\": %d}", f.arenaPages);
    }

    /** A number with so many digits that count, as C's %g rounds it. Null where it is not finite. */
    private static String digits(double value, int count) {
        if (Double.isNaN(value) || Double.isInfinite(value)) return "null";
        return new BigDecimal(value).round(new MathContext(count, RoundingMode.HALF_EVEN)).toString();
    }
}
