// SPDX-License-Identifier: Apache-2.0
// Values that mean nothing to a schedule, or to the end of an accumulation.
#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

meron_schedule made;
meron_future future;
meron_view view;

}  // namespace

std::vector<Misuse> misuses_of_schedules() {
  return {
      misuse("meron_schedule_create: no units", MERON_E_ARGUMENT,
             [](Objects& o) {
               return FAILURE_OF(meron_schedule_create, &made, &o.a->units[0], 0, nullptr);
             }),
      misuse("meron_schedule_create: not initialized", MERON_E_ARGUMENT,
             [](Objects& o) {
               meron_schedule_options options{};
               options.struct_size = sizeof(options);
               return FAILURE_OF(meron_schedule_create, &made, &o.a->units[0], 1, &options);
             }),
      misuse("meron_schedule_create: initialized neither 0 nor 1", MERON_E_ARGUMENT,
             [](Objects& o) {
               meron_schedule_options options = MERON_SCHEDULE_OPTIONS_INIT;
               options.initialized = 2;
               return FAILURE_OF(meron_schedule_create, &made, &o.a->units[0], 1, &options);
             }),
      misuse("meron_schedule_create: reserved field", MERON_E_ARGUMENT,
             [](Objects& o) {
               meron_schedule_options options = MERON_SCHEDULE_OPTIONS_INIT;
               options.reserved_1 = 1;
               return FAILURE_OF(meron_schedule_create, &made, &o.a->units[0], 1, &options);
             }),
      misuse("meron_schedule_create: unit twice", MERON_E_DUPLICATE,
             [](Objects& o) {
               const meron_unit twice[] = {o.a->units[0], o.a->units[0]};
               return FAILURE_OF(meron_schedule_create, &made, twice, 2, nullptr);
             }),
      misuse("meron_schedule_create: absurd count", MERON_E_HANDLE,
             [](Objects&) {
               const meron_unit none{};
               return FAILURE_OF(meron_schedule_create, &made, &none, SIZE_MAX / 16, nullptr);
             }),
      misuse("meron_schedule_start_pass: unknown kind", MERON_E_ARGUMENT,
             [](Objects& o) {
               return FAILURE_OF(meron_schedule_start_pass, o.schedule, MERON_SCHEDULE_KINDS);
             }),
      misuse("meron_schedule_enter: beyond the units", MERON_E_ARGUMENT,
             [](Objects& o) { return FAILURE_OF(meron_schedule_enter, o.schedule, 1, 0); }),
      misuse("meron_schedule_leave: beyond the units", MERON_E_ARGUMENT,
             [](Objects& o) { return FAILURE_OF(meron_schedule_leave, o.schedule, SIZE_MAX); }),
      misuse("meron_schedule_view: param of another unit", MERON_E_ARGUMENT,
             [](Objects& o) { return FAILURE_OF(meron_schedule_view, &view, o.schedule, o.half); }),
      misuse("meron_reduce_finish_begin: more micro-batches", MERON_E_ARGUMENT,
             [](Objects& o) {
               meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
               options.boundary = 0;
               return FAILURE_OF(meron_reduce_finish_begin, &future, o.a->units[0], &options);
             }),
      misuse("meron_reduce_finish_begin: divisor", MERON_E_ARGUMENT,
             [](Objects& o) {
               meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
               options.divisor = 0.0;
               return FAILURE_OF(meron_reduce_finish_begin, &future, o.a->units[0], &options);
             }),
  };
}

}  // namespace meron::test
