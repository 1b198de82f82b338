// SPDX-License-Identifier: Apache-2.0
// Structs that say a size which no version has, or set what this version does not know.
#include <cstring>

#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

struct Outs {
  meron_context context{};
  meron_param param{};
  meron_future gather{};
  meron_future future{};
  meron_optimizer optimizer{};
  meron_schedule schedule{};
  meron_io io{};
  meron_checkpoint checkpoint{};
  char* text = nullptr;
};
Outs out;
const char kModel[] = R"({"parameters": 100, "layers": 2, "dtype": "f32"})";

// Options.
template <class Options>
Misuse bad_size(const char* function, const Options& good,
                std::function<CallFailed(Objects&, const Options*)> call) {
  return {std::string(function) + ": wrong struct",
          {MERON_E_ARGUMENT, MERON_E_UNSUPPORTED},
          [good, call = std::move(call)](Objects& o, Random& random) {
            uint32_t size = 0;
            std::vector<unsigned char> bytes(sizeof(Options) + 24);
            std::memcpy(bytes.data(), &good, sizeof(Options));
            if (random.below(2) == 0) {
              const std::vector<uint32_t> sizes = {0, 1, 3, 4, 8, 4097, 1u << 20, UINT32_MAX};
              size = random.pick(sizes);
            } else {  // a newer caller
              size = static_cast<uint32_t>(sizeof(Options) + 1 + random.below(24));
              bytes.resize(size);
              bytes[sizeof(Options) + random.below(size - sizeof(Options))] = 1;
            }
            std::memcpy(bytes.data(), &size, sizeof(size));
            // Of the exact size, so that a read past it is seen.
            std::unique_ptr<unsigned char[]> exact(new unsigned char[bytes.size()]);
            std::memcpy(exact.get(), bytes.data(), bytes.size());
            return call(o, reinterpret_cast<const Options*>(exact.get()));
          }};
}
// Structs that are filled: the size says how far.
template <class Info>
Misuse bad_info(const char* function, std::function<CallFailed(Objects&, Info*)> call) {
  return {std::string(function) + ": wrong struct",
          {MERON_E_ARGUMENT},
          [call = std::move(call)](Objects& o, Random& random) {
            const std::vector<uint32_t> sizes = {0, 1, 3, 4, 8, sizeof(Info) - 4, 4097, UINT32_MAX};
            Info info{};
            info.struct_size = random.pick(sizes);
            return call(o, &info);
          }};
}
template <class Options, class Init>
Misuse bad_init(const char* function, Init init) {
  return {
      std::string(function) + ": wrong size", {MERON_E_ARGUMENT}, [=](Objects&, Random& random) {
        const std::vector<size_t> sizes = {0, 3, 4, 8, sizeof(Options) + 1, SIZE_MAX};
        Options options{};
        CallFailed failed = init(&options, random.pick(sizes));
        failed.function = function;
        return failed;
      }};
}
#define BAD_INIT(type, function) \
  bad_init<type>(#function,      \
                 [](type* options, size_t size) { return FAILURE_OF(function, options, size); })

}  // namespace

