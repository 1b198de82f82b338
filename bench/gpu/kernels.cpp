// SPDX-License-Identifier: Apache-2.0
// The kernels on a device beside its own copy of memory, in turn. Prints one JSON object; exits
// with 77 and a reason where no device can be used.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_device.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/update.h"
#include "kernels/cuda/kernels.h"

namespace meron::bench {
namespace {

using cuda::ConstEncoded;
using cuda::Encoded;
using cuda::QuantFormat;
using cuda::StateType;
using cuda::Type;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Options {
  size_t elements = size_t{1} << 30;
  size_t repeats = 15;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), pool_(pool_bytes()), copy_bytes_(pool_.bytes() / 16) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    values_.resize(kPeriod);
    for (float& value : values_) value = normal(random);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() { (void)cudaStreamDestroy(stream_); }

  nlohmann::ordered_json run() {
    verify();
    adamw("adamw 16-bit", StateType::f32);
    adamw("adamw int8 states", StateType::int8);
    for (const uint32_t bits : {8u, 4u}) {
      quantize(fmt::format("int{} quantize", bits), {bits, 256});
      dequantize(fmt::format("int{} dequantize", bits), {bits, 256});
    }
    quantize("int4 quantize, hadamard", {4, 256, false, true});
    sum_encoded();
    reduce("reduce of 8 bf16", false);
    reduce("reduce of 8 bf16 with squares", true);
    cast_and_quantize();
    cudaDeviceProp device{};
    check(cudaGetDeviceProperties(&device, 0), "asking the device");
    return {{"device", device.name},
            {"repeats", options_.repeats},
            {"copy_gb_per_second", median(copies_)},
            {"rows", rows_}};
  }

 private:
  static constexpr size_t kPeriod = 4 << 20;  // after which values repeat
  static constexpr QuantFormat kInt4{4, 256};

  // Nine tenths of what is free; no more than the largest row takes, and the copies.
  size_t pool_bytes() const {
    size_t unused = 0, total = 0;
    check(cudaMemGetInfo(&unused, &total), "asking for memory");
    return std::min(unused / 10 * 9, options_.elements * 32 + (size_t{64} << 20));
  }

  // Number of elements of `bytes` each that fit beside the copies.
  size_t elements_of(double bytes) {
    pool_.clear();
    copy_from_ = pool_.take(copy_bytes_);
    copy_to_ = pool_.take(copy_bytes_);
    const double room = static_cast<double>(pool_.bytes() - 2 * copy_bytes_) * 0.95;
    const auto fitting = static_cast<size_t>(room / bytes) & ~size_t{0xffff};
    return std::min(options_.elements, fitting);
  }

  void* filled(Type type, size_t n) {
    auto* array = pool_.take<char>(n * kernels::size_of(type));
    const size_t period = std::min(n, kPeriod), bytes = period * kernels::size_of(type);
    std::vector<char> host(bytes);
    to_host_type(host.data(), type, period);
    check(cudaMemcpy(array, host.data(), bytes, cudaMemcpyHostToDevice), "copying");
    for (size_t done = period; done < n; done += period) {
      const size_t more = std::min(period, n - done) * kernels::size_of(type);
      check(
          cudaMemcpy(array + done * kernels::size_of(type), array, more, cudaMemcpyDeviceToDevice),
          "copying");
    }
    check(cudaDeviceSynchronize(), "copying");
    return array;
  }

  void to_host_type(char* to, Type type, size_t n) const {
    for (size_t i = 0; i < n; ++i) {
      const float value = values_[i];
      const uint16_t narrow =
          type == Type::bf16 ? kernels::bf16_from_f32(value) : kernels::f16_from_f32(value);
      if (type == Type::f32) {
        std::memcpy(to + 4 * i, &value, 4);
      } else {
        std::memcpy(to + 2 * i, &narrow, 2);
      }
    }
  }

  template <class T>
  T* zeros(size_t n) {
    T* array = pool_.take<T>(n * sizeof(T));
    check(cudaMemset(array, 0, n * sizeof(T)), "clearing");
    check(cudaDeviceSynchronize(), "clearing");
    return array;
  }

  Encoded code(size_t n, QuantFormat format) {
    return kernels::encoded_at(pool_.take(kernels::encoded_bytes(n, format)), n, format);
  }
  Encoded encoded(size_t n, QuantFormat format, const void* in, Type type) {
    const Encoded made = code(n, format);
    check(cuda::quantize(made, in, type, n, format, 1, 0, nullptr, nullptr, 0, nullptr, stream_),
          "quantize");
    return made;
  }

