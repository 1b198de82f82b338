// SPDX-License-Identifier: Apache-2.0
// How the context begins what concerns a unit's gradient: micro-batches, the end of an
// accumulation, and what the trainer sees of it.
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "base/hash.h"
#include "engine/context.h"
#include "gradient/finish.h"
#include "gradient/local.h"
#include "gradient/on_host.h"
#include "gradient/open_bucket.h"
#include "gradient/reduce.h"

namespace meron {
namespace {

uint64_t detail_of(const ReduceOptions& options) {
  return hash_combine((options.mean ? 2u : 0u) + (options.boundary ? 1u : 0u),
                      mix(std::bit_cast<uint64_t>(options.divisor)));
}

Error in_use_error(const Unit& unit) {
  return Error(MERON_E_STATE,
               fmt::format("the gradient of unit '{}' is in use by a step", unit.name()),
               "wait for the step")
      .on(unit.name());
}

Error clipped_error(const Unit& unit) {
  return Error(MERON_E_STATE,
               fmt::format("the gradient of unit '{}' is being clipped", unit.name()),
               "wait until all ranks have called for it")
      .on(unit.name());
}

}  // namespace

// Takes the turn, because the lock is released while the host allocates: no other thread closes the
// context, destroys the unit or allocates the same gradients in the meantime.
Status Context::provide_gradients(const std::shared_ptr<Unit>& unit) {
  GradientOnHost* const memory = unit->gradient().on_host();
  if (memory == nullptr) return Ok{};
  {
    auto held = lock();
    MERON_TRY(check_open());
    if (memory->provided()) return Ok{};
  }
  MERON_ASSIGN([[maybe_unused]] const Turn turn, this->turn());
  auto held = lock();
  MERON_TRY(check_open());
  MERON_TRY(unit->channel().usable());
  if (unit->destroying) return destroyed_error(*unit);
  return memory->provide();
}

Status Context::open_bucket(const std::shared_ptr<Unit>& unit) {
  MERON_TRY(provide_gradients(unit));
  std::shared_ptr<Operation> opening;
  {
    auto held = lock();
    MERON_TRY(check_open());
    if (!unit->trainable()) {
      return Error(MERON_E_STATE, fmt::format("all params of unit '{}' are frozen", unit->name()),
                   "register params without `frozen` to train them")
          .on(unit->name());
    }
    if (unit->gradient().state() == GradientState::filling) return Ok{};
    if (unit->destroying) return destroyed_error(*unit);
    MERON_TRY(unit->channel().usable());
    opening = std::make_shared<OpenBucketOperation>(unit, rank_->deadline());
    submit(held, opening);
  }
  const auto opened = wait(opening, -1);
  if (opened.ok()) return Ok{};
  // The caller has cancelled (should_stop): the operation must not take a bucket later.
  auto held = lock();
  opening->finish(opened.error());
  return opened.error();
}

// Its state is as before while another thread waits for the bucket, or for memory of it.
Status Context::check_no_gradient_begins(const Unit& unit) const {
  for (const auto& operation : pending_.all()) {
    const auto* opening = dynamic_cast<const OpenBucketOperation*>(operation.get());
    if (opening == nullptr || opening->ended() || &opening->unit() != &unit) continue;
    return Error(MERON_E_STATE,
                 fmt::format("another thread begins a gradient of unit '{}'", unit.name()),
                 "begin its reduction first")
        .on(unit.name());
  }
  return Ok{};
}

Result<std::shared_ptr<Operation>> Context::reduce(const std::shared_ptr<Unit>& unit,
                                                   std::span<const GivenGradient> gradients,
                                                   void* stream, const ReduceOptions& options) {
  MERON_TRY(open_bucket(unit));
  MERON_ASSIGN([[maybe_unused]] const Turn turn, this->turn());
  auto held = lock();
  // Before anything is added: the call may be made again.
  MERON_TRY(await_reduction(held, *unit, options));
  MERON_TRY(check_filling(*unit));
  GradientMemory& memory = unit->gradient().memory();
  MERON_TRY(memory.prepare(Pass::of(*unit, options, false)));
  return or_break(unit->channel(), "reduce", [&]() -> Result<std::shared_ptr<Operation>> {
    MERON_TRY(memory.add(gradients, stream));
    return begin_reduction(held, unit, options, CallKind::reduce, false);
  });
}

Status Context::await_reduction(Held& held, const Unit& unit, const ReduceOptions& options) {
  const Gradient& gradient = unit.gradient();
  const bool on_device = gradient.memory().on_device();
  if (stays_local(unit, options) && !on_device) return Ok{};
  MERON_TRY(await_room(held, ReduceOperation::channel_for(unit, options)));
  // Work that is queued on a device cannot be postponed.
  if (on_device && gradient.keeps_feedback()) MERON_TRY(wait_feedback_copied(held, unit));
  return Ok{};
}

Result<std::shared_ptr<Operation>> Context::begin_reduction(Held& held,
                                                            const std::shared_ptr<Unit>& unit,
                                                            const ReduceOptions& options,
                                                            CallKind kind, bool ends) {
  MERON_TRY(check_open());
  Gradient& gradient = unit->gradient();
  GradientMemory& memory = gradient.memory();
  if (stays_local(*unit, options) && !memory.on_device()) {
    MERON_TRY(unit->channel().usable());
    MERON_TRY(memory.complete());
    if (!gradient.on_host()->downloads()) {
      MERON_TRY(gradient.enter(GradientState::partial));
      return std::shared_ptr<Operation>();
    }
    MERON_ASSIGN(std::shared_ptr<Operation> local, LocalOperation::begin(unit, rank_->deadline()));
    submit(held, local);
    return local;
  }
  Channel& channel = ReduceOperation::channel_for(*unit, options);
  const Pass pass = Pass::of(*unit, options, ends);
  MERON_TRY(memory.prepare(pass));
  gradient.announce_type();
  MERON_ASSIGN(const uint64_t sequence,
               post_call(kind, std::span(&unit, 1), detail_of(options), &channel));
  MERON_ASSIGN(auto reduce, ReduceOperation::begin(unit, pass, sequence, deadline_of(channel)));
  submit(held, reduce);
  if (memory.on_device() && reduce->error()) return *reduce->error();  // of the launch
  return std::shared_ptr<Operation>(std::move(reduce));
}

Status Context::check_finish(const Unit& unit) const {
  MERON_TRY(check_open());
  MERON_TRY(unit.channel().usable());
  return FinishOperation::check(unit);
}

Result<std::shared_ptr<Operation>> Context::finish_reduction(const std::shared_ptr<Unit>& unit,
                                                             const ReduceOptions& options) {
  // Whole gradients move now, and sums that replicas have not exchanged yet.
  const bool whole = !is_sharded(rank_->plan.gradient);
  const bool apart = whole || (between_replicas(*unit, options) && !sums_apart(*unit));
  {
    auto held = lock();
    MERON_TRY(check_finish(*unit));
  }
  if (!apart) {
    MERON_TRY(provide_gradients(unit));
    return finish_sums(unit, options);
  }
  // An accumulation may end without a gradient: its sum is zero.
  MERON_TRY(open_bucket(unit));
  auto ending = [&]() -> Result<std::shared_ptr<Operation>> {
    MERON_ASSIGN([[maybe_unused]] const Turn turn, this->turn());
    auto held = lock();
    MERON_TRY(await_reduction(held, *unit, options));
    MERON_TRY(check_filling(*unit));
    return or_break(unit->channel(), "reduce_finish",
                    [&] { return begin_reduction(held, unit, options, CallKind::finish, !whole); });
  }();
  if (ending.ok()) return ending;
  // Nothing was added to the bucket: the call may be made again.
  auto held = lock();
  MERON_TRY(unit->gradient().close_bucket());
  return ending;
}

Result<std::shared_ptr<Operation>> Context::finish_sums(const std::shared_ptr<Unit>& unit,
                                                        const ReduceOptions& options) {
  MERON_ASSIGN([[maybe_unused]] const Turn turn, this->turn());
  auto held = lock();
  MERON_TRY(await_room(held, unit->channel()));
  MERON_TRY(check_finish(*unit));
  pending_.make_room();
  MERON_ASSIGN(const uint64_t sequence,
               post_call(CallKind::finish, std::span(&unit, 1), detail_of(options)));
  return or_break(unit->channel(), "reduce_finish", [&]() -> Result<std::shared_ptr<Operation>> {
    std::shared_ptr<Operation> finish =
        std::make_shared<FinishOperation>(unit, options, deadline_of(unit->channel()));
    finish->set_sequence(sequence);
    unit->gradient().finish = finish;
    submit(held, finish);
    return finish;
  });
}

Result<bool> Context::wait_reductions(std::span<const std::shared_ptr<Unit>> units,
                                      int64_t timeout_ns) {
  const Deadline user = timeout_ns < 0 ? Deadline::never() : Deadline::after(timeout_ns);
  // The unit's operation under way. If one has failed and was destroyed, the group has its error.
  const auto under_way = [](const Unit& unit) -> Result<std::shared_ptr<Operation>> {
    for (const auto& begun : {unit.gradient().finish, unit.gradient().reduction}) {
      auto operation = begun.lock();
      if (!operation) continue;
      if (operation->error()) {
        operation->set_delivered();
        return *operation->error();
      }
      if (!operation->ended()) return operation;
    }
    MERON_TRY(unit.channel().status());
    return std::shared_ptr<Operation>();
  };
  auto unit = units.begin();
  while (true) {
    std::shared_ptr<Operation> operation;
    {
      auto held = lock();
      MERON_TRY(check_open());
      for (; unit != units.end(); ++unit) {
        auto found = under_way(**unit);
        if (!found.ok()) {
          record_failure(found.error());
          return std::move(found).error();
        }
        operation = std::move(*found);
        if (operation) break;
      }
    }
    if (!operation) return true;
    const int64_t left = timeout_ns <= 0 ? timeout_ns : user.remaining();
    const Result<bool> ended = wait(operation, left);
    note_delivered(*operation, ended);
    if (!ended.ok() || !*ended) return ended;
  }
}

Result<std::byte*> Context::gradient_place(const std::shared_ptr<Unit>& unit, const Param& param,
                                           bool overwrite) {
  GradientOnHost* const memory = unit->gradient().on_host();
  if (memory == nullptr) {
    return Error(MERON_E_UNSUPPORTED,
                 fmt::format("the gradient of '{}' is summed on the device", param.desc.name),
                 "hand it over when you reduce, in memory of the device or of the host")
        .on(param.desc.name);
  }
  MERON_TRY(open_bucket(unit));
  MERON_ASSIGN([[maybe_unused]] const Turn turn, this->turn());
  auto held = lock();
  MERON_TRY(check_filling(*unit));
  MERON_TRY(memory->widen());
  return memory->place_of(index_in_unit(*unit, param), overwrite);
}

Result<Context::ReducedGradient> Context::reduced_gradient(Held& /*held*/, const Param& param) {
  Unit& unit = *param.unit;
  Gradient& gradient = unit.gradient();
  if (gradient.state() != GradientState::ready) {
    return Error(MERON_E_STATE,
                 fmt::format("the gradient of unit '{}' is {}, not reduced", unit.name(),
                             kGradientStateNames[static_cast<size_t>(gradient.state())]),
                 "reduce the unit at an accumulation boundary, and wait for it, first")
        .on(unit.name());
  }
  if (gradient.memory().on_device() && unit.stepping) return in_use_error(unit);
  if (gradient.users.clips > 0) return clipped_error(unit);
  MERON_ASSIGN(float* const sum, gradient.memory().show(param.place.flat));
  // The caller may write: a step takes the squares of what it finds.
  if (!unit.stepping) gradient.squares.reset();
  const Flat& flat = unit.flat_of(param);
  const Range part = part_of(param, flat.owned);
  const uint64_t begin = part.size() == 0 ? 0 : param.place.offset + part.begin - flat.summed.begin;
  return ReducedGradient{sum + begin, part};
}

Status Context::end_gradient(Held& held, Unit& unit, bool used) {
  Gradient& gradient = unit.gradient();
  const auto drops = [&] { return !used && gradient.exchanged() && gradient.keeps_feedback(); };
  if (drops()) MERON_TRY(wait_feedback_copied(held, unit));
  if (gradient.state() != GradientState::ready && gradient.state() != GradientState::partial) {
    return Error(MERON_E_STATE, fmt::format("unit '{}' has no reduced gradient", unit.name()),
                 "reduce the unit at an accumulation boundary, and wait for it, first")
        .on(unit.name());
  }
  if (gradient.finishing) {
    return Error(MERON_E_STATE,
                 fmt::format("the accumulation of unit '{}' is being ended", unit.name()),
                 "wait for the future that ends it")
        .on(unit.name());
  }
  if (unit.stepping) return in_use_error(unit);
  MERON_TRY(gradient.check_not_lent(used ? "declare it used" : "discard it"));
  if (gradient.users.clips > 0) return clipped_error(unit);
  if (used && gradient.state() == GradientState::partial) {
    return Error(MERON_E_STATE,
                 fmt::format("the accumulation of unit '{}' has not ended", unit.name()),
                 "end it before you use its gradient, or discard it")
        .on(unit.name());
  }
  gradient.started = false;
  if (drops()) MERON_TRY(gradient.drop_feedback());
  return gradient.enter(GradientState::empty);
}

Status Context::scale_feedback(Held& held, Unit& unit, double factor) {
  if (!(factor >= 0.0) || !std::isfinite(static_cast<float>(factor))) {
    return Error(MERON_E_ARGUMENT, fmt::format("factor is {}", factor),
                 "give the new loss scale divided by the old one; 0 drops the feedback")
        .on(unit.name());
  }
  MERON_TRY(check_open());
  if (!unit.trainable() || !unit.gradient().keeps_feedback()) return Ok{};
  MERON_TRY(wait_feedback_copied(held, unit));
  if (unit.gradient().state() == GradientState::reducing) {
    return Error(MERON_E_STATE,
                 fmt::format("the gradient of unit '{}' is being reduced", unit.name()),
                 "wait for the reduction first")
        .on(unit.name());
  }
  if (factor == 0.0) return unit.gradient().drop_feedback();
  return unit.gradient().scale_feedback(static_cast<float>(factor));
}

}  // namespace meron
