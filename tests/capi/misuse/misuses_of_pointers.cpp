// SPDX-License-Identifier: Apache-2.0
// Null where a pointer is needed.
#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

struct Outs {
  double norm = 0;
  meron_context context{};
  meron_group group{};
  meron_plan plan{};
  meron_param param{};
  meron_unit unit{};
  meron_future gather{};
  meron_future future{};
  meron_future update{};
  meron_optimizer optimizer{};
  meron_schedule schedule{};
  meron_checkpoint checkpoint{};
  meron_view view{};
  uint32_t number = 0;
  size_t index = 0;
  char* text = nullptr;
};
Outs out;
float memory[16];
const meron_optimizer_group kGroup = MERON_OPTIMIZER_GROUP_INIT;
const char kModel[] = R"({"parameters": 100, "layers": 2, "dtype": "f32"})";

#define NULL_POINTER(function, ...)                                                          \
  Misuse {                                                                                   \
    std::string(#function) + ": null pointer", {MERON_E_ARGUMENT}, [](Objects& o, Random&) { \
      (void)o;                                                                               \
      return FAILURE_OF(function, __VA_ARGS__);                                              \
    }                                                                                        \
  }

}  // namespace

std::vector<Misuse> misuses_of_pointers() {
  return {
      NULL_POINTER(meron_system_info, nullptr),
      NULL_POINTER(meron_plan_preset, nullptr, "zero1"),
      NULL_POINTER(meron_plan_preset, &out.plan, nullptr),
      NULL_POINTER(meron_plan_parse, nullptr, "{}", 2),
      NULL_POINTER(meron_plan_parse, &out.plan, nullptr, 2),
      NULL_POINTER(meron_plan_json, nullptr, o.plan),
      NULL_POINTER(meron_plan_table, nullptr, o.plan),
      NULL_POINTER(meron_plan_predict, nullptr, o.plan, kModel, sizeof(kModel) - 1, nullptr, 0),
      NULL_POINTER(meron_plan_predict, &out.text, o.plan, nullptr, 3, nullptr, 0),
      NULL_POINTER(meron_future_wait_any, nullptr, &o.future, 1, 0),
      NULL_POINTER(meron_future_wait_any, &out.index, nullptr, 1, 0),
      NULL_POINTER(meron_workload_init, nullptr, sizeof(meron_workload)),
      NULL_POINTER(meron_context_options_init, nullptr, sizeof(meron_context_options)),
      NULL_POINTER(meron_transport_init, nullptr, sizeof(meron_transport)),
      NULL_POINTER(meron_allocator_init, nullptr, sizeof(meron_allocator)),
      NULL_POINTER(meron_param_desc_init, nullptr, sizeof(meron_param_desc)),
      NULL_POINTER(meron_gather_options_init, nullptr, sizeof(meron_gather_options)),
      NULL_POINTER(meron_reduce_options_init, nullptr, sizeof(meron_reduce_options)),
      NULL_POINTER(meron_schedule_options_init, nullptr, sizeof(meron_schedule_options)),
      NULL_POINTER(meron_optimizer_rule_init, nullptr, sizeof(meron_optimizer_options),
                   MERON_OPTIMIZER_SGD),
      NULL_POINTER(meron_optimizer_group_init, nullptr, sizeof(meron_optimizer_group)),
      NULL_POINTER(meron_checkpoint_tensor_init, nullptr, sizeof(meron_checkpoint_tensor)),
      NULL_POINTER(meron_checkpoint_save_options_init, nullptr,
                   sizeof(meron_checkpoint_save_options)),
      NULL_POINTER(meron_checkpoint_load_options_init, nullptr,
                   sizeof(meron_checkpoint_load_options)),
      NULL_POINTER(meron_checkpoint_write_options_init, nullptr,
                   sizeof(meron_checkpoint_write_options)),
      NULL_POINTER(meron_checkpoint_export_options_init, nullptr,
                   sizeof(meron_checkpoint_export_options)),
      NULL_POINTER(meron_checkpoint_save_begin, nullptr, o.b->context, "f", "n", nullptr),
      NULL_POINTER(meron_checkpoint_save_begin, &out.future, o.b->context, nullptr, "n", nullptr),
      NULL_POINTER(meron_checkpoint_save_begin, &out.future, o.b->context, "f", nullptr, nullptr),
      NULL_POINTER(meron_checkpoint_get_progress, nullptr, o.a->context),
      NULL_POINTER(meron_checkpoint_write, nullptr, "n", nullptr),
      NULL_POINTER(meron_checkpoint_write, "f", nullptr, nullptr),
      NULL_POINTER(meron_checkpoint_load, nullptr, o.b->context, "f", nullptr, nullptr),
      NULL_POINTER(meron_checkpoint_load, &out.checkpoint, o.b->context, nullptr, "n", nullptr),
      NULL_POINTER(meron_checkpoint_list, nullptr, "f"),
      NULL_POINTER(meron_checkpoint_list, &out.text, nullptr),
      NULL_POINTER(meron_checkpoint_remove, nullptr, "n"),
      NULL_POINTER(meron_checkpoint_remove, "f", nullptr),
      NULL_POINTER(meron_checkpoint_open, nullptr, "f", nullptr),
      NULL_POINTER(meron_checkpoint_open, &out.checkpoint, nullptr, nullptr),
      NULL_POINTER(meron_checkpoint_get_info, nullptr, o.checkpoint),
      NULL_POINTER(meron_checkpoint_text, nullptr, o.checkpoint, MERON_CHECKPOINT_TEXT_PATH),
      NULL_POINTER(meron_checkpoint_read, nullptr, 4, o.checkpoint, nullptr, "u0.a", 0, 1),
      NULL_POINTER(meron_checkpoint_read, memory, 4, o.checkpoint, nullptr, nullptr, 0, 1),
      NULL_POINTER(meron_checkpoint_export, o.b->context, nullptr, nullptr),
      NULL_POINTER(meron_context_open, nullptr, nullptr),
      NULL_POINTER(meron_context_rank, nullptr, o.a->context),
      NULL_POINTER(meron_context_world_size, nullptr, o.a->context),
      NULL_POINTER(meron_context_transport, nullptr, o.a->context),
      NULL_POINTER(meron_context_stats, nullptr, o.a->context),
      NULL_POINTER(meron_context_plan_json, nullptr, o.a->context),
      NULL_POINTER(meron_context_predict, nullptr, o.a->context, nullptr),
      NULL_POINTER(meron_context_flight_record, nullptr, o.a->context),
      NULL_POINTER(meron_context_world, nullptr, o.a->context),
      NULL_POINTER(meron_context_event_fd, nullptr, o.a->context),
      NULL_POINTER(meron_group_create, nullptr, o.a->context, &o.a->rank, 1),
      NULL_POINTER(meron_group_create, &out.group, o.a->context, nullptr, 1),
      NULL_POINTER(meron_group_rank, nullptr, o.a->world),
      NULL_POINTER(meron_group_size, nullptr, o.a->world),
      NULL_POINTER(meron_barrier_begin, nullptr, o.a->world),
      NULL_POINTER(meron_broadcast_begin, nullptr, o.a->world, memory, 4, 0),
      NULL_POINTER(meron_broadcast_begin, &out.future, o.a->world, nullptr, 4, 0),
      NULL_POINTER(meron_all_reduce_begin, nullptr, o.a->world, memory, 4, MERON_F32,
                   MERON_REDUCE_OP_SUM),
      NULL_POINTER(meron_all_reduce_begin, &out.future, o.a->world, nullptr, 4, MERON_F32,
                   MERON_REDUCE_OP_SUM),
      NULL_POINTER(meron_param_register, nullptr, o.a->context, nullptr),
      NULL_POINTER(meron_param_register, &out.param, o.a->context, nullptr),
      NULL_POINTER(meron_param_get_info, nullptr, o.loose),
      NULL_POINTER(meron_param_name, nullptr, o.loose),
      NULL_POINTER(meron_unit_create, nullptr, o.a->context, "never", &o.loose, 1),
      NULL_POINTER(meron_unit_create, &out.unit, o.a->context, nullptr, &o.loose, 1),
      NULL_POINTER(meron_unit_create, &out.unit, o.a->context, "never", nullptr, 1),
      NULL_POINTER(meron_unit_get_info, nullptr, o.a->units[0]),
      NULL_POINTER(meron_unit_name, nullptr, o.a->units[0]),
      NULL_POINTER(meron_unit_param, nullptr, o.a->units[0], 0),
      NULL_POINTER(meron_unit_flat, nullptr, o.a->units[0], 0),
      NULL_POINTER(meron_update_begin, nullptr, &o.a->units[0], 1),
      NULL_POINTER(meron_update_begin, &out.update, nullptr, 1),
      NULL_POINTER(meron_update_view, nullptr, o.update, o.half),
      NULL_POINTER(meron_update_write, o.update, o.half, nullptr, 6, MERON_F32),
      NULL_POINTER(meron_gather_begin, nullptr, &o.a->units[0], 1, nullptr),
      NULL_POINTER(meron_gather_begin, &out.gather, nullptr, 1, nullptr),
      NULL_POINTER(meron_gather_view, nullptr, o.gather, o.frozen),
      NULL_POINTER(meron_gather_dlpack, nullptr, o.gather, o.frozen),
      NULL_POINTER(meron_gradient_view, nullptr, o.a->params[0], 0),
      NULL_POINTER(meron_reduce_begin, &out.future, o.a->units[0], nullptr, 2, nullptr),
      NULL_POINTER(meron_reduce_wait, nullptr, 1, 0),
      NULL_POINTER(meron_gradient_clip, nullptr, &o.a->units[0], 1, 1.0),
      NULL_POINTER(meron_gradient_clip, &out.norm, nullptr, 1, 1.0),
      NULL_POINTER(meron_reduced_view, nullptr, o.a->params[0]),
      NULL_POINTER(meron_reduced_dlpack, nullptr, o.a->params[0]),
      NULL_POINTER(meron_schedule_create, nullptr, &o.a->units[0], 1, nullptr),
      NULL_POINTER(meron_schedule_create, &out.schedule, nullptr, 1, nullptr),
      NULL_POINTER(meron_schedule_view, nullptr, o.schedule, o.frozen),
      NULL_POINTER(meron_schedule_get_info, nullptr, o.schedule),
      NULL_POINTER(meron_optimizer_create, nullptr, &o.half_unit, 1, nullptr),
      NULL_POINTER(meron_optimizer_create, &out.optimizer, nullptr, 1, nullptr),
      NULL_POINTER(meron_optimizer_set_skipped, o.a->optimizer, nullptr, 1),
      NULL_POINTER(meron_optimizer_param_steps, nullptr, o.a->optimizer, o.a->params[0]),
      NULL_POINTER(meron_optimizer_add_group, nullptr, o.a->optimizer, &o.a->params[0], 1, &kGroup),
      NULL_POINTER(meron_optimizer_add_group, &out.number, o.a->optimizer, nullptr, 1, &kGroup),
      NULL_POINTER(meron_optimizer_add_group, &out.number, o.a->optimizer, &o.a->params[0], 1,
                   nullptr),
      NULL_POINTER(meron_optimizer_set_group, o.a->optimizer, 0, nullptr),
      NULL_POINTER(meron_optimizer_get_group, nullptr, o.a->optimizer, 0),
      NULL_POINTER(meron_optimizer_read_state, nullptr, 37 * 13, o.a->optimizer, o.a->params[0],
                   MERON_OPTIMIZER_STATE_EXP_AVG),
      NULL_POINTER(meron_optimizer_write_state, o.a->optimizer, o.a->params[0],
                   MERON_OPTIMIZER_STATE_EXP_AVG, nullptr, 37 * 13),
      NULL_POINTER(meron_optimizer_step_begin, nullptr, o.a->optimizer),
      NULL_POINTER(meron_optimizer_get_info, nullptr, o.a->optimizer),
      NULL_POINTER(meron_optimizer_state_view, nullptr, o.a->optimizer, o.a->params[0],
                   MERON_OPTIMIZER_STATE_EXP_AVG),
  };
}

}  // namespace meron::test
