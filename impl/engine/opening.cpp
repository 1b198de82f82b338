// SPDX-License-Identifier: Apache-2.0
// How a context is opened: which transport, who meets, whether all have the same plan.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/hash.h"
#include "engine/context.h"
#include "engine/progress_thread.h"
#include "os/process.h"
#include "plan/plan_json.h"
#include "topology/identity.h"
#include "transport/join.h"
#include "transport/token.h"

namespace meron {
namespace {

constexpr int64_t kDefaultTimeoutNs = 600 * kNanosPerSecond;
// How long a rank that waits for the others' first calls sleeps between looks.
constexpr int64_t kLookNs = kNanosPerMilli;
// Room for a plan as JSON, of each rank.
constexpr uint64_t kPlanText = 4096;

bool has_token(const OpenOptions& options) {
  return options.token != nullptr || std::getenv("MERON_TOKEN") != nullptr ||
         std::getenv("MERON_TOKEN_FD") != nullptr;
}

Result<std::string> choose_transport(const OpenOptions& options, const Identity& identity) {
  std::string name = options.transport;
  if (name == "auto") {
    // mpirun gives no token, and may have started ranks on several hosts.
    const bool by_mpi = identity.source == "Open MPI" || identity.source == "MPICH";
    name = options.custom                  ? "custom"
           : identity.world_size == 1      ? "self"
           : by_mpi && !has_token(options) ? "mpi"
                                           : "shm";
  }
  if (options.custom && name != "custom" && name != "cluster") {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("a custom transport is given, and transport '{}' asked for", name),
                 "ask for 'custom' or 'cluster', or give no meron_transport");
  }
  return name;
}

struct Met {
  Joined joined;
  bool any_thread = false;  // the link may be pumped by a thread of the engine's own
};

Result<Met> join_world_of_mpi(const MeetingOptions& meeting) {
  MERON_ASSIGN(MpiWorld world, open_mpi());
  if (world.rank != meeting.rank || world.world_size != meeting.world_size) {
    if (world.table.closed != nullptr) world.table.closed(world.table.user);
    return Error(MERON_E_MISMATCH,
                 fmt::format("this is rank {} of {}, and to MPI rank {} of {}", meeting.rank,
                             meeting.world_size, world.rank, world.world_size),
                 "start the ranks with mpirun, and leave rank and world size to it");
  }
  MERON_ASSIGN(Joined joined, join_cluster(meeting, world.table));
  return Met{std::move(joined), world.any_thread};
}

Result<Met> join(const std::string& name, const MeetingOptions& meeting,
                 const OpenOptions& options) {
  const auto plain = [](Result<Joined> joined) -> Result<Met> {
    if (!joined.ok()) return std::move(joined).error();
    return Met{std::move(*joined)};
  };
  if (name == "self") {
    if (meeting.world_size == 1) return plain(join_self(meeting));
    return Error(
        MERON_E_ARGUMENT,
        fmt::format("transport 'self' is for one rank, the world has {}", meeting.world_size),
        "use 'shm' for processes or 'local' for threads");
  }
  if (name == "local") {
    return plain(join_local(meeting, options.job.empty() ? "default" : options.job));
  }
  if (name == "shm") {
    MERON_ASSIGN(const Token token, find_token(options.token));
    return plain(join_shm(meeting, options.job, token));
  }
  if (name == "mpi") return join_world_of_mpi(meeting);
  if (name == "custom" || name == "cluster") {
    if (!options.custom) {
      return Error(MERON_E_ARGUMENT, fmt::format("transport '{}' needs a meron_transport", name),
                   "set meron_context_options::custom");
    }
    return plain(name == "custom" ? join_custom(meeting, *options.custom)
                                  : join_cluster(meeting, *options.custom));
  }
  return Error(MERON_E_ARGUMENT, fmt::format("there is no transport '{}'", name),
               "use 'auto', 'self', 'local', 'shm', 'mpi', 'custom' or 'cluster'");
}

}  // namespace

Status Context::start() {
  MERON_ASSIGN(const Identity identity, find_identity(options_.rank, options_.world_size));
  MERON_ASSIGN(const std::string name, choose_transport(options_, identity));
  if (options_.custom && name != "custom" && name != "cluster") {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("a custom transport is given, and transport '{}' asked for", name),
                 "ask for 'custom' or 'cluster', or give no meron_transport");
  }

  MeetingOptions meeting;
  meeting.rank = identity.rank;
  meeting.world_size = identity.world_size;
  meeting.window_reserve = options_.arena_reserve;
  meeting.arena.reserve = options_.arena_reserve;
  meeting.arena.limit = options_.host_memory_limit;
  const int64_t timeout = options_.timeout_ns > 0 ? options_.timeout_ns : kDefaultTimeoutNs;
  meeting.deadline = Deadline::after(timeout);
  meeting.should_stop = options_.should_stop;

  auto met = join(name, meeting, options_);
  if (!met.ok()) return std::move(met).error().at(identity.rank);
  const bool any_thread = met->any_thread;

  transport_ = std::make_unique<Transport>(std::move(met->joined));
  const int threads =
      options_.threads > 0 ? options_.threads : std::max(1, cpu_count() / identity.local_size);
  rank_ = std::make_unique<Rank>(*transport_, options_.plan, threads, timeout);
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
  if (any_thread && transport_->link() != nullptr) {
    progress_ = std::make_unique<ProgressThread>(*this);
    transport_->link()->send_in_turn();
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

// Where the first call of another node's rank comes later: no rank begins to work before all have
// opened alike.
Status Context::await_world() {
  if (world().link() == nullptr) return Ok{};
  const Deadline deadline = rank_->deadline();
  while (true) {
    transport_->pump();
    auto agreed = world().agreed(1);
    if (!agreed.ok()) {
      record_failure_locked(agreed.error());
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

// Said once, by rank 0: what a plan has that these nodes give no use.
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
  if (plan.second_copy && transport_->link() == nullptr) {
    options_.log(LogLevel::info,
                 fmt::format("plan '{}': all ranks share one node's memory, so the second copy "
                             "takes no memory and saves no transfer",
                             plan.name));
  }
}

}  // namespace meron
