// SPDX-License-Identifier: Apache-2.0
// Tensors of the caller's own that go into a checkpoint.

%{
#include <deque>
%}

%inline %{
namespace meron_swig {

/**
 * Tensors for meron_checkpoint_save_begin, _write and _export. It has copies of names and shapes; the
 * memory of the elements is the caller's, and must stay as meron/checkpoint.h says.
 */
class checkpoint_tensors {
 public:
  /**
   * Adds a tensor, or the part of one from element `begin` on, of which `data` has `count` elements.
   * kind: null for "extra". dtype: as safetensors names it. shape: of the whole tensor.
   */
  void add(const char *name, const char *kind, const char *dtype, int64_array shape, int64_t begin,
           int64_t count, readable_memory data) {
    if (!name || !dtype) throw argument("a tensor has a name and a dtype");
    texts_.emplace_back(name);
    ::meron_checkpoint_tensor item = initial(api().meron_checkpoint_tensor_init);
    item.name = texts_.back().c_str();
    if (kind) {
      texts_.emplace_back(kind);
      item.kind = texts_.back().c_str();
    }
    texts_.emplace_back(dtype);
    item.dtype = texts_.back().c_str();
    shapes_.emplace_back();
    for (size_t axis = 0; axis < shape.count; ++axis)
      shapes_.back().push_back(unsigned_of<uint64_t>(shape.items[axis], "a size of the shape"));
    item.dims = static_cast<uint32_t>(shape.count);
    item.shape = shapes_.back().data();
    item.begin = unsigned_of<uint64_t>(begin, "begin");
    item.count = unsigned_of<uint64_t>(count, "count");
    item.data = data.data;
    items_.push_back(item);
  }
#ifndef SWIG
  const ::meron_checkpoint_tensor *data() const { return items_.data(); }
  size_t size() const { return items_.size(); }
#endif

 private:
  std::vector< ::meron_checkpoint_tensor> items_;
  // What the items point to: a deque moves none of its elements.
  std::deque<std::string> texts_;
  std::deque<std::vector<uint64_t>> shapes_;
};

}  // namespace meron_swig
%}
