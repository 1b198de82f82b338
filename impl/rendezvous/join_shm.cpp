// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <numeric>
#include <type_traits>

#include "base/layout.h"
#include "base/rank_text.h"
#include "os/local_socket.h"
#include "os/random.h"
#include "rendezvous/join.h"

namespace meron {
namespace {

// How long a visitor may take to greet. The meeting goes on meanwhile.
constexpr int64_t kHelloNs = 5 * kNanosPerSecond;
constexpr size_t kMaxVisitors = 128;
constexpr int64_t kSliceNs = 20 * kNanosPerMilli;
// A rank greets as soon as it is connected: worth a short wait before the next look around.
constexpr int64_t kGreetingNs = 2 * kNanosPerMilli;
// What passes between a process' sockets and the process itself when it ends.
constexpr int64_t kDyingNs = 100 * kNanosPerMilli;
// The other ranks give rank 0, which knows who is missing, this much longer to say so.
constexpr int64_t kVerdictNs = 500 * kNanosPerMilli;

// The first message of a rank, with its arena's descriptor. Fixed size: nothing is allocated by a
// number that a peer sent. The same in every version of Meron, so that each can name the others.
struct Hello {
  uint64_t magic = kWindowMagic;
  uint32_t protocol = kProtocol;
  uint32_t version = MERON_VERSION;
  int32_t rank = 0;
  int32_t world_size = 0;
  std::array<std::byte, 32> token{};
};

// Rank 0's answer when all have met (with the window's descriptor) or when the meeting failed.
struct Welcome {
  uint64_t magic = kWindowMagic;
  int32_t status = MERON_OK;
  int32_t peer = MERON_RANK_NONE;
  char what[512] = {};
  char advice[256] = {};
};

// Follows a welcome once per rank, with the arena's descriptor.
struct Introduction {
  int32_t rank = 0;
  int32_t pid = 0;
};

template <class T>
Status send(int fd, const T& message, std::span<const int> fds, Deadline deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  return send_message(fd, std::as_bytes(std::span(&message, 1)), fds, deadline);
}

template <class T>
Result<UniqueFd> receive(int fd, T& message, Deadline deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  MERON_ASSIGN(auto received, receive_message(fd, sizeof(T), 1, deadline));
  if (received.bytes.size() != sizeof(T)) {
    return Error(MERON_E_IO, fmt::format("a message of {} bytes came instead of {}",
                                         received.bytes.size(), sizeof(T)));
  }
  std::memcpy(&message, received.bytes.data(), sizeof(T));
  return received.fds.empty() ? UniqueFd() : std::move(received.fds.front());
}

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

template <size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  const size_t count = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), count);
}

// Who has connected and not greeted yet.
struct Visitor {
  UniqueFd socket;
  int32_t pid;
  Deadline deadline;
};

struct Guest {
  UniqueFd socket;
  UniqueFd arena;
  ProcessWatch watch;
};

Error user_differs(uint32_t uid) {
  return Error(
      MERON_E_AUTH,
      fmt::format("the peer belongs to user {}, this process to user {}", uid, effective_uid()),
      "run all ranks as one user");
}

// Rank 0's side of the meeting.
class Host {
 public:
  Host(const MeetingOptions& options, const std::string& name, const Token& token)
      : options_(options), name_(name), token_(token) {}

  Result<Joined> meet() {
    Joined joined;
    joined.transport = "shm";
    joined.rank = 0;
    joined.world_size = options_.world_size;
    MERON_ASSIGN(joined.window, Window::create(options_.window_reserve));
    MERON_TRY(
        joined.window->reserve(0, header_bytes(static_cast<uint64_t>(options_.ranks_in_window()))));
    auto* header = new (joined.window->writable(0)) WindowHeader;
    header->magic = kWindowMagic;
    header->world_size = static_cast<uint32_t>(options_.ranks_in_window());
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
      for (auto& [rank, guest] : guests_) refuse(guest.socket, told, told.info().peer);
      return error;
    }
    // A guest that goes now is a member all the same, and every rank's first call finds it gone,
    // under its own name. An error here would make rank 0 the culprit.
    auto* ranks = reinterpret_cast<RankBlock*>(joined.window->writable(sizeof(WindowHeader)));
    for (auto& [rank, guest] : guests_) {
      MERON_ASSIGN(const bool there, welcome(rank, guest, joined));
      if (!there && !has_died(guest, true)) {
        ranks[options_.named(rank)].left.store(1, std::memory_order_seq_cst);
      }
    }

