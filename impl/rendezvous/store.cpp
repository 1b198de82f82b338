// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "base/rank_text.h"
#include "os/directory.h"
#include "os/file.h"
#include "os/host.h"
#include "os/process.h"
#include "os/random.h"
#include "topology/identity.h"

namespace meron {
namespace {

constexpr std::string_view kCard = "rank-";
constexpr std::string_view kOutcome = "met-";
// Rank 0, which knows who is missing, is given this much longer to say so.
constexpr int64_t kAnswerNs = kNanosPerSecond;
// Between looks at the directory: short at first, for ranks that start together.
constexpr int64_t kShortestPauseNs = kNanosPerMilli;
constexpr int64_t kLongestPauseNs = 100 * kNanosPerMilli;
// Rank 0 calls again until all have answered within this time; at most kMostCalls times, because a
// file system may be slow.
constexpr int64_t kFreshNs = 5 * kNanosPerSecond;
constexpr int kMostCalls = 4;
// Time for which rank 0 looks for ranks to notify of a failed rendezvous.
constexpr int64_t kDismissNs = 300 * kNanosPerMilli;

std::string own_version() {
  return fmt::format("{}.{}.{}", MERON_VERSION_MAJOR, MERON_VERSION_MINOR, MERON_VERSION_PATCH);
}

Result<std::string> random_number() {
  std::array<std::byte, 16> bytes;
  MERON_TRY(random_bytes(bytes));
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

// The rank whose card has this name, or -1.
int rank_of(std::string_view name) {
  if (!name.starts_with(kCard)) return -1;
  name.remove_prefix(kCard.size());
  int rank = -1;
  const auto [stop, code] = std::from_chars(name.data(), name.data() + name.size(), rank);
  return code == std::errc{} && stop == name.data() + name.size() ? rank : -1;
}

class Patience {
 public:
  explicit Patience(const MeetingOptions& options) : options_(options) {}

  Status pause() {
    if (asked_to_stop(options_)) return meeting_stopped();
    const int64_t left = options_.deadline.remaining();
    std::this_thread::sleep_for(
        std::chrono::nanoseconds(left > 0 ? std::min(pause_ns_, left) : pause_ns_));
    pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
    return Ok{};
  }
  void shorten() { pause_ns_ = kShortestPauseNs; }

 private:
  const MeetingOptions& options_;
  int64_t pause_ns_ = kShortestPauseNs;
};

// Returns the error if `card` does not match `own`, that of rank 0.
Status check(const Card& card, const Card& own) {
  if (card.version != own.version || card.protocol != own.protocol) {
    return Error(MERON_E_VERSION,
                 fmt::format("rank {} (pid {} on host {}) runs Meron {}, rank 0 on host {} runs {}",
                             card.rank, card.pid, card.host, card.version, own.host, own.version),
                 "let all ranks load the same library")
        .blaming(card.rank);
  }
  if (card.world_size != own.world_size) {
    return Error(MERON_E_MISMATCH,
                 fmt::format("rank {} (pid {} on host {}) says that the world has {} ranks, rank 0 "
                             "says {}",
                             card.rank, card.pid, card.host, card.world_size, own.world_size),
                 "give all ranks the same world size")
        .blaming(card.rank);
  }
  return Ok{};
}

Error late(const Outcome& come, int world_size) {
  std::vector<int> absent;
  for (int rank = 0; rank < world_size; ++rank) {
    if (come.find(rank) == nullptr) absent.push_back(rank);
  }
  return Error(MERON_E_TIMEOUT,
               fmt::format("{} of {} ranks came in time ({}); missing: {}", come.cards.size(),
                           world_size, come.places(), ranks_text(absent)),
               "look whether these ranks were started, with the same job, and see the directory "
               "of MERON_STORE")
      .blaming(absent.front());
}

}  // namespace

Result<Store> Store::open(const std::string& directory, const std::string& job) {
  MERON_ASSIGN(const std::string name, find_job(job));
  auto there = list_directory(directory);
  if (!there.ok()) {
    return Error(there.error().code(),
                 fmt::format("the directory of MERON_STORE cannot be used: {}",
                             there.error().info().what),
                 "make it, on a file system that all hosts of the job share")
        .on(directory);
  }
  Store store(fmt::format("{}/meron-{}", directory, name));
  if (Status made = make_private_directory(store.folder_); !made.ok()) {
    const ErrorInfo& info = made.error().info();
    return Error(info.code, fmt::format("the store cannot be used: {}", info.what),
                 info.advice.empty() ? "let MERON_STORE be a directory that this user may write to"
                                     : info.advice)
        .on(store.folder_);
  }
  return store;
}

Store::Store(Store&& other) noexcept
    : folder_(std::exchange(other.folder_, {})), own_(std::move(other.own_)) {}

Store::~Store() {
  if (folder_.empty()) return;
  if (!own_.number.empty()) {
    const auto card = card_of(own_.rank);
    if (card && card->number == own_.number) (void)remove_file(path_of(own_.rank)).ok();
    // The last rank to leave removes the outcome. Until then others may read it.
    const auto names = list_directory(folder_);
    const bool others =
        !names.ok() || std::any_of(names->begin(), names->end(),
                                   [](const std::string& name) { return rank_of(name) >= 0; });
    if (!others && !own_.call.empty()) (void)remove_file(outcome_path(own_.call)).ok();
    // Files with a dot are unfinished writes of killed ranks. If a rank is still alive, put()
    // writes its file again.
    for (size_t i = 0; !others && i < names->size(); ++i) {
      const std::string& name = (*names)[i];
      if (name.find('.') == std::string::npos) continue;
      (void)remove_file(fmt::format("{}/{}", folder_, name)).ok();
    }
  }
  remove_empty_directory(folder_);
}

std::string Store::path_of(int rank) const {
  return fmt::format("{}/{}{}", folder_, kCard, rank);
}

std::string Store::outcome_path(const std::string& call) const {
  return fmt::format("{}/{}{}", folder_, kOutcome, call);
}

// The last rank of another rendezvous may just have removed the folder, so a failed write is tried
// again.
Status Store::put(const std::string& path, const std::string& text) const {
  constexpr int kTries = 100;
  for (int i = 1;; ++i) {
    Status written = replace_file(path, text);
    if (written.ok() || written.error().code() != MERON_E_NOT_FOUND || i == kTries) return written;
    MERON_TRY(make_private_directory(folder_));
  }
}

std::optional<Card> Store::card_of(int rank) const {
  const auto text = read_file(path_of(rank), kMaxCardBytes);
  if (!text.ok()) return {};
  auto card = read_card(*text);
  return card && card->rank == rank ? card : std::nullopt;
}

Error Store::replaced_by(const Card& other) const {
  return Error(MERON_E_DUPLICATE,
               fmt::format("another process has come as rank {} of this job: pid {} on host {}",
                           other.rank, other.pid, other.host),
               "give each rank its own number, and each job its own MERON_JOB or directory")
      .blaming(other.rank)
      .on(folder_);
}

// Puts this rank's card where it was removed by mistake; an error where another has taken its
// place.
Status Store::hold_own() {
  const auto card = card_of(own_.rank);
  if (!card) return put(path_of(own_.rank), to_text(own_));
  if (card->number != own_.number) return replaced_by(*card);
  return Ok{};
}

Result<std::vector<bool>> Store::present(int world_size) const {
  std::vector<bool> there(static_cast<size_t>(world_size));
  MERON_ASSIGN(const auto names, list_directory(folder_));
  for (const std::string& name : names) {
    const int rank = rank_of(name);
    if (rank >= 0 && rank < world_size) there[static_cast<size_t>(rank)] = true;
  }
  return there;
}

Result<Outcome> Store::meet(const MeetingOptions& options) {
  own_.rank = options.rank;
  own_.world_size = options.world_size;
  own_.version = own_version();
  own_.protocol = kProtocol;
  own_.host = host_name();
  own_.node = node_identity();
  own_.pid = process_id();
  MERON_ASSIGN(own_.number, random_number());
  if (own_.rank == 0) own_.call = own_.number;
  if (Status put_card = put(path_of(own_.rank), to_text(own_)); !put_card.ok()) {
    const ErrorInfo& info = put_card.error().info();
    return Error(info.code, fmt::format("the store cannot be written: {}", info.what),
                 "let MERON_STORE be a directory with room that this user may write to")
        .on(info.subject);
  }
  return own_.rank == 0 ? call(options) : answer(options);
}

// Reads who has answered. True if all ranks that are present have.
Result<bool> Store::listen(std::map<int, Card>& arrived) const {
  MERON_ASSIGN(const auto there, present(own_.world_size));
  bool all = true;
  for (int rank = 1; rank < own_.world_size; ++rank) {
    const bool here = there[static_cast<size_t>(rank)];
    if (here && arrived.count(rank) != 0) continue;
    arrived.erase(rank);
    const auto card = here ? card_of(rank) : std::nullopt;
    if (card && card->call == own_.call) {
      arrived.emplace(rank, *card);
    } else if (here) {
      all = false;
    }
  }
  return all;
}

// Tells the ranks that are present that the meeting has failed.
void Store::dismiss(std::map<int, Card>& arrived, const Error& error) const {
  const Deadline patience = Deadline::after(kDismissNs);
  while (!patience.passed()) {
    const auto all = listen(arrived);
    if (!all.ok() || *all) break;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kShortestPauseNs));
  }
  Outcome outcome = summary(arrived);
  outcome.failure = error;
  (void)put(outcome_path(own_.call), to_text(outcome)).ok();
}

