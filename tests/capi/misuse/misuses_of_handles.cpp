// SPDX-License-Identifier: Apache-2.0
// Handles that are null, stale, of another kind, of another context, or were never handed out, in
// every place where a function takes one.
#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

// Kinds of futures.
using meron_gather = meron_future;
using meron_update = meron_future;

struct Place {
  const char* name;
  Kind kind;
  std::function<CallFailed(Objects&, uint64_t)> call;
};

// A place of a function that takes one handle and what is given here.
#define PLACE(kind_name, function, ...)                                      \
  Place {                                                                    \
#function, Kind::kind_name, [](Objects& o, uint64_t bad) -> CallFailed {   \
      (void)o;                                                                 \
      const auto it = handle<meron_##kind_name>(bad);                          \
      return FAILURE_OF(function, __VA_ARGS__);                                \
    } \
  }

struct Outs {
  meron_context context{};
  meron_group group{};
  meron_param param{};
  meron_unit unit{};
  meron_future gather{};
  meron_future future{};
  meron_future update{};
  meron_optimizer optimizer{};
  meron_schedule schedule{};
  meron_view view{};
  char* text = nullptr;
  const char* name = nullptr;
  int32_t number = 0;
  DLManagedTensorVersioned* dlpack = nullptr;
  meron_stats stats = sized<meron_stats>();
  meron_prediction prediction = sized<meron_prediction>();
  meron_unit_info unit_info = sized<meron_unit_info>();
  meron_flat_info flat_info = sized<meron_flat_info>();
  meron_param_info param_info = sized<meron_param_info>();
  meron_optimizer_info optimizer_info = sized<meron_optimizer_info>();
  meron_optimizer_group optimizer_group = sized<meron_optimizer_group>();
  uint32_t group_number = 0;
  size_t index = 0;
  uint64_t steps = 0;
  double norm = 0;
  meron_schedule_info schedule_info = sized<meron_schedule_info>();
  meron_future io_request{};
  meron_io_buffer io_buffer{};
  meron_io_info io_info = sized<meron_io_info>();
  meron_checkpoint checkpoint{};
  meron_checkpoint_info checkpoint_info = sized<meron_checkpoint_info>();
  meron_checkpoint_progress progress = sized<meron_checkpoint_progress>();
  meron_io_buffer_info io_buffer_info = sized<meron_io_buffer_info>();
};
Outs out;
float memory[1024];
const meron_optimizer_group kGroup = MERON_OPTIMIZER_GROUP_INIT;

std::vector<Place> context_places() {
  return {
      PLACE(context, meron_context_close, it),
      PLACE(context, meron_context_rank, &out.number, it),
      PLACE(context, meron_context_world_size, &out.number, it),
      PLACE(context, meron_context_transport, &out.name, it),
      PLACE(context, meron_context_progress, it),
      PLACE(context, meron_context_event_fd, &out.number, it),
      PLACE(context, meron_context_stats, &out.stats, it),
      PLACE(context, meron_context_plan_json, &out.text, it),
      PLACE(context, meron_context_predict, &out.prediction, it, nullptr),
      PLACE(context, meron_context_flight_record, &out.text, it),
      PLACE(context, meron_context_world, &out.group, it),
      {"meron_group_create", Kind::context,
       [](Objects&, uint64_t bad) {
         const int32_t rank = 0;
         return FAILURE_OF(meron_group_create, &out.group, handle<meron_context>(bad), &rank, 1);
       }},
      {"meron_param_register", Kind::context,
       [](Objects&, uint64_t bad) {
         meron_param_desc desc = MERON_PARAM_DESC_INIT;
         desc.name = "never";
         return FAILURE_OF(meron_param_register, &out.param, handle<meron_context>(bad), &desc);
       }},
      PLACE(context, meron_unit_create, &out.unit, it, "never", &o.loose, 1),
  };
}

std::vector<Place> group_places() {
  return {
      PLACE(group, meron_group_rank, &out.number, it),
      PLACE(group, meron_group_size, &out.number, it),
      PLACE(group, meron_group_status, it),
      PLACE(group, meron_group_abort, it, "never"),
      PLACE(group, meron_barrier_begin, &out.future, it),
      PLACE(group, meron_broadcast_begin, &out.future, it, memory, 16, 0),
      PLACE(group, meron_all_reduce_begin, &out.future, it, memory, 4, MERON_F32,
            MERON_REDUCE_OP_SUM),
      PLACE(group, meron_group_release, it),
  };
}

