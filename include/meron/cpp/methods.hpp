// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
// meron/cpp/methods.hpp: calls of the C interface as methods of the handle's owner.
#ifndef MERON_CPP_METHODS_HPP
#define MERON_CPP_METHODS_HPP

#include <string_view>

#include "meron/cpp/base.hpp"
#include "meron/cpp/future.hpp"
#include "meron/cpp/values.hpp"
#include "meron/meron.h"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {
namespace detail {

template <class Self>
class ContextMethods {
 public:
  // This rank, 0 to world size - 1. Never blocks. Throws MERON_E_ARGUMENT, MERON_E_HANDLE,
  // MERON_E_STALE, MERON_E_FORKED.
  int32_t rank() const { return detail::receive(meron_context_rank, raw()); }
  // The number of ranks. Never blocks. Throws MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
  // MERON_E_FORKED.
  int32_t world_size() const { return detail::receive(meron_context_world_size, raw()); }
  // The name of the transport in use: "self", "local", "shm", or that of a custom one. Never
  // blocks. Throws MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
  std::string_view transport() const& { return detail::receive(meron_context_transport, raw()); }
  std::string_view transport() const&& = delete;  // it would dangle
  // The plan that the context was opened with, as JSON that meron_plan_parse reads back to an
  // equal plan; "zero3" if it was opened without one. Never blocks. Throws MERON_E_ARGUMENT,
  // MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
  String plan_json() const {
    return String(adopt, detail::receive(meron_context_plan_json, raw()));
  }
  // Advances every operation of this context that can advance, without waiting. Waits do the
  // same; a trainer that computes for long between begin and wait may call it in between.
  // Clears the descriptor of `event_fd` first. Never blocks on peers; computes. Throws
  // MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_CANCELLED, MERON_E_TIMEOUT,
  // MERON_E_PEER_DEAD, MERON_E_PEER_CLOSED, MERON_E_MISMATCH, MERON_E_ABORTED, MERON_E_FORKED.
  void progress() const { detail::call(meron_context_progress, raw()); }
  // A descriptor for event loops (epoll, poll, asyncio, tokio): it becomes readable when a
  // future of the context may have advanced. A thread of the engine writes to it when a peer
  // has done something, and at least 50 times a second while an operation is pending; it
  // advances no operation. In the loop, call `progress`, which clears the descriptor, or read
  // its 8 bytes; then poll the futures. Clear it before the polls: what comes later makes it
  // readable again. Poll a future once after its begin, too: if it has ended by then, no sign
  // follows. Futures of io.h are of no context and have none. Never blocks. Throws
  // MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_CLOSED, MERON_E_FORKED,
  // MERON_E_NO_MEMORY (no thread), MERON_E_IO (no descriptor is left).
  int32_t event_fd() const { return detail::receive(meron_context_event_fd, raw()); }
  // The flight recorder: the last operations (up to 1,024) of every rank of the world, as JSON.
  // Works on a broken group too. Never blocks. Throws MERON_E_ARGUMENT, MERON_E_HANDLE,
  // MERON_E_STALE, MERON_E_FORKED.
  String flight_record() const {
    return String(adopt, detail::receive(meron_context_flight_record, raw()));
  }
  // Cancels the pending save. Any rank may do so, without the others: all of them stop writing,
  // and the save's future ends on each with MERON_E_CANCELLED, whose peer is a rank that
  // cancelled. If all ranks have written their files by then, the save succeeds instead, on all
  // of them. A cancelled save leaves no files, also with `overwrite` and `keep`: earlier
  // checkpoints stay as they were. If a process is killed meanwhile, a hidden directory may
  // remain (.saving-...), which the next save removes. The next save does not report the
  // cancelled one. It begins nothing and waits for nothing: wait for the future. Returns
  // MERON_OK also if no save is pending. Never blocks. Throws MERON_E_HANDLE, MERON_E_STALE,
  // MERON_E_CLOSED, MERON_E_FORKED.
  void cancel_save() const { detail::call(meron_checkpoint_cancel_save, raw()); }

 private:
  meron_context raw() const noexcept { return static_cast<const Self*>(this)->handle(); }
};

template <class Self>
class PlanMethods {
 public:
  // The plan as JSON that meron_plan_parse reads back to an equal plan. Never blocks. Throws
  // MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
  String json() const { return String(adopt, detail::receive(meron_plan_json, raw())); }
  // The plan as a table for people, several lines. Never blocks. Throws MERON_E_ARGUMENT,
  // MERON_E_HANDLE, MERON_E_STALE.
  String table() const { return String(adopt, detail::receive(meron_plan_table, raw())); }

