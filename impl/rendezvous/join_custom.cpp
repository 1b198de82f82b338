// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

#include "base/hash.h"
#include "base/rank_text.h"
#include "os/host.h"
#include "os/process.h"
#include "os/random.h"
#include "rendezvous/join.h"

namespace meron {
namespace {

constexpr uint64_t kLeastMessage = 4096;
// Time in which refused or cancelled ranks may still receive the error.
constexpr int64_t kPatienceNs = 200 * kNanosPerMilli;

Status check(const meron_transport& table) {
  const auto missing = [](const char* name) {
    return Error(MERON_E_ARGUMENT, fmt::format("the custom transport has no function '{}'", name),
                 "give it send, receive, test and cancel");
  };
  if (table.send == nullptr) return missing("send");
  if (table.receive == nullptr) return missing("receive");
  if (table.test == nullptr) return missing("test");
  if (table.cancel == nullptr) return missing("cancel");
  if (table.max_message != 0 && table.max_message < kLeastMessage) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("the custom transport's max_message is {}", table.max_message),
                 fmt::format("give at least {}, or 0 for no limit", kLeastMessage));
  }
  return Ok{};
}

Status await_all(Link& link, const MeetingOptions& options) {
  int64_t next_stop_check = now_ns() + kMeetingSliceNs;
  while (true) {
    const bool moved = link.pump();
    MERON_ASSIGN(const bool met, link.met());
    if (met) return Ok{};
    const std::vector<int> missing = link.unmet();
    for (const int rank : missing) {
      if (!link.gone(rank)) continue;
      return Error(MERON_E_PEER_DEAD,
                   fmt::format("rank {} cannot be reached (transport '{}' says {})", rank,
                               link.name(), link.reason(rank)),
                   "see what the transport's functions say, and start all ranks anew")
          .blaming(rank);
    }
    if (options.deadline.passed()) {
      return Error(MERON_E_TIMEOUT,
                   fmt::format("waited in vain for {} of {} ranks; missing: {}", missing.size(),
                               options.world_size, ranks_text(missing)),
                   "start all ranks, or raise the timeout")
          .blaming(missing.front());
    }
    if (now_ns() >= next_stop_check) {
      next_stop_check = now_ns() + kMeetingSliceNs;
      MERON_TRY(check_launched(options, missing));
      if (asked_to_stop(options)) return meeting_stopped();
    }
    if (!moved) link.idle(options.deadline.remaining());
  }
}

Link::Hello own_hello(const MeetingOptions& options, const meron_transport& table) {
  Link::Hello hello;
  hello.magic = kWindowMagic;
  hello.version = MERON_VERSION;
  hello.protocol = kProtocol;
  hello.world_size = static_cast<uint64_t>(options.world_size);
  hello.rank = static_cast<uint64_t>(options.rank);
  hello.max_message = table.max_message;
  hello.node = hash_text(node_identity());
  hello.pid = process_id();
  const std::string host = host_name();
  std::memcpy(hello.host.data(), host.data(), std::min(host.size(), hello.host.size() - 1));
  return hello;
}

Result<std::unique_ptr<Link>> meet(const MeetingOptions& options, const meron_transport& table,
                                   const Link::Hello& hello) {
  MERON_TRY(check(table));
  auto link = std::make_unique<Link>(table, options.rank, options.world_size, hello);
  if (Status met = await_all(*link, options); !met.ok()) {
    link->close(kPatienceNs);
    return std::move(met).error();
  }
  return link;
}

// Of a rank that shares memory with none.
Status join_alone(const MeetingOptions& options, Joined& joined) {
  MERON_ASSIGN(joined.window, Window::create(options.window_reserve));
  const auto ranks = static_cast<uint64_t>(options.world_size);
  MERON_TRY(joined.window->reserve(0, header_bytes(ranks)));
  auto* header = new (joined.window->writable(0)) WindowHeader;
  header->magic = kWindowMagic;
  header->world_size = static_cast<uint32_t>(options.world_size);
  MERON_ASSIGN(joined.arena, Arena::create(options.arena));
  joined.peers.resize(ranks);
  joined.peers[static_cast<size_t>(options.rank)] = {joined.arena->data(), joined.arena, nullptr};
  return Ok{};
}

// The ranks of this one's node, by their processes.
Status join_node(const MeetingOptions& options, const Link& link,
                 const std::vector<int>& local_peers, Joined& joined) {
  MeetingOptions inner = options;
  inner.names = local_peers;
  inner.window_ranks = options.world_size;
  inner.world_size = static_cast<int>(local_peers.size());
  inner.rank = static_cast<int>(std::find(local_peers.begin(), local_peers.end(), options.rank) -
                                local_peers.begin());
  const Token token{link.hello(local_peers.front()).nonce};
  MERON_ASSIGN(Joined node, join_shm(inner, "", token));
  joined.window = std::move(node.window);
  joined.arena = std::move(node.arena);
  joined.peers.resize(static_cast<size_t>(options.world_size));
  for (size_t i = 0; i < local_peers.size(); ++i) {
    joined.peers[static_cast<size_t>(local_peers[i])] = std::move(node.peers[i]);
    const auto watch = node.watches.find(static_cast<int>(i));
    if (watch != node.watches.end())
      joined.watches.emplace(local_peers[i], std::move(watch->second));
  }
  return Ok{};
}

Status close_after(Link& link, Status failed) {
  link.close(kPatienceNs);
  return failed;
}

}  // namespace

Result<Joined> join_custom(const MeetingOptions& options, const meron_transport& table) {
  MERON_ASSIGN(auto link, meet(options, table, own_hello(options, table)));
  Joined joined;
  joined.rank = options.rank;
  joined.world_size = options.world_size;
  joined.transport = link->name();
  if (Status alone = join_alone(options, joined); !alone.ok()) {
    return close_after(*link, std::move(alone)).error();
  }
  joined.pids.resize(static_cast<size_t>(options.world_size));
  joined.pids[static_cast<size_t>(options.rank)] = process_id();
  for (int rank = 0; rank < options.world_size; ++rank) joined.nodes.push_back(rank);
  joined.link = std::move(link);
  joined.link->attach(joined.window, joined.nodes);
  return joined;
}

Result<Joined> join_cluster(const MeetingOptions& options, const meron_transport& table) {
  Link::Hello hello = own_hello(options, table);
  MERON_TRY(random_bytes(hello.nonce));
  MERON_ASSIGN(auto link, meet(options, table, hello));
  Joined joined;
  joined.rank = options.rank;
  joined.world_size = options.world_size;
  joined.transport = link->name();
  std::map<uint64_t, int> numbers;  // of nodes, by their key
  std::vector<int> local_peers;
  for (int rank = 0; rank < options.world_size; ++rank) {
    const Link::Hello& said = link->hello(rank);
    const auto [known, fresh] = numbers.try_emplace(said.node, static_cast<int>(numbers.size()));
    joined.nodes.push_back(known->second);
    joined.pids.push_back(static_cast<int32_t>(said.pid));
    joined.hosts.emplace_back(said.host.data());
    if (said.node == hello.node) local_peers.push_back(rank);
  }
  Status there = local_peers.size() == 1 ? join_alone(options, joined)
                                         : join_node(options, *link, local_peers, joined);
  if (!there.ok()) return close_after(*link, std::move(there)).error();
  joined.link = std::move(link);
  joined.link->attach(joined.window, joined.nodes);
  return joined;
}

}  // namespace meron
