// SPDX-License-Identifier: Apache-2.0
// Values that mean nothing to an optimizer.
#include <limits>

#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr uint64_t kOwned = 37 * 13;  // elements of the first param, all of one rank

meron_optimizer made;
meron_unit unit;
meron_param param;
meron_view view;
uint32_t number;
uint64_t steps;
float memory[kOwned];

Misuse misuse(const char* name, meron_status expected,
              std::function<CallFailed(Objects&, Random&)> call) {
  return {name, {expected}, std::move(call)};
}

Misuse bad_optimizer(const char* what, std::function<void(meron_optimizer_options&)> spoil) {
  return {std::string("meron_optimizer_create: ") + what,
          {MERON_E_ARGUMENT},
          [spoil = std::move(spoil)](Objects& o, Random&) {
            meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
            spoil(options);
            // The unit is being updated; what the options say is looked at first.
            return FAILURE_OF(meron_optimizer_create, &made, &o.half_unit, 1, &options);
          }};
}

// Of both functions that take a group's numbers.
Misuse bad_group(const char* what, std::function<void(meron_optimizer_group&)> spoil) {
  return {std::string("meron_optimizer_add_group: ") + what,
          {MERON_E_ARGUMENT},
          [spoil = std::move(spoil)](Objects& o, Random& random) {
            meron_optimizer_group group = MERON_OPTIMIZER_GROUP_INIT;
            spoil(group);
            if (random.below(2) == 0) {
              return FAILURE_OF(meron_optimizer_set_group, o.a->optimizer, 0, &group);
            }
            return FAILURE_OF(meron_optimizer_add_group, &number, o.a->optimizer,
                              o.a->params.data(), 1, &group);
          }};
}

Misuse bad_members(const char* what, meron_status expected,
                   std::function<std::vector<meron_param>(Objects&)> members) {
  return {std::string("meron_optimizer_add_group: ") + what,
          {expected},
          [members = std::move(members)](Objects& o, Random&) {
            const meron_optimizer_group group = MERON_OPTIMIZER_GROUP_INIT;
            const std::vector<meron_param> params = members(o);
            return FAILURE_OF(meron_optimizer_add_group, &number, o.a->optimizer, params.data(),
                              params.size(), &group);
          }};
}

meron_optimizer_state bad_state(Random& random) {
  const std::vector<meron_optimizer_state> values = {-1, 3, 4, 255, INT32_MIN, INT32_MAX};
  return random.pick(values);
}

