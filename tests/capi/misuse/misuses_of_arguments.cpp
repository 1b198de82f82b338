// SPDX-License-Identifier: Apache-2.0
// Arguments that mean nothing: of groups, units, gathers, updates and reductions.
#include <limits>

#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Outs {
  double norm = 0;
  DLManagedTensorVersioned* tensor = nullptr;
  meron_group group{};
  meron_param param{};
  meron_unit unit{};
  meron_future gather{};
  meron_future future{};
  meron_future update{};
  meron_view view{};
  char* text = nullptr;
};
Outs out;
float memory[1024];
const int32_t kSameRank[] = {0, 0};

// A misuse whose arguments are always the same.
#define ALWAYS(what, expected_status, function, ...)                                     \
  Misuse {                                                                               \
    std::string(#function) + ": " + (what), {expected_status}, [](Objects& o, Random&) { \
      (void)o;                                                                           \
      return FAILURE_OF(function, __VA_ARGS__);                                          \
    }                                                                                    \
  }

Misuse bad_reduce(const char* what, std::function<void(meron_reduce_options&, Random&)> spoil) {
  return {std::string("meron_reduce_begin: ") + what,
          {MERON_E_ARGUMENT},
          [spoil = std::move(spoil)](Objects& o, Random& random) {
            meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
            spoil(options, random);
            return FAILURE_OF(meron_reduce_begin, &out.future, o.a->units[0], nullptr, 0, &options);
          }};
}
Misuse bad_source(const char* what, meron_status expected,
                  std::function<void(Objects&, meron_source (&)[2], size_t&)> spoil) {
  return {std::string("meron_reduce_begin: ") + what,
          {expected},
          [spoil = std::move(spoil)](Objects& o, Random&) {
            meron_source sources[2] = {{o.a->params[1], memory, 5, MERON_F32, 0},
                                       {o.a->params[0], memory, 37 * 13, MERON_F32, 0}};
            size_t count = 2;
            spoil(o, sources, count);
            return FAILURE_OF(meron_reduce_begin, &out.future, o.a->units[0], sources, count,
                              nullptr);
          }};
}
Misuse bad_destination(
    const char* what, meron_status expected,
    std::function<void(Objects&, meron_gather_options&, meron_destination&)> spoil) {
  return {std::string("meron_gather_begin: ") + what,
          {expected},
          [spoil = std::move(spoil)](Objects& o, Random&) {
            meron_destination to = {o.a->params[1], memory, 20};
            meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
            options.mode = MERON_GATHER_INTO;
            options.destinations = &to;
            options.destination_count = 1;
            spoil(o, options, to);
            return FAILURE_OF(meron_gather_begin, &out.gather, &o.a->units[0], 1, &options);
          }};
}

// `spoil` changes a gather of both params of a unit by its only flat.
Misuse bad_flat(
    const char* what, meron_status expected,
    std::function<void(Objects&, meron_gather_options&, meron_flat_destination&)> spoil) {
  return {std::string("meron_gather_begin: ") + what,
          {expected},
          [spoil = std::move(spoil)](Objects& o, Random&) {
            auto flat = sized<meron_flat_info>();
            MUST(meron_unit_flat, &flat, o.a->units[0], 0);
            meron_flat_destination to = {o.a->units[0], 0, memory, flat.bytes};
            meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
            options.mode = MERON_GATHER_INTO;
            options.flats = &to;
            options.flat_count = 1;
            spoil(o, options, to);
            return FAILURE_OF(meron_gather_begin, &out.gather, &o.a->units[0], 1, &options);
          }};
}

}  // namespace

