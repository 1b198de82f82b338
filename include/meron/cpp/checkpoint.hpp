// SPDX-License-Identifier: Apache-2.0
// meron/cpp/checkpoint.hpp: saves and loads the states of all units by all ranks together, and
// reads the files.
//
//     meron::SaveOptions options;
//     options.step = 100;
//     options.keep = 2;
//     meron::Future saving = meron::save_checkpoint_begin(context, "runs/a", "step-100", optimizer,
//                                                         options);
//     ...                                      // forward and backward continue
//     saving.wait();
//
//     meron::Checkpoint loaded = meron::load_checkpoint(context, "runs/a", nullptr, optimizer);
#ifndef MERON_CPP_CHECKPOINT_HPP
#define MERON_CPP_CHECKPOINT_HPP

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "meron/checkpoint.h"
#include "meron/cpp/context.hpp"
#include "meron/cpp/methods.hpp"
#include "meron/cpp/optimizer.hpp"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {

// Optimizers as an argument: one, a list in braces, or a range.
using OptimizerList = ListOf<Optimizer>;

// The caller's own tensor, or a range of one, to save. `data` is not copied: the function that
// takes the tensor specifies how long its memory must live.
struct CheckpointTensor {
  std::string name;             // 1 to 512 bytes of UTF-8
  std::string dtype;            // as safetensors names it: "F32", "BF16", "I64", ...
  std::vector<uint64_t> shape;  // of the full tensor, row-major; empty: a scalar
  const void* data = nullptr;   // little endian, contiguous
  uint64_t count = 0;           // elements in `data`
  uint64_t begin = 0;           // the first of them in the tensor
  std::string kind;             // empty: "extra". "values" for a buffer, "exp_avg", "state.KEY" for
                                // a state of an optimizer: docs/checkpoint-format.md

  // The struct of the C interface; borrows from this.
  meron_checkpoint_tensor raw() const noexcept {
    meron_checkpoint_tensor made = MERON_CHECKPOINT_TENSOR_INIT;
    made.name = name.c_str();
    made.kind = kind.empty() ? nullptr : kind.c_str();
    made.dtype = dtype.c_str();
    made.shape = shape.data();
    // The library rejects a number of dimensions that does not fit, because it is too large.
    made.dims = static_cast<uint32_t>(shape.size() < UINT32_MAX ? shape.size() : UINT32_MAX);
    made.begin = begin;
    made.count = count;
    made.data = data;
    return made;
  }
};

namespace detail {

template <class T>
inline constexpr const char* kSafetensorsName = nullptr;
template <>
inline constexpr const char* kSafetensorsName<double> = "F64";
template <>
inline constexpr const char* kSafetensorsName<float> = "F32";
template <>
inline constexpr const char* kSafetensorsName<Float16> = "F16";
template <>
inline constexpr const char* kSafetensorsName<BFloat16> = "BF16";
template <>
inline constexpr const char* kSafetensorsName<int64_t> = "I64";
template <>
inline constexpr const char* kSafetensorsName<int32_t> = "I32";
template <>
inline constexpr const char* kSafetensorsName<int16_t> = "I16";
template <>
inline constexpr const char* kSafetensorsName<int8_t> = "I8";
template <>
inline constexpr const char* kSafetensorsName<uint64_t> = "U64";
template <>
inline constexpr const char* kSafetensorsName<uint32_t> = "U32";
template <>
inline constexpr const char* kSafetensorsName<uint16_t> = "U16";
template <>
inline constexpr const char* kSafetensorsName<uint8_t> = "U8";
template <>
inline constexpr const char* kSafetensorsName<bool> = "BOOL";

inline std::vector<meron_checkpoint_tensor> raw_of(Span<const CheckpointTensor> tensors) {
  return with_memory([&] {
    std::vector<meron_checkpoint_tensor> raw;
    raw.reserve(tensors.size());
    for (const CheckpointTensor& tensor : tensors) raw.push_back(tensor.raw());
    return raw;
  });
}

}  // namespace detail

