// SPDX-License-Identifier: Apache-2.0
// The context: one rank's engine. It owns transport, memory, units and the operations under way.
// Waiting threads advance these.
//
// Threads: one lock, lock(), guards everything but the counters, and is held for a short time.
// Functions that need it take its token (base/held.h); so does all that acts on units, gathers,
// buckets and optimizers. Nothing sleeps, calls the trainer's functions or runs a long kernel under
// it. A function that must do so releases it meanwhile (Recess). An operation that does is running,
// and other threads do not advance it. A call that does has the turn (turn.h), so that no other
// thread begins anything.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/held.h"
#include "base/log.h"
#include "base/no_memory.h"
#include "base/result.h"
#include "base/unseen_failures.h"
#include "call_log/channel.h"
#include "collective/all_reduce.h"
#include "device/device_group.h"
#include "engine/callback_count.h"
#include "engine/open_options.h"
#include "engine/pending_operations.h"
#include "engine/releases.h"
#include "engine/turn.h"
#include "engine/wait_reports.h"
#include "gradient/memory.h"
#include "optim/optimizer.h"
#include "optim/step.h"
#include "plan/predict.h"
#include "rank/axes.h"
#include "saving/export.h"
#include "saving/load.h"
#include "saving/saver.h"
#include "schedule/schedule.h"
#include "transport/transport.h"
#include "unit/unit.h"
#include "values/gather.h"
#include "values/update.h"

