// SPDX-License-Identifier: Apache-2.0
// What tests of checkpoints share: worlds that train, folders, and all states of a world in one
// place.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/distributed/trainer.h"

namespace meron::test {

inline constexpr size_t kStates = 4;  // values, master, two of AdamW

// A folder that is removed with the object.
struct Folder {
  std::string path;
  Folder() {
    std::string text =
        (std::filesystem::temp_directory_path() / "meron-saved-XXXXXX").string();  // mkdtemp's
    path = mkdtemp(text.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

inline void barrier(meron_context context) {
  meron_group world{};
  CALL(meron_context_world, &world, context);
  meron_future all{};
  CALL(meron_barrier_begin, &all, world);
  finish(all);
}

// Configuration of a world's training.
struct Way {
  std::string plan;
  meron_dtype dtype = MERON_F32;
  const char* transport = "shm";
  int node = 0;  // ranks of a node; 0: one node
};

inline World world_of(const Way& way, int ranks) {
  World world{way.transport, ranks, way.plan};
  if (way.node != 0) world.node = way.node;
  return world;
}

inline std::string nvme_plan() {
  return R"j({"preset": "zero3", "param": {"tier": "nvme"}, "optimizer": {"tier": "nvme"}, "nvme": {"path": ")j" +
         std::filesystem::current_path().string() + R"j("}})j";
}

// `steps` steps, each of one micro-batch per rank.
inline void train(Trainer& trainer, int rank, int ranks, int first, int steps) {
  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
  for (int step = first; step < first + steps; ++step) {
    auto gradients = trainer.zeros();
    (void)trainer.micro_batch(static_cast<uint64_t>(step * ranks + rank), gradients);
    trainer.reduce(gradients, options, true);
    trainer.step();
  }
}

// All states of all params, put together from the parts of all ranks: kStates * weight_count().
inline void dump(Trainer& trainer, float* out) {
  const size_t count = weight_count();
  std::vector<float> weights(count);
  trainer.weights(weights.data());
  std::copy(weights.begin(), weights.end(), out);
  size_t at = 0;
  for (size_t i = 0; i < kParams; at += trainer.descs[i].count(), ++i) {
    meron_param_info info{};
    info.struct_size = sizeof(info);
    CALL(meron_param_get_info, &info, trainer.params[i]);
    for (size_t s = 0; s < kStates - 1; ++s) {
      std::vector<float> part(info.shard_count + 1);
      CALL(meron_optimizer_read_state, part.data(), info.shard_count, trainer.optimizer,
           trainer.params[i], static_cast<meron_optimizer_state>(s));
      std::copy_n(part.begin(), info.shard_count, out + (s + 1) * count + at + info.shard_offset);
    }
  }
}

inline meron_checkpoint_save_options save_options(const Trainer& trainer, uint64_t step) {
  meron_checkpoint_save_options options = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
  options.step = step;
  options.optimizers = &trainer.optimizer;
  options.optimizer_count = 1;
  return options;
}

// Returns the text of an error, and frees it. Returns "" for null.
inline std::string words_of(meron_error* error) {
  if (error == nullptr) return {};
  std::string words = std::string(meron_error_subject(error)) + ": " + meron_error_message(error);
  meron_error_free(error);
  return words;
}

// Saves, and waits for the end: the words of the error.
inline std::string try_save(meron_context context, const std::string& folder,
                            const std::string& name, const meron_checkpoint_save_options& options) {
  meron_future future{};
  meron_error* error = nullptr;
  if (meron_checkpoint_save_begin(&future, context, folder.c_str(), name.c_str(), &options,
                                  &error) == MERON_OK) {
    // The text describes how it ended.
    if (meron_future_wait(future, MERON_TIMEOUT_DEFAULT, &error) == MERON_IN_PROGRESS) _exit(4);
    (void)meron_future_release(future, nullptr);
  }
  return words_of(error);
}
inline std::string try_save(const Trainer& trainer, const std::string& folder,
                            const std::string& name, const meron_checkpoint_save_options& options) {
  return try_save(trainer.context, folder, name, options);
}

// Result of a load.
struct Loaded {
  uint64_t step = 0, bytes_read = 0, differences = 0;
};

// The words of the error, or "" and what was loaded.
inline std::string try_load(meron_context context, const meron_optimizer* optimizer,
                            const std::string& folder, const char* name,
                            meron_checkpoint_load_options options, Loaded* out) {
  options.optimizers = optimizer;
  options.optimizer_count = optimizer == nullptr ? 0 : 1;
  meron_checkpoint checkpoint{};
  meron_error* error = nullptr;
  if (meron_checkpoint_load(&checkpoint, context, folder.c_str(), name, &options, &error) ==
      MERON_OK) {
    meron_checkpoint_info info{};
    info.struct_size = sizeof(info);
    CALL(meron_checkpoint_get_info, &info, checkpoint);
    *out = {info.step, info.bytes_read, info.missing + info.unexpected};
    CALL(meron_checkpoint_release, checkpoint);
  }
  return words_of(error);
}

}  // namespace meron::test