// A tensor in a range (a Span, std::span, std::vector, std::array, an array) of float, double,
// BFloat16, Float16, bool or sized integers, or in one of them, which stays the caller's. `begin`:
// the first element of `data` in the tensor.
template <class Memory, detail::Lasting<Memory> = 0>
CheckpointTensor checkpoint_tensor(std::string name, std::vector<uint64_t> shape, Memory&& data,
                                   uint64_t begin = 0, std::string kind = {}) {
  using T = std::remove_cv_t<detail::ElementOf<Memory>>;
  static_assert(detail::kSafetensorsName<T> != nullptr, "safetensors has no name for this type");
  CheckpointTensor made;
  made.name = std::move(name);
  made.dtype = detail::kSafetensorsName<T>;
  made.shape = std::move(shape);
  const auto span = detail::memory_of(data);
  made.data = span.data();
  made.count = span.size();
  made.begin = begin;
  made.kind = std::move(kind);
  return made;
}
template <class Memory, detail::Temporary<Memory> = 0>
CheckpointTensor checkpoint_tensor(std::string name, std::vector<uint64_t> shape, Memory&& data,
                                   uint64_t begin = 0,
                                   std::string kind = {}) = delete;  // `data` would dangle

// ---- Saving -------------------------------------------------------------------------------------

// Options of a save: its content, and the fate of other checkpoints.
struct SaveOptions {
  uint64_t step = 0;         // the caller's count: the newest checkpoint has the highest
  uint64_t keep = 0;         // complete checkpoints that stay in the folder; 0: all
  std::string extra;         // the caller's own state: the text of a JSON object, of rank 0; empty:
                             // none
  bool values_only = false;  // neither masters nor states of optimizers
  bool skip_frozen = false;  // no frozen params
  bool overwrite = false;    // replaces a checkpoint of that name
  bool per_node = false;     // each node has its own folder, such as one on a local disk
  std::string mapping;       // empty, or a JSON object: "PARAM": "NAME" in the files, for states
                             // too; "" leaves the param out
  // The caller's own; all ranks together pass each element of a tensor once.
  Span<const CheckpointTensor> tensors;
  std::vector<meron_unit> units;  // handles of the units that are saved, the same on all ranks;
                                  // empty: all
};

// Begins to save the current states of all units as `name` in `folder`. All ranks see the folder,
// and the save creates it if it does not exist. The checkpoint is complete or does not exist, and
// any number of ranks can load it. Collective over the world. A thread of the engine copies and
// writes: gathers, forward and backward continue meanwhile, and a step or an update waits until its
// units are copied. The memory of `tensors` must not change until wait_copied. Within an
// accumulation it has what the last update left, and gradients stay as they are. Blocks until the
// previous save has ended.
//
// The future throws the failure of any rank on all ranks, and so does the next save if no call has
// waited for the future. Existing checkpoints stay, and training can continue. Throws
// MERON_E_ARGUMENT (an invalid name, `extra` is no JSON object), MERON_E_DUPLICATE (the name is
// taken), MERON_E_STATE (a step is pending, a unit is in use), MERON_E_UNSUPPORTED (a unit of some
// ranks only), MERON_E_NO_SPACE, MERON_E_IO.
[[nodiscard]] inline Future save_checkpoint_begin(const Context& context, const Text& folder,
                                                  const Text& name,
                                                  const OptimizerList& optimizers = {},
                                                  const SaveOptions& options = {}) {
  const std::vector<meron_checkpoint_tensor> tensors = detail::raw_of(options.tensors);
  meron_checkpoint_save_options raw = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
  raw.values_only = options.values_only ? 1 : 0;
  raw.skip_frozen = options.skip_frozen ? 1 : 0;
  raw.overwrite = options.overwrite ? 1 : 0;
  raw.per_node = options.per_node ? 1 : 0;
  raw.step = options.step;
  raw.keep = options.keep;
  raw.extra = detail::optional_text(options.extra);
  raw.mapping = detail::optional_text(options.mapping);
  raw.optimizers = optimizers.data();
  raw.optimizer_count = optimizers.size();
  raw.tensors = tensors.data();
  raw.tensor_count = tensors.size();
  raw.units = options.units.data();
  raw.unit_count = options.units.size();
  return Future(adopt, detail::receive(meron_checkpoint_save_begin, context.handle(),
                                       folder.c_str(), name.c_str(),
                                       static_cast<const meron_checkpoint_save_options*>(&raw)));
}
// Saves, and waits for the end.
inline void save_checkpoint(const Context& context, const Text& folder, const Text& name,
                            const OptimizerList& optimizers = {}, const SaveOptions& options = {}) {
  save_checkpoint_begin(context, folder, name, optimizers, options).wait();
}

