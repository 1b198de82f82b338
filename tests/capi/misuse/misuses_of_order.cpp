// SPDX-License-Identifier: Apache-2.0
// Calls that are right in themselves and wrong now. Each undoes what it did, so that all works
// afterwards.
#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

// A gather that has ended, of one param of two.
meron_future gather_bias_into(const Objects& o, float (&bias)[5]) {
  const meron_destination to = {o.a->params[1], bias, sizeof(bias)};
  meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
  options.mode = MERON_GATHER_INTO;
  options.destinations = &to;
  options.destination_count = 1;
  meron_future gather{};
  MUST(meron_gather_begin, &gather, &o.a->units[0], 1, &options);
  MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
  return gather;
}

CallFailed while_entered(Objects& o, const std::function<CallFailed()>& call) {
  MUST(meron_schedule_enter, o.schedule, 0, MERON_TIMEOUT_DEFAULT);
  const CallFailed failed = call();
  MUST(meron_schedule_leave, o.schedule, 0);
  return failed;
}

// The error of meron_unit_destroy.
CallFailed destroyed(meron_unit unit) {
  return FAILURE_OF(meron_unit_destroy, unit);
}
OwnSession session_without_optimizer() {
  auto session = another_session();
  MUST(meron_optimizer_release, session->optimizer);
  return session;
}

}  // namespace

