// SPDX-License-Identifier: Apache-2.0
// Norm and clipping of reduced gradients for an optimizer of the trainer's own: the bits of a step,
// under each plan and on each transport.
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "reducing.h"

namespace meron::test {
namespace {

constexpr double kMaxNorm = 0.5;
constexpr float kLearningRate = 0.1f;

float gradient_at(int rank, size_t i) {
  return 0.01f * static_cast<float>((i * 104729 + static_cast<size_t>(rank) * 7919) % 1009) - 5.0f;
}

void reduce(const Session& session, const std::vector<float>& gradient) {
  const meron_source source{session.param, gradient.data(), gradient.size(), MERON_F32, 0};
  CALL(meron_reduce_begin, nullptr, session.unit, &source, 1, nullptr);
  CALL(meron_reduce_wait, &session.unit, 1, MERON_TIMEOUT_DEFAULT);
}

std::vector<float> gradient_of(int rank) {
  std::vector<float> gradient(kSize);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = gradient_at(rank, i);
  return gradient;
}

std::vector<float> reduced(const Session& session) {
  meron_view view{};
  CALL(meron_reduced_view, &view, session.param);
  const auto* data = static_cast<const float*>(view.data);
  return {data, data + view.count};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double clip(const std::vector<meron_unit>& units, double max_norm) {
  double norm = -1;
  CALL(meron_gradient_clip, &norm, units.data(), units.size(), max_norm);
  return norm;
}

// A failure of meron_gradient_clip.
struct Failure {
  meron_status status;
  std::string message;
};
Failure fail_to_clip(const std::vector<meron_unit>& units, double max_norm, double* norm) {
  meron_error* error = nullptr;
  const meron_status status =
      meron_gradient_clip(norm, units.data(), units.size(), max_norm, &error);
  Failure failure{status, meron_error_message(error)};
  meron_error_free(error);
  return failure;
}
bool names(const Failure& failure, const char* text) {
  if (failure.message.find(text) != std::string::npos) return true;
  std::fprintf(stderr, "'%s' is not in: %s\n", text, failure.message.c_str());
  return false;
}

// The values of SGD without a momentum, from a value of zero, as this rank's shard.
void own_step(const Session& session) {
  meron_future update{};
  CALL(meron_update_begin, &update, &session.unit, 1);
  CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
  meron_view values{};
  CALL(meron_update_view, &values, update, session.param);
  const std::vector<float> gradient = reduced(session);
  auto* const value = static_cast<float*>(values.data);
  for (size_t i = 0; i < gradient.size(); ++i) value[i] = value[i] - gradient[i] * kLearningRate;
  CALL(meron_update_publish, update);
  CALL(meron_reduce_consume, session.unit);
}

std::vector<float> gather(const Session& session) {
  meron_future gather{};
  CALL(meron_gather_begin, &gather, &session.unit, 1, nullptr);
  CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
  meron_view view{};
  CALL(meron_gather_view, &view, gather, session.param);
  const auto* data = static_cast<const float*>(view.data);
  std::vector<float> values(data, data + view.count);
  CALL(meron_future_release, gather);
  return values;
}

TEST(Clip, HasTheBitsOfAStepWithMaxNorm) {
  in_every_world(kRanks, [](meron_context context, const std::string&, int rank, auto&) {
    const Session own(context, "own"), engine(context, "engine");
    meron_optimizer_options options = MERON_OPTIMIZER_SGD_INIT;
    options.learning_rate = kLearningRate;
    options.max_norm = kMaxNorm;
    meron_optimizer optimizer{};
    CALL(meron_optimizer_create, &optimizer, &engine.unit, 1, &options);
    bool right = true;
    for (int step = 0; step < 3; ++step) {
      reduce(own, gradient_of(rank + step));
      reduce(engine, gradient_of(rank + step));
      const double norm = clip({own.unit}, kMaxNorm);
      own_step(own);
      meron_future stepped{};
      CALL(meron_optimizer_step_begin, &stepped, optimizer);
      finish(stepped);
      meron_optimizer_info info = MERON_OPTIMIZER_INFO_INIT;
      CALL(meron_optimizer_get_info, &info, optimizer);
      right = right && norm == info.norm && norm > 2 * kMaxNorm;
      right = right && same_bits(gather(own), gather(engine));
    }
    CALL(meron_optimizer_release, optimizer);
    return right;
  });
}

// By the plan's sharding, the transport and the number of units: nothing of that is seen.
TEST(Clip, TheNormHasTheSameBitsUnderEveryPlan) {
  Shared<double> norms(1);
  norms[0] = 0;
  in_every_world(kRanks, [&](meron_context context, const std::string&, int rank, auto&) {
    const Session first(context, "first"), second(context, "second");
    reduce(first, gradient_of(rank));
    reduce(second, gradient_of(rank + 5));
    const double norm = clip({second.unit, first.unit}, 0);
    double first_norm = 0;  // of the rank that comes here first
    const bool is_first = std::atomic_ref(norms[0]).compare_exchange_strong(first_norm, norm);
    return (is_first || norm == first_norm) && norm > 0;
  });
}

TEST(Clip, MeasuringOrASmallNormLeavesTheGradientsAsTheyAre) {
  on_every_plan([](const Session& session, const std::string&, int rank) {
    reduce(session, gradient_of(rank));
    const std::vector<float> before = reduced(session);
    const double norm = clip({session.unit}, 0);
    bool right = same_bits(before, reduced(session));
    right = right && clip({session.unit}, norm + 1) == norm && same_bits(before, reduced(session));
    right = right && clip({session.unit}, norm / 4) == norm && !same_bits(before, reduced(session));
    const double clipped = clip({session.unit}, 0);
    return right && std::abs(clipped - norm / 4) < 1e-4 * norm;
  });
}

// A view that was taken before stays valid: what is written there counts, also in a step.
TEST(Clip, CountsWhatWasWrittenThroughAnOlderView) {
  on_every_plan([](const Session& session, const std::string&, int rank) {
    reduce(session, gradient_of(rank));
    meron_view view{};
    CALL(meron_reduced_view, &view, session.param);
    const double before = clip({session.unit}, 0);
    auto* const data = static_cast<float*>(view.data);
    for (uint64_t i = 0; i < view.count; ++i) data[i] *= 2;
    return clip({session.unit}, 0) == 2 * before;
  });
}

TEST(Clip, NamesAGradientThatIsNotFiniteAndChangesNone) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    on_every_plan([bad](const Session& session, const std::string&, int rank) {
      std::vector<float> gradient = gradient_of(rank);
      if (rank == 1) gradient[1234] = bad;
      reduce(session, gradient);
      const std::vector<float> before = reduced(session);
      double norm = -1;
      const Failure failure = fail_to_clip({session.unit}, kMaxNorm, &norm);
      bool right = failure.status == MERON_E_NONFINITE && norm == -1 &&
                   names(failure, "'u.w' of unit 'u', element 1234") &&
                   same_bits(before, reduced(session));
      CALL(meron_reduce_discard, session.unit);
      reduce(session, gradient_of(rank));
      return right && clip({session.unit}, kMaxNorm) > 0;
    });
  }
}

TEST(Clip, RefusesWhatCannotBeClippedAndSaysWhy) {
  on_every_plan([](const Session& session, const std::string&, int rank) {
    double norm = -1;
    const Failure unreduced = fail_to_clip({session.unit}, kMaxNorm, &norm);
    bool right = unreduced.status == MERON_E_STATE && names(unreduced, "unit 'u' is empty");
    reduce(session, gradient_of(rank));
    for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
      const Failure failure = fail_to_clip({session.unit}, bad, &norm);
      right = right && failure.status == MERON_E_ARGUMENT && names(failure, "max_norm is");
    }
    right =
        right && fail_to_clip({session.unit, session.unit}, 1, &norm).status == MERON_E_DUPLICATE;
    right = right && fail_to_clip({}, 1, &norm).status == MERON_E_ARGUMENT;
    return right && norm == -1 && clip({session.unit}, kMaxNorm) > 0;
  });
}