// Waits until the pending save has copied all its data: then the caller's tensors may change.
// Returns at once if no save is pending, also if it has failed. Blocks on the drive.
inline void wait_copied(const Context& context) {
  detail::call(meron_checkpoint_wait_copied, context.handle(), int64_t{MERON_TIMEOUT_DEFAULT});
}
// Waits up to `timeout`. Returns true if all data is copied.
[[nodiscard]] inline bool wait_copied_for(const Context& context,
                                          std::chrono::nanoseconds duration) {
  return detail::call(meron_checkpoint_wait_copied, context.handle(), detail::timeout(duration)) ==
         MERON_OK;
}

// Progress of the pending save, or of the last one, in bytes of this rank. Never blocks.
inline meron_checkpoint_progress save_progress(const Context& context) {
  return detail::receive_info<meron_checkpoint_progress>(meron_checkpoint_get_progress,
                                                         context.handle());
}

// Options of a write without a context.
struct WriteOptions {
  uint64_t step = 0;       // the caller's count
  std::string extra;       // the text of a JSON object; empty: none
  std::string optimizers;  // the manifest's list of them, a JSON array; empty: none
  bool overwrite = false;  // replaces a checkpoint of that name
};

// Writes tensors as a checkpoint of one rank, without a context, for importers of other formats.
// Memory is read once and in order, so it may be mapped files. Blocks on the drive. Throws
// MERON_E_ARGUMENT, MERON_E_DUPLICATE, MERON_E_STATE, MERON_E_NO_SPACE, MERON_E_IO.
inline void write_checkpoint(const Text& folder, const Text& name,
                             Span<const CheckpointTensor> tensors,
                             const WriteOptions& options = {}) {
  const std::vector<meron_checkpoint_tensor> table = detail::raw_of(tensors);
  meron_checkpoint_write_options raw = MERON_CHECKPOINT_WRITE_OPTIONS_INIT;
  raw.overwrite = options.overwrite ? 1 : 0;
  raw.step = options.step;
  raw.extra = detail::optional_text(options.extra);
  raw.optimizers = detail::optional_text(options.optimizers);
  raw.tensors = table.data();
  raw.tensor_count = table.size();
  detail::call(meron_checkpoint_write, folder.c_str(), name.c_str(),
               static_cast<const meron_checkpoint_write_options*>(&raw));
}

// ---- Loading ------------------------------------------------------------------------------------