Outcome Store::summary(const std::map<int, Card>& arrived) const {
  Outcome outcome;
  outcome.cards.push_back(own_);
  for (const auto& [rank, card] : arrived) outcome.cards.push_back(card);
  return outcome;
}

// Draws the number of a new call, which takes the place of the last.
Status Store::call_anew() {
  MERON_ASSIGN(own_.number, random_number());
  own_.call = own_.number;
  return put(path_of(0), to_text(own_));
}

Result<Outcome> Store::call(const MeetingOptions& options) {
  std::map<int, Card> arrived;
  Patience patience(options);
  int64_t called = now_ns();
  for (int calls = 1;;) {
    MERON_TRY(hold_own());
    MERON_TRY(listen(arrived));
    for (const auto& [rank, card] : arrived) {
      Status fits = check(card, own_);
      if (fits.ok()) continue;
      dismiss(arrived, fits.error());
      return std::move(fits).error();
    }
    if (static_cast<int>(arrived.size()) == options.world_size - 1) {
      // The first to arrive may have died since, or have been started again: asked once more, those
      // that are present answer at once.
      const bool fresh = calls > 1 && now_ns() - called < kFreshNs;
      if (fresh || calls == kMostCalls) break;
      MERON_TRY(call_anew());
      ++calls;
      called = now_ns();
      arrived.clear();
      patience.shorten();
    }
    if (options.deadline.passed()) {
      Error error = late(summary(arrived), options.world_size);
      dismiss(arrived, error);
      return error;
    }
    if (Status waited = patience.pause(); !waited.ok()) {
      dismiss(arrived, Error(MERON_E_PEER_CLOSED, "rank 0 gave up waiting for the ranks",
                             "start all ranks again")
                           .blaming(0));
      return std::move(waited).error();
    }
  }
  Outcome outcome = summary(arrived);
  MERON_TRY(random_bytes(outcome.token.bytes));
  MERON_TRY(put(outcome_path(own_.call), to_text(outcome)));
  return outcome;
}