std::vector<Misuse> misuses_of_order() {
  return {
      misuse("meron_unit_destroy: gathered unit", MERON_E_STATE,
             [](Objects& o) {
               const meron_future gather = leased(*o.a, 0);
               const CallFailed failed = destroyed(o.a->units[0]);
               MUST(meron_future_release, gather);
               return failed;
             }),
      misuse("meron_unit_destroy: unit with an optimizer", MERON_E_STATE,
             [](Objects& o) { return destroyed(o.a->units[0]); }),
      misuse("meron_unit_destroy: unit of a schedule", MERON_E_STATE,
             [](Objects&) {
               const auto session = session_without_optimizer();
               meron_schedule schedule{};
               MUST(meron_schedule_create, &schedule, session->units.data(), 1, nullptr);
               return destroyed(session->units[0]);
             }),
      misuse("meron_unit_destroy: unit that is updated", MERON_E_STATE,
             [](Objects&) {
               const auto session = session_without_optimizer();
               updating(*session, 0);
               return destroyed(session->units[0]);
             }),
      misuse("meron_schedule_enter: unit that is updated", MERON_E_STATE,
             [](Objects& o) {
               const meron_future update = updating(*o.a, 0);
               meron_schedule schedule{};
               MUST(meron_schedule_create, &schedule, o.a->units.data(), 1, nullptr);
               const CallFailed failed = FAILURE_OF(meron_schedule_enter, schedule, 0, 0);
               MUST(meron_schedule_release, schedule);
               MUST(meron_update_publish, update);
               return failed;
             }),
      misuse("meron_schedule_start_pass: entered unit", MERON_E_STATE,
             [](Objects& o) {
               return while_entered(
                   o, [&] { return FAILURE_OF(meron_schedule_start_pass, o.schedule, 0); });
             }),
      misuse("meron_schedule_drop: entered unit", MERON_E_STATE,
             [](Objects& o) {
               return while_entered(o, [&] { return FAILURE_OF(meron_schedule_drop, o.schedule); });
             }),
      misuse("meron_schedule_leave: not entered", MERON_E_STATE,
             [](Objects& o) { return FAILURE_OF(meron_schedule_leave, o.schedule, 0); }),
      misuse("meron_schedule_view: not entered", MERON_E_STATE,
             [](Objects& o) {
               meron_view view{};
               return FAILURE_OF(meron_schedule_view, &view, o.schedule, o.frozen);
             }),
      misuse("meron_update_begin: unit that a schedule keeps", MERON_E_STATE,
             [](Objects& o) {
               meron_schedule schedule{};
               MUST(meron_schedule_create, &schedule, o.a->units.data(), 1, nullptr);
               MUST(meron_schedule_enter, schedule, 0, MERON_TIMEOUT_DEFAULT);
               MUST(meron_schedule_leave, schedule, 0);
               meron_future update{};
               const CallFailed failed =
                   FAILURE_OF(meron_update_begin, &update, o.a->units.data(), 1);
               MUST(meron_schedule_release, schedule);
               return failed;
             }),
      misuse("meron_reduce_finish_begin: reduced and not used", MERON_E_STATE,
             [](Objects& o) {
               o.a->reduce(0, 1.0f);
               meron_future future{};
               const CallFailed failed =
                   FAILURE_OF(meron_reduce_finish_begin, &future, o.a->units[0], nullptr);
               MUST(meron_reduce_discard, o.a->units[0]);
               return failed;
             }),
      misuse("meron_reduce_finish_begin: nothing to train", MERON_E_STATE,
             [](Objects& o) {
               meron_future future{};
               return FAILURE_OF(meron_reduce_finish_begin, &future, o.frozen_unit, nullptr);
             }),
      misuse("meron_update_begin: leased unit", MERON_E_STATE,
             [](Objects& o) {
               const meron_future held = leased(*o.a, 1);
               meron_future update{};
               const CallFailed failed =
                   FAILURE_OF(meron_update_begin, &update, o.a->units.data(), 2);
               MUST(meron_future_release, held);
               return failed;
             }),
      misuse("meron_update_begin: unit that is updated", MERON_E_STATE,
             [](Objects& o) {
               meron_future update{};
               return FAILURE_OF(meron_update_begin, &update, &o.half_unit, 1);
             }),
      misuse("meron_gather_begin: unit that is updated", MERON_E_STATE,
             [](Objects& o) {
               const meron_future update = updating(*o.a, 0);
               meron_future gather{};
               const CallFailed failed =
                   FAILURE_OF(meron_gather_begin, &gather, o.a->units.data(), 2, nullptr);
               MUST(meron_update_publish, update);
               return failed;
             }),
      misuse("meron_optimizer_create: unit that is updated", MERON_E_STATE,
             [](Objects& o) {
               meron_optimizer optimizer{};
               return FAILURE_OF(meron_optimizer_create, &optimizer, &o.half_unit, 1, nullptr);
             }),
      misuse("meron_optimizer_step_begin: nothing reduced", MERON_E_STATE,
             [](Objects& o) {
               o.a->reduce(1, 1.0f);
               meron_future future{};
               const CallFailed failed =
                   FAILURE_OF(meron_optimizer_step_begin, &future, o.a->optimizer);
               MUST(meron_reduce_discard, o.a->units[1]);
               return failed;
             }),
      misuse("meron_optimizer_step_begin: leased unit", MERON_E_STATE,
             [](Objects& o) {
               o.a->reduce(0, 1.0f);
               o.a->reduce(1, 1.0f);
               const meron_future held = leased(*o.a, 1);
               meron_future future{};
               const CallFailed failed =
                   FAILURE_OF(meron_optimizer_step_begin, &future, o.a->optimizer);
               MUST(meron_future_release, held);
               o.a->step();
               return failed;
             }),
      misuse("meron_reduce_begin: twice", MERON_E_STATE,
             [](Objects& o) {
               o.a->reduce(0, 1.0f);
               meron_future future{};
               const CallFailed failed =
                   FAILURE_OF(meron_reduce_begin, &future, o.a->units[0], nullptr, 0, nullptr);
               MUST(meron_reduce_discard, o.a->units[0]);
               return failed;
             }),
      misuse("meron_gradient_view: reduced and not used", MERON_E_STATE,
             [](Objects& o) {
               o.a->reduce(0, 1.0f);
               meron_view view{};
               const CallFailed failed = FAILURE_OF(meron_gradient_view, &view, o.a->params[0], 0);
               MUST(meron_reduce_discard, o.a->units[0]);
               return failed;
             }),
      misuse("meron_gradient_view: more units than buckets", MERON_E_STATE,
             [](Objects&) {
               Open open;
               open.transport = "self";
               open.ranks = 1;
               open.plan = R"({"preset": "zero2", "gradient_buckets": 1})";
               Session session(open, 0);
               session.build(2);
               meron_view view{};
               MUST(meron_gradient_view, &view, session.params[0], 0);
               const CallFailed failed =
                   FAILURE_OF(meron_gradient_view, &view, session.params[2], 0);
               session.close();
               return failed;
             }),
      misuse("meron_gradient_view: frozen", MERON_E_STATE,
             [](Objects& o) {
               meron_view view{};
               return FAILURE_OF(meron_gradient_view, &view, o.frozen, 0);
             }),
      misuse("meron_gradient_view: in no unit", MERON_E_STATE,
             [](Objects& o) {
               meron_view view{};
               return FAILURE_OF(meron_gradient_view, &view, o.loose, 0);
             }),
      misuse("meron_reduce_begin: frozen", MERON_E_STATE,
             [](Objects& o) {
               meron_future future{};
               return FAILURE_OF(meron_reduce_begin, &future, o.frozen_unit, nullptr, 0, nullptr);
             }),
      misuse("meron_reduced_view: nothing reduced", MERON_E_STATE,
             [](Objects& o) {
               meron_view view{};
               return FAILURE_OF(meron_reduced_view, &view, o.a->params[0]);
             }),
      misuse("meron_reduced_view: in no unit", MERON_E_STATE,
             [](Objects& o) {
               meron_view view{};
               return FAILURE_OF(meron_reduced_view, &view, o.loose);
             }),
      misuse("meron_reduce_consume: nothing reduced", MERON_E_STATE,
             [](Objects& o) { return FAILURE_OF(meron_reduce_consume, o.a->units[0]); }),
      misuse("meron_reduce_discard: nothing reduced", MERON_E_STATE,
             [](Objects& o) { return FAILURE_OF(meron_reduce_discard, o.a->units[0]); }),
      misuse("meron_gather_dlpack: the caller's memory", MERON_E_UNSUPPORTED,
             [](Objects& o) {
               float bias[5];
               const meron_future gather = gather_bias_into(o, bias);
               DLManagedTensorVersioned* tensor = nullptr;
               const CallFailed failed =
                   FAILURE_OF(meron_gather_dlpack, &tensor, gather, o.a->params[1]);
               MUST(meron_future_release, gather);
               return failed;
             }),
      misuse("meron_gather_view: not among the destinations", MERON_E_ARGUMENT,
             [](Objects& o) {
               float bias[5];
               const meron_future gather = gather_bias_into(o, bias);
               meron_view view{};
               const CallFailed failed =
                   FAILURE_OF(meron_gather_view, &view, gather, o.a->params[0]);
               MUST(meron_future_release, gather);
               return failed;
             }),
      misuse("meron_gather_wait_stream: without a device", MERON_E_ARGUMENT,
             [](Objects& o) { return FAILURE_OF(meron_gather_wait_stream, o.gather, nullptr, 0); }),
      misuse(
          "meron_gather_release_on_stream: without a device", MERON_E_ARGUMENT,
          [](Objects& o) { return FAILURE_OF(meron_gather_release_on_stream, o.gather, nullptr); }),
      misuse("meron_gather_begin: in a broken group", MERON_E_ABORTED,
             [](Objects&) {
               const auto session = another_session();
               MUST(meron_group_abort, session->world, "to see what follows");
               meron_future gather{};
               const CallFailed failed =
                   FAILURE_OF(meron_gather_begin, &gather, session->units.data(), 1, nullptr);
               session->close();
               return failed;
             }),
      misuse("meron_group_create: too many", MERON_E_UNSUPPORTED,
             [](Objects&) {
               const auto session = another_session();
               CallFailed failed;
               const int32_t rank = 0;
               for (int i = 0; i < 65 && failed.status == MERON_OK; ++i) {
                 meron_group group{};
                 failed = FAILURE_OF(meron_group_create, &group, session->context, &rank, 1);
               }
               session->close();
               return failed;
             }),
  };
}

}  // namespace meron::test