namespace meron {

class DeviceWatch;
class EventThread;
class ProgressThread;
class SaveOperation;
class SaveThread;
struct ViewMemory;
class UnitSchedule;

// The objects that a save or a load concerns.
struct SavedObjects {
  std::vector<std::shared_ptr<Unit>> units = {};  // empty: all
  std::vector<std::shared_ptr<Optimizer>> optimizers = {};
  bool concerns(const std::shared_ptr<Unit>& unit) const {
    return units.empty() || std::find(units.begin(), units.end(), unit) != units.end();
  }
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  static Result<std::shared_ptr<Context>> open(OpenOptions options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void close();
  bool closed() const { return closing_.done.load(std::memory_order_acquire); }

  // The lock. Taking it runs queued releases first. Releasing it sends the messages queued for
  // peers.
  class Lock final : public Held {
   public:
    explicit Lock(Context& context) : Held(context.mutex_), context_(context) { take_back(); }
    // For a thread of the engine's own, which calls none of the trainer's functions.
    struct Quietly {};
    Lock(Context& context, Quietly) : Held(context.mutex_, true), context_(context) { take_back(); }
    ~Lock() override { leave(); }

   private:
    void take_back() {
      if (context_.releases_.some()) context_.take_back(*this);
    }
    void left() override {
      if (context_.transport_) context_.transport_->pump();
    }
    Context& context_;
  };
  Lock lock() { return Lock(*this); }
  // For finalizers.
  class LockIfFree final : public Held {
   public:
    explicit LockIfFree(Context& context) : Held(context.mutex_, IfFree{}) {
      if (taken() && context.releases_.some()) context.take_back(*this);
    }
    using Held::taken;
  };
  // The turn to begin or to change something: before the lock. MERON_E_CLOSED, MERON_E_CANCELLED;
  // MERON_E_STATE where one of the trainer's functions calls from within such a call.
  Result<Turn> turn() {
    expect_unheld("a wait for the turn");
    if (!gate_.take_if_free()) return wait_for_turn();
    Turn turn(gate_);
    if (releases_in_turn_.some()) take_back_in_turn(turn);
    return turn;
  }
  // For finalizers: never waits, calls none of the trainer's functions. `release` runs once, under
  // the lock: now if that is free, else by who has it next. It begins nothing.
  template <class Release>
  void release_soon(Release release) {
    if (LockIfFree held(*this); held.taken()) return release();
    releases_.add(std::move(release));
    const LockIfFree held(*this);  // the lock may be free by now
  }
  // The same of a value that the caller keeps until this returns: it is shared only if it is
  // queued.
  template <class T>
  void release_soon(const std::shared_ptr<T>& value,
                    void (*release)(Context&, const std::shared_ptr<T>&)) {
    if (LockIfFree held(*this); held.taken()) return release(*this, value);
    release_soon([this, value, release] { release(*this, value); });
  }
  // The same, when no thread is in the middle of beginning something.
  template <class Release>
  void release_in_turn(Release release) {
    if (gate_.take_if_free()) {
      const Turn turn(gate_);
      if (const LockIfFree held(*this); held.taken()) {
        if (releases_in_turn_.some()) release_due_in_turn(held);
        return release();
      }
    }
    releases_in_turn_.add(std::move(release));
    if (!gate_.take_if_free()) return;  // who has the turn may have ended before it was added
    const Turn turn(gate_);
    if (const LockIfFree held(*this); held.taken()) release_due_in_turn(held);
  }
  Transport& transport() { return *transport_; }
  Rank& rank() { return *rank_; }
  const Rank& rank() const { return *rank_; }
  Channel& world() { return *groups_.front().channel; }

  // Groups. A null channel: this rank is not a member. Takes the turn and the lock itself, because
  // devices may have to be joined.
  Result<Channel*> create_group(std::span<const int> ranks);
  // Number of the group's ranks per node; the last node may have fewer. 0 if nodes differ in
  // another way, or if the ranks of a node are not consecutive.
  int ranks_per_node(const Members& members) const;

  // Params and units.
  Result<std::shared_ptr<Param>> register_param(Held& held, TensorDesc desc, Channel& channel);
  // The param's handle was released: its name is free again, unless a unit has the param. Called
  // under the lock, by release_in_turn().
  void forget(const Param& param);
  Result<std::shared_ptr<Unit>> create_unit(Held& held, std::string name,
                                            std::vector<std::shared_ptr<Param>> params);

  // Agrees with all ranks of the group that none uses the unit any more, and releases its memory
  // and names. Takes the turn and the lock itself. After MERON_E_CANCELLED another call continues.
  Status destroy_unit(const std::shared_ptr<Unit>& unit);

  // Operations: each checks what concerns several units, posts the call, and submits.
  Result<std::shared_ptr<GatherOperation>> gather(Held& held,
                                                  std::vector<std::shared_ptr<Unit>> units,
                                                  GatherMode mode,
                                                  std::vector<GatherTarget> targets,
                                                  ViewTier tier = ViewTier::device);
  Result<std::shared_ptr<UpdateOperation>> update(Held& held,
                                                  std::vector<std::shared_ptr<Unit>> units);
  Result<std::shared_ptr<UnitSchedule>> create_schedule(Held& held,
                                                        std::vector<std::shared_ptr<Unit>> units,
                                                        const ScheduleOptions& options,
                                                        const ViewMemory& memory);
  // Takes the lock itself: the states' first values may have to be written to a drive.
  Result<std::shared_ptr<Optimizer>> create_optimizer(std::vector<std::shared_ptr<Unit>> units,
                                                      const OptimizerOptions& options);
  Result<std::shared_ptr<StepOperation>> step(Held& held,
                                              const std::shared_ptr<Optimizer>& optimizer);
  Result<std::shared_ptr<Operation>> barrier(Held& held, Channel& channel);
  Result<std::shared_ptr<Operation>> broadcast(Held& held, Channel& channel, std::byte* data,
                                               uint64_t bytes, int root);
  Result<std::shared_ptr<Operation>> all_reduce(Held& held, Channel& channel, std::byte* data,
                                                uint64_t count, NumberType type, ReduceOp op);

  // The global norm of the units' reduced gradients, which are scaled to at most `max_norm`; 0: are
  // not changed. Takes the turn and the lock itself, and blocks until all ranks have called it.
  Result<double> clip(std::vector<std::shared_ptr<Unit>> units, double max_norm);

  // This rank's part of a state of a param; `count` must be its size. MERON_E_ARGUMENT where there
  // is no such state, or another count; MERON_E_STATE while it cannot be used.
  Status read_state(Optimizer& optimizer, const Param& param, OptimizerState which, uint64_t count,
                    float* out);
  Status write_state(Optimizer& optimizer, const Param& param, OptimizerState which, uint64_t count,
                     const float* data);
  // Checkpoints: collective over the world; they take the turn and the lock themselves. See
  // saving/saver.h and saving/loader.h. begin_save() returns while the save runs (save_thread.h).
  // The others block until all ranks have ended, with or without an error.
  Result<std::shared_ptr<Operation>> begin_save(const SavedObjects& what, SaveOptions options);
  Result<LoadReport> load_checkpoint(const SavedObjects& what, const LoadOptions& options);
  Status export_model(ExportOptions options);
  // The turn, once no save is under way, or once none copies states any more.
  Result<Turn> turn_between_saves(), turn_when_copied();
  // Of the save under way, if there is one. It ends with MERON_E_CANCELLED on all ranks, or well.
  Status cancel_save();
  // False: not within the time. The watch of the last save; null: there was none.
  Result<bool> wait_copied(int64_t timeout_ns);
  Status wait_feedback_copied(Held& held, const Unit& unit);
  // Returns once no reduction changes the feedback of these units.
  Status wait_feedback_settled(Held& held, const SavedObjects& what);
  std::shared_ptr<const SaveWatch> save_watch(bool* under_way);

  // Gradients (reductions.cpp). Functions without a Held take the turn themselves, and may wait for
  // peers that still read the unit's bucket.
  // Adds a micro-batch and begins its reduction. Null: it stayed on this rank and is done.
  Result<std::shared_ptr<Operation>> reduce(const std::shared_ptr<Unit>& unit,
                                            std::span<const GivenGradient> gradients, void* stream,
                                            const ReduceOptions& options);
  // Ends an accumulation.
  Result<std::shared_ptr<Operation>> finish_reduction(const std::shared_ptr<Unit>& unit,
                                                      const ReduceOptions& options);
  // As wait(), for all operations on the units' gradients that have begun.
  Result<bool> wait_reductions(std::span<const std::shared_ptr<Unit>> units, int64_t timeout_ns);
  // The address at which the trainer writes a gradient itself, in the gradient dtype.
  Result<std::byte*> gradient_place(const std::shared_ptr<Unit>& unit, const Param& param,
                                    bool overwrite);
  // This rank's shard of a reduced gradient: elements `part` of the param. The caller may change
  // it.
  struct ReducedGradient {
    float* data = nullptr;
    Range part;
  };
  Result<ReducedGradient> reduced_gradient(Held& held, const Param& param);
  // Of a reduced gradient, or an accumulation. `used`: by the trainer's own optimizer.
  Status end_gradient(Held& held, Unit& unit, bool used);
  Status scale_feedback(Held& held, Unit& unit, double factor);

  // True: ended well. False: not yet. `timeout_ns` < 0: until the operation's own deadline.
  Result<bool> wait(const std::shared_ptr<Operation>& operation, int64_t timeout_ns);
  // The operation's user has got the result of a wait, and knows the error that is in it.
  void note_delivered(Operation& operation, const Result<bool>& ended) {
    if (!ended.ok()) note_delivered(operation, ended.error());
  }
  void note_delivered(Operation& operation, const Error& error);
  // The operation's user has released it: the log gets its failure, unless the user knows it.
  // Called under the lock.
  void leave(const std::shared_ptr<Operation>& operation);
  // As wait(), and until the gathered values are on the device.
  Result<bool> wait_whole(const std::shared_ptr<GatherOperation>& gather, int64_t timeout_ns);
  // Advances it once. Returns true if it has ended well, or its error.
  Result<bool> look(Held& held, Operation& operation);
  Status progress();

  // For waits for several operations, and event loops.
  // Calls `look` until it returns true or fails: true or its error; false if `timeout_ns` passed
  // first. Sleeps meanwhile until a peer has done something. `timeout_ns` < 0: without bound.
  Result<bool> look_until(const std::function<Result<bool>()>& look, int64_t timeout_ns);
  // The descriptor of event_thread.h, which is the context's own. clear_event() makes it unreadable
  // until something may have advanced again.
  Result<int> event_descriptor();
  void clear_event();
  // True if an operation or a save has not ended. Takes the lock; for a thread of the engine's.
  bool some_under_way();
  // Waits the short time until no thread advances the operation.
  void await_still(const Operation& operation);
  // Threads that wait, and so drive what is under way.
  int waiters() const { return waiters_.threads.load(std::memory_order_relaxed); }
  // The group's sticky error, after a look whether its members are alive.
  Status group_status(Channel& channel);

  // Of this rank, for the units made so far, over all groups.
  Result<RankPrediction> predict(Held& held, Workload workload);
  // DeviceWatch calls it periodically.
  void look_after_devices();
  uint64_t control_bytes() const { return control_bytes_.load(std::memory_order_relaxed); }
  Status check_open() const;

 private:
  friend class DeviceJoining;
  friend class EngineExchange;
  friend class SaveThread;
  void end_saves();
  Status tell_failure(SaveOperation& save);
  Result<std::unique_ptr<Channel>> make_save_channel();
  // The units of all ranks, with their optimizers, in the order in which they were made.
  // MERON_E_STATE where states cannot be copied now, MERON_E_UNSUPPORTED where a unit is of some
  // ranks only, MERON_E_ARGUMENT for an optimizer with a unit that is left out.
  Result<std::vector<UnitState>> saved_states(Held& held, const SavedObjects& what) const;
  std::vector<int> nodes_by_rank() const;
  explicit Context(OpenOptions options);
  Status start();
  // Channel::post, with the flight record of a failure.
  Result<uint64_t> post(Channel& channel, const Call& call);
  // Of the operation whose call was posted last, which has read the clock. Before a post:
  // Rank::deadline().
  Deadline deadline_of(const Channel& channel) const {
    return Deadline::after(rank_->timeout_ns, channel.posted_ns());
  }
  Status await_room(Held& held, Channel& channel);
  void tell_notices();
  // If MERON_FLIGHT_RECORD names a folder: writes this rank's record there, once, when its group
  // breaks.
  void record_failure(const Error& error);
  Result<uint64_t> reserve_group(int members);
  // A group and, where its mesh has replicas, its axes. All ranks call it, members or not.
  Result<Channel*> make_group(Members members);
  // The mesh of a group, or why the plan has none for it.
  Result<const Axes*> axes_of(const Channel& channel) const;
  Result<MeshShape> shape_of(const Members& members) const;
  // Lets messages say what differs where ranks have opened with different plans.
  Status publish_plan();
  Status await_world();
  void tell_of_mesh();
  // Joins the devices of a group's ranks, where they have some that hold what the plan says and can
  // be joined. All members call it; all get the same.
  struct Group;
  Result<Group*> create_group(Held& held, std::span<const int> ranks);
  Status join_devices(Group& group);
  void look_after(Held& held, DeviceGroup& devices);
  // Nothing is under way on the device afterwards, whatever peers do.
  void end_devices(Held& held);
  // Aborts what the devices of some groups have under way, together. Releases the lock meanwhile.
  void abort_devices(Held& held, const std::function<bool(const Group&)>& which);
  Status check_units(std::span<const std::shared_ptr<Unit>> units) const;
  Result<std::shared_ptr<Optimizer>> create_optimizer(Held& held,
                                                      std::vector<std::shared_ptr<Unit>> units,
                                                      const OptimizerOptions& options);
  // An error while a unit's memory in the shared segment is being released: an allocation could
  // then get different places on different ranks.
  Status check_window_settled() const;
  Status check_no_gradient_begins(const Unit& unit) const;
  Status open_bucket(const std::shared_ptr<Unit>& unit);
  Status provide_gradients(const std::shared_ptr<Unit>& unit);
  // The caller has the turn. Waits for everything that begin_reduction() needs. The caller may
  // cancel this wait, so it comes before anything is added.
  Status await_reduction(Held& held, const Unit& unit, const ReduceOptions& options);
  Result<std::shared_ptr<Operation>> begin_reduction(Held& held, const std::shared_ptr<Unit>& unit,
                                                     const ReduceOptions& options, CallKind kind,
                                                     bool ends);
  Status check_finish(const Unit& unit) const;
  // If the sums exist already, and none of them is exchanged any more.
  Result<std::shared_ptr<Operation>> finish_sums(const std::shared_ptr<Unit>& unit,
                                                 const ReduceOptions& options);
  static Error destroyed_error(const Unit& unit);
  // To the units' group where no channel is given.
  Result<uint64_t> post_call(CallKind kind, std::span<const std::shared_ptr<Unit>> units,
                             uint64_t detail, Channel* channel = nullptr,
                             const std::string& place = {});
  // Runs `work`. If memory runs out in it the group breaks, because only some values have changed,
  // or peers wait for this rank.
  template <class Work>
  static auto or_break(Channel& channel, const char* operation, Work&& work) -> decltype(work()) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return channel.fail(no_memory_error(operation));
    }
  }
  // Runs `work`, which the ranks do together, without the lock. If memory runs out in it, the world
  // breaks, because peers wait for this rank. A rank without peers only fails the call.
  template <class Work>
  auto in_step(const char* operation, Work&& work) -> decltype(work()) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      Error error = no_memory_error(operation);
      auto held = lock();
      return world().size() > 1 ? world().fail(error) : error;
    }
  }
  void submit(Held& held, const std::shared_ptr<Operation>& operation);
  void progress(Held& held);
  // Drops operations that have ended since their users left them, and notes their failures.
  void note_left();
  // Lines for the log: these failures.
  std::vector<std::string> take_unseen();
  bool some_unseen() const { return !failures_.left.empty() || failures_.unseen.some(); }
  // Asks the trainer about ten times a second. Called without the lock.
  bool asks_to_stop(int64_t now);
  // Breaks the group of an operation that waits for dead, departed or late members.
  void check_peers(Held& held, Operation& target);
  std::vector<int> missing_of(const Held& held, const Operation& operation) const;
  std::string waiting_text(const Held& held, const Operation& operation) const;
  // The ranks that it waits for, as "ranks 2-5"; empty if unknown.
  std::string waited_for(const Held& held, const Operation& operation) const;
  // Lines for the log, which is called without the lock; empty: nothing to report.
  std::string report_wait(const Held& held, Operation& operation, int64_t now);
  std::string report_end(const Held& held, Operation& operation);

  // Runs what release_soon() has queued. A call with a turn also runs releases that need one.
  void take_back(Held& held);
  void take_back_in_turn(const Turn& turn);
  void release_due_in_turn(const Held& held);
  Result<Turn> wait_for_turn();
  // Releases the lock for a while, in which it pumps, sleeps and asks should_stop.
  Status rest(Held& held, int64_t sleep_ns);

  OpenOptions options_;
  Held::Mutex mutex_;
  TurnGate gate_;
  struct Closing {
    std::atomic<bool> begun{false};  // ends waits for which close() waits
    std::atomic<bool> done{false};
    CallbackCount callbacks;
  };
  Closing closing_;
  std::atomic<int64_t> next_stop_check_{0};  // of all waits of this context
  std::atomic<uint64_t> control_bytes_{0};
  uint32_t optimizer_states_ = kMaxStates;  // that the last optimizer's rule keeps

  // Destroyed from the last to the first: units need the arena, operations need units.
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Rank> rank_;
  struct Group {
    std::unique_ptr<Channel> channel, shard, replica;  // null: this rank is not a member
    std::unique_ptr<DeviceGroup> devices;              // null: the host joins its ranks
    Axes axes;
    std::optional<Error> no_mesh;
  };
  std::deque<Group> groups_;  // units keep references
  struct {
    std::unordered_map<std::string, const Param*> params;
    std::unordered_set<std::string> units;
  } names_;
  std::vector<std::shared_ptr<Unit>> units_;
  PendingOperations pending_;
  struct {
    bool recorded = false;  // in a file: the first one that broke a group
    UnseenFailures unseen;
    std::vector<std::shared_ptr<Operation>> left;  // by their users, before they ended
  } failures_;
  // The unit that is being destroyed, and how far that is; see destroying.cpp.
  struct Destruction {
    enum class Phase { none, agreeing, leaving };
    Phase phase = Phase::none;
    std::shared_ptr<Unit> unit;
    std::shared_ptr<Operation> operation;
  };
  Status advance_destruction(Held& held, const std::shared_ptr<Unit>& unit);
  Destruction destruction_;
  struct Waiters {
    std::atomic<int> threads{0};
    std::optional<WaitReports> reports;  // from the first slow wait on
  };
  Waiters waiters_;
  // Ended before anything above is destroyed.
  struct Threads {
    std::unique_ptr<ProgressThread> progress;
    std::unique_ptr<DeviceWatch> devices;
    std::unique_ptr<SaveThread> saves;  // null until the first save
  };
  Threads threads_;
  // Destroyed before the objects that queued releases name.
  Releases releases_, releases_in_turn_;
  // Used by one save or load at a time: these wait for each other.
  const std::shared_ptr<RunHistory> run_history_ = std::make_shared<RunHistory>();
  // Null until its descriptor is asked for. Ended before anything above is destroyed.
  std::unique_ptr<EventThread> events_;
};

}  // namespace meron
