// SPDX-License-Identifier: Apache-2.0
// How the context saves and loads checkpoints: what impl/saving needs of it.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/hash.h"
#include "base/no_memory.h"
#include "engine/agreement.h"
#include "engine/context.h"
#include "engine/event_thread.h"
#include "engine/save_thread.h"
#include "gradient/gradient.h"
#include "plan/plan_json.h"

namespace meron {

// Between the ranks of the world, by the calling thread, which has the turn.
class EngineExchange final : public Exchange {
 public:
  // `patience_ns`: of an agreement, for the slowest rank; negative: without bound.
  EngineExchange(Context& context, int64_t patience_ns)
      : context_(context), patience_ns_(patience_ns) {}
  int rank() const override { return context_.transport_->rank(); }
  int size() const override { return context_.transport_->world_size(); }
  Deadline deadline() const {
    return patience_ns_ < 0 ? Deadline::never() : Deadline::after(patience_ns_);
  }

  Status broadcast(std::byte* data, uint64_t bytes, int root) override {
    return agree_by_broadcast(context_.world(), deadline(), data, bytes, root,
                              [&](uint64_t posted, const std::shared_ptr<Operation>& operation) {
                                return run(posted, operation);
                              });
  }
  Status gather(const std::byte* own, uint64_t bytes, std::byte* all) override {
    return agree_by_gather(context_.world(), deadline(), own, bytes, all,
                           [&](uint64_t posted, const std::shared_ptr<Operation>& operation) {
                             return run(posted, operation);
                           });
  }
  Status scatter(const std::byte* data, uint64_t bytes, const std::vector<Range>& wanted,
                 std::byte* out, int root) override {
    const uint64_t given = rank() == root ? bytes : 0;
    const uint64_t own = wanted[static_cast<size_t>(rank())].size();
    auto memory = std::make_shared<std::vector<std::byte>>(given + own);
    std::byte* const place = memory->data();
    std::copy_n(data, given, place);
    MERON_TRY(run(bytes, std::make_shared<Agreement<ScatterOperation>>(context_.world(), deadline(),
                                                                       memory, place, bytes, wanted,
                                                                       place + given, root)));
    std::copy_n(place + given, own, out);
    return Ok{};
  }
  Status read(const UnitState& unit, const State& state, const Range& range,
              std::byte* out) override {
    auto held = context_.lock();
    return unit.read(state, range, out);
  }
  Status write(const UnitState& unit, const State& state, const Range& range,
               const std::byte* data) override {
    auto held = context_.lock();
    return unit.write(state, range, data);
  }

  // Waits for an operation that peers count on. If the wait is cancelled, the group breaks.
  Status wait(const std::shared_ptr<Operation>& operation) {
    const Result<bool> ended = context_.wait(operation, -1);
    if (ended.ok()) return Ok{};
    if (ended.error().code() != MERON_E_CANCELLED) return ended.error();
    auto held = context_.lock();
    return operation->channel().fail(
        Error(MERON_E_ABORTED, fmt::format("rank {} gave up a checkpoint half-way", rank()),
              "let checkpoints end: the ranks cannot go on without each other"));
  }

 private:
  Status run(uint64_t bytes, const std::shared_ptr<Operation>& operation) {
    {
      auto held = context_.lock();
      Channel& world = context_.world();
      MERON_TRY(context_.check_open());
      MERON_TRY(world.status());
      MERON_TRY(context_.await_room(held, world));
      MERON_ASSIGN(const uint64_t sequence,
                   context_.post(world, {CallKind::agree, "checkpoint", bytes, 0}));
      operation->set_sequence(sequence);
      context_.submit(held, operation);
    }
    return wait(operation);
  }

