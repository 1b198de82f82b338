// SPDX-License-Identifier: Apache-2.0
// Objects that are used after their release, their end or the close of their context.
#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

// An object of `o.a`, released before it is used.
template <class Handle, class Make, class Release, class Use>
Misuse after_release(const char* name, Make make, Release release, Use use) {
  return {name, {MERON_E_STALE}, [=](Objects& o, Random&) {
            const Handle gone = make(o);
            if (const CallFailed failed = release(gone); failed.status != MERON_OK) throw failed;
            return use(o, gone);
          }};
}

// A session whose unit is destroyed.
OwnSession session_without_unit() {
  auto session = another_session();
  MUST(meron_optimizer_release, session->optimizer);
  MUST(meron_unit_destroy, session->units[0]);
  return session;
}

}  // namespace

std::vector<Misuse> misuses_of_the_released() {
  return {
      misuse("meron_unit_destroy: twice", MERON_E_STALE,
             [](Objects&) {
               return FAILURE_OF(meron_unit_destroy, session_without_unit()->units[0]);
             }),
      misuse("meron_param_get_info: of a destroyed unit", MERON_E_STALE,
             [](Objects&) {
               const auto session = session_without_unit();
               auto info = sized<meron_param_info>();
               return FAILURE_OF(meron_param_get_info, &info, session->params[0]);
             }),
      misuse("meron_update_publish: twice", MERON_E_STALE,
             [](Objects& o) {
               const meron_future update = updating(*o.a, 0);
               MUST(meron_update_publish, update);
               return FAILURE_OF(meron_update_publish, update);
             }),
      misuse("meron_future_release: after publish", MERON_E_STALE,
             [](Objects& o) {
               const meron_future update = updating(*o.a, 0);
               MUST(meron_update_publish, update);
               return FAILURE_OF(meron_future_release, update);
             }),
      misuse("meron_context_close: twice", MERON_E_STALE,
             [](Objects&) {
               const auto session = another_session();
               session->close();
               return FAILURE_OF(meron_context_close, session->context);
             }),
      misuse("meron_param_get_info: after close", MERON_E_STALE,
             [](Objects&) {
               const auto session = another_session();
               session->close();
               meron_param_info info = sized<meron_param_info>();
               return FAILURE_OF(meron_param_get_info, &info, session->params[0]);
             }),
      misuse("meron_future_release: after close", MERON_E_STALE,
             [](Objects&) {
               const auto session = another_session();
               const meron_future held = leased(*session, 0);
               session->close();
               return FAILURE_OF(meron_future_release, held);
             }),
      after_release<meron_future>(
          "meron_gather_view: after release", [](Objects& o) { return leased(*o.a, 0); },
          [](meron_future it) { return FAILURE_OF(meron_future_release, it); },
          [](Objects& o, meron_future it) {
            meron_view view{};
            return FAILURE_OF(meron_gather_view, &view, it, o.a->params[0]);
          }),
      after_release<meron_future>(
          "meron_future_release: twice", [](Objects& o) { return leased(*o.a, 0); },
          [](meron_future it) { return FAILURE_OF(meron_future_release, it); },
          [](Objects&, meron_future it) { return FAILURE_OF(meron_future_release, it); }),
      after_release<meron_future>(
          "meron_future_wait: after release",
          [](Objects& o) {
            meron_future future{};
            MUST(meron_barrier_begin, &future, o.a->world);
            return future;
          },
          [](meron_future it) { return FAILURE_OF(meron_future_release, it); },
          [](Objects&, meron_future it) { return FAILURE_OF(meron_future_wait, it, 0); }),
      after_release<meron_group>(
          "meron_barrier_begin: after release",
          [](Objects& o) {
            meron_group group{};
            MUST(meron_context_world, &group, o.a->context);
            return group;
          },
          [](meron_group it) { return FAILURE_OF(meron_group_release, it); },
          [](Objects&, meron_group it) {
            meron_future future{};
            return FAILURE_OF(meron_barrier_begin, &future, it);
          }),
      after_release<meron_plan>(
          "meron_plan_json: after release",
          [](Objects&) {
            meron_plan plan{};
            MUST(meron_plan_preset, &plan, "zero3");
            return plan;
          },
          [](meron_plan it) { return FAILURE_OF(meron_plan_release, it); },
          [](Objects&, meron_plan it) {
            char* text = nullptr;
            return FAILURE_OF(meron_plan_json, &text, it);
          }),
      after_release<meron_param>(
          "meron_param_name: after release",
          [](Objects& o) {
            static int count = 0;
            return o.a->register_param("temporary " + std::to_string(++count), {1});
          },
          [](meron_param it) { return FAILURE_OF(meron_param_release, it); },
          [](Objects&, meron_param it) {
            const char* name = nullptr;
            return FAILURE_OF(meron_param_name, &name, it);
          }),
      {"meron_optimizer_step_begin: after release",
       {MERON_E_STALE},
       [](Objects&, Random&) {
         const auto session = another_session();
         MUST(meron_optimizer_release, session->optimizer);
         meron_future future{};
         const CallFailed failed =
             FAILURE_OF(meron_optimizer_step_begin, &future, session->optimizer);
         session->close();
         return failed;
       }},
  };
}

}  // namespace meron::test
