// SPDX-License-Identifier: Apache-2.0
// How the context begins each collective: check what can be checked on this rank, post the call,
// submit. A call that fails its checks is not posted, so that the ranks stay in step.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>

#include "base/hash.h"
#include "base/no_memory.h"
#include "call_log/dead_peers.h"
#include "collective/all_reduce.h"
#include "engine/context.h"
#include "engine/unit_schedule.h"
#include "gradient/gradient.h"

namespace meron {
namespace {

std::string describe(const TensorDesc& desc) {
  std::string text = fmt::format("{} {}[", desc.name, name_of(desc.dtype));
  for (size_t i = 0; i < desc.shape.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ",", desc.shape[i]);
  }
  return text + (desc.trainable ? "]" : "] frozen");
}

}  // namespace

Result<Channel*> Context::create_group(std::span<const int> ranks) {
  Group* made = nullptr;
  {
    MERON_ASSIGN([[maybe_unused]] const Turn turn, this->turn());
    auto held = lock();
    MERON_ASSIGN(made, create_group(held, ranks));
  }
  if (made == nullptr) return static_cast<Channel*>(nullptr);
  // Other threads begin what they like meanwhile: none of them has this group yet.
  MERON_TRY(join_devices(*made));
  return made->channel.get();
}

Result<Context::Group*> Context::create_group(Held& held, std::span<const int> ranks) {
  MERON_TRY(check_open());
  MERON_TRY(await_room(held, world()));
  MERON_TRY(check_window_settled());
  MERON_ASSIGN(Members members, Members::of(ranks, transport_->world_size(), transport_->rank()));
  if (groups_.size() >= kMaxGroups) {
    return Error(MERON_E_UNSUPPORTED, fmt::format("there are {} groups already", kMaxGroups),
                 "make groups once and keep them");
  }
  uint64_t detail = 0;
  std::string subject;
  for (const int rank : ranks) {
    detail = hash_combine(detail, static_cast<uint64_t>(rank));
    subject += fmt::format("{}{}", subject.empty() ? "" : ",", rank);
  }
  MERON_TRY(post(world(), {CallKind::create_group, subject, 0, detail}));
  // Ranks outside make it too: the window's offsets must be the same everywhere.
  auto made = catch_no_memory([&] { return make_group(std::move(members)); });
  if (!made.ok()) {
    // The peers have the group, and the next one's channels and offsets would differ from theirs.
    Error error =
        std::move(made).error().during(std::string(kMakingAGroup)).blaming(transport_->rank());
    if (world().size() > 1) return world().fail(error);
    return error;
  }
  return *made == nullptr ? nullptr : &groups_.back();
}

Result<std::shared_ptr<Param>> Context::register_param(Held& held, TensorDesc desc,
                                                       Channel& channel) {
  MERON_TRY(check_open());
  MERON_TRY(await_room(held, channel));
  MERON_TRY(check_name(desc.name));
  const auto elements = element_count(desc.shape);
  if (!elements.ok()) return Error(elements.error()).on(desc.name);
  const uint64_t count = *elements;
  if (names_.params.count(desc.name) != 0) {
    return Error(MERON_E_DUPLICATE, fmt::format("there is a param '{}' already", desc.name),
                 "give each param a name of its own")
        .on(desc.name);
  }
  MERON_ASSIGN(const Axes* const axes, axes_of(channel));
  const std::string subject = describe(desc);
  auto param = std::make_shared<Param>();
  param->desc = std::move(desc);
  param->count = count;
  param->axes = axes;
  const auto [name, added] = names_.params.emplace(param->desc.name, param.get());
  const auto posted = post(channel, {CallKind::register_param, subject,
                                     count * size_of(param->desc.dtype), hash_text(subject)});
  if (posted.ok()) return param;
  names_.params.erase(name);
  return posted.error();
}

void Context::forget(const Param& param) {
  const auto named = names_.params.find(param.desc.name);
  if (param.unit == nullptr && named != names_.params.end() && named->second == &param) {
    names_.params.erase(named);
  }
}

