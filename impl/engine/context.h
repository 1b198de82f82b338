// SPDX-License-Identifier: Apache-2.0
// The context: one rank's engine. It owns transport, memory, units and the operations under way,
// and drives these from whoever waits.
//
// Threads: one lock, lock(), guards everything but the counters. Functions named *_locked and all
// that act on units, gathers, buckets and optimizers need it held; wait() and poll() take it
// themselves and never sleep or call the user while they hold it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "optim/optimizer.h"
#include "optim/step.h"
#include "param/axes.h"
#include "param/device_group.h"
#include "param/gather.h"
#include "param/reduce.h"
#include "param/unit.h"
#include "param/update.h"
#include "plan/predict.h"
#include "schedule/schedule.h"
#include "transport/channel.h"
#include "transport/transport.h"

namespace meron {

class DeviceCollectives;
class DeviceWatch;
struct DeviceCard;
struct DeviceCards;
struct DeviceVerdict;
class ProgressThread;
struct SchedulePlace;
class UnitSchedule;

struct OpenOptions {
  int rank = -1;
  int world_size = -1;
  std::string transport = "auto";
  std::optional<meron_transport> custom;
  std::string job;
  const char* token = nullptr;
  int64_t timeout_ns = 0;
  uint64_t host_memory_limit = 0;
  uint64_t arena_reserve = 0;
  int threads = 0;
  Plan plan;
  LogSink log;
  std::function<bool()> should_stop;
  std::string device;  // empty: none
  DeviceAllocator allocator;
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  static Result<std::shared_ptr<Context>> open(OpenOptions options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void close();
  bool closed() const { return closed_.load(std::memory_order_acquire); }

  // The lock. What was queued for peers under it is sent when it is let go of.
  class Lock {
   public:
    explicit Lock(Context& context) : context_(&context), lock_(context.mutex_) {}
    ~Lock() {
      lock_.unlock();
      if (context_->transport_) context_->transport_->pump();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Context* context_;
    std::unique_lock<std::mutex> lock_;
  };
  Lock lock() { return Lock(*this); }
  Transport& transport() { return *transport_; }
  Rank& rank() { return *rank_; }
  const Rank& rank() const { return *rank_; }
  Channel& world() { return *groups_.front().channel; }

  // Groups. A null channel: this rank is not a member.
  Result<Channel*> create_group_locked(std::span<const int> ranks);
  // Ranks of each node that has some of a group, of which the last may have fewer; 0 where they
  // differ otherwise, or are not side by side.
  int ranks_per_node(const Members& members) const;

  // Params and units.
  Result<std::shared_ptr<Param>> register_param_locked(TensorDesc desc, Channel& channel);
  Result<std::shared_ptr<Unit>> create_unit_locked(std::string name,
                                                   std::vector<std::shared_ptr<Param>> params);

  // Operations: each checks what concerns several units, posts the call, and submits.
  Result<std::shared_ptr<GatherOperation>> gather_locked(std::vector<std::shared_ptr<Unit>> units,
                                                         GatherMode mode,
                                                         std::vector<GatherTarget> targets,
                                                         GatherPlace place = GatherPlace::device);
  Result<std::shared_ptr<UpdateOperation>> update_locked(std::vector<std::shared_ptr<Unit>> units);
  // Null: the micro-batch stayed on this rank and is done.
  Result<std::shared_ptr<Operation>> reduce_locked(const std::shared_ptr<Unit>& unit,
                                                   const ReduceOptions& options,
                                                   CallKind kind = CallKind::reduce,
                                                   bool ends = false);
  // Ends an accumulation. Takes the lock itself, because it may wait for the bucket.
  Result<std::shared_ptr<Operation>> finish_reduction(const std::shared_ptr<Unit>& unit,
                                                      const ReduceOptions& options);
  // Until nothing that was begun of the units' gradients is under way. As wait().
  Result<bool> wait_reductions(std::span<const std::shared_ptr<Unit>> units, int64_t timeout_ns);
  Result<std::shared_ptr<UnitSchedule>> create_schedule_locked(
      std::vector<std::shared_ptr<Unit>> units, const ScheduleOptions& options,
      const SchedulePlace& place);
  // Takes the lock itself: the states' first values may have to be written to a drive.
  Result<std::shared_ptr<Optimizer>> create_optimizer(std::vector<std::shared_ptr<Unit>> units,
                                                      const OptimizerOptions& options);
  Result<std::shared_ptr<StepOperation>> step_locked(const std::shared_ptr<Optimizer>& optimizer);
  Result<std::shared_ptr<Operation>> barrier_locked(Channel& channel);
  Result<std::shared_ptr<Operation>> broadcast_locked(Channel& channel, std::byte* data,
                                                      uint64_t bytes, int root);
  Result<std::shared_ptr<Operation>> all_reduce_locked(Channel& channel, std::byte* data,
                                                       uint64_t count, DType dtype, bool mean);

  // Makes the unit's bucket writable, waiting for peers that still read it.
  Status open_bucket(const std::shared_ptr<Unit>& unit);

  // True: ended well. False: not yet. `timeout_ns` < 0: until the operation's own deadline.
  Result<bool> wait(const std::shared_ptr<Operation>& operation, int64_t timeout_ns);
  Result<bool> poll(const std::shared_ptr<Operation>& operation) { return wait(operation, 0); }
  // As wait(), and until the device has what it gathers.
  Result<bool> wait_whole(const std::shared_ptr<GatherOperation>& gather, int64_t timeout_ns);
  // Advances it once. Whether it has ended well; its error otherwise.
  Result<bool> look_locked(Operation& operation);
  Status progress();
  // Threads that wait, and so drive what is under way.
  int waiters() const { return waiters_.load(std::memory_order_relaxed); }
  // The group's sticky error, after a look whether its members are alive.
  Status group_status(Channel& channel);

  // Of this rank, for the units made so far, over all groups.
  Result<RankPrediction> predict_locked(Workload workload);
  // What DeviceWatch does now and then.
  void look_after_devices();
  uint64_t control_bytes() const { return control_bytes_.load(std::memory_order_relaxed); }
  Status check_open() const;

 private:
  explicit Context(OpenOptions options);
  Status start();
  // Channel::post, with the flight record of a failure.
  Result<uint64_t> post(Channel& channel, const Call& call);
  Status await_room_locked(Channel& channel);
  // Where MERON_FLIGHT_RECORD names a folder: writes this rank's record there, once, when its group
  // breaks.
  void record_failure_locked(const Error& error);
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
  // Waits with the lock held, for what ends before anything else begins.
  Status await_locked(const std::shared_ptr<Operation>& operation);
  Status pause_locked();
  // Joins the devices of a group's ranks, where they have some that hold what the plan says and can
  // be joined. All members call it; all get the same.
  struct Group;
  Status join_devices_locked(Group& group);
  Result<DeviceCards> make_cards_locked(Group& group);
  Result<std::vector<DeviceCard>> exchange_cards_locked(Channel& channel, const DeviceCards& cards,
                                                        const DeviceCard& own);
  Result<std::unique_ptr<DeviceGroup>> open_device_group_locked(Group& group,
                                                                const DeviceCollectives& library,
                                                                std::span<const DeviceCard> cards,
                                                                const DeviceVerdict& verdict,
                                                                const DeviceCards& outcomes,
                                                                Deadline deadline, DeviceCard* own);
  Status try_registration_locked(DeviceGroup& devices);
  Status open_window_locked(DeviceGroup& devices, DeviceCommunicator& gathers, uint64_t bytes);
  Status try_devices_locked(DeviceGroup& devices, const Axes& axes, DeviceAxis axis,
                            const DeviceCards& outcomes, Deadline deadline);
  Status await_devices_locked(Channel& channel, const DeviceCards& outcomes,
                              const std::function<Result<bool>()>& come, Deadline deadline,
                              const char* what);
  void look_after_locked(DeviceGroup& devices);
  // Nothing is under way on the device afterwards, whatever peers do.
  void end_devices_locked();
  Status check_units(std::span<const std::shared_ptr<Unit>> units) const;
  Result<std::shared_ptr<Optimizer>> create_optimizer_locked(
      std::vector<std::shared_ptr<Unit>> units, const OptimizerOptions& options);
  // To the units' group where no channel is given.
  Result<uint64_t> post_call(CallKind kind, std::span<const std::shared_ptr<Unit>> units,
                             uint64_t detail, Channel* channel = nullptr,
                             const std::string& place = {});
  // Advances it once; keeps it if it has not ended.
  void submit_locked(const std::shared_ptr<Operation>& operation);
  void advance_locked(Operation& operation);
  void progress_locked();
  // Looks for dead, departed and late members; breaks the group where one is found.
  void inspect_locked(Operation& target);
  std::vector<int> missing_of(const Operation& operation) const;
  std::string waiting_text_locked(const Operation& operation) const;

  OpenOptions options_;
  std::mutex mutex_;
  std::atomic<bool> closing_{false};  // ends a wait under the lock, for which close() would wait
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> control_bytes_{0};
  bool failure_recorded_ = false;
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
  std::unordered_set<std::string> param_names_;
  std::unordered_set<std::string> unit_names_;
  std::vector<std::shared_ptr<Unit>> units_;
  std::vector<std::shared_ptr<Operation>> pending_;
  std::atomic<int> waiters_{0};
  // Ended before anything above goes.
  std::unique_ptr<ProgressThread> progress_;
  std::unique_ptr<DeviceWatch> device_watch_;
};

}  // namespace meron
