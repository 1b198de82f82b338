// SPDX-License-Identifier: Apache-2.0
// Bad input that users will give, one by one: what the message must say for them to find it.
#include <gtest/gtest.h>

#include <thread>

#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

class BadInput : public testing::Test {
 protected:
  // The failure has the status, and its message every one of the texts.
  void expect(const CallFailed& failed, meron_status status,
              const std::vector<std::string>& texts) {
    SCOPED_TRACE(failed.message);
    EXPECT_EQ(status, failed.status) << meron_status_name(failed.status);
    for (const std::string& text : texts) {
      EXPECT_NE(std::string::npos, failed.message.find(text)) << "lacks: " << text;
    }
    EXPECT_FALSE(failed.advice.empty());
    EXPECT_NO_THROW(objects_.check_that_all_works());
  }
  CallFailed registered(const char* name, std::vector<int64_t> shape, meron_dtype dtype = 0) {
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = name;
    desc.shape = shape.data();
    desc.dims = static_cast<uint32_t>(shape.size());
    desc.dtype = dtype;
    meron_param param{};
    return FAILURE_OF(meron_param_register, &param, objects_.a->context, &desc);
  }
  CallFailed parsed(const std::string& text) {
    meron_plan plan{};
    return FAILURE_OF(meron_plan_parse, &plan, text.data(), text.size());
  }

  Objects objects_;
};

TEST_F(BadInput, Handles) {
  meron_view view{};
  const uint64_t unit = objects_.a->units[0].id;
  expect(FAILURE_OF(meron_future_poll, meron_future{}), MERON_E_HANDLE, {"the future is null"});
  expect(FAILURE_OF(meron_future_poll, meron_future{unit}), MERON_E_HANDLE,
         {"a unit where a future is needed"});
  expect(FAILURE_OF(meron_future_poll, meron_future{~uint64_t{0}}), MERON_E_HANDLE,
         {"0xffffffffffffffff"});
  expect(FAILURE_OF(meron_gather_view, &view, objects_.update, objects_.loose), MERON_E_HANDLE,
         {"an update where a gather is needed"});
  meron_future gather{};
  MUST(meron_gather_begin, &gather, &objects_.a->units[0], 1, nullptr);
  MUST(meron_future_release, gather);
  expect(FAILURE_OF(meron_gather_view, &view, gather, objects_.loose), MERON_E_STALE,
         {"the gather was released"});
  const meron_unit mixed[] = {objects_.a->units[0], objects_.b->units[1]};
  expect(FAILURE_OF(meron_gather_begin, &gather, mixed, 2, nullptr), MERON_E_HANDLE,
         {"'u1' belongs to another context"});
}

TEST_F(BadInput, PointersAndSizes) {
  meron_plan plan{};
  expect(FAILURE_OF(meron_plan_preset, nullptr, "zero1"), MERON_E_ARGUMENT, {"out is NULL"});
  expect(FAILURE_OF(meron_plan_preset, &plan, nullptr), MERON_E_ARGUMENT, {"name is NULL"});
  meron_context_options options{};
  meron_context context{};
  expect(FAILURE_OF(meron_context_open, &context, &options), MERON_E_ARGUMENT,
         {"struct_size is 0", std::to_string(sizeof(options))});
  float few[2] = {};
  expect(FAILURE_OF(meron_update_write, objects_.update, objects_.half, few, 2, MERON_F32),
         MERON_E_ARGUMENT, {"'half.weight' has 6 elements, 2 were given"});
}

TEST_F(BadInput, DtypesAndEnums) {
  expect(registered("never", {1}, 7), MERON_E_ARGUMENT, {"dtype", "7"});
  expect(registered("never", {1}, MERON_F64), MERON_E_ARGUMENT, {"f64", "all-reduce", "f32"});
  expect(registered("never", {1}, MERON_I64), MERON_E_ARGUMENT, {"i64", "all-reduce", "f32"});
  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
  options.op = MERON_REDUCE_OP_MAX;
  expect(FAILURE_OF(meron_reduce_finish_begin, nullptr, objects_.a->units[0], &options),
         MERON_E_ARGUMENT, {"options.op is max", "all-reduce"});
  float data[1] = {};
  meron_future future{};
  expect(FAILURE_OF(meron_all_reduce_begin, &future, objects_.a->world, data, 1, MERON_F32, 9),
         MERON_E_ARGUMENT, {"op", "9"});
  expect(FAILURE_OF(meron_all_reduce_begin, &future, objects_.a->world, data, 0, MERON_I64,
                    MERON_REDUCE_OP_MEAN),
         MERON_E_ARGUMENT, {"mean of i64", "divide"});
}

TEST_F(BadInput, Shapes) {
  expect(registered("wide", {3, -4}), MERON_E_ARGUMENT, {"dimension 1 of 'wide' is -4"});
  expect(registered("wide", {int64_t{1} << 40, int64_t{1} << 40}), MERON_E_ARGUMENT, {"wide"});
  expect(registered("deep", std::vector<int64_t>(17, 1)), MERON_E_ARGUMENT, {"17 dimensions"});
}

