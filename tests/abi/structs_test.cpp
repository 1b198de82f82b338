// SPDX-License-Identifier: Apache-2.0
// Structs of callers that are older or newer than the library: every struct with a struct_size is
// passed with fewer bytes than the library's and with more. The smallest struct is the one that the
// ABI's baseline recorded first: a smaller size is no caller's, but what was in memory by chance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "capi/call.h"
#include "capi/field_ends.h"
#include "meron/meron.h"

namespace {

constexpr size_t kFuture = 64;  // bytes of fields that this library does not know
constexpr unsigned char kUntouched = 0xa5;

template <class Struct>
bool ends_with_a_field(uint32_t size) {
  const auto& ends = meron::capi::FieldEnds<Struct>::kEnds;
  return std::find(ends.begin(), ends.end(), size) != ends.end();
}

// Bytes that hold a struct at their beginning, with nothing after it that may be touched: under
// AddressSanitizer the bytes end where the caller's struct does.
class Bytes {
 public:
  template <class Struct>
  Bytes(const Struct& value, size_t size) : bytes_(size) {
    std::memcpy(bytes_.data(), &value, size < sizeof(value) ? size : sizeof(value));
    const auto told = static_cast<uint32_t>(size);
    std::memcpy(bytes_.data(), &told, sizeof(told));
  }
  template <class Struct>
  Struct* as() {
    return reinterpret_cast<Struct*>(bytes_.data());
  }
  unsigned char& operator[](size_t i) { return bytes_[i]; }

 private:
  std::vector<unsigned char> bytes_;
};

class OfSize : public testing::Test {
 protected:
  void SetUp() override {
    meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;
    options.rank = 0;
    options.world_size = 1;
    options.transport = "self";
    ok(meron_context_open(&context_, &options, &error_));
    param_ = register_param("weight");
    ok(meron_unit_create(&unit_, context_, "unit", &param_, 1, &error_));
    ok(meron_optimizer_create(&optimizer_, &unit_, 1, nullptr, &error_));
  }
  void TearDown() override { ok(meron_context_close(context_, &error_)); }

  void ok(meron_status status) {
    const std::string message = meron_error_message(error_);
    meron_error_free(std::exchange(error_, nullptr));
    ASSERT_EQ(MERON_OK, status) << message;
  }

  meron_param_desc desc(const std::string& name) const {
    static constexpr int64_t kShape[] = {7};
    meron_param_desc made = MERON_PARAM_DESC_INIT;
    made.name = name.c_str();
    made.shape = kShape;
    made.dims = 1;
    return made;
  }

  meron_param register_param(const std::string& name) {
    meron_param made{};
    const meron_param_desc what = desc(name);
    ok(meron_param_register(&made, context_, &what, &error_));
    return made;
  }

  // Options that are `good` are accepted when they end where those of a release do, and when they
  // are longer with zeros. They are refused with another size, and when they set a field that the
  // library does not know.
  template <class Options>
  void accepts(const Options& good, const std::function<meron_status(const Options*)>& call) {
    for (uint32_t size = 0; size <= sizeof(Options); ++size) {
      Bytes older(good, std::max<size_t>(size, sizeof(uint32_t)));
      older.as<Options>()->struct_size = size;
      const meron_status expected = ends_with_a_field<Options>(size) ? MERON_OK : MERON_E_ARGUMENT;
      EXPECT_EQ(expected, call(older.as<Options>())) << size << " bytes: " << said();
      said();
    }
    Bytes newer(good, sizeof(Options) + kFuture);
    EXPECT_EQ(MERON_OK, call(newer.as<Options>())) << said();
    newer[sizeof(Options) + kFuture - 1] = 1;
    EXPECT_EQ(MERON_E_UNSUPPORTED, call(newer.as<Options>()));
    EXPECT_NE(std::string::npos, said().find("does not know"));
    Bytes wrong(good, sizeof(Options));
    wrong.as<Options>()->struct_size = 1u << 20;
    EXPECT_EQ(MERON_E_ARGUMENT, call(wrong.as<Options>()));
    said();
  }