    joined.peers.push_back({joined.arena->data(), joined.arena, nullptr});
    joined.pids.push_back(process_id());
    joined.watches.emplace(0, ProcessWatch(process_id()));
    for (auto& [rank, guest] : guests_) {
      MERON_ASSIGN(auto arena, PeerArena::attach(std::move(guest.arena)));
      joined.peers.push_back({arena->readable(0), arena, arena});
      joined.pids.push_back(guest.watch.pid());
      joined.watches.emplace(rank, std::move(guest.watch));
    }
    return joined;
  }

 private:
  int missing() const { return options_.world_size - 1 - static_cast<int>(guests_.size()); }

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
    std::vector<Visitor> visitors;
    int64_t next_stop_check = now_ns() + kMeetingSliceNs;
    while (missing() > 0) {
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
        if (visitors.size() == kMaxVisitors) visitors.erase(visitors.begin());
        visitors.push_back({std::move(*socket), peer->pid, Deadline::after(kHelloNs)});
        MERON_TRY(hear(visitors, Deadline::after(kGreetingNs)));
        continue;
      }
      if (socket.error().code() != MERON_E_TIMEOUT) return std::move(socket).error();
      MERON_TRY(hear(visitors, Deadline::after(0)));
      MERON_TRY(look_after_guests());
      MERON_TRY(check_launched(options_, absent()));
    }
    return Ok{};
  }

  std::vector<int> absent() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < options_.world_size; ++rank) {
      if (guests_.count(rank) == 0) ranks.push_back(rank);
    }
    return ranks;
  }

  // A guest that died ends the meeting; one that gave up waiting may come again.
  Status look_after_guests() {
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      const bool here = is_here(guest->second);
      if (has_died(guest->second, !here)) {
        return Error(MERON_E_PEER_DEAD,
                     fmt::format("rank {} (pid {}) has died while the ranks met",
                                 options_.named(guest->first), guest->second.watch.pid()),
                     "see its output; the launcher tells how it ended")
            .blaming(options_.named(guest->first));
      }
      guest = here ? std::next(guest) : guests_.erase(guest);
    }
    return Ok{};
  }

  // Guests wait in silence.
  static bool is_here(const Guest& guest) {
    const auto said = receive_message(guest.socket.get(), 1, 0, Deadline::after(0));
    return !said.ok() && said.error().code() == MERON_E_TIMEOUT;
  }

  // A process that ends closes its sockets a little before it counts as ended.
  static bool has_died(Guest& guest, bool hung_up) {
    return guest.watch.ended(Deadline::after(hung_up ? kDyingNs : 0));
  }

  // Takes in who greets until `patience` ends; whoever has not yet is heard again next time.
  Status hear(std::vector<Visitor>& visitors, Deadline patience) {
    for (auto visitor = visitors.begin(); visitor != visitors.end();) {
      Hello hello;
      auto arena = receive(visitor->socket.get(), hello, patience);
      const bool silent = !arena.ok() && arena.error().code() == MERON_E_TIMEOUT;
      if (silent && !visitor->deadline.passed()) {
        ++visitor;
        continue;
      }
      Visitor heard = std::move(*visitor);
      visitor = visitors.erase(visitor);
      if (arena.ok()) MERON_TRY(receive_guest(std::move(heard), hello, std::move(*arena)));
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

  // A stranger is turned away and the meeting goes on; a rank of the job that cannot be right ends
  // it.
  Status receive_guest(Visitor visitor, const Hello& hello, UniqueFd arena) {
    if (!is_magic(hello.magic)) return Ok{};
    const UniqueFd& socket = visitor.socket;
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
    const auto earlier = guests_.find(hello.rank);
    if (earlier != guests_.end() && !is_here(earlier->second)) guests_.erase(earlier);
    if (hello.rank < 1 || hello.rank >= options_.world_size || guests_.count(hello.rank) != 0) {
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
    guests_.emplace(hello.rank,
                    Guest{std::move(visitor.socket), std::move(arena), ProcessWatch(visitor.pid)});
    return Ok{};
  }

  static void refuse(const UniqueFd& socket, const Error& error, int peer) {
    Welcome refusal;
    refusal.status = error.code();
    refusal.peer = peer;
    copy_text(refusal.what, error.info().what);
    copy_text(refusal.advice, error.info().advice);
    (void)send(socket.get(), refusal, {}, Deadline::after(kSliceNs)).ok();
  }

  // False: the guest has gone.
  Result<bool> welcome(int rank, const Guest& guest, const Joined& joined) {
    const Deadline deadline = Deadline::after(kHelloNs);
    const auto tell = [&](const auto& message, int fd) -> Result<bool> {
      const Status sent = send(guest.socket.get(), message, std::span(&fd, 1), deadline);
      if (sent.ok()) return true;
      if (sent.error().code() == MERON_E_PEER_CLOSED) return false;
      return Error(sent.error().code(),
                   fmt::format("rank {} (pid {}) cannot be welcomed: {}", options_.named(rank),
                               guest.watch.pid(), sent.error().info().what),
                   sent.error().info().advice)
          .blaming(options_.named(rank));
    };
    MERON_ASSIGN(bool there, tell(Welcome{}, joined.window->fd()));
    for (int other = 0; there && other < options_.world_size; ++other) {
      const Introduction who{other, other == 0 ? process_id() : guests_.at(other).watch.pid()};
      MERON_ASSIGN(there,
                   tell(who, other == 0 ? joined.arena->fd() : guests_.at(other).arena.get()));
    }
    return there;
  }

  const MeetingOptions& options_;
  const std::string& name_;
  const Token& token_;
  std::map<int, Guest> guests_;  // by rank
  int refused_ = 0;
};

Error host_gone(Error error) {
  if (error.code() == MERON_E_CANCELLED) return error;
  if (error.code() == MERON_E_TIMEOUT) {
    return Error(MERON_E_TIMEOUT, "rank 0 did not answer in time",
                 "look what rank 0 does, or whether it has a later deadline")
        .blaming(0);
  }
  return Error(MERON_E_PEER_DEAD,
               fmt::format("rank 0 went while the ranks met: {}", error.info().what),
               "see its output; the launcher tells how it ended")
      .blaming(0);
}

// Any other rank's side of the meeting.
Result<Joined> visit(const MeetingOptions& options, const std::string& name, const Token& token) {
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

  Hello hello;
  hello.rank = options.rank;
  hello.world_size = options.world_size;
  hello.token = token.bytes;
  const int own_arena = joined.arena->fd();
  if (auto sent = send(socket, hello, std::span(&own_arena, 1), options.deadline); !sent.ok())
    return host_gone(std::move(sent).error());
  const Deadline verdict{options.deadline.is_never() ? options.deadline.ns
                                                     : options.deadline.ns + kVerdictNs};
  Welcome welcome;
  auto window =
      patiently(options, verdict, [&](Deadline slice) { return receive(socket, welcome, slice); });
  if (!window.ok()) return host_gone(std::move(window).error());
  if (welcome.status != MERON_OK) {
    welcome.what[sizeof(welcome.what) - 1] = '\0';
    welcome.advice[sizeof(welcome.advice) - 1] = '\0';
    return Error(welcome.status, welcome.what, welcome.advice).blaming(welcome.peer);
  }
  if (!window->valid()) return Error(MERON_E_IO, "rank 0's welcome came without the window");
  MERON_ASSIGN(joined.window, Window::attach(std::move(*window)));
  for (int rank = 0; rank < options.world_size; ++rank) {
    Introduction who;
    auto arena_fd = receive(socket, who, verdict);
    if (!arena_fd.ok()) return host_gone(std::move(arena_fd).error());
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
  const auto* header = reinterpret_cast<const WindowHeader*>(joined.window->readable(0));
  if (header->magic != kWindowMagic ||
      header->world_size != static_cast<uint32_t>(options.ranks_in_window())) {
    return Error(MERON_E_VERSION, "rank 0's window is of another layout",
                 "let all ranks load the same library");
  }
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
  if (options.rank != 0) return visit(options, name, token);
  return Host(options, name, token).meet();
}

}  // namespace meron
