// SPDX-License-Identifier: Apache-2.0
// How a context is opened: the ranks join, then see whether all have the same plan.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "device/modules.h"
#include "engine/blame.h"
#include "engine/context.h"
#include "engine/joining.h"
#include "engine/progress_thread.h"
#include "os/numa.h"
#include "os/process.h"
#include "plan/codec_losses.h"
#include "plan/plan_json.h"
#include "plan/value_layout.h"
#include "topology/identity.h"

namespace meron {
namespace {

constexpr int64_t kDefaultTimeoutNs = 600 * kNanosPerSecond;
// Sleep between two looks for the first calls of other ranks.
constexpr int64_t kLookNs = kNanosPerMilli;
// Room for a plan as JSON, of each rank.
constexpr uint64_t kPlanText = 4096;

}  // namespace

Status Context::start() {
  MERON_ASSIGN(const Identity identity,
               find_identity(options_.join.rank, options_.join.world_size));
  MeetingOptions meeting;
  meeting.rank = identity.rank;
  meeting.world_size = identity.world_size;
  meeting.window_reserve = options_.arena_reserve;
  meeting.arena.reserve = options_.arena_reserve;
  meeting.arena.limit = options_.host_memory_limit;
  const int64_t timeout = options_.timeout_ns > 0 ? options_.timeout_ns : kDefaultTimeoutNs;
  meeting.deadline = Deadline::after(timeout);
  meeting.should_stop = options_.should_stop;
  meeting.board = join_board(identity);

  if (options_.device.empty() && uses_device(options_.plan)) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("the plan '{}' has tier device, and the context names no device",
                             options_.plan.name),
                 "open the context with a device, or take tier host")
        .on("plan")
        .at(identity.rank);
  }
  // Before the others are met, who would wait for a rank that has no device.
  std::shared_ptr<Device> device;
  if (!options_.device.empty()) {
    auto opened = open_device(options_.device, std::move(options_.allocator));
    if (!opened.ok()) return std::move(opened).error().on(options_.device).at(identity.rank);
    device = std::move(opened).value();
  }
  auto met = join_world(options_.join, identity, meeting);
  if (!met.ok()) return std::move(met).error().at(identity.rank);
  const bool any_thread = met->any_thread;

  transport_ = std::make_unique<Transport>(std::move(met->joined));
  const int threads =
      options_.threads > 0 ? options_.threads : std::max(1, cpu_count() / met->local_size);
  int rank_here = 0;
  for (int r = 0; r < identity.rank; ++r) rank_here += transport_->is_local(r) ? 1 : 0;
  rank_ = std::make_unique<Rank>(*transport_, options_.plan, threads, timeout,
                                 near_cpus(numa_nodes(), rank_here, transport_->ranks_here()));
  if (device) {
    MERON_ASSIGN(rank_->device, DeviceSide::create(std::move(device), *transport_));
  }
  control_bytes_ += header_bytes(static_cast<uint64_t>(identity.world_size));
  MERON_TRY(make_group(Members::world(identity.world_size, identity.rank)));
  MERON_TRY(publish_plan());
  if (groups_.front().no_mesh) {
    transport_->leave();
    return *groups_.front().no_mesh;
  }
  // The first call of every world: plans that differ are found before anything depends on them.
  const Call call{CallKind::open, options_.plan.name, 0, hash_text(to_json(options_.plan, -1))};
  auto posted = post(world(), call);
  Status opened = posted.ok() ? await_world() : Status(std::move(posted).error());
  if (!opened.ok()) {
    transport_->leave();
    return opened;
  }
  tell_of_mesh();
  if (Status joined = join_devices(groups_.front()); !joined.ok()) {
    transport_->leave();
    return joined;
  }
  if (any_thread && transport_->link() != nullptr) {
    threads_.progress = std::make_unique<ProgressThread>(*this);
    transport_->link()->move_in_turn();
  }
  return Ok{};
}

Status Context::publish_plan() {
  const int ranks = transport_->world_size();
  MERON_ASSIGN(const uint64_t offset,
               transport_->window_allocate(kPlanText * static_cast<uint64_t>(ranks), "the plans"));
  MERON_TRY(transport_->window().reserve(offset, kPlanText * static_cast<uint64_t>(ranks)));
  control_bytes_ += kPlanText * static_cast<uint64_t>(ranks);
  Window& window = transport_->window();
  const auto place = [offset](int rank) {
    return offset + kPlanText * static_cast<uint64_t>(rank);
  };
  const std::string text = to_json(options_.plan, -1);
  const size_t bytes = std::min(text.size(), kPlanText - 1);
  std::byte* const own = window.writable(place(transport_->rank()));
  std::memcpy(own, text.data(), bytes);
  world().share(own, round_up(bytes + 1, 8));
  world().explain_open([this, &window, place, text](int member) {
    const int rank = world().members().world_rank(member);
    const auto* other = reinterpret_cast<const char*>(window.readable(place(rank)));
    const std::string difference =
        plan_difference(text, std::string_view(other, strnlen(other, kPlanText)));
    return difference.empty() ? std::string("; their plans differ")
                              : fmt::format("; their plans differ in {}", difference);
  });
  return Ok{};
}

// Waits for the first call of remote ranks, which arrives late: no rank works before all have
// opened with the same plan.
Status Context::await_world() {
  if (world().link() == nullptr) return Ok{};
  const Deadline deadline = rank_->deadline();
  while (true) {
    transport_->pump();
    auto agreed = world().agreed(1);
    if (!agreed.ok()) {
      record_failure(agreed.error());
      return std::move(agreed).error();
    }
    if (*agreed) return world().status();
    if (options_.should_stop && options_.should_stop()) {
      return Error(MERON_E_CANCELLED, "should_stop asked the rank to stop waiting for the others",
                   "open again when the ranks are to meet");
    }
    MERON_TRY(world().check_present(1, deadline));
    Transport::Sleeper sleeper(*transport_);
    sleeper.sleep(kLookNs);
  }
}

// Rank 0 logs keys of the plan that these nodes give no use, and codecs that cost accuracy.
void Context::tell_of_mesh() {
  const Plan& plan = options_.plan;
  const MeshShape& mesh = groups_.front().axes.mesh;
  if (transport_->rank() != 0 || !options_.log || plan.mesh.shard == Mesh::kAll) return;
  if (mesh.replicas == 1) {
    return options_.log(
        LogLevel::info,
        fmt::format("plan '{}': all {} ranks are on the shard axis{}, so there is nothing between "
                    "replicas to save: it works as zero3 does",
                    plan.name, mesh.shards,
                    plan.mesh.shard == Mesh::kNode ? ", being on one node" : ""));
  }
  for (const std::string& loss : codec_losses(plan)) options_.log(LogLevel::warning, loss);
  if (secondary_on_host(plan) && transport_->link() == nullptr) {
    options_.log(LogLevel::info,
                 fmt::format("plan '{}': all ranks share one node's memory, so the secondary "
                             "partition takes no memory and saves no transfer",
                             plan.name));
  }
}

}  // namespace meron