TEST_F(BadInput, Names) {
  expect(registered("u0.bias", {1}), MERON_E_DUPLICATE, {"'u0.bias'", "already"});
  expect(registered("", {1}), MERON_E_ARGUMENT, {"name"});
  expect(registered("a\xff", {1}), MERON_E_ARGUMENT, {"UTF-8"});
  expect(registered(std::string(513, 'n').c_str(), {1}), MERON_E_ARGUMENT, {"513 bytes", "512"});
  meron_unit unit{};
  expect(FAILURE_OF(meron_unit_create, &unit, objects_.a->context, "u1", &objects_.loose, 1),
         MERON_E_DUPLICATE, {"unit 'u1'", "already"});
}

TEST_F(BadInput, ParamsThatOverlap) {
  meron_unit unit{};
  const meron_param twice[] = {objects_.loose, objects_.loose};
  expect(FAILURE_OF(meron_unit_create, &unit, objects_.a->context, "never", twice, 2),
         MERON_E_DUPLICATE, {"'loose' is given twice"});
  const meron_param taken[] = {objects_.loose, objects_.a->params[0]};
  expect(FAILURE_OF(meron_unit_create, &unit, objects_.a->context, "never", taken, 2),
         MERON_E_DUPLICATE, {"'u0.weight' is in unit 'u0' already"});
}

TEST_F(BadInput, RanksBeyondTheWorld) {
  const int32_t ranks[] = {0, 3};
  meron_group group{};
  expect(FAILURE_OF(meron_group_create, &group, objects_.a->context, ranks, 2), MERON_E_ARGUMENT,
         {"rank 3 is beyond a world of 1"});
  meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;
  options.rank = 4;
  options.world_size = 4;
  meron_context context{};
  expect(FAILURE_OF(meron_context_open, &context, &options), MERON_E_ARGUMENT,
         {"rank 4 is beyond a world of 4", "0 to 3"});
}

TEST_F(BadInput, PlansInJson) {
  expect(parsed("{\n  \"preset\": \"zero2\",\n  \"gradient\": {\"dtype\": \"f64\"}\n}"),
         MERON_E_PARSE, {"line 3", "gradient.dtype", "f64"});
  expect(parsed("{\n  \"preset\": \"zero2\"\n  \"name\": \"x\"\n}"), MERON_E_PARSE, {"line 3"});
  expect(parsed("{\"preset\": \"zero2\", \"optimiser\": {}}"), MERON_E_PARSE,
         {"optimiser", "optimizer"});
  expect(parsed(""), MERON_E_PARSE, {"line 1"});
  meron_plan plan{};
  expect(FAILURE_OF(meron_plan_preset, &plan, "zero5"), MERON_E_ARGUMENT, {"zero5", "zero3"});
}

// Two ranks are threads of this process; rank 1 holds an update back. Rank 0's calls on its own
// operations fail before these complete, and succeed afterwards.
TEST_F(BadInput, ViewsBeforeTheWait) {
  Open open;
  open.transport = "local";
  open.token = fresh_token();
  std::atomic<int> asked{0};
  std::vector<CallFailed> failures;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        Session session(open, rank);
        session.build();
        session.barrier();
        if (rank == 1) {
          while (asked.load() == 0) std::this_thread::yield();
        }
        meron_future update{};
        MUST(meron_update_begin, &update, &session.units[0], 1);
        meron_view view{};
        if (rank == 0) {
          const float bias[5] = {};
          failures.push_back(FAILURE_OF(meron_update_view, &view, update, session.params[0]));
          failures.push_back(
              FAILURE_OF(meron_update_write, update, session.params[1], bias, 5, MERON_F32));
          failures.push_back(FAILURE_OF(meron_update_publish, update));
          asked = 1;
        }
        MUST(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
        if (rank == 1) {
          while (asked.load() == 1) std::this_thread::yield();
        }
        MUST(meron_update_publish, update);
        meron_future gather{};
        MUST(meron_gather_begin, &gather, &session.units[0], 1, nullptr);
        const meron_future reduced = session.reduce_begin(1, 1.0f);
        if (rank == 0) {
          DLManagedTensorVersioned* tensor = nullptr;
          failures.push_back(FAILURE_OF(meron_gather_view, &view, gather, session.params[0]));
          failures.push_back(FAILURE_OF(meron_gather_dlpack, &tensor, gather, session.params[0]));
          failures.push_back(FAILURE_OF(meron_reduced_view, &view, session.params[2]));
          failures.push_back(FAILURE_OF(meron_reduce_discard, session.units[1]));
          asked = 2;
        }
        MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
        MUST(meron_gather_view, &view, gather, session.params[0]);
        session.wait(reduced);
        MUST(meron_reduced_view, &view, session.params[2]);
        session.close();
      } catch (const CallFailed& failed) {
        ADD_FAILURE() << "rank " << rank << ": " << failed.message;
        asked = 3;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(7u, failures.size());
  for (const CallFailed& failed : failures) expect(failed, MERON_E_STATE, {"ait"});
}

}  // namespace
}  // namespace meron::test
