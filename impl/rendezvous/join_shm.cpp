// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "rendezvous/join.h"
#include "rendezvous/membership.h"
#include "rendezvous/rendezvous_server.h"
#include "rendezvous/shm_messages.h"

namespace meron {
namespace {

using shm::Hello;
using shm::Introduction;
using shm::kDyingNs;
using shm::receive;
using shm::Welcome;

// The other ranks give rank 0, which knows who is missing, this much longer to say so.
constexpr int64_t kVerdictNs = 500 * kNanosPerMilli;

struct NoCheck {
  Status operator()() const { return Ok{}; }
};

// Waits by attempt(deadline) until `deadline`, and asks should_stop meanwhile, and `check` whether
// there still is something to wait for.
template <class Attempt, class Check = NoCheck>
auto patiently(const MeetingOptions& options, Deadline deadline, Attempt&& attempt,
               const Check& check = {}) -> decltype(attempt(deadline)) {
  while (true) {
    const Deadline slice{std::min(deadline.ns, Deadline::after(kMeetingSliceNs).ns)};
    auto result = attempt(slice);
    if (result.ok() || result.error().code() != MERON_E_TIMEOUT || deadline.passed()) return result;
    if (asked_to_stop(options)) return meeting_stopped();
    MERON_TRY(check());
  }
}

Error user_differs(uint32_t uid) {
  return Error(
      MERON_E_AUTH,
      fmt::format("the peer belongs to user {}, this process to user {}", uid, effective_uid()),
      "run all ranks as one user");
}

// Translates an error of the connection to rank 0. Waits briefly for the end of its process.
Error server_gone(ProcessWatch& server, Error error) {
  if (error.code() == MERON_E_CANCELLED) return error;
  if (error.code() == MERON_E_TIMEOUT) {
    return Error(MERON_E_TIMEOUT, "rank 0 did not answer in time",
                 "look what rank 0 does, or whether it has a later deadline")
        .blaming(0);
  }
  if (!server.ended(Deadline::after(kDyingNs))) {
    return Error(MERON_E_PEER_CLOSED,
                 fmt::format("rank 0 ended the meeting without this rank: {}", error.info().what),
                 "see its output, and start all ranks again")
        .blaming(0);
  }
  return Error(MERON_E_PEER_DEAD,
               fmt::format("rank 0 (pid {}) died while the ranks met: {}", server.pid(),
                           error.info().what),
               "see its output; the launcher tells how it ended")
      .blaming(0);
}

// Rank 0's answer, and the window's descriptor.
Result<UniqueFd> await_welcome(const MeetingOptions& options, int socket, Deadline deadline,
                               Welcome& welcome) {
  auto window =
      patiently(options, deadline, [&](Deadline slice) { return receive(socket, welcome, slice); });
  if (window.ok()) return window;
  // If rank 0 welcomed this rank just before it gave up, others have joined. This rank is then a
  // member, and leaves.
  stop_receiving(socket);
  const auto late = receive(socket, welcome, Deadline::after(0));
  if (late.ok() && welcome.status == MERON_OK) (void)Membership::attach(options, *late).ok();
  return window;
}

// Any other rank's side of the meeting.
Result<Joined> join_server(const MeetingOptions& options, const std::string& name,
                           const Token& token) {
  Joined joined;
  joined.transport = "shm";
  joined.rank = options.rank;
  joined.world_size = options.world_size;
  MERON_ASSIGN(joined.arena, Arena::create(options.arena));
  // As long as rank 0 does not listen the ranks have not met, so that none of them has ended well.
  std::vector<int> others(static_cast<size_t>(options.world_size));
  std::iota(others.begin(), others.end(), 0);
  auto connected = patiently(
      options, options.deadline, [&](Deadline slice) { return connect_abstract(name, slice); },
      [&] { return check_launched(options, others); });
  if (!connected.ok()) {
    if (connected.error().code() != MERON_E_TIMEOUT) return std::move(connected).error();
    return Error(MERON_E_TIMEOUT, "rank 0 did not come in time",
                 "look whether rank 0 was started, with the same token and job")
        .blaming(0);
  }
  const int socket = connected->get();
  MERON_ASSIGN(const PeerCredentials host, peer_credentials(socket));
  if (host.uid != effective_uid()) return user_differs(host.uid);
  ProcessWatch server(host.pid);

  Hello hello;
  hello.rank = options.rank;
  hello.world_size = options.world_size;
  hello.token = token.bytes;
  const int own_arena = joined.arena->fd();
  if (auto sent = shm::send(socket, hello, std::span(&own_arena, 1), options.deadline); !sent.ok())
    return server_gone(server, std::move(sent).error());
  const Deadline verdict{options.deadline.is_never() ? options.deadline.ns
                                                     : options.deadline.ns + kVerdictNs};
  Welcome welcome;
  auto window = await_welcome(options, socket, verdict, welcome);
  if (!window.ok()) return server_gone(server, std::move(window).error());
  if (welcome.status != MERON_OK) {
    welcome.what[sizeof(welcome.what) - 1] = '\0';
    welcome.advice[sizeof(welcome.advice) - 1] = '\0';
    return Error(welcome.status, welcome.what, welcome.advice).blaming(welcome.peer);
  }
  if (!window->valid()) return Error(MERON_E_IO, "rank 0's welcome came without the window");
  MERON_ASSIGN(Membership membership, Membership::attach(options, *window));
  MERON_ASSIGN(joined.window, Window::attach(std::move(*window)));
  for (int rank = 0; rank < options.world_size; ++rank) {
    Introduction who;
    auto arena_fd = receive(socket, who, verdict);
    if (!arena_fd.ok()) return server_gone(server, std::move(arena_fd).error());
    if (who.rank != rank || !arena_fd->valid()) {
      return Error(MERON_E_IO, "rank 0 introduced the ranks out of order");
    }
    joined.pids.push_back(who.pid);
    joined.watches.emplace(rank, ProcessWatch(who.pid));
    if (rank == options.rank) {
      joined.peers.push_back({joined.arena->data(), joined.arena, nullptr});
    } else {
      MERON_ASSIGN(auto arena, PeerArena::attach(std::move(*arena_fd)));
      joined.peers.push_back({arena->readable(0), arena, arena});
    }
  }
  membership.confirm();
  return joined;
}

}  // namespace

Result<Joined> join_shm(const MeetingOptions& options, const std::string& job, const Token& token) {
  const std::string name =
      fmt::format("meron-{}-{}", effective_uid(), job.empty() ? token.public_name() : job);
  if (name.size() > kMaxSocketName) {
    return Error(MERON_E_ARGUMENT, fmt::format("the job name has {} bytes", job.size()),
                 fmt::format("use at most {}", kMaxSocketName - 20));
  }
  if (options.rank != 0) return join_server(options, name, token);
  return serve_rendezvous(options, name, token);
}

}  // namespace meron