std::vector<Place> plan_places() {
  static const char model[] = R"({"parameters": 100, "layers": 2, "dtype": "f32"})";
  return {
      PLACE(plan, meron_plan_json, &out.text, it),
      PLACE(plan, meron_plan_table, &out.text, it),
      PLACE(plan, meron_plan_predict, &out.text, it, model, sizeof(model) - 1, nullptr, 0),
      PLACE(plan, meron_plan_release, it),
  };
}

std::vector<Place> param_places() {
  return {
      PLACE(param, meron_param_get_info, &out.param_info, it),
      PLACE(param, meron_param_name, &out.name, it),
      PLACE(param, meron_param_release, it),
      PLACE(param, meron_unit_create, &out.unit, o.a->context, "never", &it, 1),
      PLACE(param, meron_gather_view, &out.view, o.gather, it),
      PLACE(param, meron_gather_dlpack, &out.dlpack, o.gather, it),
      PLACE(param, meron_update_view, &out.view, o.update, it),
      PLACE(param, meron_update_write, o.update, it, memory, 6, MERON_F32),
      PLACE(param, meron_gradient_view, &out.view, it, 0),
      PLACE(param, meron_reduced_view, &out.view, it),
      PLACE(param, meron_reduced_dlpack, &out.dlpack, it),
      PLACE(param, meron_schedule_view, &out.view, o.schedule, it),
      PLACE(param, meron_optimizer_state_view, &out.view, o.a->optimizer, it,
            MERON_OPTIMIZER_STATE_EXP_AVG),
      PLACE(param, meron_optimizer_read_state, memory, 5, o.a->optimizer, it,
            MERON_OPTIMIZER_STATE_EXP_AVG),
      PLACE(param, meron_optimizer_write_state, o.a->optimizer, it, MERON_OPTIMIZER_STATE_EXP_AVG,
            memory, 5),
      PLACE(param, meron_optimizer_add_group, &out.group_number, o.a->optimizer, &it, 1, &kGroup),
      {"meron_reduce_begin (source)", Kind::param,
       [](Objects& o, uint64_t bad) {
         const meron_source source = {handle<meron_param>(bad), memory, 5, MERON_F32, 0};
         return FAILURE_OF(meron_reduce_begin, &out.future, o.a->units[0], &source, 1, nullptr);
       }},
      {"meron_gather_begin (destination)", Kind::param,
       [](Objects& o, uint64_t bad) {
         const meron_destination to = {handle<meron_param>(bad), memory, 20};
         meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
         options.mode = MERON_GATHER_INTO;
         options.destinations = &to;
         options.destination_count = 1;
         return FAILURE_OF(meron_gather_begin, &out.gather, &o.a->units[0], 1, &options);
       }},
  };
}

std::vector<Place> unit_places() {
  return {
      PLACE(unit, meron_unit_get_info, &out.unit_info, it),
      PLACE(unit, meron_unit_name, &out.name, it),
      PLACE(unit, meron_unit_param, &out.param, it, 0),
      PLACE(unit, meron_unit_flat, &out.flat_info, it, 0),
      {"meron_gather_begin (flat)", Kind::unit,
       [](Objects& o, uint64_t bad) {
         const meron_flat_destination to = {handle<meron_unit>(bad), 0, memory, 20};
         meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
         options.mode = MERON_GATHER_INTO;
         options.flats = &to;
         options.flat_count = 1;
         return FAILURE_OF(meron_gather_begin, &out.gather, &o.a->units[0], 1, &options);
       }},
      PLACE(unit, meron_unit_release, it),
      PLACE(unit, meron_unit_destroy, it),
      PLACE(unit, meron_update_begin, &out.update, &it, 1),
      PLACE(unit, meron_gather_begin, &out.gather, &it, 1, nullptr),
      {"meron_gather_begin (second)", Kind::unit,
       [](Objects& o, uint64_t bad) {
         const meron_unit both[] = {o.a->units[0], handle<meron_unit>(bad)};
         return FAILURE_OF(meron_gather_begin, &out.gather, both, 2, nullptr);
       }},
      PLACE(unit, meron_reduce_begin, &out.future, it, nullptr, 0, nullptr),
      PLACE(unit, meron_reduce_finish_begin, &out.future, it, nullptr),
      PLACE(unit, meron_reduce_wait, &it, 1, 0),
      PLACE(unit, meron_gradient_clip, &out.norm, &it, 1, 1.0),
      PLACE(unit, meron_reduce_consume, it),
      PLACE(unit, meron_reduce_discard, it),
      PLACE(unit, meron_reduce_scale_feedback, it, 1.0),
      PLACE(unit, meron_schedule_create, &out.schedule, &it, 1, nullptr),
      PLACE(unit, meron_optimizer_create, &out.optimizer, &it, 1, nullptr),
  };
}