  // The copy and the kernels in turn. `bytes`: that have to move, all in all.
  double measure(const std::string& name, size_t n, double bytes,
                 const std::function<cudaError_t()>& kernel) {
    Event begin, between, end;
    std::vector<double> seconds, ratios;
    constexpr size_t kWarm = 2;
    for (size_t i = 0; i < options_.repeats + kWarm; ++i) {
      begin.record(stream_);
      check(cudaMemcpyAsync(copy_to_, copy_from_, copy_bytes_, cudaMemcpyDeviceToDevice, stream_),
            "copying");
      between.record(stream_);
      check(kernel(), name.c_str());
      end.record(stream_);
      check(cudaStreamSynchronize(stream_), name.c_str());
      if (i < kWarm) continue;
      const double copy = 2 * static_cast<double>(copy_bytes_) / between.seconds_since(begin);
      seconds.push_back(end.seconds_since(between));
      copies_.push_back(copy * 1e-9);
      ratios.push_back(bytes / seconds.back() / copy);
    }
    const double time = median(seconds);
    rows_.push_back({{"name", name},
                     {"elements", n},
                     {"bytes", bytes},
                     {"seconds", time},
                     {"gb_per_second", bytes / time * 1e-9},
                     {"of_copy", median(ratios)}});
    return time;
  }

  static kernels::UpdateStep step() {
    kernels::UpdateStep step;
    step.weight_decay = 0.1;
    step.bias1 = 0.1;
    step.bias2 = 0.001;
    step.grad_scale = 0.5;
    return step;
  }

  void adamw(const std::string& name, StateType states) {
    const bool small = states == StateType::int8;
    const double state_bytes = small ? 1 + 4.0 / 256 : 4;  // of one
    const size_t n = elements_of(4 + 2 + 2 + 2 * state_bytes);
    cuda::UpdateTask task{};
    task.p = static_cast<float*>(filled(Type::f32, n));
    task.g = filled(Type::bf16, n);
    task.out = pool_.take(2 * n);
    for (size_t k = 0; k < 2; ++k) {
      task.states[k] = zeros<char>(kernels::state_bytes(states, n));
      task.scales[k] = zeros<float>(kernels::scale_count(states, n));
    }
    task.n = n;
    measure(name, n, static_cast<double>(n) * (8 + 2 + 2 + 4 * state_bytes), [&] {
      return cuda::update(step(), &task, 1, Type::bf16, states, Type::bf16, nullptr, stream_);
    });
  }

  void quantize(const std::string& name, QuantFormat format) {
    const double code_bytes = format.bits / 8.0 + 4.0 / format.block;
    const size_t n = elements_of(2 + code_bytes);
    const void* in = filled(Type::bf16, n);
    const Encoded to = code(n, format);
    measure(name, n, static_cast<double>(n) * (2 + code_bytes), [&] {
      return cuda::quantize(to, in, Type::bf16, n, format, 1, 0, nullptr, nullptr, 0, nullptr,
                            stream_);
    });
  }

  void dequantize(const std::string& name, QuantFormat format) {
    const double code_bytes = format.bits / 8.0 + 4.0 / format.block;
    const size_t n = elements_of(2 + code_bytes);
    void* out = filled(Type::bf16, n);
    const Encoded from = encoded(n, format, out, Type::bf16);
    measure(name, n, static_cast<double>(n) * (2 + code_bytes),
            [&] { return cuda::dequantize(out, Type::bf16, from, n, format, false, stream_); });
  }

  void sum_encoded() {
    constexpr size_t kCount = 8;
    const double code_bytes = 0.5 + 4.0 / kInt4.block;
    const size_t n = elements_of(9 * code_bytes + 4);
    // `out` first holds the values to encode, and later their sum.
    auto* out = static_cast<float*>(filled(Type::f32, n));
    std::vector<ConstEncoded> in;
    for (size_t k = 0; k < kCount; ++k) in.emplace_back(encoded(n, kInt4, out, Type::f32));
    const Encoded to = code(n, kInt4);
    measure("sum of 8 int4", n, static_cast<double>(n) * (kCount * code_bytes + 4), [&] {
      return cuda::dequantize_sum(out, false, in.data(), kCount, 0.125f, n, kInt4, nullptr,
                                  stream_);
    });
    measure("sum of 8 int4 to int4", n, static_cast<double>(n) * (kCount + 1) * code_bytes, [&] {
      return cuda::dequantize_sum_quantize(to, in.data(), kCount, 0.125f, n, kInt4, kInt4, 1, 0,
                                           nullptr, stream_);
    });
  }

  void reduce(const std::string& name, bool squares) {
    constexpr size_t kCount = 8;
    const size_t n = elements_of(2 * kCount + 4);
    std::vector<const void*> in;
    for (size_t k = 0; k < kCount; ++k) in.push_back(filled(Type::bf16, n));
    auto* out = pool_.take<float>(4 * n);
    auto* pieces = squares ? zeros<cuda::SquaresPieces>(1) : nullptr;
    measure(name, n, static_cast<double>(n) * (2 * kCount + 4), [&] {
      return cuda::reduce(out, false, in.data(), kCount, Type::bf16, 0.125f, n, pieces, stream_);
    });
  }

