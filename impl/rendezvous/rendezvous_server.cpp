// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/rendezvous_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "base/rank_text.h"
#include "os/random.h"
#include "rendezvous/membership.h"
#include "rendezvous/shm_messages.h"

namespace meron {
namespace {

using shm::Hello;
using shm::Introduction;
using shm::kDyingNs;
using shm::receive;
using shm::Welcome;

// Longest time for a connection to greet. The server continues meanwhile.
constexpr int64_t kHelloNs = 5 * kNanosPerSecond;
constexpr size_t kMaxConnections = 128;
constexpr int64_t kSliceNs = 20 * kNanosPerMilli;
// A rank greets as soon as it is connected: worth a short wait before the next look around.
constexpr int64_t kGreetingNs = 2 * kNanosPerMilli;

// A connection that has not greeted yet.
struct Connection {
  UniqueFd socket;
  int32_t pid;
  Deadline deadline;
};

struct Arrived {
  UniqueFd socket;
  UniqueFd arena;
  ProcessWatch watch;
};

class RendezvousServer {
 public:
  RendezvousServer(const MeetingOptions& options, const std::string& name, const Token& token)
      : options_(options), name_(name), token_(token) {}

  Result<Joined> meet() {
    Joined joined;
    joined.transport = "shm";
    joined.rank = 0;
    joined.world_size = options_.world_size;
    MERON_ASSIGN(joined.window, Window::create(options_.window_reserve));
    const uint64_t head_bytes = header_bytes(static_cast<uint64_t>(options_.ranks_in_window()));
    MERON_TRY(joined.window->reserve(0, head_bytes));
    auto* header = new (joined.window->writable(0)) WindowHeader;
    header->magic = kWindowMagic;
    header->world_size = static_cast<uint32_t>(options_.ranks_in_window());
    MERON_ASSIGN(Mapping head,
                 Mapping::map_file(joined.window->fd(), head_bytes, Access::read_write));
    Membership membership(options_, std::move(head));
    MERON_ASSIGN(joined.arena, Arena::create(options_.arena));

    const Status gathered = gather();
    if (!gathered.ok()) {
      const Error& error = gathered.error();
      const bool stopped = error.code() == MERON_E_CANCELLED;  // here, not there
      const Error told = stopped
                             ? Error(MERON_E_PEER_CLOSED, "rank 0 gave up waiting for the ranks",
                                     "start all ranks again")
                                   .blaming(0)
                             : error;
      for (auto& [rank, member] : arrived_) refuse(member.socket, told, told.info().peer);
      return error;
    }
    // A member that dies now stays a member. Every rank's first call finds it dead, and names it.
    // An error here would blame rank 0.
    for (auto member = arrived_.begin(); member != arrived_.end(); ++member) {
      auto there = welcome(member->first, member->second, joined);
      if (!there.ok()) return abandon(member, std::move(there).error(), membership);
      if (!*there && !has_died(member->second, true)) membership.mark_left(member->first);
    }

    joined.peers.push_back({joined.arena->data(), joined.arena, nullptr});
    joined.pids.push_back(process_id());
    joined.watches.emplace(0, ProcessWatch(process_id()));
    for (auto& [rank, member] : arrived_) {
      MERON_ASSIGN(auto arena, PeerArena::attach(std::move(member.arena)));
      joined.peers.push_back({arena->readable(0), arena, arena});
      joined.pids.push_back(member.watch.pid());
      joined.watches.emplace(rank, std::move(member.watch));
    }
    membership.confirm();
    return joined;
  }

 private:
  int missing() const { return options_.world_size - 1 - static_cast<int>(arrived_.size()); }