std::vector<Place> operation_places() {
  return {
      PLACE(gather, meron_gather_wait_stream, it, nullptr, 0),
      PLACE(gather, meron_gather_view, &out.view, it, o.frozen),
      PLACE(gather, meron_gather_dlpack, &out.dlpack, it, o.frozen),
      PLACE(gather, meron_gather_release_on_stream, it, nullptr),
      PLACE(future, meron_future_wait, it, 0),
      PLACE(future, meron_future_poll, it),
      PLACE(future, meron_future_release, it),
      PLACE(future, meron_future_finish, it, 0),
      PLACE(future, meron_future_wait_any, &out.index, &it, 1, 0),
      {"meron_future_finish (update)", Kind::future,
       [](Objects& o, uint64_t) { return FAILURE_OF(meron_future_finish, o.update, -1); }},
      {"meron_future_wait_any (io)", Kind::future,
       [](Objects& o, uint64_t) {
         const meron_future both[] = {o.future, o.io_request};
         return FAILURE_OF(meron_future_wait_any, &out.index, both, 2, 0);
       }},
      PLACE(update, meron_update_view, &out.view, it, o.half),
      PLACE(update, meron_update_write, it, o.half, memory, 6, MERON_F32),
      PLACE(update, meron_update_publish, it),
      PLACE(optimizer, meron_optimizer_set_learning_rate, it, 0.1),
      PLACE(optimizer, meron_optimizer_set_max_norm, it, 0.1),
      PLACE(optimizer, meron_optimizer_set_steps, it, 3),
      PLACE(optimizer, meron_optimizer_set_skipped, it, &o.a->params[0], 1),
      PLACE(param, meron_optimizer_set_skipped, o.a->optimizer, &it, 1),
      PLACE(optimizer, meron_optimizer_param_steps, &out.steps, it, o.a->params[0]),
      PLACE(param, meron_optimizer_param_steps, &out.steps, o.a->optimizer, it),
      PLACE(optimizer, meron_optimizer_set_param_steps, it, o.a->params[0], 3),
      PLACE(param, meron_optimizer_set_param_steps, o.a->optimizer, it, 3),
      PLACE(optimizer, meron_optimizer_step_begin, &out.future, it),
      PLACE(optimizer, meron_optimizer_get_info, &out.optimizer_info, it),
      PLACE(optimizer, meron_optimizer_state_view, &out.view, it, o.a->params[0],
            MERON_OPTIMIZER_STATE_EXP_AVG),
      PLACE(optimizer, meron_optimizer_read_state, memory, 5, it, o.a->params[1],
            MERON_OPTIMIZER_STATE_EXP_AVG),
      PLACE(optimizer, meron_optimizer_write_state, it, o.a->params[1],
            MERON_OPTIMIZER_STATE_EXP_AVG, memory, 5),
      PLACE(optimizer, meron_optimizer_add_group, &out.group_number, it, &o.a->params[0], 1,
            &kGroup),
      PLACE(optimizer, meron_optimizer_set_group, it, 0, &kGroup),
      PLACE(optimizer, meron_optimizer_get_group, &out.optimizer_group, it, 0),
      PLACE(optimizer, meron_optimizer_offload, it, nullptr),
      PLACE(optimizer, meron_optimizer_reload, it),
      PLACE(optimizer, meron_optimizer_release, it),
      PLACE(schedule, meron_schedule_start_pass, it, 0),
      PLACE(schedule, meron_schedule_enter, it, 0, 0),
      PLACE(schedule, meron_schedule_leave, it, 0),
      PLACE(schedule, meron_schedule_view, &out.view, it, o.frozen),
      PLACE(schedule, meron_schedule_drop, it),
      PLACE(schedule, meron_schedule_reset, it),
      PLACE(schedule, meron_schedule_get_info, &out.schedule_info, it),
      PLACE(schedule, meron_schedule_release, it),
  };
}