std::vector<Misuse> misuses_of_creation() {
  return {
      misuse("meron_optimizer_create: no units", MERON_E_ARGUMENT,
             [](Objects& o, Random&) {
               return FAILURE_OF(meron_optimizer_create, &made, &o.half_unit, 0, nullptr);
             }),
      // The first handle that is none ends the walk; a count is no reason to take memory.
      misuse("meron_optimizer_create: absurd count", MERON_E_HANDLE,
             [](Objects&, Random&) {
               return FAILURE_OF(meron_optimizer_create, &made, &unit, SIZE_MAX / 64, nullptr);
             }),
      misuse("meron_optimizer_create: unit twice", MERON_E_DUPLICATE,
             [](Objects& o, Random&) {
               const meron_unit twice[] = {o.half_unit, o.half_unit};
               return FAILURE_OF(meron_optimizer_create, &made, twice, 2, nullptr);
             }),
      misuse("meron_optimizer_create: unit of an optimizer", MERON_E_DUPLICATE,
             [](Objects& o, Random&) {
               return FAILURE_OF(meron_optimizer_create, &made, &o.a->units[0], 1, nullptr);
             }),
      misuse("meron_optimizer_create: nothing to train", MERON_E_ARGUMENT,
             [](Objects& o, Random&) {
               return FAILURE_OF(meron_optimizer_create, &made, &o.frozen_unit, 1, nullptr);
             }),
      bad_optimizer("unknown kind", [](meron_optimizer_options& o) { o.kind = 1000; }),
      bad_optimizer("negative kind", [](meron_optimizer_options& o) { o.kind = -1; }),
      bad_optimizer("learning rate", [](meron_optimizer_options& o) { o.learning_rate = -1; }),
      bad_optimizer("beta1", [](meron_optimizer_options& o) { o.beta1 = 1.0; }),
      bad_optimizer("beta2", [](meron_optimizer_options& o) { o.beta2 = -0.1; }),
      bad_optimizer("epsilon", [](meron_optimizer_options& o) { o.epsilon = 0.0; }),
      bad_optimizer("weight decay", [](meron_optimizer_options& o) { o.weight_decay = kNan; }),
      bad_optimizer("max norm", [](meron_optimizer_options& o) { o.max_norm = kInfinity; }),
      bad_optimizer("dampening of AdamW", [](meron_optimizer_options& o) { o.dampening = 0.5; }),
      bad_optimizer("nesterov of AdamW", [](meron_optimizer_options& o) { o.nesterov = 1; }),
      bad_optimizer("nesterov neither 0 nor 1",
                    [](meron_optimizer_options& o) {
                      o = meron_optimizer_options MERON_OPTIMIZER_SGD_INIT;
                      o.nesterov = 2;
                    }),
      bad_optimizer("nesterov with dampening",
                    [](meron_optimizer_options& o) {
                      o = meron_optimizer_options MERON_OPTIMIZER_SGD_INIT;
                      o.nesterov = 1;
                      o.dampening = 0.5;
                    }),
      bad_optimizer("decay of AdamW's rate", [](meron_optimizer_options& o) { o.lr_decay = 0.5; }),
      bad_optimizer("negative decay of the rate",
                    [](meron_optimizer_options& o) {
                      o = meron_optimizer_options MERON_OPTIMIZER_ADAGRAD_INIT;
                      o.lr_decay = -0.5;
                    }),
      bad_optimizer("decay of the rate is no number",
                    [](meron_optimizer_options& o) {
                      o = meron_optimizer_options MERON_OPTIMIZER_ADAGRAD_INIT;
                      o.lr_decay = kNan;
                    }),
      bad_optimizer("another rule's defaults",
                    [](meron_optimizer_options& o) { o.kind = MERON_OPTIMIZER_SGD; }),
      bad_optimizer("not initialized", [](meron_optimizer_options& o) { o.defaults_of = 0; }),
      bad_optimizer("defaults of no rule", [](meron_optimizer_options& o) { o.defaults_of = 6; }),
      misuse("meron_optimizer_set_learning_rate: impossible", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               const std::vector<double> values = {-1e-9, kNan, kInfinity, -kInfinity};
               return FAILURE_OF(meron_optimizer_set_learning_rate, o.a->optimizer,
                                 random.pick(values));
             }),
      misuse("meron_optimizer_set_max_norm: impossible", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               const std::vector<double> values = {-1e-9, kNan, kInfinity, -kInfinity};
               return FAILURE_OF(meron_optimizer_set_max_norm, o.a->optimizer, random.pick(values));
             }),
      misuse("meron_optimizer_set_steps: impossible", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               const std::vector<uint64_t> values = {(uint64_t{1} << 53) + 1, UINT64_MAX};
               return FAILURE_OF(meron_optimizer_set_steps, o.a->optimizer, random.pick(values));
             }),
      // The first handle that is none ends the walk.
      misuse("meron_optimizer_set_skipped: absurd count", MERON_E_HANDLE,
             [](Objects& o, Random&) {
               return FAILURE_OF(meron_optimizer_set_skipped, o.a->optimizer, &param,
                                 SIZE_MAX / 64);
             }),
      misuse("meron_optimizer_set_skipped: param that is not trained", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               const meron_param params[] = {o.a->params[0],
                                             random.pick(std::vector{o.frozen, o.half, o.loose})};
               return FAILURE_OF(meron_optimizer_set_skipped, o.a->optimizer, params, 2);
             }),
      misuse("meron_optimizer_param_steps: param that is not trained", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               return FAILURE_OF(meron_optimizer_param_steps, &steps, o.a->optimizer,
                                 random.pick(std::vector{o.frozen, o.half, o.loose}));
             }),
      misuse("meron_optimizer_set_param_steps: param that is not trained", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               return FAILURE_OF(meron_optimizer_set_param_steps, o.a->optimizer,
                                 random.pick(std::vector{o.frozen, o.half, o.loose}), 3);
             }),
      misuse("meron_optimizer_set_param_steps: impossible", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               const std::vector<uint64_t> values = {(uint64_t{1} << 53) + 1, UINT64_MAX};
               return FAILURE_OF(meron_optimizer_set_param_steps, o.a->optimizer, o.a->params[0],
                                 random.pick(values));
             }),
  };
}

