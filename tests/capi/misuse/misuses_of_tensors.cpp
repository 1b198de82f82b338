// SPDX-License-Identifier: Apache-2.0
// Tensors of the caller's own that mean nothing to a checkpoint, for each function that takes some.
#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

using Statuses = std::vector<meron_status>;

const float kData[12] = {};
const uint64_t kShape[] = {3, 4};
const std::string kLong(513, 'n');

// Two tensors that are right: a misuse spoils the second.
struct Pair {
  Pair() {
    for (meron_checkpoint_tensor& tensor : tensors) {
      tensor = MERON_CHECKPOINT_TENSOR_INIT;
      tensor.kind = "values";
      tensor.dtype = "F32";
      tensor.dims = 2;
      tensor.shape = kShape;
      tensor.count = 12;
      tensor.data = kData;
    }
    tensors[0].name = "first";
    tensors[1].name = "second";
  }
  meron_checkpoint_tensor tensors[2];
};

void add(std::vector<Misuse>& all, const char* what, const Statuses& expected,
         const std::function<void(meron_checkpoint_tensor&)>& spoil) {
  const auto name = [&](const char* function) { return std::string(function) + ": " + what; };
  all.push_back({name("meron_checkpoint_save_begin"), expected, [spoil](Objects& o, Random&) {
                   Pair pair;
                   spoil(pair.tensors[1]);
                   meron_checkpoint_save_options options = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
                   options.tensors = pair.tensors;
                   options.tensor_count = 2;
                   meron_future future{};
                   const CallFailed failed =
                       FAILURE_OF(meron_checkpoint_save_begin, &future, o.b->context,
                                  o.folder.c_str(), "never", &options);
                   if (failed.status != MERON_OK) return failed;
                   const CallFailed ended =
                       FAILURE_OF(meron_future_wait, future, MERON_TIMEOUT_DEFAULT);
                   MUST(meron_future_release, future);
                   return ended;
                 }});
  all.push_back({name("meron_checkpoint_write"), expected, [spoil](Objects& o, Random&) {
                   Pair pair;
                   spoil(pair.tensors[1]);
                   meron_checkpoint_write_options options = MERON_CHECKPOINT_WRITE_OPTIONS_INIT;
                   options.tensors = pair.tensors;
                   options.tensor_count = 2;
                   return FAILURE_OF(meron_checkpoint_write, o.folder.c_str(), "never", &options);
                 }});
  all.push_back({name("meron_checkpoint_export"), expected, [spoil](Objects& o, Random&) {
                   Pair pair;
                   spoil(pair.tensors[1]);
                   meron_checkpoint_export_options options = MERON_CHECKPOINT_EXPORT_OPTIONS_INIT;
                   options.tensors = pair.tensors;
                   options.tensor_count = 2;
                   return FAILURE_OF(meron_checkpoint_export, o.b->context,
                                     (o.folder + "/export").c_str(), &options);
                 }});
}

}  // namespace

std::vector<Misuse> misuses_of_tensors() {
  static const uint64_t huge[] = {UINT64_MAX, UINT64_MAX};
  const Statuses wrong = {MERON_E_ARGUMENT};
  std::vector<Misuse> all;
  add(all, "tensor of no size", wrong, [](meron_checkpoint_tensor& t) { t.struct_size = 0; });
  add(all, "tensor of a large size", {MERON_E_ARGUMENT, MERON_E_UNSUPPORTED},
      [](meron_checkpoint_tensor& t) { t.struct_size = 4097; });
  add(all, "tensor without a name", wrong, [](meron_checkpoint_tensor& t) { t.name = nullptr; });
  add(all, "tensor with an empty name", wrong, [](meron_checkpoint_tensor& t) { t.name = ""; });
  add(all, "tensor with a long name", wrong,
      [](meron_checkpoint_tensor& t) { t.name = kLong.c_str(); });
  add(all, "tensor with a name that is no UTF-8", wrong,
      [](meron_checkpoint_tensor& t) { t.name = "n\xff"; });
  add(all, "tensor of an unknown kind", wrong,
      [](meron_checkpoint_tensor& t) { t.kind = "weights"; });
  add(all, "tensor without a dtype", wrong, [](meron_checkpoint_tensor& t) { t.dtype = nullptr; });
  add(all, "tensor of an unknown dtype", wrong,
      [](meron_checkpoint_tensor& t) { t.dtype = "F31"; });
  add(all, "tensor with too many dimensions", wrong,
      [](meron_checkpoint_tensor& t) { t.dims = MERON_MAX_DIMS + 1; });
  add(all, "tensor without a shape", wrong, [](meron_checkpoint_tensor& t) { t.shape = nullptr; });
  add(all, "tensor with a shape that overflows", wrong,
      [](meron_checkpoint_tensor& t) { t.shape = huge; });
  add(all, "tensor without data", wrong, [](meron_checkpoint_tensor& t) { t.data = nullptr; });
  add(all, "tensor that begins behind its end", wrong,
      [](meron_checkpoint_tensor& t) { t.begin = 13; });
  add(all, "tensor with elements that overflow", wrong,
      [](meron_checkpoint_tensor& t) { t.begin = UINT64_MAX; });
  add(all, "tensor of which elements are missing", wrong,
      [](meron_checkpoint_tensor& t) { t.count = 11; });
  add(all, "tensor twice", {MERON_E_ARGUMENT, MERON_E_DUPLICATE},
      [](meron_checkpoint_tensor& t) { t.name = "first"; });
  return all;
}

}  // namespace meron::test
