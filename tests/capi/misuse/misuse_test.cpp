// SPDX-License-Identifier: Apache-2.0
// 10,000 misuses, drawn at random from all ways to call any function wrongly: each is an error that
// says what and what to do, and harms nothing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

constexpr int kMisuses = 10'000;
constexpr int kBatch = 100;

std::vector<Misuse> all_misuses() {
  std::vector<Misuse> all;
  for (const auto& some :
       {misuses_of_handles(), misuses_of_pointers(), misuses_of_values(), misuses_of_options(),
        misuses_of_plans(), misuses_of_structs(), misuses_of_order(), misuses_of_the_released(),
        misuses_of_schedules(), misuses_of_optimizers(), misuses_of_io(), misuses_of_checkpoints(),
        misuses_of_tensors()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

uint64_t test_seed() {
  const char* given = std::getenv("MERON_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : 20261121;
  std::printf("seed: MERON_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

// Checks the properties that every error of a misuse must have.
void expect_good_error(const Misuse& misuse, const CallFailed& failed) {
  const bool expected = std::find(misuse.expected.begin(), misuse.expected.end(), failed.status) !=
                        misuse.expected.end();
  EXPECT_TRUE(expected) << meron_status_name(failed.status);
  ASSERT_FALSE(failed.message.empty());
  EXPECT_EQ('.', failed.message.back());
  EXPECT_EQ(std::string::npos, failed.message.find(".. ")) << "two full stops";
  EXPECT_FALSE(failed.operation.empty());
  EXPECT_FALSE(failed.advice.empty()) << "says not what to do";
  EXPECT_TRUE(failed.rank == MERON_RANK_NONE || failed.rank == 0) << failed.rank;
  EXPECT_TRUE(failed.peer == MERON_RANK_NONE || failed.peer == 0) << failed.peer;
}

TEST(Misuse, TenThousandHarmNothing) {
  Random random(test_seed());
  const std::vector<Misuse> all = all_misuses();
  Objects objects;
  ASSERT_NO_THROW(objects.check_that_all_works());
  std::map<meron_status, int> statuses;
  for (int i = 0; i < kMisuses; ++i) {
    const Misuse& misuse = random.pick(all);
    SCOPED_TRACE(misuse.name);
    try {
      const CallFailed failed = misuse.make(objects, random);
      SCOPED_TRACE(failed.message);
      expect_good_error(misuse, failed);
      ++statuses[failed.status];
      if (i % kBatch == kBatch - 1) objects.check_that_all_works();
    } catch (const CallFailed& failed) {
      FAIL() << failed.function << " failed around the misuse: " << failed.message;
    } catch (const std::exception& failed) {
      FAIL() << "after some misuses, " << failed.what();
    }
    ASSERT_FALSE(HasFailure()) << "misuse " << i;
  }
  std::printf("%d misuses of %zu kinds:", kMisuses, all.size());
  for (const auto& [status, count] : statuses) {
    std::printf(" %s %d,", meron_status_name(status) + sizeof("MERON_E_") - 1, count);
  }
  std::printf("\n");
}

// Each kind once, so that no run leaves one out; and every function that can fail is among them.
TEST(Misuse, EachKindAndEveryFunction) {
  Random random(1);
  std::unique_ptr<Objects> objects;
  std::set<std::string> functions = {
      // These cannot fail.
      "meron_error_code",   "meron_error_message", "meron_error_operation", "meron_error_subject",
      "meron_error_advice", "meron_error_rank",    "meron_error_peer",      "meron_error_free",
      "meron_status_name",  "meron_version",       "meron_version_string",  "meron_string_free",
      "meron_dtype_size"};
  for (const Misuse& misuse : all_misuses()) {
    SCOPED_TRACE(misuse.name);
    try {
      if (!objects) objects = std::make_unique<Objects>();
      const CallFailed failed = misuse.make(*objects, random);
      SCOPED_TRACE(failed.message);
      expect_good_error(misuse, failed);
      functions.insert(failed.function);
      objects->check_that_all_works();
    } catch (const CallFailed& failed) {
      ADD_FAILURE() << failed.function << " failed around the misuse: " << failed.message;
      objects.reset();
    } catch (const std::exception& failed) {
      ADD_FAILURE() << "after the misuse, " << failed.what();
      objects.reset();
    }
  }
  std::ifstream symbols(MERON_SYMBOLS_FILE);
  ASSERT_TRUE(symbols) << MERON_SYMBOLS_FILE;
  for (std::string name; std::getline(symbols, name);) {
    if (name.rfind("meron_", 0) == 0) {
      EXPECT_EQ(1u, functions.count(name)) << name << " is never misused";
    }
  }
}

// The detail is optional: the status alone is the same without it.
TEST(Misuse, WithoutAnErrorObject) {
  Objects objects;
  meron_view view{};
  char* text = nullptr;
  EXPECT_EQ(MERON_E_HANDLE, meron_future_wait(meron_future{}, 0, nullptr));
  EXPECT_EQ(MERON_E_ARGUMENT, meron_plan_json(nullptr, objects.plan, nullptr));
  EXPECT_EQ(MERON_E_STATE, meron_reduced_view(&view, objects.a->params[0], nullptr));
  EXPECT_EQ(MERON_E_HANDLE, meron_plan_json(&text, meron_plan{objects.a->context.id}, nullptr));
  ASSERT_NO_THROW(objects.check_that_all_works());
}

TEST(Misuse, OfFunctionsThatCannotFail) {
  EXPECT_EQ(MERON_OK, meron_error_code(nullptr));
  EXPECT_STREQ("", meron_error_message(nullptr));
  EXPECT_STREQ("", meron_error_operation(nullptr));
  EXPECT_STREQ("", meron_error_subject(nullptr));
  EXPECT_STREQ("", meron_error_advice(nullptr));
  EXPECT_EQ(MERON_RANK_NONE, meron_error_rank(nullptr));
  EXPECT_EQ(MERON_RANK_NONE, meron_error_peer(nullptr));
  meron_error_free(nullptr);
  meron_string_free(nullptr);
  for (const meron_status status : {1000, -1, -99, -299, -499, INT32_MIN, INT32_MAX}) {
    EXPECT_STREQ("MERON_E_UNKNOWN", meron_status_name(status));
  }
  for (const meron_dtype dtype : {-1, 5, INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(0u, meron_dtype_size(dtype));
  }
}

// A caller with newer headers gets zeros in the fields that this library does not know. A size that
// no release has is refused, and nothing is written.
TEST(Misuse, InfoStructsOfOtherSizes) {
  Objects objects;
  struct {
    meron_unit_info info;
    unsigned char more[16];
  } newer;
  std::memset(&newer, 0xee, sizeof(newer));
  newer.info.struct_size = sizeof(newer);
  EXPECT_EQ(MERON_OK, meron_unit_get_info(&newer.info, objects.a->units[0], nullptr));
  for (const unsigned char byte : newer.more) EXPECT_EQ(0, byte);
  EXPECT_EQ(sizeof(newer), newer.info.struct_size);

  meron_unit_info smaller;
  std::memset(&smaller, 0xee, sizeof(smaller));
  smaller.struct_size = offsetof(meron_unit_info, leases);
  EXPECT_EQ(MERON_E_ARGUMENT, meron_unit_get_info(&smaller, objects.a->units[0], nullptr));
  EXPECT_EQ(uint64_t{0xeeeeeeeeeeeeeeee}, smaller.version);
}

}  // namespace
}  // namespace meron::test
