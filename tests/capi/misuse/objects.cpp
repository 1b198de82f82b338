// SPDX-License-Identifier: Apache-2.0
#include "tests/capi/misuse/objects.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace meron::test {
namespace {

Open open_alone() {
  Open open;
  open.transport = "self";
  open.ranks = 1;
  return open;
}

}  // namespace

meron_param_desc good_desc() {
  static const int64_t shape[] = {4, 4};
  meron_param_desc desc = MERON_PARAM_DESC_INIT;
  desc.name = "never";
  desc.shape = shape;
  desc.dims = 2;
  return desc;
}

meron_context_options good_options() {
  meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;
  options.transport = "self";
  options.rank = 0;
  options.world_size = 1;
  return options;
}

int32_t bad_enum(Random& random) {
  const std::vector<int32_t> values = {-1, 3, 4, 255, 1 << 20, INT32_MIN, INT32_MAX};
  return random.pick(values);
}

const std::vector<std::string>& bad_names() {
  static const std::vector<std::string> names = {
      "",
      std::string(513, 'x'),
      "\xff",
      "a\x80",
      "\xc0\xaf",                          // overlong
      "\xed\xa0\x80",                      // a surrogate
      "\xf4\x90\x80\x80",                  // beyond U+10FFFF
      "\xe2\x82",                          // cut
      std::string(511, 'x') + "\xc3\xa9",  // 513 bytes
  };
  return names;
}