Result<std::shared_ptr<Unit>> Context::create_unit(Held& held, std::string name,
                                                   std::vector<std::shared_ptr<Param>> params) {
  MERON_TRY(check_open());
  MERON_TRY(check_window_settled());
  MERON_TRY(check_name(name));
  if (params.empty()) {
    return Error(MERON_E_ARGUMENT, "a unit needs at least one param", "pass one or more").on(name);
  }
  MERON_TRY(await_room(held, *params.front()->axes->group));
  if (names_.units.count(name) != 0) {
    return Error(MERON_E_DUPLICATE, fmt::format("there is a unit '{}' already", name),
                 "give each unit a name of its own")
        .on(name);
  }
  uint64_t detail = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    const Param& param = *params[i];
    if (param.unit != nullptr) {
      return Error(MERON_E_DUPLICATE,
                   fmt::format("param '{}' is in unit '{}' already", param.desc.name,
                               param.unit->name()),
                   "put each param into one unit")
          .on(param.desc.name);
    }
    if (std::find(params.begin(), params.begin() + static_cast<ptrdiff_t>(i), params[i]) !=
        params.begin() + static_cast<ptrdiff_t>(i)) {
      return Error(MERON_E_DUPLICATE, fmt::format("param '{}' is given twice", param.desc.name),
                   "put each param into one unit, once")
          .on(param.desc.name);
    }
    // Another thread may have released it since its handle was looked up.
    const auto named = names_.params.find(param.desc.name);
    if (named == names_.params.end() || named->second != &param) {
      return Error(MERON_E_STALE, fmt::format("param '{}' was released", param.desc.name),
                   "release a param after its unit is made")
          .on(param.desc.name);
    }
    if (param.axes != params.front()->axes) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("params '{}' and '{}' belong to different groups",
                               params.front()->desc.name, param.desc.name),
                   "make a unit of params of one group")
          .on(param.desc.name);
    }
    detail = hash_combine(detail, hash_text(describe(param.desc)));
    bytes += param.count * size_of(param.desc.dtype);
  }
  const Axes& axes = *params.front()->axes;
  Channel& channel = *axes.group;
  const auto [place, added] = names_.units.insert(name);
  if (units_.size() == units_.capacity()) units_.reserve(2 * units_.size() + 8);
  if (auto posted = post(channel, {CallKind::create_unit, name, bytes, detail}); !posted.ok()) {
    names_.units.erase(place);
    return std::move(posted).error();
  }
  auto created =
      catch_no_memory([&] { return Unit::create(*rank_, axes, name, std::move(params)); });
  if (created.ok()) {
    Status attached = catch_no_memory([&] { return Gradient::attach(**created); });
    if (!attached.ok()) {
      (*created)->undo();
      created = std::move(attached).error();
    }
  }
  if (!created.ok()) {
    // The peers continue with a unit that this rank cannot hold: reports that before they wait for
    // it.
    if (channel.size() > 1) return channel.fail(std::move(created).error().on(name));
    names_.units.erase(name);
    return std::move(created).error().on(name);
  }
  control_bytes_ += sizeof(UnitSlot) * static_cast<uint64_t>(channel.size());
  units_.push_back(*created);
  return *created;
}

Status Context::check_units(std::span<const std::shared_ptr<Unit>> units) const {
  MERON_TRY(check_open());
  if (units.empty()) {
    return Error(MERON_E_ARGUMENT, "no unit was given", "pass one or more");
  }
  for (size_t i = 0; i < units.size(); ++i) {
    if (&units[i]->channel() != &units.front()->channel()) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("units '{}' and '{}' belong to different groups",
                               units.front()->name(), units[i]->name()),
                   "make one call per group");
    }
    for (size_t j = 0; j < i; ++j) {
      if (units[i] != units[j]) continue;
      return Error(MERON_E_DUPLICATE, fmt::format("unit '{}' is given twice", units[i]->name()),
                   "give each unit once")
          .on(units[i]->name());
    }
  }
  // Before any look at states: a broken group answers alike on every rank.
  return units.front()->channel().usable();
}

Result<uint64_t> Context::post_call(CallKind kind, std::span<const std::shared_ptr<Unit>> units,
                                    uint64_t detail, Channel* channel, const std::string& place) {
  // A schedule is made of units whatever their values are. A step may be under way, which publishes
  // on one rank before the other.
  const bool versioned = kind != CallKind::create_schedule;
  uint64_t bytes = 0;
  for (const auto& unit : units) {
    if (unit->destroying) return destroyed_error(*unit);
    bytes += unit->bytes();
    detail = hash_combine(detail, unit->name_hash());
    if (versioned) detail = hash_combine(detail, unit->version());
  }
  std::string placed;
  if (!place.empty()) placed = units.front()->name() + place;
  const Call call{kind, place.empty() ? units.front()->name() : placed, bytes, detail};
  return post(channel != nullptr ? *channel : units.front()->channel(), call);
}

