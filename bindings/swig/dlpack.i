// SPDX-License-Identifier: Apache-2.0
// DLPack 1.x: tensors for, and from, other libraries of the process.

%{
namespace meron_swig {

// DLManagedTensorVersioned, whose layout https://dmlc.github.io/dlpack never changes within 1.x.
struct dlpack_managed {
  uint32_t major, minor;
  void *manager;
  void (*deleter)(dlpack_managed *);
  uint64_t flags;  // bit 0: read-only
  void *data;
  int32_t device_type, device_id;  // type 1: CPU
  int32_t ndim;
  uint8_t code, bits;  // code 2: float, 4: bfloat
  uint16_t lanes;
  int64_t *shape, *strides;  // in elements; null strides: row-major
  uint64_t byte_offset;
};

static failure not_taken(const std::string &what, const char *advice) {
  return {MERON_E_UNSUPPORTED, what + " cannot be taken over: " + advice, "", "", "",
          MERON_RANK_NONE, MERON_RANK_NONE};
}

}  // namespace meron_swig
%}

%inline %{
namespace meron_swig {

/** Calls the deleter of a DLPack tensor. Once: whoever holds the tensor last does so. */
inline void dlpack_delete(int64_t tensor) {
  if (!tensor) throw argument("a null DLPack tensor has no deleter");
  auto *managed = reinterpret_cast<dlpack_managed *>(tensor);
  if (managed->deleter) managed->deleter(managed);
}

/**
 * What a DLPack tensor is, read from its address: CPU memory, row-major, f32, bf16 or f16; others
 * are refused with MERON_E_UNSUPPORTED. Neither owns the tensor nor keeps it.
 */
class dlpack_tensor {
 public:
  explicit dlpack_tensor(int64_t tensor)
      : tensor_(reinterpret_cast<const dlpack_managed *>(tensor)) {
    if (!tensor_) throw argument("the DLPack tensor is null: pass the address of one");
    if (tensor_->major != 1)
      throw not_taken("DLPack version " + std::to_string(tensor_->major), "export version 1");
    if (tensor_->device_type != 1)
      throw not_taken("a tensor of device type " + std::to_string(tensor_->device_type),
                      "copy it to the CPU first");
    dtype_ = dtype_of(*tensor_);
    measure();
    if (address() % api().meron_dtype_size(dtype_))
      throw not_taken("a tensor that is not aligned to its elements", "copy it first");
  }

  /** Of the elements: MERON_F32, _BF16 or _F16. */
  int32_t dtype() const { return dtype_; }
  /** The number of dimensions. */
  int32_t ndim() const { return tensor_->ndim; }
  /** The size of a dimension; 0 beyond ndim. */
  int64_t size(int32_t axis) const {
    return axis >= 0 && axis < tensor_->ndim ? tensor_->shape[axis] : 0;
  }
  /** The memory, as long as nobody calls the tensor's deleter. */
  meron_view view() const {
    ::meron_view out = {};
    out.data = reinterpret_cast<void *>(address());
    out.count = count_;
    out.dtype = dtype_;
    out.writable = tensor_->flags & 1 ? 0 : 1;
    return out;
  }

 private:
#ifndef SWIG
  static meron_dtype dtype_of(const dlpack_managed &tensor) {
    if (tensor.lanes == 1 && tensor.code == 2 && tensor.bits == 32) return MERON_F32;
    if (tensor.lanes == 1 && tensor.code == 4 && tensor.bits == 16) return MERON_BF16;
    if (tensor.lanes == 1 && tensor.code == 2 && tensor.bits == 16) return MERON_F16;
    throw not_taken("elements of type code " + std::to_string(tensor.code) + ", " +
                        std::to_string(tensor.bits) + " bits, " + std::to_string(tensor.lanes) +
                        " lanes",
                    "convert it to f32, bf16 or f16 first");
  }

  // Counts the elements, and refuses shapes and strides that are not a row-major tensor's.
  void measure() {
    if (tensor_->ndim < 0 || (tensor_->ndim > 0 && !tensor_->shape))
      throw argument("the DLPack tensor has " + std::to_string(tensor_->ndim) +
                     " dimensions and no valid shape");
    uint64_t step = 1;
    bool row_major = true;
    for (int32_t axis = tensor_->ndim; axis-- > 0;) {
      const int64_t size = tensor_->shape[axis];
      if (size < 0) throw argument("size " + std::to_string(size) + " in a DLPack tensor's shape");
      if (tensor_->strides && size != 1 && static_cast<uint64_t>(tensor_->strides[axis]) != step)
        row_major = false;
      if (__builtin_mul_overflow(step, static_cast<uint64_t>(size), &step) || step > INT64_MAX / 4)
        throw argument("a DLPack tensor's shape has more elements than memory has bytes");
    }
    count_ = step;
    if (!row_major && count_)
      throw not_taken("a tensor that is not row-major", "make it contiguous first");
    if (!tensor_->data && count_) throw argument("the DLPack tensor has elements and no memory");
  }

  // Never null: an empty tensor may have no memory, a view has some.
  uintptr_t address() const {
    return tensor_->data ? reinterpret_cast<uintptr_t>(tensor_->data) + tensor_->byte_offset
                         : reinterpret_cast<uintptr_t>(tensor_);
  }

  const dlpack_managed *tensor_;
  meron_dtype dtype_ = MERON_F32;
  uint64_t count_ = 0;
#endif
};

}  // namespace meron_swig
%}
