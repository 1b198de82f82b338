# SPDX-License-Identifier: Apache-2.0
# Saves checkpoints while training continues, and resumes from them.

"Saves checkpoints as --save and --save-every say, in the background."
mutable struct Saver
    saving::Union{Meron.Future,Nothing}
end

# After a step: begins to save if it is due, once the save before has ended. The next step waits only
# until its states are copied. The save also keeps the state of the run that Meron does not have:
# the choice of examples depends on the seed and on the number of micro-batches of all ranks.
function after_step(saver, trainer, step, loss)
    options = trainer.options
    isempty(options.save) && return
    step == options.steps || options.save_every > 0 && step % options.save_every == 0 || return
    finish(saver)
    number = isfinite(loss) ? string(loss) : "null" # JSON has no NaN
    extra = "{\"micro_batches\": $(micro_batches(trainer, step)), \"seed\": $(options.seed), " *
            "\"loss\": $number}"
    saver.saving = save_checkpoint_begin(
        trainer.context, options.save, "step-" * lpad(step, 6, '0'), trainer.optimizer;
        step = step, keep = 2, extra = extra,
        overwrite = true) # of a run that went on from an earlier step
    return
end

"Waits until the last save has ended."
function finish(saver)
    saver.saving === nothing && return
    wait(saver.saving)
    release(saver.saving)
    saver.saving = nothing
    return
end

# Loads the newest complete checkpoint of --resume, saved by any number of ranks and any plan. Sets
# the state from which training continues, and returns a description of the checkpoint. Collective.
# Throws a BadInput on all ranks if there is no checkpoint.
function resume(trainer)
    folder, steps = trainer.options.resume, trainer.options.steps
    loaded = try
        load_checkpoint!(trainer.context, folder, nothing, trainer.optimizer)
    catch error
        error isa MeronError || rethrow()
        throw(BadInput("--resume $folder: $(error.message)"))
    end
    known, path, extra = Meron.info(loaded), Meron.path(loaded), Meron.extra(loaded)
    release(loaded) # what was loaded stays
    position = match(r"\"micro_batches\": *(\d+)", extra)
    position === nothing &&
        throw(BadInput("--resume $folder: $path was not saved by this program"))
    known.step < steps || throw(BadInput(
        "--resume $folder: step $(known.step) was saved, and --steps $steps is no more; raise it"))
    trainer.first, trainer.position = known.step, parse(Int, position[1])
    return "resumed step $(known.step) of $path, saved by $(known.world) " *
           (known.world == 1 ? "rank" : "ranks")
end
