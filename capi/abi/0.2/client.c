/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of the time of this baseline: compiled against the headers beside it, run with today's
 * library. It opens a context on one rank, and under each plan registers, writes, gathers, reduces
 * and steps; then it makes a few errors. Exits with 1 at the first thing that is not as it was.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meron/meron.h"

enum { ROWS = 64, COLUMNS = 48, COUNT = ROWS * COLUMNS };

static int messages;

static void fail(const char* what, int line, meron_error* error) {
  fprintf(stderr, "client.c:%d: %s: %s\n", line, what, meron_error_message(error));
  meron_error_free(error);
  exit(1);
}

#define CHECK(condition)                                \
  do {                                                  \
    if (!(condition)) fail(#condition, __LINE__, NULL); \
  } while (0)

/* Calls a function whose last argument is `&error`, and expects success. */
#define OK(call)                                          \
  do {                                                    \
    meron_error* error = NULL;                            \
    if ((call) != MERON_OK) fail(#call, __LINE__, error); \
  } while (0)

static void receive_log(void* user, meron_log_level level, const char* message, size_t length) {
  CHECK(level >= MERON_LOG_ERROR && strlen(message) == length);
  ++*(int*)user;
}

static int32_t never_stop(void* user) {
  return user == NULL;
}

static float value(int i) {
  return (float)(i % 97) * 0.25f - 3.0f;
}

static void write_values(meron_unit unit, meron_param weight) {
  float* whole = malloc(COUNT * sizeof(float));
  meron_future update = {0};
  CHECK(whole != NULL);
  for (int i = 0; i < COUNT; ++i) whole[i] = value(i);
  OK(meron_update_begin(&update, &unit, 1, &error));
  OK(meron_future_wait(update, MERON_TIMEOUT_DEFAULT, &error));
  OK(meron_future_poll(update, &error));
  OK(meron_update_write(update, weight, whole, COUNT, MERON_F32, &error));
  meron_view part;
  OK(meron_update_view(&part, update, weight, &error));
  CHECK(part.data != NULL && part.count == COUNT && part.offset == 0 && part.writable == 1);
  CHECK(part.dtype == MERON_F32 && memcmp(part.data, whole, COUNT * sizeof(float)) == 0);
  OK(meron_update_publish(update, &error));
  free(whole);
}

static void expect_values(meron_unit unit, meron_param weight, const float* expected) {
  float* into = malloc(COUNT * sizeof(float));
  CHECK(into != NULL);
  for (meron_gather_mode mode = MERON_GATHER_VIEW; mode <= MERON_GATHER_INTO; ++mode) {
    const meron_destination destination = {weight, into, COUNT * sizeof(float)};
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    meron_future gather = {0};
    meron_view view;
    options.mode = mode;
    if (mode == MERON_GATHER_INTO) {
      options.destinations = &destination;
      options.destination_count = 1;
    }
    OK(meron_gather_begin(&gather, &unit, 1, &options, &error));
    OK(meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, &error));
    OK(meron_gather_view(&view, gather, weight, &error));
    CHECK(view.count == COUNT && view.writable == (mode != MERON_GATHER_VIEW));
    for (int i = 0; i < COUNT; ++i) CHECK(((const float*)view.data)[i] == expected[i]);
    CHECK(view.device == MERON_DEVICE_HOST && view.reserved_0 == 0 && view.reserved_1 == 0);
    OK(meron_future_release(gather, &error));
  }
  free(into);
}

static meron_param register_weight(meron_context context) {
  const int64_t shape[2] = {ROWS, COLUMNS};
  meron_param_desc desc = MERON_PARAM_DESC_INIT;
  meron_param weight = {0};
  meron_param_info info;
  const char* name = NULL;
  desc.name = "weight";
  desc.shape = shape;
  desc.dims = 2;
  OK(meron_param_register(&weight, context, &desc, &error));
  memset(&info, 0xee, sizeof(info));
  info.struct_size = sizeof(info);
  OK(meron_param_get_info(&info, weight, &error));
  CHECK(info.struct_size == sizeof(info) && info.dims == 2 && info.shape[1] == COLUMNS);
  CHECK(info.count == COUNT && info.dtype == MERON_F32 && info.frozen == 0);
  OK(meron_param_name(&name, weight, &error));
  CHECK(strcmp(name, "weight") == 0);
  return weight;
}

static void step(meron_unit unit, meron_param weight, meron_optimizer optimizer) {
  float gradient[COUNT];
  const meron_source source = {weight, gradient, COUNT, MERON_F32, 0};
  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
  meron_future future = {0};
  meron_view view;
  for (int i = 0; i < COUNT; ++i) gradient[i] = 1.0f;
  options.divisor = 2.0;
  OK(meron_reduce_begin(&future, unit, &source, 1, &options, &error));
  OK(meron_future_wait(future, MERON_TIMEOUT_DEFAULT, &error));
  OK(meron_future_release(future, &error));
  OK(meron_reduced_view(&view, weight, &error));
  CHECK(view.count == COUNT && ((const float*)view.data)[COUNT - 1] == 0.5f);
  OK(meron_optimizer_step_begin(&future, optimizer, &error));
  OK(meron_future_wait(future, MERON_TIMEOUT_DEFAULT, &error));
  OK(meron_future_release(future, &error));
}

static void train(meron_context context) {
  const meron_param weight = register_weight(context);
  meron_unit unit = {0};
  meron_optimizer optimizer = {0};
  meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
  meron_optimizer_info info;
  meron_view moment;
  float expected[COUNT];
  OK(meron_unit_create(&unit, context, "unit", &weight, 1, &error));
  write_values(unit, weight);
  for (int i = 0; i < COUNT; ++i) expected[i] = value(i);
  expect_values(unit, weight, expected);

  /* The first step of AdamW without decay moves each value by the learning rate. */
  options.weight_decay = 0.0;
  options.learning_rate = 0.125;
  OK(meron_optimizer_create(&optimizer, &unit, 1, &options, &error));
  step(unit, weight, optimizer);
  info.struct_size = sizeof(info);
  OK(meron_optimizer_get_info(&info, optimizer, &error));
  CHECK(info.steps == 1 && info.learning_rate == 0.125);
  CHECK(fabs(info.norm - 0.5 * sqrt((double)COUNT)) < 1e-9);
  OK(meron_optimizer_state_view(&moment, optimizer, weight, MERON_OPTIMIZER_STATE_EXP_AVG, &error));
  CHECK(fabsf(((const float*)moment.data)[0] - 0.05f) < 1e-6f);

  meron_future gather = {0};
  meron_view view;
  OK(meron_gather_begin(&gather, &unit, 1, NULL, &error));
  OK(meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, &error));
  OK(meron_gather_view(&view, gather, weight, &error));
  for (int i = 0; i < COUNT; ++i) {
    CHECK(fabsf(((const float*)view.data)[i] - (value(i) - 0.125f)) < 1e-4f);
  }
  OK(meron_future_release(gather, &error));
  OK(meron_optimizer_release(optimizer, &error));
  OK(meron_unit_release(unit, &error));
  OK(meron_param_release(weight, &error));
}