std::vector<Misuse> misuses_of_values() {
  return {
      bad_source("null data", MERON_E_ARGUMENT,
                 [](Objects&, meron_source(&sources)[2], size_t&) { sources[1].data = nullptr; }),
      bad_destination(
          "null destination", MERON_E_ARGUMENT,
          [](Objects&, meron_gather_options&, meron_destination& to) { to.data = nullptr; }),
      bad_destination("null destinations", MERON_E_ARGUMENT,
                      [](Objects&, meron_gather_options& options, meron_destination&) {
                        options.destinations = nullptr;
                      }),
      bad_flat(
          "null flat", MERON_E_ARGUMENT,
          [](Objects&, meron_gather_options&, meron_flat_destination& to) { to.data = nullptr; }),
      bad_flat("null flats", MERON_E_ARGUMENT,
               [](Objects&, meron_gather_options& options, meron_flat_destination&) {
                 options.flats = nullptr;
               }),
      bad_flat("no such flat", MERON_E_ARGUMENT,
               [](Objects&, meron_gather_options&, meron_flat_destination& to) { to.flat = 1; }),
      bad_flat("a flat without its padding", MERON_E_ARGUMENT,
               [](Objects&, meron_gather_options&, meron_flat_destination& to) {
                 to.bytes = (37 * 13 + 5) * sizeof(float);
               }),
      bad_flat("a flat of a unit that is not gathered", MERON_E_ARGUMENT,
               [](Objects& o, meron_gather_options&, meron_flat_destination& to) {
                 to.unit = o.a->units[1];
               }),
      bad_flat("a flat twice", MERON_E_DUPLICATE,
               [](Objects&, meron_gather_options& options, meron_flat_destination& to) {
                 static meron_flat_destination twice[2];
                 twice[0] = twice[1] = to;
                 options.flats = twice;
                 options.flat_count = 2;
               }),
      bad_flat("a param and its flat", MERON_E_DUPLICATE,
               [](Objects& o, meron_gather_options& options, meron_flat_destination&) {
                 static meron_destination param;
                 param = {o.a->params[1], memory, 20};
                 options.destinations = &param;
                 options.destination_count = 1;
               }),
      {"meron_group_create: impossible ranks",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         const std::vector<std::vector<int32_t>> lists = {{1}, {-1}, {0, 0}, {0, 1}, {INT32_MIN}};
         const std::vector<int32_t>& ranks = random.pick(lists);
         return FAILURE_OF(meron_group_create, &out.group, o.a->context, ranks.data(),
                           ranks.size());
       }},
      ALWAYS("no ranks", MERON_E_ARGUMENT, meron_group_create, &out.group, o.a->context, &o.a->rank,
             0),
      {"meron_broadcast_begin: no such root",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         const std::vector<int32_t> roots = {-1, 1, 64, INT32_MIN, INT32_MAX};
         return FAILURE_OF(meron_broadcast_begin, &out.future, o.a->world, memory, 4,
                           random.pick(roots));
       }},
      {"meron_all_reduce_begin: unknown dtype",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         const std::vector<meron_dtype> dtypes = {-1, 5, 255, INT32_MIN, INT32_MAX};
         return FAILURE_OF(meron_all_reduce_begin, &out.future, o.a->world, memory, 4,
                           random.pick(dtypes), MERON_REDUCE_OP_SUM);
       }},
      {"meron_all_reduce_begin: unknown operation",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         const std::vector<meron_reduce_op> ops = {-1, 4, 255, INT32_MIN, INT32_MAX};
         return FAILURE_OF(meron_all_reduce_begin, &out.future, o.a->world, memory, 4, MERON_F32,
                           random.pick(ops));
       }},
      ALWAYS("mean of integers", MERON_E_ARGUMENT, meron_all_reduce_begin, &out.future, o.a->world,
             memory, 4, MERON_I64, MERON_REDUCE_OP_MEAN),
      {"meron_gradient_clip: impossible max_norm",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         const std::vector<double> values = {-1.0, kNan, kInfinity, -kInfinity};
         return FAILURE_OF(meron_gradient_clip, &out.norm, &o.a->units[0], 1, random.pick(values));
       }},
      ALWAYS("no units", MERON_E_ARGUMENT, meron_gradient_clip, &out.norm, &o.a->units[0], 0, 1.0),
      ALWAYS("no reduced gradient", MERON_E_STATE, meron_gradient_clip, &out.norm, &o.a->units[0],
             1, 1.0),
      ALWAYS("absurd count", MERON_E_HANDLE, meron_gradient_clip, &out.norm, &out.unit,
             SIZE_MAX / 16, 1.0),
      ALWAYS("no reduced gradient", MERON_E_STATE, meron_reduced_dlpack, &out.tensor,
             o.a->params[0]),
      {"meron_unit_param: no such index",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         const std::vector<uint64_t> indices = {1u << 20, UINT64_MAX, INT64_MAX};
         return FAILURE_OF(meron_unit_param, &out.param, o.a->units[0], random.pick(indices));
       }},
      {"meron_unit_flat: no such index",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         const std::vector<uint64_t> indices = {1, UINT64_MAX, INT64_MAX};
         auto flat = sized<meron_flat_info>();
         return FAILURE_OF(meron_unit_flat, &flat, o.a->units[0], random.pick(indices));
       }},
      ALWAYS("more elements than memory", MERON_E_ARGUMENT, meron_all_reduce_begin, &out.future,
             o.a->world, memory, SIZE_MAX, MERON_F32, MERON_REDUCE_OP_SUM),
      ALWAYS("no units", MERON_E_ARGUMENT, meron_gather_begin, &out.gather, &o.a->units[0], 0,
             nullptr),
      ALWAYS("no units", MERON_E_ARGUMENT, meron_update_begin, &out.update, &o.a->units[0], 0),
      ALWAYS("no units", MERON_E_ARGUMENT, meron_reduce_wait, &o.a->units[0], 0, 0),
      // The first handle that is none ends the walk; a count is no reason to take memory.
      ALWAYS("absurd count", MERON_E_HANDLE, meron_gather_begin, &out.gather, &out.unit, SIZE_MAX,
             nullptr),
      ALWAYS("absurd count", MERON_E_HANDLE, meron_update_begin, &out.update, &out.unit,
             SIZE_MAX / 16),
      ALWAYS("absurd count", MERON_E_HANDLE, meron_unit_create, &out.unit, o.a->context, "never",
             &out.param, SIZE_MAX / 16),
      ALWAYS("absurd count", MERON_E_ARGUMENT, meron_group_create, &out.group, o.a->context,
             kSameRank, SIZE_MAX / 4),
      ALWAYS("no params", MERON_E_ARGUMENT, meron_unit_create, &out.unit, o.a->context, "never",
             &o.loose, 0),
      ALWAYS("taken name", MERON_E_DUPLICATE, meron_unit_create, &out.unit, o.a->context, "u0",
             &o.loose, 1),
      ALWAYS("param in a unit", MERON_E_DUPLICATE, meron_unit_create, &out.unit, o.a->context,
             "never", &o.a->params[0], 1),
      {"meron_unit_create: param twice",
       {MERON_E_DUPLICATE},
       [](Objects& o, Random&) {
         const meron_param twice[] = {o.loose, o.loose};
         return FAILURE_OF(meron_unit_create, &out.unit, o.a->context, "never", twice, 2);
       }},
      {"meron_unit_create: bad name",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         const std::string& name = random.pick(bad_names());
         return FAILURE_OF(meron_unit_create, &out.unit, o.a->context, name.c_str(), &o.loose, 1);
       }},
      {"meron_gather_begin: unit twice",
       {MERON_E_DUPLICATE},
       [](Objects& o, Random&) {
         const meron_unit twice[] = {o.a->units[0], o.a->units[1], o.a->units[0]};
         return FAILURE_OF(meron_gather_begin, &out.gather, twice, 3, nullptr);
       }},
      {"meron_update_begin: unit twice",
       {MERON_E_DUPLICATE},
       [](Objects& o, Random&) {
         const meron_unit twice[] = {o.a->units[1], o.a->units[1]};
         return FAILURE_OF(meron_update_begin, &out.update, twice, 2);
       }},
      {"meron_gather_begin: unknown mode",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
         options.mode = bad_enum(random);
         return FAILURE_OF(meron_gather_begin, &out.gather, &o.a->units[0], 1, &options);
       }},
      {"meron_gather_begin: unknown tier",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
         options.tier = random.below(2) == 0 ? 2 : bad_enum(random);
         return FAILURE_OF(meron_gather_begin, &out.gather, &o.a->units[0], 1, &options);
       }},
      {"meron_gather_begin: reserved field",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random&) {
         meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
         options.reserved_0 = 1;
         return FAILURE_OF(meron_gather_begin, &out.gather, &o.a->units[0], 1, &options);
       }},
      bad_destination(
          "too small", MERON_E_ARGUMENT,
          [](Objects&, meron_gather_options&, meron_destination& to) { to.bytes = 19; }),
      bad_destination(
          "too large", MERON_E_ARGUMENT,
          [](Objects&, meron_gather_options&, meron_destination& to) { to.bytes = UINT64_MAX; }),
      bad_destination("param of another unit", MERON_E_ARGUMENT,
                      [](Objects& o, meron_gather_options&, meron_destination& to) {
                        to.param = o.a->params[3];
                      }),
      bad_destination(
          "param of no unit", MERON_E_ARGUMENT,
          [](Objects& o, meron_gather_options&, meron_destination& to) { to.param = o.loose; }),
      ALWAYS("param of another unit", MERON_E_ARGUMENT, meron_gather_view, &out.view, o.gather,
             o.a->params[0]),
      ALWAYS("param of another unit", MERON_E_ARGUMENT, meron_gather_dlpack,
             reinterpret_cast<DLManagedTensorVersioned**>(&out.text), o.gather, o.loose),
      ALWAYS("param of another unit", MERON_E_ARGUMENT, meron_update_view, &out.view, o.update,
             o.a->params[0]),
      ALWAYS("param of no unit", MERON_E_ARGUMENT, meron_update_write, o.update, o.loose, memory, 3,
             MERON_F32),
      {"meron_update_write: wrong count",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         const std::vector<uint64_t> counts = {0, 5, 7, UINT64_MAX, uint64_t{1} << 62};
         return FAILURE_OF(meron_update_write, o.update, o.half, memory, random.pick(counts),
                           MERON_F32);
       }},
      {"meron_update_write: unknown dtype",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         return FAILURE_OF(meron_update_write, o.update, o.half, memory, 6, bad_enum(random));
       }},
      {"meron_gradient_view: unknown flags",
       {MERON_E_ARGUMENT},
       [](Objects& o, Random& random) {
         return FAILURE_OF(meron_gradient_view, &out.view, o.a->params[0],
                           random.engine() | uint64_t{2});
       }},
      bad_reduce("unknown operation",
                 [](meron_reduce_options& options, Random& r) { options.op = bad_enum(r); }),
      bad_reduce("unknown boundary",
                 [](meron_reduce_options& options, Random&) { options.boundary = 2; }),
      bad_reduce("reserved field",
                 [](meron_reduce_options& options, Random&) { options.reserved_0 = 1; }),
      bad_reduce("impossible divisor",
                 [](meron_reduce_options& options, Random& random) {
                   const std::vector<double> values = {0.0, -1.0, kNan, kInfinity, -kInfinity};
                   options.divisor = random.pick(values);
                 }),
      bad_source("unknown dtype", MERON_E_ARGUMENT,
                 [](Objects&, meron_source(&sources)[2], size_t&) { sources[1].dtype = 9; }),
      bad_source("reserved field", MERON_E_ARGUMENT,
                 [](Objects&, meron_source(&sources)[2], size_t&) { sources[1].reserved_0 = 1; }),
      bad_source("wrong count", MERON_E_ARGUMENT,
                 [](Objects&, meron_source(&sources)[2], size_t&) { sources[0].count = 6; }),
      bad_source("param twice", MERON_E_DUPLICATE,
                 [](Objects&, meron_source(&sources)[2], size_t&) { sources[1] = sources[0]; }),
      bad_source("param of another unit", MERON_E_ARGUMENT,
                 [](Objects& o, meron_source(&sources)[2], size_t&) {
                   sources[1].param = o.a->params[2];
                 }),
      bad_source(
          "param of no unit", MERON_E_ARGUMENT,
          [](Objects& o, meron_source(&sources)[2], size_t&) { sources[1].param = o.loose; }),
  };
}

}  // namespace meron::test