  Context& context_;
  const int64_t patience_ns_;
};

namespace {

Error left_out_error(const Unit& unit) {
  return Error(MERON_E_ARGUMENT,
               fmt::format("an optimizer has unit '{}', which is not among the given units",
                           unit.name()),
               "add the unit, or leave the optimizer out")
      .on(unit.name());
}

}  // namespace

Result<std::vector<UnitState>> Context::saved_states(Held& /*held*/,
                                                     const SavedObjects& what) const {
  const auto& optimizers = what.optimizers;
  std::vector<UnitState> states;
  for (const auto& optimizer : optimizers) {
    MERON_TRY(optimizer->check_idle());
    for (const auto& unit : optimizer->units()) {
      if (!what.concerns(unit)) return left_out_error(*unit);
    }
  }
  for (const auto& unit : units_) {
    if (!what.concerns(unit)) continue;
    if (unit->destroying) return destroyed_error(*unit);
    if (&unit->channel() != groups_.front().channel.get()) {
      return Error(MERON_E_UNSUPPORTED,
                   fmt::format("unit '{}' belongs to a group of some ranks", unit->name()),
                   "checkpoints hold units of the world: make it in the world's group")
          .on(unit->name());
    }
    MERON_TRY(unit->check_updatable());
    const auto of_unit =
        std::find_if(optimizers.begin(), optimizers.end(), [&](const auto& optimizer) {
          const auto& units = optimizer->units();
          return std::find(units.begin(), units.end(), unit) != units.end();
        });
    states.emplace_back(*unit, of_unit == optimizers.end() ? nullptr : of_unit->get());
  }
  return states;
}

namespace {

// A load replaces the values that a gradient belongs to. A save leaves gradients alone.
Status check_no_gradients(const std::vector<UnitState>& states) {
  for (const UnitState& each : states) {
    const Unit& unit = each.unit();
    const GradientState state = unit.gradient().state();
    if (state == GradientState::empty) continue;
    return Error(MERON_E_STATE,
                 fmt::format("the gradient of unit '{}' is {}", unit.name(),
                             kGradientStateNames[static_cast<size_t>(state)]),
                 "load after the step, or discard the gradient first")
        .on(unit.name());
  }
  return Ok{};
}

}  // namespace

std::vector<int> Context::nodes_by_rank() const {
  std::vector<int> nodes;
  for (int rank = 0; rank < transport_->world_size(); ++rank) {
    nodes.push_back(transport_->node(rank));
  }
  return nodes;
}

namespace {

// A folder of a node may have another name than that of the next.
uint64_t hash_of_place(const std::string& root, bool per_node) {
  return per_node ? hash_text("a folder per node") : hash_text(root);
}

// Two optimizers with equal options may be given in another order on another rank.
uint64_t hash_of_units(const Optimizer& optimizer) {
  uint64_t hash = 0;
  for (const auto& unit : optimizer.units()) hash = hash_combine(hash, unit->name_hash());
  return hash;
}

// As files name a rule, in lower case: "adamw".
std::string rule_of(std::string_view name) {
  std::string rule(name);
  for (char& c : rule) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return rule;
}

checkpoint::Optimizer describe(const Optimizer& optimizer, const SavedNames& names) {
  checkpoint::Optimizer out;
  out.rule = rule_of(name_of(optimizer.options().rule));
  out.steps = optimizer.steps();
  for (size_t g = 0; g < optimizer.groups(); ++g) {
    const GroupOptions& group = optimizer.group(g);
    out.groups.push_back({group.learning_rate, group.beta1, group.beta2, group.epsilon,
                          group.weight_decay, group.lr_decay});
  }
  for (const auto& unit : optimizer.units()) {
    for (const auto& param : unit->params()) {
      if (!param->desc.trainable || names.left_out(*param)) continue;
      const uint64_t steps = optimizer.steps_of(*param);
      if (steps != out.steps) out.param_steps.emplace(names.of(*param), steps);
    }
  }
  return out;
}

// Checks that a checkpoint's optimizers match these.
Status check_optimizers(const checkpoint::Manifest& manifest,
                        const std::vector<std::shared_ptr<Optimizer>>& optimizers) {
  const auto refused = [](std::string what) {
    return Error(MERON_E_ARGUMENT, std::move(what),
                 "make the optimizers as they were when it was saved, or load values only");
  };
  if (manifest.optimizers.size() != optimizers.size()) {
    return refused(fmt::format("the checkpoint has {} optimizers, {} were given",
                               manifest.optimizers.size(), optimizers.size()));
  }
  for (size_t i = 0; i < optimizers.size(); ++i) {
    const checkpoint::Optimizer& saved = manifest.optimizers[i];
    if (rule_of(saved.rule) != rule_of(name_of(optimizers[i]->options().rule))) {
      return refused(fmt::format("the checkpoint's optimizer {} is {}, this one is {}", i,
                                 saved.rule, name_of(optimizers[i]->options().rule)));
    }
    if (saved.groups.size() != optimizers[i]->groups()) {
      return refused(
          fmt::format("the checkpoint's optimizer {} has {} groups of params, this one "
                      "has {}",
                      i, saved.groups.size(), optimizers[i]->groups()));
    }
  }
  return Ok{};
}

// Params whose states the checkpoint lacks keep their count, as they keep their states.
void restore(const checkpoint::Manifest& manifest, const checkpoint::Optimizer& saved,
             const SourceNames& names, Optimizer& optimizer) {
  std::set<std::string_view> present;
  for (const checkpoint::Tensor& tensor : manifest.tensors) present.insert(tensor.name);
  std::map<const Param*, uint64_t> counts;
  for (const auto& unit : optimizer.units()) {
    for (const auto& param : unit->params()) {
      if (!param->desc.trainable) continue;
      const auto mapped = names.mapping.find(param->desc.name);
      const std::string& name =
          mapped == names.mapping.end() ? param->desc.name : mapped->second.front();
      const auto own = saved.param_steps.find(name);
      if (present.count(name) == 0) {
        counts[param.get()] = optimizer.steps_of(*param);
      } else if (own != saved.param_steps.end()) {
        counts[param.get()] = own->second;
      }
    }
  }
  optimizer.set_steps(saved.steps);
  optimizer.set_param_steps(counts);
  for (size_t g = 0; g < saved.groups.size(); ++g) {
    const checkpoint::Group& group = saved.groups[g];
    optimizer.set_group(g, {.learning_rate = group.learning_rate,
                            .beta1 = group.beta1,
                            .beta2 = group.beta2,
                            .epsilon = group.epsilon,
                            .weight_decay = group.weight_decay,
                            .lr_decay = group.lr_decay});
  }
}

}  // namespace

// The error of a save that has failed, if some rank has not waited for it.
Status Context::tell_failure(SaveOperation& save) {
  EngineExchange exchange(*this, 2 * rank_->timeout_ns);
  std::vector<std::byte> told(static_cast<size_t>(exchange.size()));
  std::byte own{0};
  {
    auto held = lock();
    if (save.delivered()) own = std::byte{1};
    save.set_delivered();
  }
  MERON_TRY(exchange.gather(&own, 1, told.data()));
  if (std::count(told.begin(), told.end(), std::byte{0}) == 0) return Ok{};
  return *save.error();
}

Result<std::shared_ptr<Operation>> Context::begin_save(const SavedObjects& what,
                                                       SaveOptions options) {
  const auto& optimizers = what.optimizers;
  const auto names = SavedNames::parse(options.mapping);
  MERON_ASSIGN([[maybe_unused]] const Turn turn, turn_between_saves());
  std::vector<UnitState> states;
  std::vector<std::shared_ptr<Unit>> units;
  std::shared_ptr<SaveOperation> before;
  {
    auto held = lock();
    MERON_TRY(check_open());
    MERON_TRY(world().usable());
    MERON_TRY(await_room(held, world()));
    MERON_TRY(check_window_settled());
    MERON_TRY(wait_feedback_settled(held, what));
    MERON_ASSIGN(states, saved_states(held, what));
    for (UnitState& state : states) {
      // The residual goes with the gradient, which is not saved.
      const Gradient& gradient = state.unit().gradient();
      const bool pending = gradient.state() != GradientState::empty;
      if (pending && gradient.exchanged()) state.leave_out_residual();
    }
    std::copy_if(units_.begin(), units_.end(), std::back_inserter(units),
                 [&](const auto& unit) { return what.concerns(unit); });
    options.what.some_units = units.size() < units_.size();
    uint64_t detail = hash_of_place(options.target.root, options.target.per_node);
    detail = hash_combine(detail, options.step);
    detail = hash_combine(detail, options.what.values_only ? 1 : 0);
    detail = hash_combine(detail, options.what.skip_frozen ? 1 : 0);
    detail = hash_combine(detail, SavedNames::hash_of(names, options.mapping));
    for (const UnitState& state : states) {
      detail = hash_combine(detail, state.unit().name_hash());
      detail = hash_combine(detail, state.unit().version());
    }
    for (const auto& optimizer : optimizers) {
      detail = hash_combine(detail, hash_of_units(*optimizer));
      detail = hash_combine(detail, optimizer->fingerprint());
      options.optimizers.push_back(describe(*optimizer, names.ok() ? *names : SavedNames()));
    }
    // Before the others count on this rank: the system may refuse the thread.
    if (!threads_.saves) {
      try {
        threads_.saves = std::make_unique<SaveThread>(*this);
      } catch (const std::system_error&) {
        return Error(MERON_E_NO_MEMORY, "the system gives no memory for the thread that saves",
                     "free memory, or raise the limit on threads (ulimit -u)");
      }
    }
    MERON_TRY(post(world(), {CallKind::save, options.target.name, 0, detail}));
    if (!names.ok()) return names.error();  // the same text on all ranks
    options.what.names = *names;
    const auto& last = threads_.saves->last();
    // All ranks know of a cancelled one, which was intended.
    if (last && last->error() && last->error()->code() != MERON_E_CANCELLED) before = last;
    options.plan = to_json(rank_->plan, -1);
    options.timeout_ns = rank_->timeout_ns;
    options.run = run_history_;
    if (options.target.per_node) options.target.nodes = nodes_by_rank();
    // The log is the trainer's, and not for the engine's threads.
    options.warn = [this](const std::string& text) {
      const Lock held(*this, Lock::Quietly{});
      rank_->notices.push_back(text);
    };
  }
  return in_step("checkpoint_save", [&]() -> Result<std::shared_ptr<Operation>> {
    // A failed save has failed on all ranks, but some may not have waited for it.
    if (before) MERON_TRY(tell_failure(*before));
    auto held = lock();
    MERON_TRY(check_open());
    if (!threads_.saves->has_channel()) {
      auto channel = make_save_channel();
      if (!channel.ok()) return world().fail(std::move(channel).error());
      threads_.saves->use(std::move(*channel));
    }
    auto save = std::make_shared<SaveOperation>(threads_.saves->channel(), std::move(options),
                                                optimizers, std::move(units), std::move(states));
    threads_.saves->begin(save);
    if (events_) events_->begun();
    return std::shared_ptr<Operation>(std::move(save));
  });
}

Result<LoadReport> Context::load_checkpoint(const SavedObjects& what, const LoadOptions& options) {
  const auto& optimizers = what.optimizers;
  auto names = SourceNames::parse(options.mapping, options.claimed);
  MERON_ASSIGN([[maybe_unused]] const Turn turn, turn_between_saves());
  std::vector<UnitState> states;
  {
    auto held = lock();
    MERON_TRY(check_open());
    MERON_TRY(world().usable());
    MERON_TRY(await_room(held, world()));
    MERON_ASSIGN(states, saved_states(held, what));
    MERON_TRY(check_no_gradients(states));
    for (const auto& unit : units_) {
      if (!names.ok() || what.concerns(unit)) continue;
      for (const auto& param : unit->params()) names->left_out.insert(param->desc.name);
    }
    uint64_t detail = hash_of_place(options.root, options.per_node);
    detail = hash_combine(detail, options.strict ? 1 : 0);
    detail = hash_combine(detail, options.values_only ? 1 : 0);
    detail = hash_combine(detail, options.rank0_only ? 1 : 0);
    detail = hash_combine(detail, names.ok() ? names->hash() : hash_text(options.mapping));
    for (const UnitState& state : states) detail = hash_combine(detail, state.unit().name_hash());
    for (const auto& optimizer : optimizers) {
      detail = hash_combine(detail, hash_of(optimizer->options()));
      detail = hash_combine(detail, hash_of_units(*optimizer));
      detail = hash_combine(detail, optimizer->groups());
    }
    MERON_TRY(post(world(), {CallKind::load, options.name, 0, detail}));
  }
  if (!names.ok()) return names.error();  // the same text on all ranks
  EngineExchange exchange(*this, 2 * rank_->timeout_ns);
  const UpdateUnit update_unit = [&](const UnitState& state,
                                     const std::function<Status()>& fill) -> Status {
    std::shared_ptr<UpdateOperation> operation;
    {
      auto held = lock();
      const auto unit = std::find_if(units_.begin(), units_.end(),
                                     [&](const auto& each) { return each.get() == &state.unit(); });
      MERON_ASSIGN(operation, update(held, {*unit}));
      // Another rank may still read the unit before.
      operation->begin_use(exchange.deadline());
    }
    MERON_TRY(exchange.wait(operation));
    const auto forget = [&] {
      auto held = lock();
      return state.unit().gradient().drop_feedback();  // of gradients of other values
    };
    const Status filled = catch_no_memory([&]() -> Status {
      if (!options.values_only) MERON_TRY(forget());
      return fill();
    });
    auto held = lock();
    // A partly written unit must not be published, but peers would publish theirs.
    if (!filled.ok()) return world().fail(Error(filled.error()).during("checkpoint_load"));
    return operation->publish();
  };
  const auto check = [&](const checkpoint::Manifest& manifest) -> Status {
    return options.values_only ? Status(Ok{}) : check_optimizers(manifest, optimizers);
  };
  LoadOptions given = options;
  given.timeout_ns = rank_->timeout_ns;
  if (given.per_node) given.nodes = nodes_by_rank();
  MERON_ASSIGN(LoadReport report, in_step("checkpoint_load", [&] {
                 return load(exchange, states, given, *names, update_unit, check);
               }));
  // Before the call returns: a program may do nothing more.
  const std::string skipped = checkpoint::words_of_skipped(report.checkpoint);
  if (!skipped.empty() && options_.log) options_.log(LogLevel::warning, "load: " + skipped);
  checkpoint::History from = report.checkpoint.history;
  from.id = report.checkpoint.manifest.id;
  from.step = report.checkpoint.manifest.step;
  auto held = lock();
  if (options.values_only || !names->left_out.empty()) {
    if (!report.checkpoint.foreign) run_history_->values = std::move(from);
  } else {
    *run_history_ = {.last = std::move(from), .loaded = true};
  }
  if (!options.values_only) {
    for (size_t i = 0; i < optimizers.size(); ++i) {
      const checkpoint::Manifest& manifest = report.checkpoint.manifest;
      restore(manifest, manifest.optimizers[i], *names, *optimizers[i]);
    }
  }
  return report;
}

namespace {

bool exports(const Unit& unit, const SavedNames& names) {
  const auto& params = unit.params();
  return std::any_of(params.begin(), params.end(),
                     [&](const auto& param) { return !names.left_out(*param); });
}

}  // namespace

Status Context::export_model(ExportOptions options) {
  auto names = SavedNames::parse(options.mapping);
  MERON_ASSIGN([[maybe_unused]] const Turn turn, turn_between_saves());
  std::vector<UnitState> states;
  {
    auto held = lock();
    MERON_TRY(check_open());
    MERON_TRY(world().usable());
    MERON_TRY(await_room(held, world()));
    uint64_t detail =
        hash_combine(hash_text(options.folder), SavedNames::hash_of(names, options.mapping));
    SavedObjects what;
    for (const auto& unit : units_) {
      if (!names.ok() || exports(*unit, *names)) {
        what.units.push_back(unit);
      } else {
        names->remove(*unit);
      }
    }
    if (!what.units.empty()) {
      MERON_ASSIGN(states, saved_states(held, what));
    }
    detail = hash_combine(detail, options.dtype ? static_cast<uint64_t>(*options.dtype) + 1 : 0);
    detail = hash_combine(detail, options.max_file_bytes);
    for (const UnitState& state : states) detail = hash_combine(detail, state.unit().name_hash());
    MERON_TRY(post(world(), {CallKind::export_model, "a model", 0, detail}));
    if (!names.ok()) return names.error();
    options.names = *names;
  }
  // No timeout: a rank may write for long.
  EngineExchange exchange(*this, -1);
  return in_step("checkpoint_export",
                 [&] { return meron::export_model(exchange, states, options); });
}

}  // namespace meron
