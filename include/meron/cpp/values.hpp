// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
// meron/cpp/values.hpp: what callers fill, and enums.
#ifndef MERON_CPP_VALUES_HPP
#define MERON_CPP_VALUES_HPP

#include <chrono>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "meron/cpp/config.hpp"
#include "meron/meron.h"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// Levels of a log message.
enum class LogLevel : meron_log_level {
  error = MERON_LOG_ERROR,
  warning = MERON_LOG_WARNING,
  info = MERON_LOG_INFO,
};
constexpr const char* name_of(LogLevel value) noexcept {
  switch (value) {
    case LogLevel::error:
      return "error";
    case LogLevel::warning:
      return "warning";
    case LogLevel::info:
      return "info";
  }
  return "?";
}

// Element types. Sizes in bytes: 4, 2, 2, 8, 8.
enum class DType : meron_dtype {
  f32 = MERON_F32,
  bf16 = MERON_BF16,
  f16 = MERON_F16,
  // Of meron_all_reduce_begin alone, as the next one.
  f64 = MERON_F64,
  i64 = MERON_I64,
};
constexpr const char* name_of(DType value) noexcept {
  switch (value) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::f64:
      return "f64";
    case DType::i64:
      return "i64";
  }
  return "?";
}

// The operation that combines values.
enum class ReduceOp : meron_reduce_op {
  // Their sum.
  sum = MERON_REDUCE_OP_SUM,
  // Their sum, divided by the number of ranks.
  mean = MERON_REDUCE_OP_MEAN,
  // The largest of them, of an all-reduce alone.
  max = MERON_REDUCE_OP_MAX,
  // The smallest of them, of an all-reduce alone.
  min = MERON_REDUCE_OP_MIN,
};
constexpr const char* name_of(ReduceOp value) noexcept {
  switch (value) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::mean:
      return "mean";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
  }
  return "?";
}

// A state of an optimizer.
enum class OptimizerState : meron_optimizer_state {
  // f32 values; the param itself if that is f32.
  master = MERON_OPTIMIZER_STATE_MASTER,
  // Average of the gradients; Lion's, and SGD's momentum.
  exp_avg = MERON_OPTIMIZER_STATE_EXP_AVG,
  // Average of their squares; Adagrad's sum of them.
  exp_avg_sq = MERON_OPTIMIZER_STATE_EXP_AVG_SQ,
};
constexpr const char* name_of(OptimizerState value) noexcept {
  switch (value) {
    case OptimizerState::master:
      return "master";
    case OptimizerState::exp_avg:
      return "exp_avg";
    case OptimizerState::exp_avg_sq:
      return "exp_avg_sq";
  }
  return "?";
}

// Memory of a view, by its tier.
enum class Tier : meron_tier {
  // In the device's memory, if the context has a device; else the host's.
  device = MERON_TIER_DEVICE,
  // In the host's memory.
  host = MERON_TIER_HOST,
};
constexpr const char* name_of(Tier value) noexcept {
  switch (value) {
    case Tier::device:
      return "device";
    case Tier::host:
      return "host";
  }
  return "?";
}

// The interface that moves the bytes.
enum class IoBackend : meron_io_backend {
  // io_uring if the host allows it, else threads.
  automatic = MERON_IO_BACKEND_AUTO,
  // io_uring.
  io_uring = MERON_IO_BACKEND_URING,
  // Threads of this process that call pread and pwrite.
  threads = MERON_IO_BACKEND_THREADS,
};
constexpr const char* name_of(IoBackend value) noexcept {
  switch (value) {
    case IoBackend::automatic:
      return "automatic";
    case IoBackend::io_uring:
      return "io_uring";
    case IoBackend::threads:
      return "threads";
  }
  return "?";
}

// Workload of a step, for a prediction.
struct Workload {
  // The world size; a context uses its own.
  uint32_t ranks = 1;
  // Per optimizer step; default 1.
  uint32_t micro_batches = 1;
  // Of every unit; default 2: forward and backward.
  uint32_t gathers_per_micro_batch = 2;
  // Consecutive ranks that share memory; 0: all of them. A context uses its own.
  uint32_t ranks_per_node = 0;
  // Of the update rule per element, besides the master: 2 for AdamW and Adam, 1 for Adagrad,
  // Lion and SGD with a momentum, 0 for SGD without one.
  uint32_t optimizer_states = 2;

  meron_workload raw() const noexcept {
    meron_workload made = MERON_WORKLOAD_INIT;
    made.ranks = ranks;
    made.micro_batches = micro_batches;
    made.gathers_per_micro_batch = gathers_per_micro_batch;
    made.ranks_per_node = ranks_per_node;
    made.optimizer_states = optimizer_states;
    return made;
  }
};