  Status gather() {
    if (missing() == 0) return Ok{};
    auto listening = listen_abstract(name_);
    if (!listening.ok()) {
      if (listening.error().code() != MERON_E_DUPLICATE) return std::move(listening).error();
      return Error(MERON_E_DUPLICATE, "another process is rank 0 of this job",
                   "give each rank its own number, and each job its own token or name")
          .on(name_);
    }
    const UniqueFd listener = std::move(*listening);
    std::vector<Connection> connections;
    int64_t next_stop_check = now_ns() + kMeetingSliceNs;
    while (true) {
      // A rank that has disconnected is missing again, even if the last one has just arrived.
      if (missing() == 0) MERON_TRY(check_arrived());
      if (missing() == 0) return Ok{};
      if (options_.deadline.passed()) return late();
      if (const int64_t now = now_ns(); now >= next_stop_check) {
        next_stop_check = now + kMeetingSliceNs;
        if (asked_to_stop(options_)) return meeting_stopped();
      }
      const Deadline slice{std::min(options_.deadline.ns, Deadline::after(kSliceNs).ns)};
      auto socket = accept(listener.get(), slice);
      if (socket.ok()) {
        const auto peer = peer_credentials(socket->get());
        if (!peer.ok() || peer->uid != effective_uid()) continue;
        if (connections.size() == kMaxConnections) connections.erase(connections.begin());
        connections.push_back({std::move(*socket), peer->pid, Deadline::after(kHelloNs)});
        MERON_TRY(hear(connections, Deadline::after(kGreetingNs)));
        continue;
      }
      if (socket.error().code() != MERON_E_TIMEOUT) return std::move(socket).error();
      MERON_TRY(hear(connections, Deadline::after(0)));
      MERON_TRY(check_arrived());
      MERON_TRY(check_launched(options_, absent()));
    }
  }

  std::vector<int> absent() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < options_.world_size; ++rank) {
      if (arrived_.count(rank) == 0) ranks.push_back(rank);
    }
    return ranks;
  }

  // A member that died ends the meeting; one that gave up waiting may come again.
  Status check_arrived() {
    for (auto member = arrived_.begin(); member != arrived_.end();) {
      const bool here = is_here(member->second);
      if (has_died(member->second, !here)) {
        return Error(MERON_E_PEER_DEAD,
                     fmt::format("rank {} (pid {}) has died while the ranks met",
                                 options_.named(member->first), member->second.watch.pid()),
                     "see its output; the launcher tells how it ended")
            .blaming(options_.named(member->first));
      }
      member = here ? std::next(member) : arrived_.erase(member);
    }
    return Ok{};
  }

  // A rank that has arrived sends nothing more: bytes or an end of file mean that it has left.
  static bool is_here(const Arrived& member) {
    const auto said = receive_message(member.socket.get(), 1, 0, Deadline::after(0));
    return !said.ok() && said.error().code() == MERON_E_TIMEOUT;
  }

  // A process that ends closes its sockets a little before it counts as ended.
  static bool has_died(Arrived& member, bool hung_up) {
    return member.watch.ended(Deadline::after(hung_up ? kDyingNs : 0));
  }

  // Reads greetings until `patience` ends. Later ones are read by the next call.
  Status hear(std::vector<Connection>& connections, Deadline patience) {
    for (auto connection = connections.begin(); connection != connections.end();) {
      Hello hello;
      auto arena = receive(connection->socket.get(), hello, patience);
      const bool silent = !arena.ok() && arena.error().code() == MERON_E_TIMEOUT;
      if (silent && !connection->deadline.passed()) {
        ++connection;
        continue;
      }
      Connection heard = std::move(*connection);
      connection = connections.erase(connection);
      if (arena.ok()) MERON_TRY(admit(std::move(heard), hello, std::move(*arena)));
    }
    return Ok{};
  }

  Error late() const {
    std::vector<int> names;
    for (const int rank : absent()) names.push_back(options_.named(rank));
    std::string refused;
    if (refused_ > 0) refused = fmt::format("; {} with a wrong token were refused", refused_);
    return Error(MERON_E_TIMEOUT,
                 fmt::format("{} of {} ranks came in time; missing: {}{}",
                             options_.world_size - missing(), options_.world_size,
                             ranks_text(names), refused),
                 "look whether these ranks were started, with the same token and job")
        .blaming(names.front());
  }