// An open or loaded checkpoint, or model as Hugging Face publishes it. Loaded states outlive it.
class Checkpoint : public Handle<meron_checkpoint, meron_checkpoint_release>,
                   public detail::CheckpointMethods<Checkpoint> {
 public:
  using Handle::Handle;

  // Its step, the ranks that saved it, bytes and tensors, and the counts of mismatches. Never
  // blocks.
  meron_checkpoint_info info() const {
    return detail::receive_info<meron_checkpoint_info>(meron_checkpoint_get_info, handle());
  }

  // Texts are valid as long as the checkpoint.
  std::string_view path() const& { return text(MERON_CHECKPOINT_TEXT_PATH); }    // of its directory
  std::string_view extra() const& { return text(MERON_CHECKPOINT_TEXT_EXTRA); }  // a JSON object
  // States that it lacks, which the load did not change: a line each.
  std::string_view missing() const& { return text(MERON_CHECKPOINT_TEXT_MISSING); }
  // Its tensors that no unit has: a line each.
  std::string_view unexpected() const& { return text(MERON_CHECKPOINT_TEXT_UNEXPECTED); }
  // All of its manifest, a JSON object: docs/checkpoint-format.md.
  std::string_view manifest() const& { return text(MERON_CHECKPOINT_TEXT_MANIFEST); }
  std::string_view path() const&& = delete;  // they would outlive the checkpoint
  std::string_view extra() const&& = delete;
  std::string_view missing() const&& = delete;
  std::string_view unexpected() const&& = delete;
  std::string_view manifest() const&& = delete;

  // Reads as many elements of a tensor as `into` has, from element `begin` on (row-major), in the
  // files' dtype, after a comparison of their checksums. `into` is a range whose elements have the
  // size of the tensor's, or one such element. `kind` null: "values". Local: no other rank takes
  // part. Blocks on the drive. Throws MERON_E_NOT_FOUND (no such tensor, a file is
  // gone), MERON_E_ARGUMENT (outside of the tensor), MERON_E_CORRUPT, MERON_E_IO.
  template <class Memory, detail::Lasting<Memory> = 0>
  void read(const Text& name, Memory&& into, uint64_t begin = 0, const Text& kind = nullptr) const {
    using T = detail::ElementOf<Memory>;
    static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>);
    const Span<T> span = detail::memory_of(into);
    detail::call(meron_checkpoint_read, static_cast<void*>(span.data()),
                 uint64_t{span.size_bytes()}, handle(), kind.c_str(), name.c_str(), begin,
                 uint64_t{span.size()});
  }
  template <class Memory, detail::Temporary<Memory> = 0>
  void read(const Text& name, Memory&& into, uint64_t begin = 0,
            const Text& kind = nullptr) const = delete;  // what was read would be lost

 private:
  std::string_view text(meron_checkpoint_text_kind kind) const {
    return detail::receive(meron_checkpoint_text, handle(), kind);
  }
};

// Options of a load.
struct LoadOptions {
  bool lenient = false;      // ignore params and tensors that the other side lacks
  bool values_only = false;  // values, and masters from them; optimizers keep their states
  bool rank0_only = false;   // only rank 0 sees the files, and sends each rank its shards
  bool per_node = false;     // each node has its own folder; one of its ranks reads its files
  std::string mapping;       // empty, or a JSON object: "PARAM": "TENSOR", or "PARAM": ["TENSOR",
                             // ...], one after the other along the first dimension
  std::string claimed;       // empty, or names of values that the caller reads itself, a line each
  std::vector<meron_unit> units;  // handles of the units that are loaded, the same on all ranks;
                                  // empty: all. Others stay as they are
};

// Loads a checkpoint of any world and plan into all units: values, masters, states, counts of steps
// and hyperparameters of groups of the optimizers. Pass the same optimizers as to the save.
// `folder`: of checkpoints, or one of them; with values_only also a model as Hugging Face publishes
// it. `name` null: the newest complete one. Collective over the world. Before anything changes, all
// ranks have compared names, shapes and optimizers, and opened the files; an error after that
// breaks the group. Blocks on the drive and on all ranks. Throws MERON_E_NOT_FOUND, MERON_E_CORRUPT
// (names tensor, file and offset), MERON_E_VERSION, MERON_E_ARGUMENT (it does not fit: the message
// lists missing, unexpected and different shapes), MERON_E_STATE as a save and for
// a gradient that is not empty, MERON_E_IO, MERON_E_NO_MEMORY, MERON_E_AUTH (a link).
[[nodiscard]] inline Checkpoint load_checkpoint(const Context& context, const Text& folder,
                                                const Text& name = nullptr,
                                                const OptimizerList& optimizers = {},
                                                const LoadOptions& options = {}) {
  meron_checkpoint_load_options raw = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
  raw.lenient = options.lenient ? 1 : 0;
  raw.values_only = options.values_only ? 1 : 0;
  raw.rank0_only = options.rank0_only ? 1 : 0;
  raw.per_node = options.per_node ? 1 : 0;
  raw.mapping = detail::optional_text(options.mapping);
  raw.claimed = detail::optional_text(options.claimed);
  raw.optimizers = optimizers.data();
  raw.optimizer_count = optimizers.size();
  raw.units = options.units.data();
  raw.unit_count = options.units.size();
  return Checkpoint(
      adopt, detail::receive(meron_checkpoint_load, context.handle(), folder.c_str(), name.c_str(),
                             static_cast<const meron_checkpoint_load_options*>(&raw)));
}