std::vector<Place> io_places() {
  return {
      PLACE(io, meron_io_read, it, o.io_path.c_str(), memory, 4, 0),
      PLACE(io, meron_io_write, it, o.io_path.c_str(), memory, 4, 0),
      PLACE(io, meron_io_read_begin, &out.io_request, it, o.io_path.c_str(), memory, 4, 0),
      PLACE(io, meron_io_write_begin, &out.io_request, it, o.io_path.c_str(), memory, 4, 0),
      PLACE(io, meron_io_wait, it, 0),
      PLACE(io, meron_io_get_info, &out.io_info, it),
      PLACE(io, meron_io_describe, &out.text, it),
      PLACE(io, meron_io_close, it),
      PLACE(io, meron_io_buffer_create, &out.io_buffer, it, 4096),
      PLACE(io_buffer, meron_io_buffer_get_info, &out.io_buffer_info, it),
      PLACE(io_buffer, meron_io_buffer_release, it),
  };
}

std::vector<Place> checkpoint_places() {
  return {
      PLACE(context, meron_checkpoint_save_begin, &out.future, it, o.folder.c_str(), "never",
            nullptr),
      PLACE(context, meron_checkpoint_load, &out.checkpoint, it, o.folder.c_str(), nullptr,
            nullptr),
      PLACE(context, meron_checkpoint_export, it, o.folder.c_str(), nullptr),
      PLACE(context, meron_checkpoint_wait_copied, it, 0),
      PLACE(context, meron_checkpoint_get_progress, &out.progress, it),
      PLACE(context, meron_checkpoint_cancel_save, it),
      PLACE(checkpoint, meron_checkpoint_get_info, &out.checkpoint_info, it),
      PLACE(checkpoint, meron_checkpoint_text, &out.name, it, MERON_CHECKPOINT_TEXT_PATH),
      PLACE(checkpoint, meron_checkpoint_read, memory, 4, it, nullptr, "u0.a", 0, 1),
      PLACE(checkpoint, meron_checkpoint_release, it),
  };
}

Misuse foreign(const char* name, std::vector<meron_status> expected,
               std::function<CallFailed(Objects&)> call) {
  return {std::string(name) + ": of another context", std::move(expected),
          [call = std::move(call)](Objects& o, Random&) { return call(o); }};
}

}  // namespace