  // A struct to be filled is filled as far as it reaches, and what is beyond the library's own
  // fields becomes 0.
  template <class Info>
  void fills(const std::function<meron_status(Info*)>& call) {
    Info whole{};
    whole.struct_size = sizeof(Info);
    ASSERT_EQ(MERON_OK, call(&whole)) << said();
    for (uint32_t size = sizeof(uint32_t); size <= sizeof(Info); ++size) {
      Bytes older(Info{}, size);
      if (!ends_with_a_field<Info>(size)) {
        EXPECT_EQ(MERON_E_ARGUMENT, call(older.as<Info>())) << size;
        said();
        continue;
      }
      ASSERT_EQ(MERON_OK, call(older.as<Info>())) << size << " bytes: " << said();
      uint32_t told = 0;
      std::memcpy(&told, &older[0], sizeof(told));
      EXPECT_EQ(size, told);
      EXPECT_EQ(0, std::memcmp(&older[0] + sizeof(told),
                               reinterpret_cast<const unsigned char*>(&whole) + sizeof(told),
                               size - sizeof(told)));
    }
    Bytes newer(Info{}, sizeof(Info) + kFuture);
    for (size_t i = sizeof(Info); i < sizeof(Info) + kFuture; ++i) newer[i] = kUntouched;
    ASSERT_EQ(MERON_OK, call(newer.as<Info>())) << said();
    for (size_t i = sizeof(Info); i < sizeof(Info) + kFuture; ++i) EXPECT_EQ(0, newer[i]) << i;
  }

  // An init function fills the first bytes and no more, and refuses a struct that is newer than the
  // library: it cannot know the initial value of its fields.
  template <class Options>
  void initializes(const Options& initial,
                   meron_status (*init)(Options*, size_t, meron_error** err)) {
    for (uint32_t size = sizeof(uint32_t); size <= sizeof(Options); ++size) {
      Bytes older(Options{}, size);
      if (!ends_with_a_field<Options>(size)) {
        EXPECT_EQ(MERON_E_ARGUMENT, init(older.as<Options>(), size, &error_)) << size;
        said();
        continue;
      }
      ASSERT_EQ(MERON_OK, init(older.as<Options>(), size, &error_)) << size << said();
      Options expected = initial;
      expected.struct_size = static_cast<uint32_t>(size);
      EXPECT_EQ(0, std::memcmp(&older[0], &expected, size)) << size;
    }
    Bytes newer(Options{}, sizeof(Options) + kFuture);
    EXPECT_EQ(MERON_E_ARGUMENT, init(newer.as<Options>(), sizeof(Options) + kFuture, &error_));
    EXPECT_NE(std::string::npos, said().find("this library knows"));
  }

  // The last error's message, which it frees.
  std::string said() {
    std::string message = meron_error_message(error_);
    meron_error_free(std::exchange(error_, nullptr));
    return message;
  }