// Hyperparameters of the params of one group. The rule ignores those that it does not use. The
// defaults are AdamW's: for an optimizer of another rule, start from one of its groups.
struct OptimizerGroup {
  // 0 or more.
  double learning_rate = 0.001;
  // 0 or more, below 1. SGD: the momentum, 0 in all groups or in none.
  double beta1 = 0.9;
  // 0 or more, below 1.
  double beta2 = 0.999;
  // Above 0.
  double epsilon = 1e-08;
  // 0 or more.
  double weight_decay = 0.01;
  // Adagrad: >= 0; else 0.
  double lr_decay = 0.0;
  // The rule, for the library. Only Optimizer::group gives that of another one.
  uint32_t defaults_of = 1;

  meron_optimizer_group raw() const noexcept {
    meron_optimizer_group made = MERON_OPTIMIZER_GROUP_INIT;
    made.learning_rate = learning_rate;
    made.beta1 = beta1;
    made.beta2 = beta2;
    made.epsilon = epsilon;
    made.weight_decay = weight_decay;
    made.lr_decay = lr_decay;
    made.defaults_of = defaults_of;
    return made;
  }
};

// Options of a reduction.
struct ReduceOptions {
  // The operation that combines the values of the ranks.
  ReduceOp op = ReduceOp::mean;
  // True for the last micro-batch before the step.
  bool boundary = true;
  // Additional divisor of the sum, e.g. the number of micro-batches, times the loss scale. The
  // complete sum is divided once, as the call with `boundary` 1 says; in each call all ranks
  // pass the same. With a codec that has feedback, give the same one for each micro-batch of an
  // accumulation: what was lost of the accumulation before is scaled by the change, so that it
  // counts as much as it did.
  double divisor = 1.0;
  // Sources on the device are read after the queued work of this stream; by default the
  // device's default stream.
  void* stream = nullptr;

  meron_reduce_options raw() const noexcept {
    meron_reduce_options made = MERON_REDUCE_OPTIONS_INIT;
    made.op = static_cast<meron_reduce_op>(op);
    made.boundary = boundary ? 1 : 0;
    made.divisor = divisor;
    made.stream = stream;
    return made;
  }
};

// Options of an io.
struct IoOptions {
  // The interface that moves the bytes.
  IoBackend backend = IoBackend::automatic;
  // Of one call of the kernel: a multiple of 4096; default 1 MiB.
  uint32_t block_bytes = 1048576;
  // Pending calls of io_uring, 1 to 4096; default 32.
  uint32_t depth = 32;
  // Of the backend of threads, 1 to 256: as many calls at a time.
  uint32_t threads = 1;
  // True: submit each call to the kernel alone.
  bool single_submit = false;
  // False: the next calls begin after the last ones have ended.
  bool overlap_events = true;
  // A wait fails after this time without any transfer; by default 600 s.
  std::chrono::nanoseconds timeout = std::chrono::nanoseconds::zero();

  meron_io_options raw() const noexcept {
    meron_io_options made = MERON_IO_OPTIONS_INIT;
    made.backend = static_cast<meron_io_backend>(backend);
    made.block_bytes = block_bytes;
    made.depth = depth;
    made.threads = threads;
    made.single_submit = single_submit ? 1 : 0;
    made.overlap_events = overlap_events ? 1 : 0;
    made.timeout_ns = timeout.count();
    return made;
  }
};

// Options of a schedule: limits in elements, and the memory of views.
struct ScheduleOptions {
  // Gathers are prefetched for the next uses within this many elements; 0: no prefetch.
  uint64_t prefetch_elements = 50000000;
  // Limit of prefetched and kept units, never of the unit in use; default 1e9.
  uint64_t max_live_elements = 1000000000;
  // A unit stays full if its next recorded use is within this many elements of other units'
  // uses; default 1e9.
  uint64_t max_reuse_elements = 1000000000;
  // A unit of at most this many elements stays full from its first use until the schedule drops
  // its units.
  uint64_t persist_elements = 100000;
  // Limit for all such units together, in their order at the creation; by default no limit.
  uint64_t persist_total_elements = UINT64_MAX;
  // Memory of views.
  Tier tier = Tier::host;
  // For views on the device: this stream waits for an entered unit, and the unit's memory is
  // released after the stream's queued work. It must live as long as the schedule.
  void* stream = nullptr;

  meron_schedule_options raw() const noexcept {
    meron_schedule_options made = MERON_SCHEDULE_OPTIONS_INIT;
    made.prefetch_elements = prefetch_elements;
    made.max_live_elements = max_live_elements;
    made.max_reuse_elements = max_reuse_elements;
    made.persist_elements = persist_elements;
    made.persist_total_elements = persist_total_elements;
    made.tier = static_cast<meron_tier>(tier);
    made.stream = stream;
    return made;
  }
};

