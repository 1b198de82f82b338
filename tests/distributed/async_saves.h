// SPDX-License-Identifier: Apache-2.0
// Saves that are begun, and what they left.
#pragma once

#include <string>

#include "tests/distributed/one_param.h"
#include "tests/distributed/saved_worlds.h"

namespace meron::test {

inline meron_future begin_save(const Trainer& trainer, const std::string& folder, const char* name,
                               uint64_t step) {
  const meron_checkpoint_save_options options = save_options(trainer, step);
  meron_future future{};
  CALL(meron_checkpoint_save_begin, &future, trainer.context, folder.c_str(), name, &options);
  return future;
}

// Of the newest, or `name`: its step.
inline uint64_t load(const Trainer& trainer, const std::string& folder,
                     const char* name = nullptr) {
  meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
  options.optimizers = &trainer.optimizer;
  options.optimizer_count = 1;
  meron_checkpoint loaded{};
  CALL(meron_checkpoint_load, &loaded, trainer.context, folder.c_str(), name, &options);
  meron_checkpoint_info info{};
  info.struct_size = sizeof(info);
  CALL(meron_checkpoint_get_info, &info, loaded);
  CALL(meron_checkpoint_release, loaded);
  return info.step;
}

inline std::string failure_of(meron_future save, meron_status* status) {
  meron_error* error = nullptr;
  *status = meron_future_wait(save, MERON_TIMEOUT_DEFAULT, &error);
  std::string text = error != nullptr ? meron_error_message(error) : "";
  meron_error_free(error);
  CALL(meron_future_release, save);
  return text;
}

}  // namespace meron::test