std::vector<Misuse> misuses_of_groups() {
  return {
      bad_group("learning rate", [](meron_optimizer_group& g) { g.learning_rate = -1; }),
      bad_group("beta1", [](meron_optimizer_group& g) { g.beta1 = kNan; }),
      bad_group("beta2", [](meron_optimizer_group& g) { g.beta2 = 1.0; }),
      bad_group("epsilon", [](meron_optimizer_group& g) { g.epsilon = -1e-8; }),
      bad_group("weight decay", [](meron_optimizer_group& g) { g.weight_decay = kInfinity; }),
      bad_group("decay of AdamW's rate", [](meron_optimizer_group& g) { g.lr_decay = 0.5; }),
      bad_group("decay of the rate is no number",
                [](meron_optimizer_group& g) { g.lr_decay = kNan; }),
      bad_group("another rule's defaults", [](meron_optimizer_group& g) { g.defaults_of = 5; }),
      bad_group("not initialized", [](meron_optimizer_group& g) { g.defaults_of = 0; }),
      bad_group("defaults of no rule",
                [](meron_optimizer_group& g) { g.defaults_of = UINT32_MAX; }),
      bad_members("param of no unit", MERON_E_ARGUMENT,
                  [](Objects& o) { return std::vector{o.loose}; }),
      bad_members("param that is not trained", MERON_E_ARGUMENT,
                  [](Objects& o) {
                    return std::vector{o.a->params[0], o.frozen};
                  }),
      bad_members("param of no optimizer", MERON_E_ARGUMENT,
                  [](Objects& o) { return std::vector{o.half}; }),
      bad_members("param twice", MERON_E_DUPLICATE,
                  [](Objects& o) {
                    return std::vector{o.a->params[1], o.a->params[0], o.a->params[1]};
                  }),
      misuse("meron_optimizer_add_group: absurd count", MERON_E_HANDLE,
             [](Objects& o, Random&) {
               const meron_optimizer_group group = MERON_OPTIMIZER_GROUP_INIT;
               return FAILURE_OF(meron_optimizer_add_group, &number, o.a->optimizer, &param,
                                 SIZE_MAX / 64, &group);
             }),
      misuse("meron_optimizer_set_group: no such group", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               const meron_optimizer_group group = MERON_OPTIMIZER_GROUP_INIT;
               const std::vector<uint32_t> numbers = {1, 2, INT32_MAX, UINT32_MAX};
               return FAILURE_OF(meron_optimizer_set_group, o.a->optimizer, random.pick(numbers),
                                 &group);
             }),
      misuse("meron_optimizer_get_group: no such group", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               auto group = sized<meron_optimizer_group>();
               const std::vector<uint32_t> numbers = {1, 2, INT32_MAX, UINT32_MAX};
               return FAILURE_OF(meron_optimizer_get_group, &group, o.a->optimizer,
                                 random.pick(numbers));
             }),
  };
}

std::vector<Misuse> misuses_of_states() {
  return {
      misuse("meron_optimizer_state_view: unknown state", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               return FAILURE_OF(meron_optimizer_state_view, &view, o.a->optimizer, o.a->params[0],
                                 bad_state(random));
             }),
      misuse("meron_optimizer_state_view: param of no optimizer", MERON_E_ARGUMENT,
             [](Objects& o, Random&) {
               return FAILURE_OF(meron_optimizer_state_view, &view, o.a->optimizer, o.half,
                                 MERON_OPTIMIZER_STATE_MASTER);
             }),
      misuse("meron_optimizer_read_state: unknown state", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               return FAILURE_OF(meron_optimizer_read_state, memory, kOwned, o.a->optimizer,
                                 o.a->params[0], bad_state(random));
             }),
      misuse("meron_optimizer_read_state: param of no optimizer", MERON_E_ARGUMENT,
             [](Objects& o, Random&) {
               return FAILURE_OF(meron_optimizer_read_state, memory, 6, o.a->optimizer, o.half,
                                 MERON_OPTIMIZER_STATE_EXP_AVG);
             }),
      misuse("meron_optimizer_read_state: another count", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               const std::vector<uint64_t> counts = {0, 1, kOwned - 1, kOwned + 1, UINT64_MAX};
               return FAILURE_OF(meron_optimizer_read_state, memory, random.pick(counts),
                                 o.a->optimizer, o.a->params[0], MERON_OPTIMIZER_STATE_EXP_AVG);
             }),
      misuse("meron_optimizer_write_state: unknown state", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               return FAILURE_OF(meron_optimizer_write_state, o.a->optimizer, o.a->params[0],
                                 bad_state(random), memory, kOwned);
             }),
      misuse("meron_optimizer_write_state: param of no optimizer", MERON_E_ARGUMENT,
             [](Objects& o, Random&) {
               return FAILURE_OF(meron_optimizer_write_state, o.a->optimizer, o.half,
                                 MERON_OPTIMIZER_STATE_EXP_AVG, memory, 6);
             }),
      misuse("meron_optimizer_write_state: another count", MERON_E_ARGUMENT,
             [](Objects& o, Random& random) {
               const std::vector<uint64_t> counts = {0, 1, kOwned - 1, kOwned + 1, UINT64_MAX};
               return FAILURE_OF(meron_optimizer_write_state, o.a->optimizer, o.a->params[0],
                                 MERON_OPTIMIZER_STATE_EXP_AVG_SQ, memory, random.pick(counts));
             }),
      misuse("meron_optimizer_write_state: master that is the param", MERON_E_ARGUMENT,
             [](Objects& o, Random&) {
               return FAILURE_OF(meron_optimizer_write_state, o.a->optimizer, o.a->params[0],
                                 MERON_OPTIMIZER_STATE_MASTER, memory, kOwned);
             }),
  };
}

}  // namespace

std::vector<Misuse> misuses_of_optimizers() {
  std::vector<Misuse> all;
  for (auto& some : {misuses_of_creation(), misuses_of_groups(), misuses_of_states()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace meron::test