Result<Outcome> Store::answer(const MeetingOptions& options) {
  const Deadline verdict{options.deadline.is_never() ? options.deadline.ns
                                                     : options.deadline.ns + kAnswerNs};
  Patience patience(options);
  std::optional<Card> taken;  // another process, with which rank 0 has met
  while (true) {
    const bool over = verdict.passed();
    const bool passed = options.deadline.passed();
    // Listed first: a network's file system may not look again for a file by its name.
    MERON_ASSIGN(const auto there, present(1));
    const auto host = there[0] ? card_of(0) : std::nullopt;
    if (host && host->number != own_.call) {
      own_.call = host->number;
      MERON_TRY(put(path_of(own_.rank), to_text(own_)));
      patience.shorten();
    } else {
      MERON_TRY(hold_own());
    }
    const auto text = own_.call.empty() ? Result<std::string>(std::string())
                                        : read_file(outcome_path(own_.call), kMaxOutcomeBytes);
    if (auto outcome = text.ok() ? read_outcome(*text) : std::nullopt) {
      const Card* listed = outcome->find(own_.rank);
      if (listed != nullptr && listed->number != own_.number) {
        taken = *listed;  // or one of an earlier job whose rank 0 was killed
        listed = nullptr;
      }
      // Rank 0 has left, so the outcome belongs to the call that this rank has answered.
      if (outcome->failure && (listed != nullptr || !host)) return *outcome->failure;
      if (listed != nullptr) return std::move(*outcome);
    }
    if (passed && !host) {
      return Error(MERON_E_TIMEOUT, "rank 0 did not come in time",
                   "look whether rank 0 was started, with the same job, and sees the directory of "
                   "MERON_STORE")
          .blaming(0)
          .on(folder_);
    }
    if (over && taken) return replaced_by(*taken);
    if (over) {
      return Error(MERON_E_TIMEOUT,
                   fmt::format("rank 0 (pid {} on host {}) did not answer in time", host->pid,
                               host->host),
                   "look what it does; if it is of an earlier job, start this one's rank 0")
          .blaming(0)
          .on(folder_);
    }
    MERON_TRY(patience.pause());
  }
}

}  // namespace meron
