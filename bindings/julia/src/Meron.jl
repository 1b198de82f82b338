# SPDX-License-Identifier: Apache-2.0
"""
Parameters, gradients and optimizer states sharded over ranks, gathered on demand.

    using Meron

    Meron.open() do ctx                              # `meron run -n 2 -- julia fit.jl`: two ranks
        weight = Param(ctx, "weight", (1024, 1024))
        layer = Unit(ctx, "layer", [weight])
        Meron.update(layer) do u                     # every rank writes its shard
            write!(u, weight, ones(Float32, 1024, 1024))
        end
        gather(layer) do full                        # the full tensor, without a copy
            println(sum(full[weight]))
        end
    end

- **Order.** Arrays are Julia's: column-major. C's shape (a, b), row-major, is size (b, a) here. The
  elements have the same order in memory, and linear indices agree (except for the 1).
- **Waiting** lets other tasks run, and ends on Ctrl-C (waiting.jl explains how, and the cost).
- **Views** show the library's memory. After the release of their object every use throws; those that
  this rank alone must not write throw at a write (`ReadOnlyView`, `TensorView`).
- **Errors** are `MeronError`s.
- **Releasing.** The next call releases objects without references, not the garbage collector.
  Release an object that holds a lease (a gather) at a known place: by a do-block, or `release`.
- Ranks and roots count from 0, as everywhere in Meron.
"""
module Meron

import Libdl
import Random
using LinearAlgebra: LinearAlgebra, Adjoint, Transpose, mul!

include("generated.jl")
using .LibMeron: LibMeron, functions

include("library.jl")
include("errors.jl")
include("atomics.jl")
include("released.jl")
include("calls.jl")
include("callbacks.jl")
include("bfloat16.jl")
include("dtypes.jl")
include("device.jl")
include("plan.jl")
include("transport.jl")
include("context.jl")
include("waiting.jl")
include("views.jl")
include("reading.jl")
include("future.jl")
include("group.jl")
include("param.jl")
include("unit.jl")
include("flat.jl")
include("gather.jl")
include("dlpack.jl")
include("update.jl")
include("reduce.jl")
include("optimizer.jl")
include("schedule.jl")
include("tree.jl")
include("io.jl")
include("checkpoint.jl")
include("saving.jl")
include("system.jl")
include("methods.jl")
include("rules.jl")

export MeronError, Context, Group, Plan, Param, Unit, Gather, Update, Optimizer
export ReadOnlyView, TensorView, ParamTree
export gather, gather_begin, write!, shard_view, release, shard_range
export Flat, flats, flat_range
export gradient_view, reduce!, reduce_begin!, reduce_finish!, reduce_finish_begin!, reduced, discard!
export destroy!
export wait_reductions, wait_any, clip_gradients!
export wait_stream, release_on_stream!
export Schedule, start_pass!, enter!, leave!, reset!
export Io, read_begin!, write_begin
export Checkpoint, CheckpointTensor, save_checkpoint, save_checkpoint_begin, wait_copied, save_progress
export load_checkpoint!, open_checkpoint, write_checkpoint, export_model
export list_checkpoints, remove_checkpoint
export step!, step_begin!
export add_optimizer_group!, optimizer_group, set_optimizer_group!, state_view, read_state, write_state!
export skip!, param_steps, set_param_steps!
export offload, reload
export barrier, barrier_begin, bcast!, bcast_begin!, allreduce!, allreduce_begin!

# Names for programs that are not exported, because other packages have them too.
const PUBLIC = (
    :BFloat16, :DeviceArray, :Future, :IoBuffer, :IoRequest, :LibraryError, :Transport, :abort, :alive,
    :bytes, :cancel, :cancel_save, :closed, :damage, :describe, :dlpack, :event_fd, :extra,
    :flight_record, :hand_over, :idle, :info, :json, :library_path, :manifest, :max_message,
    :missing_states, :open, :parse_plan, :path, :pinned, :plan_json, :predict, :progress, :publish,
    :start_receive, :start_send, :stats, :status, :system_info, :table, :test, :transport_name,
    :unexpected_tensors, :unsafe_array, :update, :update_begin, :version, :writable)
VERSION >= v"1.11" && eval(Expr(:public, PUBLIC...))

include("precompile.jl")

function __init__()
    load_library()
    find_signal_flag()
end

end # module