// AdamW (Loshchilov and Hutter, arXiv 1711.05101).
struct AdamW {
  // 0 or more.
  double learning_rate = 0.001;
  // 0 or more, below 1.
  double beta1 = 0.9;
  // 0 or more, below 1.
  double beta2 = 0.999;
  // Above 0.
  double epsilon = 1e-08;
  // 0 or more.
  double weight_decay = 0.01;
  // Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together, as
  // meron_gradient_clip does; 0: no clipping.
  double max_norm = 0.0;

  meron_optimizer_options raw() const noexcept {
    meron_optimizer_options made = MERON_OPTIMIZER_ADAMW_INIT;
    made.learning_rate = learning_rate;
    made.beta1 = beta1;
    made.beta2 = beta2;
    made.epsilon = epsilon;
    made.weight_decay = weight_decay;
    made.max_norm = max_norm;
    return made;
  }
};

// Adam (Kingma and Ba, arXiv 1412.6980); weight decay is part of the gradient.
struct Adam {
  // 0 or more.
  double learning_rate = 0.001;
  // 0 or more, below 1.
  double beta1 = 0.9;
  // 0 or more, below 1.
  double beta2 = 0.999;
  // Above 0.
  double epsilon = 1e-08;
  // 0 or more.
  double weight_decay = 0.0;
  // Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together, as
  // meron_gradient_clip does; 0: no clipping.
  double max_norm = 0.0;

  meron_optimizer_options raw() const noexcept {
    meron_optimizer_options made = MERON_OPTIMIZER_ADAM_INIT;
    made.learning_rate = learning_rate;
    made.beta1 = beta1;
    made.beta2 = beta2;
    made.epsilon = epsilon;
    made.weight_decay = weight_decay;
    made.max_norm = max_norm;
    return made;
  }
};

// Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011); weight decay is part of the gradient. Keeps
// the sum of squared gradients.
struct Adagrad {
  // 0 or more.
  double learning_rate = 0.01;
  // Above 0.
  double epsilon = 1e-10;
  // 0 or more.
  double weight_decay = 0.0;
  // Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together, as
  // meron_gradient_clip does; 0: no clipping.
  double max_norm = 0.0;
  // 0 or more: the rate of step t is lr / (1 + (t - 1) lr_decay).
  double lr_decay = 0.0;

  meron_optimizer_options raw() const noexcept {
    meron_optimizer_options made = MERON_OPTIMIZER_ADAGRAD_INIT;
    made.learning_rate = learning_rate;
    made.epsilon = epsilon;
    made.weight_decay = weight_decay;
    made.max_norm = max_norm;
    made.lr_decay = lr_decay;
    return made;
  }
};

// Lion (Chen et al., arXiv 2302.06675). Keeps an average of gradients.
struct Lion {
  // 0 or more.
  double learning_rate = 0.0001;
  // Of the direction of the update; 0 or more, below 1.
  double beta1 = 0.9;
  // Of the stored average; 0 or more, below 1.
  double beta2 = 0.99;
  // 0 or more.
  double weight_decay = 0.0;
  // Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together, as
  // meron_gradient_clip does; 0: no clipping.
  double max_norm = 0.0;

  meron_optimizer_options raw() const noexcept {
    meron_optimizer_options made = MERON_OPTIMIZER_LION_INIT;
    made.learning_rate = learning_rate;
    made.beta1 = beta1;
    made.beta2 = beta2;
    made.weight_decay = weight_decay;
    made.max_norm = max_norm;
    return made;
  }
};

// Stochastic gradient descent, as torch.optim.SGD; weight decay is part of the gradient. With a
// momentum it keeps an average of gradients; without one, no state.
struct Sgd {
  // 0 or more.
  double learning_rate = 0.001;
  // 0 or more, below 1; beta1 of an optimizer group.
  double momentum = 0.0;
  // Of the gradient that is added to the state; 0 or more, below 1.
  double dampening = 0.0;
  // Nesterov's momentum, which needs a momentum and no dampening.
  bool nesterov = false;
  // 0 or more.
  double weight_decay = 0.0;
  // Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together, as
  // meron_gradient_clip does; 0: no clipping.
  double max_norm = 0.0;

  meron_optimizer_options raw() const noexcept {
    meron_optimizer_options made = MERON_OPTIMIZER_SGD_INIT;
    made.learning_rate = learning_rate;
    made.beta1 = momentum;
    made.dampening = dampening;
    made.nesterov = nesterov ? 1 : 0;
    made.weight_decay = weight_decay;
    made.max_norm = max_norm;
    return made;
  }
};

// Prints the name of an enum's value, as name_of returns it.
template <class Stream, class Enum, class = std::enable_if_t<std::is_enum_v<Enum>>,
          class = decltype(std::declval<Stream&>() << name_of(std::declval<Enum>()))>
Stream& operator<<(Stream& out, Enum value) {
  out << name_of(value);
  return out;
}

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_VALUES_HPP