 private:
  meron_plan raw() const noexcept { return static_cast<const Self*>(this)->handle(); }
};

template <class Self>
class GroupMethods {
 public:
  // This rank's number in the group. Never blocks. Throws MERON_E_ARGUMENT, MERON_E_HANDLE,
  // MERON_E_STALE, MERON_E_FORKED.
  int32_t rank() const { return detail::receive(meron_group_rank, raw()); }
  // The number of ranks in the group. Never blocks. Throws MERON_E_ARGUMENT, MERON_E_HANDLE,
  // MERON_E_STALE, MERON_E_FORKED.
  int32_t size() const { return detail::receive(meron_group_size, raw()); }
  // Breaks the group on every rank: pending waits end with MERON_E_ABORTED, which contains
  // `reason`. `reason`: null or text for people, at most 200 bytes are kept. Never blocks.
  // Throws MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
  void abort(const Text& reason = nullptr) const {
    detail::call(meron_group_abort, raw(), reason.c_str());
  }
  // Begins a barrier: the future ends when every rank of the group has begun it. Blocks if this
  // rank is 1,024 calls ahead of a peer, until that peer has followed, at most the deadline;
  // and while another thread of this rank begins an operation. Throws MERON_E_ARGUMENT,
  // MERON_E_HANDLE, MERON_E_STALE, MERON_E_CANCELLED, MERON_E_TIMEOUT, MERON_E_PEER_DEAD,
  // MERON_E_PEER_CLOSED, MERON_E_MISMATCH, MERON_E_ABORTED, MERON_E_AUTH, MERON_E_VERSION,
  // MERON_E_FORKED.
  [[nodiscard]] Future barrier_begin() const {
    return Future(adopt, detail::receive(meron_barrier_begin, raw()));
  }
  // As barrier_begin, and waits for its end as Future::wait does.
  void barrier() const { barrier_begin().wait(); }

 private:
  meron_group raw() const noexcept { return static_cast<const Self*>(this)->handle(); }
};

template <class Self>
class ParamMethods {};

template <class Self>
class UnitMethods {
 public:
  // The unit's name. Never blocks. Throws MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
  // MERON_E_FORKED.
  std::string_view name() const& { return detail::receive(meron_unit_name, raw()); }
  std::string_view name() const&& = delete;  // it would dangle
  // Declares the reduced gradient of a unit as used by an optimizer of the trainer's own. If
  // the codec has feedback, the next gradient makes up for what was lost of this one. Blocks
  // only while another thread of this rank begins an operation. Throws MERON_E_STATE (there is
  // none, or a reduction or step is pending), MERON_E_HANDLE, MERON_E_STALE.
  void consume() const { detail::call(meron_reduce_consume, raw()); }
  // Multiplies the codec's feedback, which is what it has lost of gradients so far. Call it if
  // a loss scale changes that is not a part of options.divisor, with the new scale divided by
  // the old one. Does nothing if the plan has no feedback. `factor`: of the next gradients to
  // those before, 0 or more; 0 drops the feedback. Blocks while another thread of this rank
  // begins an operation and, if there is feedback, while a save copies it. Throws
  // MERON_E_ARGUMENT (the factor), MERON_E_STATE (a reduction is pending), MERON_E_HANDLE,
  // MERON_E_STALE.
  void scale_feedback(double factor) const {
    detail::call(meron_reduce_scale_feedback, raw(), factor);
  }