meron_future leased(Session& session, size_t unit) {
  meron_future gather{};
  MUST(meron_gather_begin, &gather, &session.units[unit], 1, nullptr);
  MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
  return gather;
}
meron_future updating(Session& session, size_t unit) {
  meron_future update{};
  MUST(meron_update_begin, &update, &session.units[unit], 1);
  MUST(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
  return update;
}
OwnSession another_session() {
  OwnSession session(new Session(open_alone(), 0));
  session->build(1);
  return session;
}

Misuse misuse(std::string name, meron_status expected, std::function<CallFailed(Objects&)> make) {
  return {std::move(name), {expected}, [make = std::move(make)](Objects& o, Random&) {
            return make(o);
          }};
}

// Saves a session as it is, and loads that.
meron_checkpoint saved_and_loaded(const Session& session, const std::string& folder) {
  meron_checkpoint_save_options save = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
  save.optimizers = &session.optimizer;
  save.optimizer_count = 1;
  save.overwrite = 1;
  meron_future saving{};
  MUST(meron_checkpoint_save_begin, &saving, session.context, folder.c_str(), "good", &save);
  MUST(meron_future_wait, saving, MERON_TIMEOUT_DEFAULT);
  MUST(meron_future_release, saving);
  meron_checkpoint_load_options load = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
  load.optimizers = &session.optimizer;
  load.optimizer_count = 1;
  meron_checkpoint loaded{};
  MUST(meron_checkpoint_load, &loaded, session.context, folder.c_str(), nullptr, &load);
  return loaded;
}

Objects::Objects() {
  MUST(meron_plan_preset, &plan, "zero2");
  a = std::make_unique<Session>(open_alone(), 0);
  b = std::make_unique<Session>(open_alone(), 0);
  a->build();
  b->build();
  // A name that ends with the process would not do: reads and writes open the file anew.
  static int number = 0;
  io_path = testing::TempDir() + "meron-misuse-" + std::to_string(::getpid()) + "-" +
            std::to_string(number++);
  folder = io_path + ".checkpoints";
  checkpoint = saved_and_loaded(*a, folder);
  loose = a->register_param("loose", {3});
  meron_param_desc desc = MERON_PARAM_DESC_INIT;
  const int64_t shape[] = {2, 3};
  desc.name = "frozen.weight";
  desc.shape = shape;
  desc.dims = 2;
  desc.frozen = 1;
  MUST(meron_param_register, &frozen, a->context, &desc);
  MUST(meron_unit_create, &frozen_unit, a->context, "frozen", &frozen, 1);
  half = a->register_param("half.weight", {6}, MERON_BF16);
  MUST(meron_unit_create, &half_unit, a->context, "half", &half, 1);
  MUST(meron_gather_begin, &gather, &frozen_unit, 1, nullptr);
  MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
  MUST(meron_barrier_begin, &future, a->world);
  MUST(meron_future_wait, future, MERON_TIMEOUT_DEFAULT);
  MUST(meron_update_begin, &update, &half_unit, 1);
  MUST(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);

  MUST(meron_schedule_create, &schedule, &frozen_unit, 1, nullptr);

  const char sixty_four[64] = {};
  MUST(meron_io_open, &io, nullptr);
  MUST(meron_io_write_begin, &io_request, io, io_path.c_str(), sixty_four, 64, 0);
  MUST(meron_future_wait, io_request, MERON_TIMEOUT_DEFAULT);
  MUST(meron_io_buffer_create, &io_buffer, io, 4096);

  live_ = {a->context.id, a->world.id,   plan.id,      a->params[0].id, a->units[0].id,
           gather.id,     future.id,     update.id,    a->optimizer.id, schedule.id,
           io.id,         io_request.id, io_buffer.id, checkpoint.id};
  all_.insert(live_.begin(), live_.end());
  for (const Session* each : {a.get(), b.get()}) {
    for (const meron_param param : each->params) all_.insert(param.id);
    for (const meron_unit unit : each->units) all_.insert(unit.id);
    all_.insert({each->context.id, each->world.id, each->optimizer.id});
  }
  all_.insert({loose.id, frozen.id, half.id, frozen_unit.id, half_unit.id});

  // One released object of each kind, in the order of Kind.
  Session gone(open_alone(), 0);
  gone.build(1);
  const meron_unit* const unit = gone.units.data();
  const meron_checkpoint old_checkpoint = saved_and_loaded(gone, folder + ".gone");
  meron_plan old_plan{};
  meron_future old_gather{};
  meron_future old_future{};
  meron_future old_update{};
  meron_schedule old_schedule{};
  MUST(meron_plan_preset, &old_plan, "zero1");
  MUST(meron_gather_begin, &old_gather, unit, 1, nullptr);
  MUST(meron_future_release, old_gather);
  MUST(meron_barrier_begin, &old_future, gone.world);
  MUST(meron_future_release, old_future);
  MUST(meron_update_begin, &old_update, unit, 1);
  MUST(meron_schedule_create, &old_schedule, unit, 1, nullptr);
  meron_io old_io{};
  meron_future old_request{};
  meron_io_buffer old_buffer{};
  MUST(meron_io_open, &old_io, nullptr);
  MUST(meron_io_read_begin, &old_request, old_io, io_path.c_str(), nullptr, 0, 0);
  MUST(meron_io_buffer_create, &old_buffer, old_io, 1);
  MUST(meron_future_release, old_request);
  MUST(meron_io_buffer_release, old_buffer);
  MUST(meron_io_close, old_io);
  stale_ = {gone.context.id, gone.world.id,  old_plan.id,   gone.params[0].id, unit->id,
            old_gather.id,   old_future.id,  old_update.id, gone.optimizer.id, old_schedule.id,
            old_io.id,       old_request.id, old_buffer.id, old_checkpoint.id};
  MUST(meron_checkpoint_release, old_checkpoint);
  MUST(meron_plan_release, old_plan);
  MUST(meron_unit_release, *unit);  // by release; what is left, by close
  gone.close();
}

Objects::~Objects() {
  (void)meron_context_close(a->context, nullptr);
  (void)meron_context_close(b->context, nullptr);
  (void)meron_plan_release(plan, nullptr);
  (void)meron_future_release(io_request, nullptr);
  (void)meron_io_buffer_release(io_buffer, nullptr);
  (void)meron_io_close(io, nullptr);
  (void)::unlink(io_path.c_str());
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  std::filesystem::remove_all(folder + ".gone", ignored);
}

uint64_t Objects::bad_handle(Kind kind, Random& random) const {
  while (true) {
    uint64_t id = 0;
    switch (random.below(5)) {
      case 0:
        break;
      case 1:
        id = stale_[static_cast<size_t>(kind)];
        break;
      case 2: {
        const size_t other = random.below(kKinds);
        if (other == static_cast<size_t>(kind)) continue;
        // Functions that take a future take every kind of future.
        const auto is_future = [](Kind it) {
          return it == Kind::future || it == Kind::gather || it == Kind::update ||
                 it == Kind::io_request;
        };
        if (kind == Kind::future && is_future(static_cast<Kind>(other))) continue;
        return live_[other];
      }
      case 3:
        id = random.engine();
        break;
      default:  // almost right
        id = live(kind) ^ uint64_t { 1 } << random.below(64);
        if (random.below(2) == 0) id ^= uint64_t{1} << random.below(64);
    }
    if (all_.count(id) == 0) return id;
  }
}

void Objects::check_that_all_works() {
  // Exact in f32, different in each round.
  const float value = static_cast<float>(++round_ % 1000) * 0.25f;
  a->update(0, value);
  const double sum = a->gather(0);
  if (sum != static_cast<double>(value) * 37 * 13) {
    throw std::runtime_error("a gather returns " + std::to_string(sum));
  }
  a->reduce(0, 1.0f);
  a->reduce(1, 1.0f);
  a->step();
  a->barrier();
  if (a->all_reduce(10) != 1.0f) throw std::runtime_error("an all-reduce returns a wrong sum");
  meron_view view{};
  MUST(meron_gather_view, &view, gather, frozen);
  MUST(meron_update_view, &view, update, half);
  MUST(meron_future_poll, future);
  MUST(meron_schedule_start_pass, schedule, 0);
  MUST(meron_schedule_enter, schedule, 0, MERON_TIMEOUT_DEFAULT);
  MUST(meron_schedule_view, &view, schedule, frozen);
  MUST(meron_schedule_leave, schedule, 0);
  b->gather(1);
  meron_io_buffer_info buffer = sized<meron_io_buffer_info>();
  MUST(meron_io_buffer_get_info, &buffer, io_buffer);
  const auto offset = static_cast<uint64_t>(round_ % 64);
  std::memset(buffer.data, static_cast<int>(round_ % 256), 4096);
  MUST(meron_io_write, io, io_path.c_str(), buffer.data, 1, offset);
  unsigned char back = 0;
  MUST(meron_io_read, io, io_path.c_str(), &back, 1, offset);
  MUST(meron_future_wait, io_request, 0);
  meron_checkpoint_info info = sized<meron_checkpoint_info>();
  MUST(meron_checkpoint_get_info, &info, checkpoint);
  if (back != round_ % 256) throw std::runtime_error("a read returns " + std::to_string(back));
}

}  // namespace meron::test
