// SPDX-License-Identifier: Apache-2.0
package languagemodel;

import java.nio.file.Path;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.meron.Checkpoint;
import org.meron.Context;
import org.meron.MeronException;
import org.meron.Operation;
import org.meron.SaveOptions;

/** Saves while training continues, as --save and --save-every specify, and resumes from a checkpoint. */
final class Saver {
    private static final Pattern POSITION = Pattern.compile("\"micro_batches\": *(\\d+)");

    private final Context context;
    private final Options options;
    private Operation saving; // the last save

    Saver(Context context, Options options) {
        this.context = context;
        this.options = options;
    }

    /**
     * After a step: begins to save if it is due, once the save before has ended. The next step waits only
     * until its states are copied.
     *
     * <p>The save also keeps the state of the run that Meron does not have: the choice of examples depends on the seed
     * and on the number of micro-batches of all ranks.
     */
    void afterStep(Trainer trainer, int step, float loss) {
        final boolean due = step == options.steps
                || (options.saveEvery > 0 && step % options.saveEvery == 0);
        if (options.save == null || !due) return;
        finish();
        final String number = Float.isFinite(loss) ? "" + loss : "null"; // JSON has no NaN
        final SaveOptions save = new SaveOptions()
                .step(step)
                .keep(2)
                .overwrite(true) // of a run that went on from an earlier step
                .extra("{\"micro_batches\": " + trainer.microBatches(step) + ", \"seed\": "
                        + options.seed + ", \"loss\": " + number + "}");
        saving = context.saveBegin(Path.of(options.save),
                String.format(Locale.ROOT, "step-%06d", step), save, trainer.optimizer());
    }

    /** Waits until the last save has ended. */
    void finish() {
        if (saving != null) saving.finish();
        saving = null;
    }

    /**
     * Loads the newest complete checkpoint of --resume, saved by any number of ranks and any plan. Sets the state from
     * which training continues, and returns a description of the checkpoint. Collective. Throws on all ranks if there
     * is no checkpoint.
     */
    String resume(Trainer trainer) throws BadInput {
        final String option = "--resume " + options.resume + ": ";
        try (Checkpoint loaded = context.load(Path.of(options.resume), trainer.optimizer())) {
            final Matcher position = POSITION.matcher(loaded.extra());
            if (!position.find()) {
                throw new BadInput(option + loaded.path() + " was not saved by this program");
            }
            if (loaded.step() >= options.steps) {
                throw new BadInput(option + "step " + loaded.step() + " was saved, and --steps "
                        + options.steps + " is no more; raise it");
            }
            trainer.goOnFrom((int) loaded.step(), Long.parseLong(position.group(1)));
            return "resumed step " + loaded.step() + " of " + loaded.path() + ", saved by "
                    + loaded.world() + (loaded.world() == 1 ? " rank" : " ranks");
        } catch (MeronException error) {
            throw new BadInput(option + error.getMessage());
        }
    }
}