static void look(meron_context context) {
  meron_stats stats;
  meron_prediction prediction;
  const meron_workload workload = MERON_WORKLOAD_INIT;
  meron_group world = {0};
  meron_future future = {0};
  int32_t rank = -1, size = 0;
  char* record = NULL;
  float loss = 3.0f;
  stats.struct_size = sizeof(stats);
  prediction.struct_size = sizeof(prediction);
  OK(meron_context_stats(&stats, context, &error));
  CHECK(stats.operations > 0 && stats.peak_bytes >= COUNT * sizeof(float));
  OK(meron_context_predict(&prediction, context, &workload, &error));
  OK(meron_context_world(&world, context, &error));
  OK(meron_group_rank(&rank, world, &error));
  OK(meron_group_size(&size, world, &error));
  CHECK(rank == 0 && size == 1);
  OK(meron_all_reduce_begin(&future, world, &loss, 1, MERON_F32, MERON_REDUCE_OP_MEAN, &error));
  OK(meron_future_wait(future, 0, &error));
  OK(meron_future_release(future, &error));
  CHECK(loss == 3.0f);
  OK(meron_group_release(world, &error));
  OK(meron_context_flight_record(&record, context, &error));
  CHECK(record[0] == '{' || record[0] == '[');
  meron_string_free(record);
}

static void make_errors(meron_context closed) {
  meron_error* error = NULL;
  meron_param_desc desc = MERON_PARAM_DESC_INIT;
  meron_param param = {0};
  int32_t rank = 0;
  CHECK(meron_context_rank(&rank, closed, &error) == MERON_E_STALE);
  CHECK(meron_error_code(error) == MERON_E_STALE && meron_error_message(error)[0] != '\0');
  CHECK(strcmp(meron_error_operation(error), "context_rank") == 0);
  CHECK(meron_error_peer(error) == MERON_RANK_NONE && meron_error_advice(error)[0] != '\0');
  meron_error_free(error);
  const meron_context null_context = {0};
  CHECK(meron_param_register(&param, null_context, &desc, NULL) == MERON_E_HANDLE);
  CHECK(strcmp(meron_status_name(MERON_E_HANDLE), "MERON_E_HANDLE") == 0);
}

int main(void) {
  const char* const plans[] = {"zero0", "zero1", "zero2", "zero3"};
  CHECK(meron_version() >= MERON_VERSION);
  for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); ++i) {
    meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;
    meron_context context = {0};
    meron_plan plan = {0};
    OK(meron_plan_preset(&plan, plans[i], &error));
    options.transport = "self";
    options.rank = 0;
    options.world_size = 1;
    options.plan = plan;
    options.log = receive_log;
    options.log_user = &messages;
    options.should_stop = never_stop;
    options.should_stop_user = &messages;
    OK(meron_context_open(&context, &options, &error));
    OK(meron_plan_release(plan, &error));
    train(context);
    look(context);
    OK(meron_context_close(context, &error));
    make_errors(context);
  }
  printf("compiled with %d.%d.%d, run with %s\n", MERON_VERSION_MAJOR, MERON_VERSION_MINOR,
         MERON_VERSION_PATCH, meron_version_string());
  return 0;
}
