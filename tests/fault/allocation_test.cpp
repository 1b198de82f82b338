// SPDX-License-Identifier: Apache-2.0
// Each allocation of a short training fails once: the call that lacks memory says so, the process
// lives, and what the call had begun is undone.
//
// Some allocations are tried, chosen at random. MERON_TEST_STEP=3 tries each third instead.
#include <cstdlib>
#include <filesystem>
#include <random>

#include "tests/fault/failing_allocator.h"
#include "tests/fault/job.h"
#include "tests/unit/os/child_process.h"

namespace meron::test {
namespace {

constexpr int kGood = 0, kBad = 1, kAlarmSeconds = 60;
constexpr size_t kWeights = 400, kBiases = 20;
constexpr int kRandomTrials = 120;

// One call under the failing allocator. Whatever fails must be called want of memory.
class Trial {
 public:
  bool good() const { return good_; }
  // The first call that failed; null: none did.
  const char* failed() const { return failed_; }

  template <class Call>
  bool call(const char* name, Call make) {
    meron_error* error = nullptr;
    armed.store(true);
    const meron_status status = make(&error);
    armed.store(false);
    if (status < 0 && failed_ == nullptr) {
      failed_ = name;
      expect(status == MERON_E_NO_MEMORY, name, meron_error_message(error));
    } else if (status < 0) {
      // A group that broke says why.
      expect(status == MERON_E_NO_MEMORY, name, meron_error_message(error));
    }
    meron_error_free(error);
    return status >= 0;
  }
  void expect(bool holds, const char* what, const char* detail) {
    if (holds) return;
    good_ = false;
    std::printf("allocation %lld: %s: %s\n", static_cast<long long>(fails_at.load()), what, detail);
    std::fflush(stdout);  // a child ends without it
  }