std::vector<Misuse> misuses_of_handles() {
  std::vector<Misuse> all;
  for (const auto& places : {context_places(), group_places(), plan_places(), param_places(),
                             unit_places(), operation_places(), io_places(), checkpoint_places()}) {
    for (const Place& place : places) {
      all.push_back({std::string(place.name) + ": bad handle",
                     {MERON_E_HANDLE, MERON_E_STALE},
                     [place](Objects& o, Random& random) {
                       return place.call(o, o.bad_handle(place.kind, random));
                     }});
    }
  }
  const std::vector<meron_status> refused = {MERON_E_HANDLE, MERON_E_ARGUMENT};
  all.push_back(foreign("meron_param_register", refused, [](Objects& o) {
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = "never";
    desc.group = o.b->world;
    return FAILURE_OF(meron_param_register, &out.param, o.a->context, &desc);
  }));
  all.push_back(foreign("meron_unit_create", refused, [](Objects& o) {
    return FAILURE_OF(meron_unit_create, &out.unit, o.b->context, "never", &o.loose, 1);
  }));
  all.push_back(foreign("meron_gather_begin", refused, [](Objects& o) {
    const meron_unit both[] = {o.a->units[0], o.b->units[0]};
    return FAILURE_OF(meron_gather_begin, &out.gather, both, 2, nullptr);
  }));
  all.push_back(foreign("meron_update_begin", refused, [](Objects& o) {
    const meron_unit both[] = {o.a->units[0], o.b->units[0]};
    return FAILURE_OF(meron_update_begin, &out.update, both, 2);
  }));
  all.push_back(foreign("meron_reduce_wait", {MERON_E_HANDLE}, [](Objects& o) {
    const meron_unit both[] = {o.a->units[0], o.b->units[0]};
    return FAILURE_OF(meron_reduce_wait, both, 2, 0);
  }));
  all.push_back(foreign("meron_gradient_clip", {MERON_E_HANDLE}, [](Objects& o) {
    const meron_unit both[] = {o.a->units[0], o.b->units[0]};
    return FAILURE_OF(meron_gradient_clip, &out.norm, both, 2, 1.0);
  }));
  all.push_back(foreign("meron_future_wait_any", {MERON_E_HANDLE}, [](Objects& o) {
    meron_future other{};
    MUST(meron_barrier_begin, &other, o.b->world);
    const meron_future both[] = {o.future, other};
    const CallFailed failed = FAILURE_OF(meron_future_wait_any, &out.index, both, 2, 0);
    o.b->wait(other);
    return failed;
  }));
  all.push_back(foreign("meron_optimizer_create", refused, [](Objects& o) {
    const meron_unit both[] = {o.half_unit, o.b->units[0]};
    return FAILURE_OF(meron_optimizer_create, &out.optimizer, both, 2, nullptr);
  }));
  all.push_back(foreign("meron_gather_view", refused, [](Objects& o) {
    return FAILURE_OF(meron_gather_view, &out.view, o.gather, o.b->params[0]);
  }));
  all.push_back(foreign("meron_gather_dlpack", refused, [](Objects& o) {
    return FAILURE_OF(meron_gather_dlpack, &out.dlpack, o.gather, o.b->params[0]);
  }));
  all.push_back(foreign("meron_update_view", refused, [](Objects& o) {
    return FAILURE_OF(meron_update_view, &out.view, o.update, o.b->params[0]);
  }));
  all.push_back(foreign("meron_update_write", refused, [](Objects& o) {
    return FAILURE_OF(meron_update_write, o.update, o.b->params[1], memory, 5, MERON_F32);
  }));
  all.push_back(foreign("meron_optimizer_state_view", refused, [](Objects& o) {
    return FAILURE_OF(meron_optimizer_state_view, &out.view, o.a->optimizer, o.b->params[0],
                      MERON_OPTIMIZER_STATE_EXP_AVG);
  }));
  all.push_back(foreign("meron_optimizer_read_state", refused, [](Objects& o) {
    return FAILURE_OF(meron_optimizer_read_state, memory, 5, o.a->optimizer, o.b->params[1],
                      MERON_OPTIMIZER_STATE_EXP_AVG);
  }));
  all.push_back(foreign("meron_optimizer_write_state", refused, [](Objects& o) {
    return FAILURE_OF(meron_optimizer_write_state, o.a->optimizer, o.b->params[1],
                      MERON_OPTIMIZER_STATE_EXP_AVG, memory, 5);
  }));
  all.push_back(foreign("meron_optimizer_add_group", refused, [](Objects& o) {
    const meron_param both[] = {o.a->params[0], o.b->params[1]};
    return FAILURE_OF(meron_optimizer_add_group, &out.group_number, o.a->optimizer, both, 2,
                      &kGroup);
  }));
  all.push_back(foreign("meron_optimizer_set_skipped", refused, [](Objects& o) {
    const meron_param both[] = {o.a->params[0], o.b->params[1]};
    return FAILURE_OF(meron_optimizer_set_skipped, o.a->optimizer, both, 2);
  }));
  all.push_back(foreign("meron_optimizer_param_steps", refused, [](Objects& o) {
    return FAILURE_OF(meron_optimizer_param_steps, &out.steps, o.a->optimizer, o.b->params[1]);
  }));
  all.push_back(foreign("meron_optimizer_set_param_steps", refused, [](Objects& o) {
    return FAILURE_OF(meron_optimizer_set_param_steps, o.a->optimizer, o.b->params[1], 3);
  }));
  all.push_back(foreign("meron_reduce_begin", refused, [](Objects& o) {
    const meron_source source = {o.b->params[1], memory, 5, MERON_F32, 0};
    return FAILURE_OF(meron_reduce_begin, &out.future, o.a->units[0], &source, 1, nullptr);
  }));
  all.push_back(foreign("meron_gather_begin (destination)", refused, [](Objects& o) {
    const meron_destination to = {o.b->params[1], memory, 20};
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    options.mode = MERON_GATHER_INTO;
    options.destinations = &to;
    options.destination_count = 1;
    return FAILURE_OF(meron_gather_begin, &out.gather, &o.a->units[0], 1, &options);
  }));
  all.push_back(foreign("meron_gather_begin (flat)", refused, [](Objects& o) {
    const meron_flat_destination to = {o.b->units[0], 0, memory, 20};
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    options.mode = MERON_GATHER_INTO;
    options.flats = &to;
    options.flat_count = 1;
    return FAILURE_OF(meron_gather_begin, &out.gather, &o.a->units[0], 1, &options);
  }));
  return all;
}

}  // namespace meron::test