TEST(Clip, NamesBothCallsOfRanksThatDiffer) {
  in_every_world(2, [](meron_context context, const std::string&, int rank, auto&) {
    const Session session(context);
    reduce(session, gradient_of(rank));
    double norm = -1;
    const Failure failure = fail_to_clip({session.unit}, rank == 0 ? 1.0 : 2.0, &norm);
    return failure.status == MERON_E_MISMATCH && names(failure, "gradient_clip of 'u'");
  });
}

// The pending call keeps the gradient: neither dropped nor destroyed under it.
TEST(Clip, KeepsTheGradientWhileAPeerIsAwaited) {
  in_every_world(2, [](meron_context context, const std::string&, int rank, auto& asked) {
    const Session session(context);
    reduce(session, gradient_of(rank));
    bool right = true;
    if (rank == 0) {
      meron_stats before = MERON_STATS_INIT, now = MERON_STATS_INIT;
      CALL(meron_context_stats, &before, context);
      bool clipped = false;
      std::thread clipping([&] { clipped = clip({session.unit}, kMaxNorm) > 0; });
      do {
        CALL(meron_context_stats, &now, context);
      } while (now.operations == before.operations);
      for (const auto end : {meron_reduce_consume, meron_reduce_discard, meron_unit_destroy}) {
        meron_error* error = nullptr;
        right = right && end(session.unit, &error) == MERON_E_STATE &&
                std::strstr(meron_error_message(error), "clipped") != nullptr;
        meron_error_free(error);
      }
      asked.store(-1);
      clipping.join();
      right = right && clipped;
    } else {
      while (asked.load() != -1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      right = clip({session.unit}, kMaxNorm) > 0;
    }
    CALL(meron_reduce_consume, session.unit);
    return right;
  });
}

}  // namespace
}  // namespace meron::test