  // Turns strangers away and continues. A rank of the job with wrong settings ends the rendezvous.
  Status admit(Connection connection, const Hello& hello, UniqueFd arena) {
    if (!is_magic(hello.magic)) return Ok{};
    const UniqueFd& socket = connection.socket;
    if (!constant_time_equal(hello.token, token_.bytes)) {
      ++refused_;
      refuse(socket,
             Error(MERON_E_AUTH, "rank 0 refused the token",
                   "give all ranks of the job the same token"),
             0);
      return Ok{};
    }
    if (hello.magic != kWindowMagic || hello.protocol != kProtocol ||
        hello.version != MERON_VERSION) {
      const Error error =
          Error(MERON_E_VERSION,
                fmt::format("rank {} runs Meron {}.{}.{}, rank 0 runs {}.{}.{}", hello.rank,
                            hello.version >> 16, hello.version >> 8 & 0xff, hello.version & 0xff,
                            MERON_VERSION_MAJOR, MERON_VERSION_MINOR, MERON_VERSION_PATCH),
                "let all ranks load the same library")
              .blaming(hello.rank);
      refuse(socket, error, 0);
      return error;
    }
    if (hello.world_size != options_.world_size) {
      const Error error =
          Error(MERON_E_MISMATCH,
                fmt::format("rank {} says that the world has {} ranks, rank 0 says {}", hello.rank,
                            hello.world_size, options_.world_size),
                "give all ranks the same world size")
              .blaming(hello.rank);
      refuse(socket, error, 0);
      return error;
    }
    const auto earlier = arrived_.find(hello.rank);
    if (earlier != arrived_.end() && !is_here(earlier->second)) arrived_.erase(earlier);
    if (hello.rank < 1 || hello.rank >= options_.world_size || arrived_.count(hello.rank) != 0) {
      refuse(socket,
             Error(MERON_E_DUPLICATE, fmt::format("rank {} has come already", hello.rank),
                   "give each rank its own number"),
             0);
      return Ok{};
    }
    if (!arena.valid()) {
      refuse(socket, Error(MERON_E_IO, "the greeting came without an arena"), 0);
      return Ok{};
    }
    arrived_.emplace(hello.rank, Arrived{std::move(connection.socket), std::move(arena),
                                         ProcessWatch(connection.pid)});
    return Ok{};
  }

  static void refuse(const UniqueFd& socket, const Error& error, int peer) {
    Welcome refusal;
    refusal.status = error.code();
    refusal.peer = peer;
    put_text(refusal.what, error.info().what);
    put_text(refusal.advice, error.info().advice);
    (void)shm::send(socket.get(), refusal, {}, Deadline::after(kSliceNs)).ok();
  }

  // Of members that were welcomed before `unwelcomed`: the others, and this rank, have left.
  Error abandon(std::map<int, Arrived>::iterator unwelcomed, Error error, Membership& membership) {
    for (auto member = unwelcomed; member != arrived_.end(); ++member) {
      membership.mark_left(member->first);
      if (member != unwelcomed) refuse(member->second.socket, error, error.info().peer);
    }
    return error;
  }

  // False: the member has left.
  Result<bool> welcome(int rank, const Arrived& member, const Joined& joined) {
    const Deadline deadline = Deadline::after(kHelloNs);
    const auto tell = [&](const auto& message, int fd) -> Result<bool> {
      const Status sent = shm::send(member.socket.get(), message, std::span(&fd, 1), deadline);
      if (sent.ok()) return true;
      if (sent.error().code() == MERON_E_PEER_CLOSED) return false;
      return Error(sent.error().code(),
                   fmt::format("rank {} (pid {}) cannot be welcomed: {}", options_.named(rank),
                               member.watch.pid(), sent.error().info().what),
                   sent.error().info().advice)
          .blaming(options_.named(rank));
    };
    MERON_ASSIGN(bool there, tell(Welcome{}, joined.window->fd()));
    for (int other = 0; there && other < options_.world_size; ++other) {
      const Introduction who{other, other == 0 ? process_id() : arrived_.at(other).watch.pid()};
      MERON_ASSIGN(there,
                   tell(who, other == 0 ? joined.arena->fd() : arrived_.at(other).arena.get()));
    }
    return there;
  }

  const MeetingOptions& options_;
  const std::string& name_;
  const Token& token_;
  std::map<int, Arrived> arrived_;  // by rank
  int refused_ = 0;
};

}  // namespace

Result<Joined> serve_rendezvous(const MeetingOptions& options, const std::string& name,
                                const Token& token) {
  return RendezvousServer(options, name, token).meet();
}

}  // namespace meron
