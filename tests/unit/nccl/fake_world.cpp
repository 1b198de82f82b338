// SPDX-License-Identifier: Apache-2.0
#include "fake_world.h"

#include <cstring>

namespace meron::nccl::fake {

World& world() {
  static World made;  // goes when the copy is unloaded
  return made;
}

Result say(Result result, const char* text) {
  world().last_error = text;
  return result;
}

Result check_idle(const FakeComm& comm) {
  if (comm.polls_left == 0) return kSuccess;
  return say(kInvalidArgument,
             "Attempt to use communicator before the previous operation returned ncclSuccess");
}

static const Operation* operation_of(const Group& group, Operation::Kind kind, int peer,
                                     size_t index) {
  for (const Operation& each : group) {
    if (each.kind == kind && each.peer == peer && index-- == 0) return &each;
  }
  return nullptr;
}

// Moves a group that all ranks have launched. The caller has checked that they have.
static Result move_group(Clique& clique, std::map<int, Group>& groups) {
  for (auto& [rank, group] : groups) {
    std::map<int, size_t> received;
    size_t gathers = 0;
    for (const Operation& each : group) {
      if (each.kind == Operation::gather) {
        for (int peer = 0; peer < clique.size; ++peer) {
          const Operation* const from = operation_of(groups[peer], Operation::gather, -1, gathers);
          if (from == nullptr || from->bytes != each.bytes) return kInternalError;
          std::memmove(static_cast<char*>(each.to) + static_cast<size_t>(peer) * each.bytes,
                       from->from, each.bytes);
        }
        ++gathers;
      } else if (each.kind == Operation::receive) {
        const Operation* const from =
            operation_of(groups[each.peer], Operation::send, rank, received[each.peer]++);
        if (from == nullptr || from->bytes != each.bytes) return kInternalError;
        std::memmove(each.to, from->from, each.bytes);
      }
    }
  }
  return kSuccess;
}

void advance(Clique& clique) {
  while (true) {
    const auto found = clique.groups.find(clique.moved + 1);
    if (found == clique.groups.end() || static_cast<int>(found->second.size()) < clique.size)
      return;
    const Result result = move_group(clique, found->second);
    for (auto& [rank, comm] : clique.ranks) {
      if (result != kSuccess && comm != nullptr) comm->failed = say(result, "fake: sizes differ");
    }
    clique.groups.erase(found);
    ++clique.moved;
  }
}

bool is_waiting(const FakeComm& comm) {
  const Clique& clique = *comm.clique;
  return static_cast<int>(clique.ranks.size()) < clique.size || comm.launched > clique.moved ||
         (comm.finalized && world().settings.hang_finalize != 0);
}

bool abort_waits(const std::vector<FakeComm*>& aborted) {
  const Settings& settings = world().settings;
  if (settings.hang_abort != 0) return true;
  if (settings.abort_waits == 0) return false;
  for (const auto& [name, clique] : world().cliques) {
    const auto found = clique.ranks.find(aborted.front()->rank);
    const FakeComm* const comm = found == clique.ranks.end() ? nullptr : found->second;
    if (comm != nullptr && !comm->aborting && is_waiting(*comm)) return true;
  }
  return false;
}

void forget(FakeComm* comm) {
  --world().alive;
  comm->clique->ranks[comm->rank] = nullptr;  // it has come, and is gone
  delete comm;
}

// ---- For tests ----------------------------------------------------------------------------------

FAKE_API void fake_nccl_set(const char* key, int value) {
  const std::lock_guard lock(world().mutex);
  Settings& settings = world().settings;
  const std::string name = key;
  if (name == "reset") settings = Settings();
  if (name == "version") settings.version = value;
  if (name == "in_progress") settings.in_progress = value;
  if (name == "fail_open") settings.fail_open = value;
  if (name == "fail_opening") settings.fail_opening = value;
  if (name == "fail_launch") settings.fail_launch = value;
  if (name == "fail_later") settings.fail_later = value;
  if (name == "hang_finalize") settings.hang_finalize = value;
  if (name == "abort_waits") settings.abort_waits = value;
  if (name == "hang_abort") settings.hang_abort = value;
  if (name == "no_register") settings.no_register = value;
  if (name == "no_windows") settings.no_windows = value;
  if (name == "no_memory") settings.no_memory = value;
}

FAKE_API int fake_nccl_alive() {
  const std::lock_guard lock(world().mutex);
  return world().alive;
}

FAKE_API int fake_nccl_registered() {
  const std::lock_guard lock(world().mutex);
  return world().registered;
}

// Number of open windows, in memory of ncclMemAlloc; and memory that is not freed.
FAKE_API int fake_nccl_windows() {
  const std::lock_guard lock(world().mutex);
  return world().windows;
}

FAKE_API int fake_nccl_allocated() {
  const std::lock_guard lock(world().mutex);
  return world().allocated;
}

FAKE_API int fake_nccl_policy() {
  const std::lock_guard lock(world().mutex);
  return world().policy;
}

}  // namespace meron::nccl::fake