// Opens a checkpoint, or a model as Hugging Face publishes it, to inspect it and to read tensors,
// without a context. Arguments as of load_checkpoint. Blocks on the drive. Throws
// MERON_E_NOT_FOUND, MERON_E_CORRUPT, MERON_E_PARSE, MERON_E_VERSION, MERON_E_ARGUMENT,
// MERON_E_AUTH (a link), MERON_E_IO.
[[nodiscard]] inline Checkpoint open_checkpoint(const Text& folder, const Text& name = nullptr) {
  return Checkpoint(adopt, detail::receive(meron_checkpoint_open, folder.c_str(), name.c_str()));
}

// The complete checkpoints in a folder, newest first, as a JSON array of objects with "name",
// "step", "world", "bytes", "created" and "whole". Blocks on the drive. Throws MERON_E_NOT_FOUND,
// MERON_E_IO.
[[nodiscard]] inline String list_checkpoints(const Text& folder) {
  return String(adopt, detail::receive(meron_checkpoint_list, folder.c_str()));
}

// Removes a checkpoint, which is complete or gone at each moment. Blocks on the drive. Throws
// MERON_E_ARGUMENT (it is no checkpoint), MERON_E_NOT_FOUND, MERON_E_AUTH (a link), MERON_E_STATE
// (it is being saved, or open), MERON_E_IO.
inline void remove_checkpoint(const Text& folder, const Text& name) {
  detail::call(meron_checkpoint_remove, folder.c_str(), name.c_str());
}

// ---- Export of weights --------------------------------------------------------------------------

// Options of an export.
struct ExportOptions {
  std::optional<DType> dtype;  // of the floating-point values in the files; empty: each param's own
  uint64_t max_file_bytes = 0;           // a file is closed before it would exceed it; 0: 5 GB
  std::string mapping;                   // empty, or a JSON object: "PARAM": "NAME" in the files
  bool overwrite = false;                // replaces an existing model
  Span<const CheckpointTensor> tensors;  // the caller's own of kind "values", unsharded, of rank 0
};

// Writes the values of all units as Hugging Face publishes models: model.safetensors, or several
// files with an index, in a folder that all ranks see. Collective over the world; each rank writes
// its own shard of each tensor in place, so nothing is gathered. Blocks on the drive and on all
// ranks. Throws MERON_E_ARGUMENT, MERON_E_DUPLICATE (a model exists), MERON_E_STATE as a save,
// MERON_E_NO_SPACE, MERON_E_IO.
inline void export_model(const Context& context, const Text& folder,
                         const ExportOptions& options = {}) {
  const std::vector<meron_checkpoint_tensor> tensors = detail::raw_of(options.tensors);
  meron_checkpoint_export_options raw = MERON_CHECKPOINT_EXPORT_OPTIONS_INIT;
  if (options.dtype.has_value()) {
    raw.dtype = static_cast<meron_dtype>(*options.dtype);
    raw.keep_dtype = 0;
  }
  raw.overwrite = options.overwrite ? 1 : 0;
  raw.max_file_bytes = options.max_file_bytes;
  raw.mapping = detail::optional_text(options.mapping);
  raw.tensors = tensors.data();
  raw.tensor_count = tensors.size();
  detail::call(meron_checkpoint_export, context.handle(), folder.c_str(),
               static_cast<const meron_checkpoint_export_options*>(&raw));
}

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

#endif  // MERON_CPP_CHECKPOINT_HPP
