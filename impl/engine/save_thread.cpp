// SPDX-License-Identifier: Apache-2.0
#include "engine/save_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/no_memory.h"
#include "engine/agreement.h"
#include "engine/context.h"
#include "os/threads.h"

namespace meron {
namespace {

// Sleeps of a rank that waits for others. In the first kBriefNs, peers wake it. Later it polls,
// because the trainer's calls would wake it for nothing.
constexpr int64_t kBriefNs = 20 * kNanosPerMilli;
constexpr int64_t kPollNs = 5 * kNanosPerMilli;
constexpr int64_t kLinkPollNs = kNanosPerMilli;
constexpr int64_t kInspectNs = 20 * kNanosPerMilli;
// Period at which this rank shows its peers progress.
constexpr int64_t kSignNs = 50 * kNanosPerMilli;

// Of the word of progress.
constexpr int kSignBits = 32;
constexpr uint64_t kSigns = (uint64_t{1} << kSignBits) - 1;

Error abandoned_error(const SaveOperation& save) {
  return Error(MERON_E_CLOSED, "the context was closed while it saved",
               "wait for the save before the context is closed")
      .on(save.options.target.name);
}

}  // namespace

// The engine as a save sees it; for the thread.
class SaveThread::Peers final : public Exchange {
 public:
  Peers(SaveThread& thread, SaveOperation& save)
      : thread_(thread), context_(thread.context_), channel_(*thread.channel_), save_(save) {}

  int rank() const override { return context_.transport_->rank(); }
  int size() const override { return context_.transport_->world_size(); }
  Status broadcast(std::byte* data, uint64_t bytes, int root) override {
    return agree_by_broadcast(
        channel_, Deadline::never(), data, bytes, root,
        [&](uint64_t posted, auto operation) { return run(posted, std::move(operation)); });
  }
  Status gather(const std::byte* own, uint64_t bytes, std::byte* all) override {
    return agree_by_gather(
        channel_, Deadline::never(), own, bytes, all,
        [&](uint64_t posted, auto operation) { return run(posted, std::move(operation)); });
  }

  // The unit is held: it is copied where UnitState::read releases the lock.
  Status read(const UnitState& unit, const State& state, const Range& range,
              std::byte* out) override {
    Context::Lock held(context_, Context::Lock::Quietly{});
    MERON_TRY(going_on());
    return unit.read(state, range, out);
  }
  Status write(const UnitState& unit, const State& /*state*/, const Range& /*range*/,
               const std::byte* /*data*/) override {
    return Error(MERON_E_INTERNAL, "a save writes to a unit", "please report this defect")
        .on(unit.unit().name());
  }
  void copied(const UnitState& unit) override {
    Context::Lock held(context_, Context::Lock::Quietly{});
    unit.unit().end_hold();
  }
  void progressed() override {
    const int64_t now = now_ns();
    if (now - signed_ns_ < kSignNs) return;
    signed_ns_ = now;
    Context::Lock held(context_, Context::Lock::Quietly{});
    thread_.give_sign();
    if (thread_.cancelled_by() >= 0) save_.options.watch->cancelled.store(true);
  }

 private:
  Status going_on() const {
    if (thread_.stop_.load()) return abandoned_error(save_);
    return channel_.status();
  }

  Status run(uint64_t bytes, std::shared_ptr<Operation> operation) {
    const int64_t begun = now_ns();
    {
      Context::Lock held(context_, Context::Lock::Quietly{});
      MERON_TRY(going_on());
      MERON_ASSIGN(const uint64_t sequence,
                   context_.post(channel_, {CallKind::agree, save_.options.target.name, bytes, 0}));
      operation->set_sequence(sequence);
      save_.agreement = operation;
    }
    waiting_since_ = begun;
    while (true) {
      const int64_t now = now_ns();
      // A link sleeps in a function of the trainer's, which this thread must not call.
      const bool brief = now - begun <= kBriefNs;
      if (!brief || context_.transport_->link() != nullptr) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(brief ? kLinkPollNs : kPollNs));
        MERON_ASSIGN(const bool ended, look(*operation, now));
        if (ended) return Ok{};
        continue;
      }
      Transport::Sleeper sleeper(*context_.transport_);
      MERON_ASSIGN(const bool ended, look(*operation, now));
      if (ended) return Ok{};
      sleeper.sleep(kBriefNs);
    }
  }

  Result<bool> look(Operation& operation, int64_t now) {
    Context::Lock held(context_, Context::Lock::Quietly{});
    context_.pending_.advance(held, operation);
    if (!operation.ended() && operation.inspection_due(now, kInspectNs)) {
      context_.check_peers(held, operation);
      if (!operation.ended()) expect_progress(held, operation, now);
    }
    if (!operation.ended()) {
      MERON_TRY(going_on());
      return false;
    }
    save_.agreement = nullptr;
    context_.transport_->ring();
    if (!operation.error()) return true;
    context_.record_failure(*operation.error());
    return *operation.error();
  }

  // A drive may be slow on one rank, so only a lack of progress is a failure.
  void expect_progress(const Held& held, Operation& operation, int64_t now) {
    const std::vector<int> missing = context_.missing_of(held, operation);
    uint64_t signs = 0;
    for (const int m : missing) {
      signs += channel_.member(m).norm_step[0].load(std::memory_order_relaxed);
    }
    if (std::exchange(signs_, signs) != signs) waiting_since_ = now;
    if (missing.empty() || now - waiting_since_ < thread_.patience_ns()) return;
    const int rank = channel_.members().world_rank(missing.front());
    operation.finish(channel_.fail(
        Error(MERON_E_TIMEOUT,
              fmt::format("rank {} has not got on with the save of '{}' for {:.1f} s, twice the "
                          "timeout",
                          rank, save_.options.target.name,
                          static_cast<double>(now - waiting_since_) / kNanosPerSecond),
              "look what that rank and its drive do, or raise the timeout")
            .during("checkpoint_save")
            .blaming(rank)));
  }

  SaveThread& thread_;
  Context& context_;
  Channel& channel_;
  SaveOperation& save_;
  int64_t signed_ns_ = 0;
  int64_t waiting_since_ = 0;  // of the agreement, or since the missing gave the last sign
  uint64_t signs_ = 0;
};

