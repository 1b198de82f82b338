// SPDX-License-Identifier: Apache-2.0
#include "engine/joining.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "os/host.h"
#include "rendezvous/store.h"
#include "rendezvous/token.h"

namespace meron {
namespace {

bool has_token(const JoinOptions& options) {
  return options.token != nullptr || std::getenv("MERON_TOKEN") != nullptr ||
         std::getenv("MERON_TOKEN_FD") != nullptr;
}

// The directory of MERON_STORE; empty where there is none.
std::string store_directory() {
  const char* directory = std::getenv("MERON_STORE");
  return directory != nullptr ? directory : "";
}

Result<std::string> choose_transport(const JoinOptions& options, const Identity& identity) {
  std::string name = options.transport;
  if (name == "auto") {
    // mpirun gives no token, and may have started ranks on several hosts.
    const bool by_mpi = identity.source == "Open MPI" || identity.source == "MPICH";
    const bool told = has_token(options) || !store_directory().empty();
    name = options.custom             ? "custom"
           : identity.world_size == 1 ? "self"
           : by_mpi && !told          ? "mpi"
                                      : "shm";
  }
  if (options.custom && name != "custom" && name != "cluster") {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("a custom transport is given, and transport '{}' asked for", name),
                 "ask for 'custom' or 'cluster', or give no custom transport");
  }
  return name;
}

Result<Joined> join_world_of_mpi(const MeetingOptions& meeting, bool& any_thread) {
  MERON_ASSIGN(MpiWorld world, open_mpi());
  if (world.rank != meeting.rank || world.world_size != meeting.world_size) {
    if (world.table.closed != nullptr) world.table.closed(world.table.user);
    return Error(
        MERON_E_MISMATCH,
        fmt::format("this is rank {} of {}, and to {} rank {} of {}", meeting.rank,
                    meeting.world_size, world.library, world.rank, world.world_size),
        "start the ranks with the mpirun of that MPI, and leave rank and world size to it");
  }
  any_thread = world.any_thread;
  return join_cluster(meeting, world.table);
}

// Ranks that have found each other by the store, or need none.
Result<Joined> join(const std::string& name, const MeetingOptions& meeting,
                    const JoinOptions& options, const std::optional<Outcome>& found) {
  if (name == "self") {
    if (meeting.world_size == 1) return join_self(meeting);
    return Error(
        MERON_E_ARGUMENT,
        fmt::format("transport 'self' is for one rank, the world has {}", meeting.world_size),
        "use 'shm' for processes or 'local' for threads");
  }
  if (name == "local") {
    return join_local(meeting, options.job.empty() ? "default" : options.job);
  }
  if (name == "shm") {
    if (!found) {
      MERON_ASSIGN(const Token token,
                   find_token(options.token, meeting.deadline, meeting.should_stop));
      return join_shm(meeting, options.job, token);
    }
    if (found->nodes() > 1) {
      return Error(MERON_E_UNSUPPORTED,
                   fmt::format("the ranks are on {} nodes ({}), between which shared memory "
                               "carries nothing",
                               found->nodes(), found->places()),
                   "start them with mpirun and ask for transport 'mpi', or give a custom transport "
                   "and ask for 'cluster'");
    }
    return join_shm(meeting, "", found->token);
  }
  if (name == "custom" || name == "cluster") {
    if (!options.custom) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("transport '{}' is asked for, and no custom transport given", name),
                   "open the context with the custom transport that carries the bytes");
    }
    return name == "custom" ? join_custom(meeting, *options.custom)
                            : join_cluster(meeting, *options.custom);
  }
  return Error(MERON_E_ARGUMENT, fmt::format("there is no transport '{}'", name),
               "use 'auto', 'self', 'local', 'shm', 'mpi', 'custom' or 'cluster'");
}

// True if ranks find each other through the store: only if they have not met otherwise.
bool uses_store(const std::string& name, const JoinOptions& options, int world_size) {
  if (store_directory().empty() || world_size == 1) return false;
  return name == "shm" ? !has_token(options)
                       : (name == "custom" || name == "cluster") && options.custom.has_value();
}

int count_on_this_node(const Outcome& found) {
  const std::string node = node_identity();
  return static_cast<int>(std::count_if(found.cards.begin(), found.cards.end(),
                                        [&](const Card& card) { return card.node == node; }));
}

}  // namespace

Result<Met> join_world(const JoinOptions& options, const Identity& identity,
                       const MeetingOptions& meeting) {
  MERON_ASSIGN(const std::string name, choose_transport(options, identity));
  Met met;
  met.local_size = identity.local_size;
  if (name == "mpi") {
    MERON_ASSIGN(met.joined, join_world_of_mpi(meeting, met.any_thread));
    return met;
  }
  // It takes its files back once the ranks have joined.
  std::optional<Store> store;
  std::optional<Outcome> found;
  if (uses_store(name, options, identity.world_size)) {
    MERON_ASSIGN(Store opened, Store::open(store_directory(), options.job));
    store.emplace(std::move(opened));
    MERON_ASSIGN(found, store->meet(meeting));
    met.local_size = std::max(1, count_on_this_node(*found));
  }
  MERON_ASSIGN(met.joined, join(name, meeting, options, found));
  return met;
}

}  // namespace meron