 private:
  bool good_ = true;
  const char* failed_ = nullptr;
};

#define TRY(function, ...) \
  trial.call(#function, [&](meron_error** error) { return function(__VA_ARGS__, error); })

struct Objects {
  meron_context context{};
  meron_param params[2] = {};
  meron_unit unit{};
  meron_optimizer optimizer{};
};

bool wait_and_release(Trial& trial, meron_future future) {
  const bool ended = TRY(meron_future_wait, future, MERON_TIMEOUT_DEFAULT);
  return TRY(meron_future_release, future) && ended;
}

bool open(Trial& trial, Objects& o) {
  static const char kPlan[] = R"({"preset": "zero3"})";
  meron_plan plan{};
  if (!TRY(meron_plan_parse, &plan, kPlan, sizeof kPlan - 1)) return false;
  meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;
  options.rank = 0;
  options.world_size = 1;
  options.transport = "self";
  options.plan = plan;
  options.threads = 1;
  const bool opened = TRY(meron_context_open, &o.context, &options);
  return TRY(meron_plan_release, plan) && opened;
}

bool build(Trial& trial, Objects& o) {
  const int64_t shape[] = {20, 20};
  meron_param_desc desc = MERON_PARAM_DESC_INIT;
  desc.name = "weight";
  desc.shape = shape;
  desc.dims = 2;
  if (!TRY(meron_param_register, &o.params[0], o.context, &desc)) return false;
  desc.name = "bias";
  desc.dtype = MERON_BF16;
  desc.dims = 1;
  if (!TRY(meron_param_register, &o.params[1], o.context, &desc)) return false;
  if (!TRY(meron_unit_create, &o.unit, o.context, "unit", o.params, 2)) return false;
  const meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
  return TRY(meron_optimizer_create, &o.optimizer, &o.unit, 1, &options);
}

std::vector<float> values_of(int step) {
  std::vector<float> values(kWeights);
  for (size_t i = 0; i < kWeights; ++i)
    values[i] = static_cast<float>(i) + static_cast<float>(step);
  return values;
}

bool update(Trial& trial, Objects& o, int step) {
  const std::vector<float> values = values_of(step);
  meron_future update{};
  if (!TRY(meron_update_begin, &update, &o.unit, 1)) return false;
  const bool written =
      TRY(meron_future_wait, update, MERON_TIMEOUT_DEFAULT) &&
      TRY(meron_update_write, update, o.params[0], values.data(), kWeights, MERON_F32) &&
      TRY(meron_update_write, update, o.params[1], values.data(), kBiases, MERON_F32) &&
      TRY(meron_update_publish, update);
  // Publishing it ends it, also if that fails.
  if (!written && meron_future_release(update, nullptr) == MERON_E_ARGUMENT) std::abort();
  return written;
}

bool gather(Trial& trial, Objects& o, int step) {
  meron_future gather{};
  if (!TRY(meron_gather_begin, &gather, &o.unit, 1, nullptr)) return false;
  meron_view view{};
  const bool gathered = TRY(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT) &&
                        TRY(meron_gather_view, &view, gather, o.params[0]);
  if (gathered) {
    const std::vector<float> values = values_of(step);
    trial.expect(std::memcmp(view.data, values.data(), kWeights * sizeof(float)) == 0, "gather",
                 "other values");
  }
  return TRY(meron_future_release, gather) && gathered;
}

bool save(Trial& trial, Objects& o, const char* folder, int step) {
  meron_checkpoint_save_options options = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
  options.step = static_cast<uint64_t>(step);
  options.overwrite = 1;
  options.optimizers = &o.optimizer;
  options.optimizer_count = 1;
  options.extra = R"({"a": 1})";
  meron_future save{};
  return TRY(meron_checkpoint_save_begin, &save, o.context, folder, "saved", &options) &&
         wait_and_release(trial, save);
}

bool load(Trial& trial, Objects& o, const char* folder) {
  meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
  options.optimizers = &o.optimizer;
  options.optimizer_count = 1;
  meron_checkpoint loaded{};
  return TRY(meron_checkpoint_load, &loaded, o.context, folder, nullptr, &options) &&
         TRY(meron_checkpoint_release, loaded);
}

bool read(Trial& trial, const char* folder, int step) {
  meron_checkpoint opened{};
  if (!TRY(meron_checkpoint_open, &opened, folder, nullptr)) return false;
  std::vector<float> values(kWeights);
  const bool done = TRY(meron_checkpoint_read, values.data(), kWeights * sizeof(float), opened,
                        nullptr, "weight", 0, kWeights);
  if (done) trial.expect(values == values_of(step), "read", "other values");
  return TRY(meron_checkpoint_release, opened) && done;
}

bool train(Trial& trial, Objects& o) {
  const std::vector<float> gradient(kWeights, 1.0f);
  const meron_source sources[] = {{o.params[0], gradient.data(), kWeights, MERON_F32, 0},
                                  {o.params[1], gradient.data(), kBiases, MERON_F32, 0}};
  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
  options.boundary = 1;
  meron_future future{};
  if (!TRY(meron_reduce_begin, &future, o.unit, sources, 2, &options) ||
      !wait_and_release(trial, future)) {
    return false;
  }
  return TRY(meron_optimizer_step_begin, &future, o.optimizer) && wait_and_release(trial, future);
}

bool describe(Trial& trial, Objects& o) {
  char* text = nullptr;
  if (!TRY(meron_context_flight_record, &text, o.context)) return false;
  meron_string_free(text);
  if (!TRY(meron_system_info, &text)) return false;
  meron_string_free(text);
  return true;
}

bool fail_on_purpose(Trial& trial, Objects& o) {
  meron_error* error = nullptr;
  meron_future future{};
  armed.store(true);
  const meron_status status =
      meron_gather_begin(&future, &o.unit, 0, nullptr, &error);  // no unit is given
  armed.store(false);
  trial.expect(status == MERON_E_ARGUMENT || status == MERON_E_NO_MEMORY, "an error",
               meron_error_message(error));
  meron_error_free(error);
  return true;
}

// True if every call succeeded.
bool run(Trial& trial, Objects& o, const char* folder) {
  const std::string model = std::string(folder) + "/model";
  meron_checkpoint_export_options exporting = MERON_CHECKPOINT_EXPORT_OPTIONS_INIT;
  exporting.overwrite = 1;
  meron_group world{};
  meron_future barrier{};
  return open(trial, o) && build(trial, o) && update(trial, o, 1) && gather(trial, o, 1) &&
         save(trial, o, folder, 1) && load(trial, o, folder) && read(trial, folder, 1) &&
         TRY(meron_checkpoint_export, o.context, model.c_str(), &exporting) &&
         fail_on_purpose(trial, o) && describe(trial, o) &&
         TRY(meron_context_world, &world, o.context) && TRY(meron_barrier_begin, &barrier, world) &&
         wait_and_release(trial, barrier) && TRY(meron_group_release, world) && train(trial, o);
}

bool is_usable(const Objects& o) {
  meron_group world{};
  if (meron_context_world(&world, o.context, nullptr) < 0) return false;
  const bool usable = meron_group_status(world, nullptr) == MERON_OK;
  return meron_group_release(world, nullptr) == MERON_OK && usable;
}

// After the failed call the same objects still work, unless the group is broken.
void go_on(Trial& trial, Objects& o, const char* folder) {
  if (o.optimizer.id == 0 || !is_usable(o)) return;
  const bool done = update(trial, o, 7) && gather(trial, o, 7) && save(trial, o, folder, 7) &&
                    read(trial, folder, 7);
  trial.expect(done, trial.failed(), "the objects do not work any more");
}

int run_trial(const char* folder) {
  alarm(kAlarmSeconds);
  Trial trial;
  Objects o;
  const bool all = run(trial, o, folder);
  trial.expect(all || trial.failed() != nullptr, "the program", "stopped without an error");
  fails_at.store(0);
  go_on(trial, o, folder);
  if (o.context.id != 0) {
    trial.expect(meron_context_close(o.context, nullptr) == MERON_OK, "close", "failed");
  }
  // And another context does all of it.
  Trial anew;
  Objects next;
  trial.expect(run(anew, next, folder) && anew.good(), "afterwards",
               anew.failed() != nullptr ? anew.failed() : "other values");
  if (next.context.id != 0) {
    trial.expect(meron_context_close(next.context, nullptr) == MERON_OK, "close", "failed");
  }
  return trial.good() ? kGood : kBad;
}

class Allocation : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "meron-allocation-XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(folder_.data()));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  int attempt(int64_t number) {
    return run_in_child([&] {
      fails_at.store(number);
      return run_trial(folder_.c_str());
    });
  }
  // Of a run in which none fails.
  int64_t count() {
    Shared<std::atomic<int64_t>> shared(1);
    const int ended = run_in_child([&] {
      Trial trial;
      Objects o;
      const bool all = run(trial, o, folder_.c_str());
      shared[0].store(counted.load());
      const bool closed = meron_context_close(o.context, nullptr) == MERON_OK;
      return all && closed ? kGood : kBad;
    });
    EXPECT_EQ(kGood, ended);
    return shared[0].load();
  }
  std::string folder_;
};

TEST_F(Allocation, ThatFailsIsCalledWantOfMemoryAndLeavesNothingBehind) {
  const int64_t all = count();
  ASSERT_GT(all, 1000);
  std::vector<int64_t> numbers;
  if (const char* step = std::getenv("MERON_TEST_STEP"); step != nullptr) {
    for (int64_t n = 1; n <= all; n += std::max(1, std::atoi(step))) numbers.push_back(n);
  } else {
    std::mt19937_64 random(test_seed());
    for (int i = 0; i < kRandomTrials; ++i) {
      numbers.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(all)));
    }
  }
  int bad = 0;
  for (const int64_t number : numbers) {
    const int ended = attempt(number);
    if (ended == kGood) continue;
    ++bad;
    EXPECT_EQ(kGood, ended) << "allocation " << number << " of " << all
                            << (ended >= 1000 ? ": a signal ended the process" : "");
  }
  std::printf("%zu allocations of %lld, %d bad\n", numbers.size(), static_cast<long long>(all),
              bad);
}

}  // namespace
}  // namespace meron::test