SaveThread::SaveThread(Context& context) : context_(context) {
  const MaskSignalsScope masked;
  thread_ = std::thread([this] { run(); });
}

SaveThread::~SaveThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  {
    auto held = context_.lock();
    if (last_) last_->options.watch->cancelled.store(true);
  }
  wake_.notify_one();
  thread_.join();
}

void SaveThread::begin(std::shared_ptr<SaveOperation> save) {
  last_ = save;
  ++begun_;
  seen_ns_ = now_ns();
  {
    const std::lock_guard lock(mutex_);
    next_ = std::move(save);
  }
  wake_.notify_one();
}

void SaveThread::give_sign() {
  const uint64_t word = progress_word().load(std::memory_order_relaxed);
  channel_->announce(progress_word(), (word & ~kSigns) | ((word + 1) & kSigns));
}

void SaveThread::cancel() {
  if (!under_way()) return;
  const uint64_t signs = progress_word().load(std::memory_order_relaxed) & kSigns;
  channel_->announce(progress_word(), begun_ << kSignBits | signs);
  last_->options.watch->cancelled.store(true);
  context_.transport_->ring();
}

int SaveThread::cancelled_by() const {
  for (int m = 0; m < channel_->size(); ++m) {
    const uint64_t word = channel_->member(m).norm_step[0].load(std::memory_order_seq_cst);
    if (word >> kSignBits == begun_) return m;
  }
  return -1;
}

// The same on all ranks, whichever rank gave up its files first.
Error SaveThread::cancelled_error(const SaveOperation& save, int member) const {
  const int rank = channel_->members().world_rank(member);
  return Error(MERON_E_CANCELLED, fmt::format("rank {} cancelled the save", rank),
               "save again when you need one; earlier checkpoints are as they were")
      .on(save.options.target.name)
      .during("checkpoint_save")
      .blaming(rank);
}

int64_t SaveThread::patience_ns() const {
  return 2 * context_.rank_->timeout_ns;
}

bool SaveThread::some_rank_copies(int64_t now) {
  if (!under_way()) return false;
  bool copies = false;
  uint64_t signs = 0;
  for (int m = 0; m < channel_->size(); ++m) {
    const MemberBlock& member = channel_->member(m);
    copies = copies || member.norm_step[1].load(std::memory_order_seq_cst) < begun_;
    signs += member.norm_step[0].load(std::memory_order_relaxed);
  }
  if (std::exchange(seen_, signs) != signs) seen_ns_ = now;
  return copies && now - seen_ns_ < patience_ns();
}

void SaveThread::run() {
  begin_thread("meron-save");
  yield_to_other_threads();
  while (true) {
    std::shared_ptr<SaveOperation> save;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_.load() || next_ != nullptr; });
      if (stop_.load()) break;
      save = std::move(next_);
      next_ = nullptr;
    }
    Peers peers(*this, *save);
    Status status = Ok{};
    try {
      status = perform(*save, peers);
    } catch (const std::bad_alloc&) {
      Context::Lock held(context_, Context::Lock::Quietly{});
      // Peers must not wait for a rank that stops here.
      status = channel_->fail(Error(MERON_E_NO_MEMORY, "the process has no memory left to save",
                                    "free memory, or save less often")
                                  .on(save->options.target.name)
                                  .during("checkpoint_save"));
    }
    Context::Lock held(context_, Context::Lock::Quietly{});
    end_holds(*save);
    save->agreement = nullptr;
    const int cancelled = cancelled_by();
    if (status.ok()) {
      save->finish();
    } else if (cancelled >= 0 && status.error().code() == MERON_E_CANCELLED) {
      save->finish(cancelled_error(*save, cancelled));
    } else {
      save->finish(std::move(status).error());
    }
    context_.transport_->ring();
  }
  const std::shared_ptr<SaveOperation> save = std::move(next_);
  if (!save) return;
  Context::Lock held(context_, Context::Lock::Quietly{});
  end_holds(*save);
  save->finish(abandoned_error(*save));
}

Status SaveThread::perform(SaveOperation& save, Peers& peers) {
  const auto make_staging = []() -> Result<std::shared_ptr<checkpoint::Staging>> {
    MERON_ASSIGN(auto engine, IoEngine::create());
    return checkpoint::Staging::create(std::move(engine));
  };
  auto staging = catch_no_memory(make_staging);
  MERON_TRY(agree(peers, staging.ok() ? Status(Ok{}) : Status(staging.error())));
  return meron::save(peers, save.states, save.options, *staging, [&] {
    Context::Lock held(context_, Context::Lock::Quietly{});
    end_holds(save);
  });
}

void SaveThread::end_holds(SaveOperation& save) {
  if (save.copied()) return;
  save.end_holds();
  channel_->announce(copied_word(), begun_);
  context_.transport_->ring();
}

}  // namespace meron