  meron_context context_{};
  meron_param param_{};
  meron_unit unit_{};
  meron_optimizer optimizer_{};
  meron_error* error_ = nullptr;
};

TEST_F(OfSize, ContextOptions) {
  meron_context_options good = MERON_CONTEXT_OPTIONS_INIT;
  good.rank = 0;
  good.world_size = 1;
  good.transport = "self";
  accepts<meron_context_options>(good, [this](const meron_context_options* options) {
    meron_context context{};
    const meron_status status = meron_context_open(&context, options, &error_);
    if (status == MERON_OK) ok(meron_context_close(context, nullptr));
    return status;
  });
}

TEST_F(OfSize, ParamDesc) {
  // Each name serves once, so each call registers another one.
  int count = 0;
  accepts<meron_param_desc>(desc("unused"), [&](const meron_param_desc* given) {
    const std::string name = "param" + std::to_string(count++);
    const bool has_name = given->struct_size >= sizeof(meron_param_desc);
    if (has_name) const_cast<meron_param_desc*>(given)->name = name.c_str();
    meron_param made{};
    return meron_param_register(&made, context_, given, &error_);
  });
}

TEST_F(OfSize, Workload) {
  accepts<meron_workload>(MERON_WORKLOAD_INIT, [this](const meron_workload* workload) {
    meron_prediction prediction{};
    prediction.struct_size = sizeof(prediction);
    return meron_context_predict(&prediction, context_, workload, &error_);
  });
}

TEST_F(OfSize, GatherOptions) {
  accepts<meron_gather_options>(
      MERON_GATHER_OPTIONS_INIT, [this](const meron_gather_options* options) {
        meron_future gather{};
        const meron_status status = meron_gather_begin(&gather, &unit_, 1, options, &error_);
        if (status == MERON_OK) ok(meron_future_release(gather, nullptr));
        return status;
      });
}

TEST_F(OfSize, ReduceOptions) {
  accepts<meron_reduce_options>(
      MERON_REDUCE_OPTIONS_INIT, [this](const meron_reduce_options* options) {
        meron_future future{};
        meron_view view{};
        EXPECT_EQ(MERON_OK, meron_gradient_view(&view, param_, 0, nullptr));
        const meron_status status =
            meron_reduce_begin(&future, unit_, nullptr, 0, options, &error_);
        if (status != MERON_OK) return status;
        EXPECT_EQ(MERON_OK, meron_future_wait(future, MERON_TIMEOUT_DEFAULT, nullptr));
        EXPECT_EQ(MERON_OK, meron_future_release(future, nullptr));
        EXPECT_EQ(MERON_OK, meron_reduce_discard(unit_, nullptr));
        return status;
      });
}

TEST_F(OfSize, OptimizerOptions) {
  int count = 0;
  accepts<meron_optimizer_options>(
      MERON_OPTIMIZER_OPTIONS_INIT, [&](const meron_optimizer_options* options) {
        const std::string name = "optimized" + std::to_string(count++);
        const meron_param param = register_param(name);
        meron_unit unit{};
        ok(meron_unit_create(&unit, context_, name.c_str(), &param, 1, &error_));
        meron_optimizer optimizer{};
        return meron_optimizer_create(&optimizer, &unit, 1, options, &error_);
      });
}

TEST_F(OfSize, ParamGroup) {
  accepts<meron_optimizer_group>(MERON_OPTIMIZER_GROUP_INIT,
                                 [this](const meron_optimizer_group* group) {
                                   return meron_optimizer_set_group(optimizer_, 0, group, &error_);
                                 });
  accepts<meron_optimizer_group>(
      MERON_OPTIMIZER_GROUP_INIT, [this](const meron_optimizer_group* group) {
        uint32_t number = 0;
        return meron_optimizer_add_group(&number, optimizer_, nullptr, 0, group, &error_);
      });
}

TEST_F(OfSize, ScheduleOptions) {
  accepts<meron_schedule_options>(
      MERON_SCHEDULE_OPTIONS_INIT, [this](const meron_schedule_options* options) {
        meron_schedule schedule{};
        const meron_status status = meron_schedule_create(&schedule, &unit_, 1, options, &error_);
        if (status != MERON_OK) return status;
        EXPECT_EQ(MERON_OK, meron_schedule_release(schedule, nullptr));
        return status;
      });
}

TEST_F(OfSize, InfosAreFilledAsFarAsTheyReach) {
  fills<meron_param_info>(
      [this](meron_param_info* out) { return meron_param_get_info(out, param_, &error_); });
  fills<meron_unit_info>(
      [this](meron_unit_info* out) { return meron_unit_get_info(out, unit_, &error_); });
  fills<meron_flat_info>(
      [this](meron_flat_info* out) { return meron_unit_flat(out, unit_, 0, &error_); });
  fills<meron_optimizer_info>([this](meron_optimizer_info* out) {
    return meron_optimizer_get_info(out, optimizer_, &error_);
  });
  fills<meron_optimizer_group>([this](meron_optimizer_group* out) {
    return meron_optimizer_get_group(out, optimizer_, 0, &error_);
  });
  meron_schedule schedule{};
  ok(meron_schedule_create(&schedule, &unit_, 1, nullptr, &error_));
  fills<meron_schedule_info>(
      [&](meron_schedule_info* out) { return meron_schedule_get_info(out, schedule, &error_); });
  fills<meron_prediction>([this](meron_prediction* out) {
    return meron_context_predict(out, context_, nullptr, &error_);
  });
  fills<meron_stats>(
      [this](meron_stats* out) { return meron_context_stats(out, context_, &error_); });
}

TEST_F(OfSize, InitFunctionsFillAsFarAsTheStructReaches) {
  initializes<meron_context_options>(MERON_CONTEXT_OPTIONS_INIT, meron_context_options_init);
  initializes<meron_param_desc>(MERON_PARAM_DESC_INIT, meron_param_desc_init);
  initializes<meron_workload>(MERON_WORKLOAD_INIT, meron_workload_init);
  initializes<meron_gather_options>(MERON_GATHER_OPTIONS_INIT, meron_gather_options_init);
  initializes<meron_reduce_options>(MERON_REDUCE_OPTIONS_INIT, meron_reduce_options_init);
  initializes<meron_transport>(MERON_TRANSPORT_INIT, meron_transport_init);
  initializes<meron_allocator>(MERON_ALLOCATOR_INIT, meron_allocator_init);
  initializes<meron_optimizer_options>(
      MERON_OPTIMIZER_LION_INIT,
      [](meron_optimizer_options* options, size_t size, meron_error** err) {
        return meron_optimizer_rule_init(options, size, MERON_OPTIMIZER_LION, err);
      });
  initializes<meron_optimizer_group>(MERON_OPTIMIZER_GROUP_INIT, meron_optimizer_group_init);
  initializes<meron_schedule_options>(MERON_SCHEDULE_OPTIONS_INIT, meron_schedule_options_init);
}

// An uninitialized size can be the end of a field.
TEST_F(OfSize, ASizeByChanceIsRefused) {
  meron_stats stats;
  std::memset(&stats, kUntouched, sizeof(stats));
  stats.struct_size = offsetof(meron_stats, gather_copied_bytes);
  EXPECT_EQ(MERON_E_ARGUMENT, meron_context_stats(&stats, context_, &error_));
  EXPECT_NE(std::string::npos, said().find("struct_size is 16, expected 176"));
  EXPECT_EQ(uint64_t{0xa5a5a5a5a5a5a5a5}, stats.gather_mapped_bytes);  // untouched
}

// A struct that has grown since the first release.
struct Grown {
  uint32_t struct_size;
  uint32_t first;
  double last_of_the_release;
  double added;
};

}  // namespace