Result<std::shared_ptr<GatherOperation>> Context::gather(Held& held,
                                                         std::vector<std::shared_ptr<Unit>> units,
                                                         GatherMode mode,
                                                         std::vector<GatherTarget> targets,
                                                         ViewTier tier) {
  MERON_TRY(check_units(units));
  Channel& channel = GatherOperation::channel_for(units);
  MERON_TRY(await_room(held, channel));
  for (const auto& unit : units) {
    if (unit->state() == ValueState::updating || unit->stepping) {
      return Error(MERON_E_STATE, fmt::format("unit '{}' is being updated", unit->name()),
                   "publish the update, or wait for the step, before it is gathered")
          .on(unit->name());
    }
  }
  MERON_ASSIGN(auto gather,
               GatherOperation::prepare(std::move(units), mode, std::move(targets), channel, tier));
  // A device gather is collective, so all ranks want the values on the device, or none does.
  uint64_t detail = gather->by_devices() ? 1 : 0;
  const std::optional<uint64_t> byte = gather->place_in_window(&detail);
  pending_.make_room();
  MERON_ASSIGN(const uint64_t sequence,
               post_call(CallKind::gather, gather->units(), detail, &channel,
                         byte ? fmt::format(" (window byte {})", *byte) : std::string()));
  return or_break(channel, "gather", [&]() -> Result<std::shared_ptr<GatherOperation>> {
    MERON_TRY(gather->begin(sequence, deadline_of(channel)));
    submit(held, gather);
    return gather;
  });
}

Result<std::shared_ptr<UpdateOperation>> Context::update(Held& held,
                                                         std::vector<std::shared_ptr<Unit>> units) {
  MERON_TRY(check_units(units));
  MERON_TRY(await_room(held, units.front()->channel()));
  for (const auto& unit : units) MERON_TRY(unit->check_updatable());
  Channel& channel = units.front()->channel();
  auto update = UpdateOperation::prepare(std::move(units), rank_->deadline());
  pending_.make_room();
  MERON_ASSIGN(const uint64_t sequence, post_call(CallKind::update, update->units(), 0));
  return or_break(channel, "update", [&]() -> Result<std::shared_ptr<UpdateOperation>> {
    MERON_TRY(update->begin(sequence));
    submit(held, update);
    return update;
  });
}

Result<std::shared_ptr<UnitSchedule>> Context::create_schedule(
    Held& held, std::vector<std::shared_ptr<Unit>> units, const ScheduleOptions& options,
    const ViewMemory& memory) {
  MERON_TRY(check_units(units));
  MERON_TRY(await_room(held, units.front()->channel()));
  uint64_t detail = 0;
  for (const uint64_t value :
       {options.prefetch_elements, options.max_live_elements, options.max_reuse_elements,
        options.persist_elements, options.persist_total_elements}) {
    detail = hash_combine(detail, value);
  }
  MERON_TRY(post_call(CallKind::create_schedule, units, detail));
  return std::make_shared<UnitSchedule>(*this, std::move(units), options, memory);
}

Result<std::shared_ptr<Operation>> Context::barrier(Held& held, Channel& channel) {
  MERON_TRY(check_open());
  MERON_TRY(await_room(held, channel));
  std::shared_ptr<Operation> barrier =
      std::make_shared<BarrierOperation>(channel, rank_->deadline());
  pending_.make_room();
  MERON_ASSIGN(const uint64_t sequence, post(channel, {CallKind::barrier, "", 0, 0}));
  barrier->set_sequence(sequence);
  submit(held, barrier);
  return barrier;
}

Result<std::shared_ptr<Operation>> Context::broadcast(Held& held, Channel& channel, std::byte* data,
                                                      uint64_t bytes, int root) {
  MERON_TRY(check_open());
  if (root < 0 || root >= channel.size()) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("root {} is not a rank of a group of {}", root, channel.size()),
                 fmt::format("give a root from 0 to {}", channel.size() - 1));
  }
  MERON_TRY(await_room(held, channel));
  std::shared_ptr<Operation> broadcast =
      std::make_shared<BroadcastOperation>(channel, rank_->deadline(), data, bytes, root);
  pending_.make_room();
  MERON_ASSIGN(const uint64_t sequence,
               post(channel, {CallKind::broadcast, fmt::format("from rank {}", root), bytes,
                              static_cast<uint64_t>(root)}));
  broadcast->set_sequence(sequence);
  submit(held, broadcast);
  return broadcast;
}

Result<std::shared_ptr<Operation>> Context::all_reduce(Held& held, Channel& channel,
                                                       std::byte* data, uint64_t count,
                                                       NumberType type, ReduceOp op) {
  MERON_TRY(check_open());
  MERON_TRY(await_room(held, channel));
  std::shared_ptr<Operation> all_reduce =
      std::make_shared<AllReduceOperation>(channel, rank_->deadline(), data, count, type, op);
  pending_.make_room();
  MERON_ASSIGN(
      const uint64_t sequence,
      post(channel, {CallKind::all_reduce, fmt::format("{} {}", name_of(type), name_of(op)),
                     count * size_of(type), 0}));
  all_reduce->set_sequence(sequence);
  submit(held, all_reduce);
  return all_reduce;
}

}  // namespace meron