  // bf16 directly, and the way of those whose kernels take f16 alone.
  void cast_and_quantize() {
    const QuantFormat format{8, 256};
    const double code_bytes = 1 + 4.0 / format.block;
    const size_t n = elements_of(2 + 2 + code_bytes);
    const void* in = filled(Type::bf16, n);
    void* cast = pool_.take(2 * n);
    const Encoded to = code(n, format);
    const cuda::CastTask task{cast, in, n};
    const auto quantize = [&](const void* from, Type type) {
      return cuda::quantize(to, from, type, n, format, 1, 0, nullptr, nullptr, 0, nullptr, stream_);
    };
    const double elements = static_cast<double>(n);
    measure("int8 quantize of bf16", n, elements * (2 + code_bytes),
            [&] { return quantize(in, Type::bf16); });
    measure("cast to f16, int8 quantize", n, elements * (2 + 2 + 2 + code_bytes), [&] {
      const cudaError_t error = cuda::convert(&task, 1, Type::f16, Type::bf16, stream_);
      return error != cudaSuccess ? error : quantize(cast, Type::f16);
    });
  }

  // Compares codes, sums and parameters of a short array with the CPU's.
  void verify() {
    const size_t n = std::min(elements_of(64), (size_t{1} << 16) + 77);
    std::vector<float> p(values_.begin(), values_.begin() + static_cast<ptrdiff_t>(n));
    std::vector<float> m(n), v(n), actual(n);
    std::vector<char> code_bytes(kernels::encoded_bytes(n, kInt4)), actual_code(code_bytes.size());
    const void* values = filled(Type::f32, n);
    const Encoded host = kernels::encoded_at(code_bytes.data(), n, kInt4), device = code(n, kInt4);
    const auto equal = [](const void* a, const void* b, size_t bytes, const char* what) {
      if (std::memcmp(a, b, bytes) != 0) {
        throw std::runtime_error(fmt::format("{} differs from the CPU's", what));
      }
    };
    kernels::quantize(host, p.data(), Type::f32, n, kInt4, 1, 0);
    check(cuda::quantize(device, values, Type::f32, n, kInt4, 1, 0, nullptr, nullptr, 0, nullptr,
                         stream_),
          "quantize");
    check(cudaStreamSynchronize(stream_), "quantize");
    check(
        cudaMemcpy(actual_code.data(), device.payload, actual_code.size(), cudaMemcpyDeviceToHost),
        "copying");
    equal(actual_code.data(), code_bytes.data(), code_bytes.size(), "quantize()");

    const std::vector<ConstEncoded> hosts(8, ConstEncoded(host)), devices(8, ConstEncoded(device));
    std::vector<float> sum(n);
    auto* out = pool_.take<float>(4 * n);
    kernels::dequantize_sum(sum.data(), false, hosts.data(), 8, 0.125f, n, kInt4, nullptr);
    check(cuda::dequantize_sum(out, false, devices.data(), 8, 0.125f, n, kInt4, nullptr, stream_),
          "dequantize_sum");
    check(cudaStreamSynchronize(stream_), "dequantize_sum");
    check(cudaMemcpy(actual.data(), out, 4 * n, cudaMemcpyDeviceToHost), "copying");
    equal(actual.data(), sum.data(), 4 * n, "dequantize_sum()");

    cuda::UpdateTask task{};
    task.p = static_cast<float*>(filled(Type::f32, n));
    task.g = values;
    task.states[0] = zeros<float>(n);
    task.states[1] = zeros<float>(n);
    task.n = n;
    kernels::States states;
    states.data[0] = m.data();
    states.data[1] = v.data();
    const std::vector<float> g = p;
    kernels::update(step(), p.data(), g.data(), Type::f32, states, nullptr, Type::f32, n, 0);
    check(cuda::update(step(), &task, 1, Type::f32, StateType::f32, Type::f32, nullptr, stream_),
          "update");
    check(cudaStreamSynchronize(stream_), "update");
    check(cudaMemcpy(actual.data(), task.p, 4 * n, cudaMemcpyDeviceToHost), "copying");
    equal(actual.data(), p.data(), 4 * n, "update()");
  }

  Options options_;
  Pool pool_;
  size_t copy_bytes_;
  void *copy_from_ = nullptr, *copy_to_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::vector<float> values_;
  std::vector<double> copies_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

int run(int argc, char** argv) {
  Options options;
  bool quick = false;
  CLI::App app("Kernels on a device beside its copy of memory. Prints one JSON object.");
  app.add_option("--elements", options.elements, "At most, of each array (2^30)")
      ->check(CLI::Range(size_t{1} << 18, size_t{1} << 36));
  app.add_option("--repeats", options.repeats, "Turns of each kernel (15)")
      ->check(CLI::Range(size_t{1}, size_t{10000}));
  app.add_flag("--quick", quick, "A second's run that only shows that everything works");
  CLI11_PARSE(app, argc, argv);
  if (quick) options = {size_t{1} << 22, 3};
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    fmt::print(stderr, "no CUDA device can be used: {}\n",
               error != cudaSuccess ? cudaGetErrorString(error) : "there is none");
    return 77;
  }
  try {
    fmt::print("{}\n", Bench(options).run().dump());
    return 0;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "{}\n", failure.what());
    return 2;
  }
}

}  // namespace
}  // namespace meron::bench

int main(int argc, char** argv) {
  return meron::bench::run(argc, argv);
}