 private:
  meron_unit raw() const noexcept { return static_cast<const Self*>(this)->handle(); }
};

template <class Self>
class OptimizerMethods {
 public:
  // Sets the learning rate of the next steps for params of group 0; the same on all ranks (it
  // is part of the step's fingerprint). Never blocks. Throws MERON_E_ARGUMENT, MERON_E_HANDLE,
  // MERON_E_STALE.
  void set_learning_rate(double learning_rate) const {
    detail::call(meron_optimizer_set_learning_rate, raw(), learning_rate);
  }
  // Sets max_norm of the next steps: larger gradients are scaled down to it, smaller ones stay;
  // 0 does not clip. The same on all ranks (it is part of the step's fingerprint). Never
  // blocks. Throws MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
  void set_max_norm(double max_norm) const {
    detail::call(meron_optimizer_set_max_norm, raw(), max_norm);
  }
  // Begins a step: norm of all gradients of this optimizer (exact, so equal for every number of
  // ranks), clipping, update of this rank's shards, publication of the next version. Needs the
  // reduced gradient of every unit, and no lease on any of them on this rank: release gathers
  // before, also pending ones, and drop schedules. A gather may begin again when the step has
  // ended here. Collective over the units' group. States on tier nvme are read, updated and
  // written at the same time, piece by piece; nothing is written before the norm is known to be
  // finite. Blocks as `barrier_begin`; the future waits for a save that copies the states.
  // Throws MERON_E_HANDLE, MERON_E_STALE, MERON_E_STATE, MERON_E_NONFINITE, MERON_E_IO,
  // MERON_E_CORRUPT, MERON_E_TIMEOUT, MERON_E_PEER_DEAD, MERON_E_PEER_CLOSED, MERON_E_MISMATCH,
  // MERON_E_ABORTED, MERON_E_AUTH, MERON_E_VERSION.
  [[nodiscard]] Future step_begin() const {
    return Future(adopt, detail::receive(meron_optimizer_step_begin, raw()));
  }
  // As step_begin, and waits for its end as Future::wait does.
  void step() const { step_begin().wait(); }
  // Sets the number of steps that the optimizer and all of its params have taken, for an
  // optimizer that continues from a checkpoint, beside its states
  // (meron_optimizer_write_state). Adam's bias corrections, the first step of SGD with a
  // momentum (which takes no average) and the random rounding of states in 16 or 8 bits depend
  // on it. All ranks set the same number, because the fingerprint of the next step includes it.
  // Changes nothing else. `steps`: at most 2^53. Never blocks. Throws MERON_E_ARGUMENT,
  // MERON_E_STATE (a step is pending), MERON_E_HANDLE, MERON_E_STALE.
  void set_steps(uint64_t steps) const { detail::call(meron_optimizer_set_steps, raw(), steps); }
  // Moves this rank's states in memory, including the f32 master, to this rank's file on a
  // drive, and frees their memory, for a phase that needs it for something else, like
  // DeepSpeed's offload_states. Values stay usable. Until `reload`, steps, updates, saves,
  // loads and reads and writes of states return MERON_E_STATE. `folder`: on a drive; null for
  // the plan's nvme.path, or for the folder that already has this rank's file. Blocks on this
  // rank's drive, and meanwhile other calls of this rank that begin an operation; while a save
  // copies states, without a deadline; never on peers. Throws MERON_E_ARGUMENT (no folder, an
  // unusable one), MERON_E_STATE (a step is pending, they are offloaded already),
  // MERON_E_UNSUPPORTED (they are on tier device), MERON_E_NO_SPACE, MERON_E_IO,
  // MERON_E_NOT_FOUND, MERON_E_TIMEOUT, MERON_E_HANDLE, MERON_E_STALE.
  void offload(const Text& folder = nullptr) const {
    detail::call(meron_optimizer_offload, raw(), folder.c_str());
  }
  // Restores the states that `offload` moved, bit for bit. Blocks as `offload`. Throws
  // MERON_E_STATE (they are not offloaded), MERON_E_NO_MEMORY, MERON_E_IO, MERON_E_CORRUPT (the
  // drive returned other bytes), MERON_E_TIMEOUT, MERON_E_HANDLE, MERON_E_STALE.
  void reload() const { detail::call(meron_optimizer_reload, raw()); }

 private:
  meron_optimizer raw() const noexcept { return static_cast<const Self*>(this)->handle(); }
};

template <class Self>
class CheckpointMethods {};

template <class Self>
class ScheduleMethods {
 public:
  // Releases all units that stay full or were prefetched. Call it before an update, an
  // optimizer step, a save or a load, which need all leases released. The pass and the recorded
  // orders stay. Local. Blocks only while another thread of this rank begins an operation.
  // Throws MERON_E_STATE (names the units that are entered), MERON_E_HANDLE, MERON_E_STALE,
  // MERON_E_FORKED.
  void drop() const { detail::call(meron_schedule_drop, raw()); }

 private:
  meron_schedule raw() const noexcept { return static_cast<const Self*>(this)->handle(); }
};

template <class Self>
class IoMethods {
 public:
  // Describes the speed for people, one line per fact: the backend and the kernel's grants, the
  // reason if it is not a faster one, and the files that use the page cache with the reason.
  // Never blocks. Throws MERON_E_ARGUMENT, MERON_E_NO_MEMORY, MERON_E_HANDLE, MERON_E_STALE,
  // MERON_E_FORKED.
  String describe() const { return String(adopt, detail::receive(meron_io_describe, raw())); }

 private:
  meron_io raw() const noexcept { return static_cast<const Self*>(this)->handle(); }
};

}  // namespace detail
}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_METHODS_HPP