std::vector<Misuse> misuses_of_structs() {
  return {
      BAD_INIT(meron_workload, meron_workload_init),
      BAD_INIT(meron_context_options, meron_context_options_init),
      BAD_INIT(meron_transport, meron_transport_init),
      BAD_INIT(meron_allocator, meron_allocator_init),
      BAD_INIT(meron_param_desc, meron_param_desc_init),
      BAD_INIT(meron_gather_options, meron_gather_options_init),
      BAD_INIT(meron_reduce_options, meron_reduce_options_init),
      BAD_INIT(meron_schedule_options, meron_schedule_options_init),
      bad_init<meron_optimizer_options>("meron_optimizer_rule_init",
                                        [](meron_optimizer_options* options, size_t size) {
                                          return FAILURE_OF(meron_optimizer_rule_init, options,
                                                            size, MERON_OPTIMIZER_LION);
                                        }),
      {"meron_optimizer_rule_init: unknown kind",
       {MERON_E_ARGUMENT},
       [](Objects&, Random& random) {
         meron_optimizer_options options{};
         const meron_optimizer_kind kind = random.pick(std::vector<int32_t>{-1, 5, INT32_MAX});
         return FAILURE_OF(meron_optimizer_rule_init, &options, sizeof(options), kind);
       }},
      BAD_INIT(meron_optimizer_group, meron_optimizer_group_init),
      BAD_INIT(meron_io_options, meron_io_options_init),
      BAD_INIT(meron_checkpoint_tensor, meron_checkpoint_tensor_init),
      BAD_INIT(meron_checkpoint_save_options, meron_checkpoint_save_options_init),
      BAD_INIT(meron_checkpoint_load_options, meron_checkpoint_load_options_init),
      BAD_INIT(meron_checkpoint_write_options, meron_checkpoint_write_options_init),
      BAD_INIT(meron_checkpoint_export_options, meron_checkpoint_export_options_init),
      bad_size<meron_checkpoint_save_options>(
          "meron_checkpoint_save_begin", MERON_CHECKPOINT_SAVE_OPTIONS_INIT,
          [](Objects& o, const meron_checkpoint_save_options* options) {
            return FAILURE_OF(meron_checkpoint_save_begin, &out.future, o.b->context,
                              o.folder.c_str(), "never", options);
          }),
      bad_size<meron_checkpoint_load_options>(
          "meron_checkpoint_load", MERON_CHECKPOINT_LOAD_OPTIONS_INIT,
          [](Objects& o, const meron_checkpoint_load_options* options) {
            return FAILURE_OF(meron_checkpoint_load, &out.checkpoint, o.b->context,
                              o.folder.c_str(), "good", options);
          }),
      bad_size<meron_checkpoint_write_options>(
          "meron_checkpoint_write", MERON_CHECKPOINT_WRITE_OPTIONS_INIT,
          [](Objects& o, const meron_checkpoint_write_options* options) {
            return FAILURE_OF(meron_checkpoint_write, o.folder.c_str(), "never", options);
          }),
      bad_size<meron_checkpoint_export_options>(
          "meron_checkpoint_export", MERON_CHECKPOINT_EXPORT_OPTIONS_INIT,
          [](Objects& o, const meron_checkpoint_export_options* options) {
            return FAILURE_OF(meron_checkpoint_export, o.b->context, o.folder.c_str(), options);
          }),
      bad_info<meron_checkpoint_info>("meron_checkpoint_get_info",
                                      [](Objects& o, meron_checkpoint_info* info) {
                                        return FAILURE_OF(meron_checkpoint_get_info, info,
                                                          o.checkpoint);
                                      }),
      bad_info<meron_checkpoint_progress>("meron_checkpoint_get_progress",
                                          [](Objects& o, meron_checkpoint_progress* info) {
                                            return FAILURE_OF(meron_checkpoint_get_progress, info,
                                                              o.a->context);
                                          }),
      bad_size<meron_context_options>("meron_context_open", good_options(),
                                      [](Objects&, const meron_context_options* options) {
                                        return FAILURE_OF(meron_context_open, &out.context,
                                                          options);
                                      }),
      bad_size<meron_param_desc>("meron_param_register", good_desc(),
                                 [](Objects& o, const meron_param_desc* desc) {
                                   return FAILURE_OF(meron_param_register, &out.param, o.a->context,
                                                     desc);
                                 }),
      bad_size<meron_gather_options>("meron_gather_begin", MERON_GATHER_OPTIONS_INIT,
                                     [](Objects& o, const meron_gather_options* options) {
                                       return FAILURE_OF(meron_gather_begin, &out.gather,
                                                         &o.a->units[0], 1, options);
                                     }),
      bad_size<meron_reduce_options>("meron_reduce_begin", MERON_REDUCE_OPTIONS_INIT,
                                     [](Objects& o, const meron_reduce_options* options) {
                                       return FAILURE_OF(meron_reduce_begin, &out.future,
                                                         o.a->units[0], nullptr, 0, options);
                                     }),
      bad_size<meron_reduce_options>("meron_reduce_finish_begin", MERON_REDUCE_OPTIONS_INIT,
                                     [](Objects& o, const meron_reduce_options* options) {
                                       return FAILURE_OF(meron_reduce_finish_begin, &out.future,
                                                         o.a->units[0], options);
                                     }),
      bad_size<meron_schedule_options>("meron_schedule_create", MERON_SCHEDULE_OPTIONS_INIT,
                                       [](Objects& o, const meron_schedule_options* options) {
                                         return FAILURE_OF(meron_schedule_create, &out.schedule,
                                                           &o.a->units[0], 1, options);
                                       }),
      bad_info<meron_schedule_info>("meron_schedule_get_info",
                                    [](Objects& o, meron_schedule_info* info) {
                                      return FAILURE_OF(meron_schedule_get_info, info, o.schedule);
                                    }),
      bad_size<meron_optimizer_options>("meron_optimizer_create", MERON_OPTIMIZER_OPTIONS_INIT,
                                        [](Objects& o, const meron_optimizer_options* options) {
                                          return FAILURE_OF(meron_optimizer_create, &out.optimizer,
                                                            &o.half_unit, 1, options);
                                        }),
      bad_size<meron_optimizer_group>("meron_optimizer_add_group", MERON_OPTIMIZER_GROUP_INIT,
                                      [](Objects& o, const meron_optimizer_group* group) {
                                        uint32_t number = 0;
                                        return FAILURE_OF(meron_optimizer_add_group, &number,
                                                          o.a->optimizer, &o.a->params[0], 1,
                                                          group);
                                      }),
      bad_size<meron_optimizer_group>("meron_optimizer_set_group", MERON_OPTIMIZER_GROUP_INIT,
                                      [](Objects& o, const meron_optimizer_group* group) {
                                        return FAILURE_OF(meron_optimizer_set_group, o.a->optimizer,
                                                          0, group);
                                      }),
      bad_size<meron_workload>("meron_plan_predict", MERON_WORKLOAD_INIT,
                               [](Objects& o, const meron_workload* workload) {
                                 return FAILURE_OF(meron_plan_predict, &out.text, o.plan, kModel,
                                                   sizeof(kModel) - 1, workload, 0);
                               }),
      bad_size<meron_workload>("meron_context_predict", MERON_WORKLOAD_INIT,
                               [](Objects& o, const meron_workload* workload) {
                                 meron_prediction prediction = sized<meron_prediction>();
                                 return FAILURE_OF(meron_context_predict, &prediction, o.a->context,
                                                   workload);
                               }),
      bad_info<meron_stats>("meron_context_stats",
                            [](Objects& o, meron_stats* info) {
                              return FAILURE_OF(meron_context_stats, info, o.a->context);
                            }),
      bad_info<meron_prediction>("meron_context_predict",
                                 [](Objects& o, meron_prediction* info) {
                                   return FAILURE_OF(meron_context_predict, info, o.a->context,
                                                     nullptr);
                                 }),
      bad_info<meron_param_info>("meron_param_get_info",
                                 [](Objects& o, meron_param_info* info) {
                                   return FAILURE_OF(meron_param_get_info, info, o.loose);
                                 }),
      bad_info<meron_unit_info>("meron_unit_get_info",
                                [](Objects& o, meron_unit_info* info) {
                                  return FAILURE_OF(meron_unit_get_info, info, o.a->units[0]);
                                }),
      bad_info<meron_flat_info>("meron_unit_flat",
                                [](Objects& o, meron_flat_info* info) {
                                  return FAILURE_OF(meron_unit_flat, info, o.a->units[0], 0);
                                }),
      bad_size<meron_io_options>("meron_io_open", MERON_IO_OPTIONS_INIT,
                                 [](Objects&, const meron_io_options* options) {
                                   return FAILURE_OF(meron_io_open, &out.io, options);
                                 }),
      bad_info<meron_io_info>("meron_io_get_info",
                              [](Objects& o, meron_io_info* info) {
                                return FAILURE_OF(meron_io_get_info, info, o.io);
                              }),
      bad_info<meron_io_buffer_info>("meron_io_buffer_get_info",
                                     [](Objects& o, meron_io_buffer_info* info) {
                                       return FAILURE_OF(meron_io_buffer_get_info, info,
                                                         o.io_buffer);
                                     }),
      bad_info<meron_optimizer_group>("meron_optimizer_get_group",
                                      [](Objects& o, meron_optimizer_group* group) {
                                        return FAILURE_OF(meron_optimizer_get_group, group,
                                                          o.a->optimizer, 0);
                                      }),
      bad_info<meron_optimizer_info>("meron_optimizer_get_info",
                                     [](Objects& o, meron_optimizer_info* info) {
                                       return FAILURE_OF(meron_optimizer_get_info, info,
                                                         o.a->optimizer);
                                     }),
  };
}

}  // namespace meron::test