template <>
struct meron::capi::FieldEnds<Grown> {
  static constexpr std::array<uint32_t, 2> kEnds = {16, 24};
};

namespace {

TEST(AGrownStruct, KeepsTheDefaultOfAFieldThatTheCallerLacks) {
  const Grown defaults = {sizeof(Grown), 1, 2.0, 3.0};
  Grown given = {16, 5, 6.0, 7.0};
  auto read = meron::capi::read_options(&given, defaults, "options");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(5u, read->first);
  EXPECT_EQ(6.0, read->last_of_the_release);
  EXPECT_EQ(3.0, read->added);
  given.struct_size = 24;
  read = meron::capi::read_options(&given, defaults, "options");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(7.0, read->added);
  for (const uint32_t size : {4u, 8u, 12u, 20u}) {
    given.struct_size = size;
    EXPECT_FALSE(meron::capi::read_options(&given, defaults, "options").ok()) << size;
  }
}

TEST(AGrownStruct, IsFilledAsFarAsTheCallersReaches) {
  const Grown found = {0, 1, 2.0, 3.0};
  Grown out = {16, 0, 0.0, -1.0};
  ASSERT_TRUE(meron::capi::write_info(&out, found, "out").ok());
  EXPECT_EQ(16u, out.struct_size);
  EXPECT_EQ(2.0, out.last_of_the_release);
  EXPECT_EQ(-1.0, out.added);
}

}  // namespace
