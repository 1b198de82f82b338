// SPDX-License-Identifier: Apache-2.0
#include "capi/dlpack.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <vector>

// The structures of DLPack 1.0, whose layout is an ABI of its own. Declared here because
// distributions ship headers from before version 1.
extern "C" {

struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};
struct DLDevice {
  int32_t device_type;  // 1: CPU, 2: CUDA
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;  // 2: float, 4: bfloat
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;  // bit 0: read-only
  DLTensor dl_tensor;
};

}  // extern "C"

namespace meron::capi {
namespace {

struct Export {
  DLManagedTensorVersioned tensor{};
  std::array<int64_t, kMaxDims> shape{};
  std::array<int64_t, kMaxDims> strides{};
  // Keeps the mapping, and what it needs: the unit's lease, or the gather's private copy. The
  // context is destroyed last, after its objects.
  std::shared_ptr<Context> context;
  std::shared_ptr<GatherOperation> gather;
  std::shared_ptr<Param> param;
  Unit* leased = nullptr;
  std::shared_ptr<Unit> lender;  // of a reduced gradient; else null
  bool on_device = false;
};

// A consumer drops a tensor as soon as it has requested the last work with it, and does not name
// the stream. It is one of those that have waited for the gather. A stream that is being captured
// can order nothing.
Status unlease_on_device(const Export& exported) {
  const Device& device = exported.leased->rank().device->device();
  std::vector<void*> users;
  for (void* const stream : exported.gather->joined()) {
    if (device.check_stream(stream).ok()) users.push_back(stream);
  }
  return exported.leased->on_device()->unlease(users);
}

void delete_export(DLManagedTensorVersioned* self) {
  if (self == nullptr) return;
  auto* owner = static_cast<Export*>(self->manager_ctx);
  // In a forked child the lock may be held by a thread that does not exist there; leases are the
  // parent's.
  if (is_forked_child()) return;
  // The thread that drops a tensor may hold a language's lock, and the engine's callbacks may wait
  // for that lock. So the next call releases the lease.
  const std::shared_ptr<Context> context = std::move(owner->context);
  context->release_soon([kept = std::shared_ptr<Export>(owner)]() mutable {
    if (kept->lender) --kept->lender->gradient().users.loans;
    if (kept->leased != nullptr) {
      if (kept->on_device) (void)unlease_on_device(*kept).ok();
      (void)kept->leased->unlease().ok();
    }
    kept.reset();
  });
}

DLDataType to_dlpack(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {2, 32, 1};
    case DType::bf16:
      return {4, 16, 1};
    case DType::f16:
      return {2, 16, 1};
  }
  return {};
}

// The emulated device's memory is the host's.
DLDevice device_of(const Context& context) {
  const Device& device = context.rank().device->device();
  if (device.kind() != "cuda") return {1, 0};
  return {2, device.info().index};
}

// Without data: of the host, row-major, writable.
std::unique_ptr<Export> make_export(const std::shared_ptr<Context>& context,
                                    const std::shared_ptr<Param>& param,
                                    std::span<const uint64_t> shape, DType dtype) {
  auto owner = std::make_unique<Export>();
  owner->context = context;
  owner->param = param;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    owner->shape[i] = static_cast<int64_t>(shape[i]);
    owner->strides[i] = stride;
    stride *= owner->shape[i];
  }
  DLManagedTensorVersioned& tensor = owner->tensor;
  tensor.version = {1, 0};
  tensor.manager_ctx = owner.get();
  tensor.deleter = delete_export;
  tensor.dl_tensor.device = {1, 0};
  tensor.dl_tensor.ndim = static_cast<int32_t>(shape.size());
  tensor.dl_tensor.dtype = to_dlpack(dtype);
  tensor.dl_tensor.shape = owner->shape.data();
  tensor.dl_tensor.strides = owner->strides.data();
  return owner;
}

}  // namespace

Result<DLManagedTensorVersioned*> export_dlpack(const std::shared_ptr<Context>& context,
                                                const std::shared_ptr<GatherOperation>& gather,
                                                const std::shared_ptr<Param>& param) {
  if (gather->mode() == GatherMode::into) {
    return Error(MERON_E_UNSUPPORTED, "the tensors lie in memory of the caller",
                 "export that memory itself, or gather a view or a copy");
  }
  const FullTensor full = gather->tensor(*param);
  if (full.data == nullptr) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("param '{}' is not part of this gather", param->desc.name),
                 "gather the unit that has the param")
        .on(param->desc.name);
  }
  auto owner = make_export(context, param, param->desc.shape, param->desc.dtype);
  owner->gather = gather;
  DLManagedTensorVersioned& tensor = owner->tensor;
  tensor.flags = gather->mode() == GatherMode::view ? 1 : 0;
  tensor.dl_tensor.data = const_cast<std::byte*>(full.data);
  if (full.on_device) tensor.dl_tensor.device = device_of(*context);
  if (gather->mode() == GatherMode::view) {
    owner->leased = param->unit;
    owner->leased->lease();
    owner->on_device = full.on_device;
    if (owner->on_device) owner->leased->on_device()->lease();
  }
  return &owner.release()->tensor;
}

Result<DLManagedTensorVersioned*> export_reduced(const std::shared_ptr<Context>& context,
                                                 const std::shared_ptr<Param>& param,
                                                 const Context::ReducedGradient& reduced) {
  const uint64_t count = reduced.part.size();
  auto owner = make_export(context, param, std::span(&count, 1), DType::f32);
  owner->tensor.dl_tensor.data = reduced.data;
  owner->lender = param->unit->shared_from_this();
  ++owner->lender->gradient().users.loans;
  return &owner.release()->tensor;
}

}  // namespace meron::capi
