// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/planning/model_config.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/dtype_words.h"
#include "plan/json_text.h"
#include "plan/text.h"

namespace meron::planning {
namespace {

constexpr uint64_t kMostHidden = uint64_t{1} << 24;
constexpr uint64_t kMostVocabulary = uint64_t{1} << 32;
constexpr uint64_t kMostExperts = uint64_t{1} << 16;

// Reads members; the first that is wrong is kept, and what is read after it counts for nothing.
class Reader {
 public:
  explicit Reader(JsonValue config) : config_(config) {}

  uint64_t size(std::string_view key, uint64_t most) { return read(config_.require(key), most, 1); }
  // Also where the value is null.
  uint64_t size_or(std::string_view key, uint64_t most, uint64_t missing) {
    const auto value = config_.find(key);
    if (!value || is_null(*value)) return missing;
    return read(*value, most, 1);
  }
  bool flag(std::string_view key, bool missing) {
    const auto value = config_.find(key);
    if (!value || is_null(*value)) return missing;
    return keep(value->boolean(), missing);
  }
  DType dtype() {
    for (const std::string_view key : {"dtype", "torch_dtype"}) {
      const auto value = config_.find(key);
      if (value && !is_null(*value)) return keep(read_dtype(*value), DType::f32);
    }
    return DType::f32;  // what the library that wrote the file takes, too
  }
  const Status& status() const { return status_; }
  void refuse(std::string_view key, std::string_view what, std::string advice) {
    if (status_) status_ = config_.require(key)->error(MERON_E_PARSE, what, std::move(advice));
  }

 private:
  static bool is_null(JsonValue value) {
    return !value.string().ok() && !value.boolean().ok() && !value.number().ok() &&
           !value.array().ok() && !value.count(0, UINT64_MAX).ok() && !value.first();
  }
  uint64_t read(Result<JsonValue> value, uint64_t most, uint64_t least) {
    if (!value) {
      if (status_) status_ = std::move(value).error();
      return least;
    }
    return keep(value->count(least, most), least);
  }
  template <class T>
  T keep(Result<T> value, T missing) {
    if (value) return *value;
    if (status_) status_ = std::move(value).error();
    return missing;
  }

  JsonValue config_;
  Status status_ = Ok{};
};

// The tensors of one unit, all of one dtype.
class Tensors {
 public:
  explicit Tensors(DType dtype) : dtype_(dtype) {}
  Tensors& add(std::vector<uint64_t> shape) {
    tensors_.push_back(
        {.name = fmt::format("t{}", tensors_.size()), .shape = std::move(shape), .dtype = dtype_});
    return *this;
  }
  // A linear layer, and its bias where it has one.
  Tensors& linear(uint64_t in, uint64_t out, bool bias) {
    add({out, in});
    return bias ? add({out}) : *this;
  }
  Tensors& layer_norm(uint64_t width) { return add({width}).add({width}); }

  const std::vector<TensorDesc>& list() const { return tensors_; }

 private:
  DType dtype_;
  std::vector<TensorDesc> tensors_;
};

class Model {
 public:
  Status unit(std::string name, const Tensors& tensors) {
    MERON_ASSIGN(UnitLayout layout, layout_unit(tensors.list()));
    desc_.units.push_back({std::move(name), std::move(layout.flats)});
    return Ok{};
  }
  // `count` equal units; laid out once.
  Status layers(std::string_view prefix, uint64_t count, const Tensors& tensors) {
    MERON_ASSIGN(const UnitLayout layout, layout_unit(tensors.list()));
    for (uint64_t i = 0; i < count; ++i) {
      desc_.units.push_back({fmt::format("{}.{}", prefix, i), layout.flats});
    }
    return Ok{};
  }
  ModelDesc take() { return std::move(desc_); }

 private:
  ModelDesc desc_;
};

// llama and what has grown from it: RMS norms, rotary positions, a gated MLP.
struct LlamaLike {
  bool qkv_bias = false;    // where "attention_bias" is not given
  bool qk_norm = false;     // of each head's queries and keys
  bool output_bias = true;  // of attention, where it has biases
  bool experts = false;
};

Result<ModelDesc> llama_like(JsonValue config, const LlamaLike& family) {
  Reader read(config);
  const uint64_t hidden = read.size("hidden_size", kMostHidden);
  const uint64_t inner = read.size("intermediate_size", kMostHidden);
  const uint64_t layers = read.size("num_hidden_layers", kMaxLayers);
  const uint64_t vocabulary = read.size("vocab_size", kMostVocabulary);
  const uint64_t heads = read.size("num_attention_heads", kMostHidden);
  const uint64_t kv_heads = read.size_or("num_key_value_heads", kMostHidden, heads);
  const uint64_t head = read.size_or("head_dim", kMostHidden, hidden / heads);
  const uint64_t experts = family.experts ? read.size("num_local_experts", kMostExperts) : 0;
  const bool bias = read.flag("attention_bias", family.qkv_bias);
  const bool mlp_bias = read.flag("mlp_bias", false);
  const bool tied = read.flag("tie_word_embeddings", false);
  const DType dtype = read.dtype();
  if (head == 0) {
    read.refuse("num_attention_heads", "there are more heads than \"hidden_size\" has elements",
                "check both numbers");
  }
  MERON_TRY(read.status());

  Tensors layer(dtype);
  layer.linear(hidden, heads * head, bias)
      .linear(hidden, kv_heads * head, bias)
      .linear(hidden, kv_heads * head, bias)
      .linear(heads * head, hidden, bias && family.output_bias);
  if (family.qk_norm) layer.add({head}).add({head});
  layer.add({hidden}).add({hidden});
  if (family.experts) {
    layer.linear(hidden, experts, false);
    for (int matrix = 0; matrix < 3; ++matrix) layer.add({experts, inner, hidden});
  } else {
    layer.linear(hidden, inner, mlp_bias)
        .linear(hidden, inner, mlp_bias)
        .linear(inner, hidden, mlp_bias);
  }
  Model model;
  MERON_TRY(model.unit("model.embed_tokens", Tensors(dtype).add({vocabulary, hidden})));
  MERON_TRY(model.layers("model.layers", layers, layer));
  MERON_TRY(model.unit("model.norm", Tensors(dtype).add({hidden})));
  if (!tied) MERON_TRY(model.unit("lm_head", Tensors(dtype).add({vocabulary, hidden})));
  return model.take();
}

// An attention of one fused matrix, and an MLP of two.
Tensors gpt_layer(uint64_t hidden, uint64_t inner, DType dtype) {
  Tensors layer(dtype);
  layer.layer_norm(hidden)
      .linear(hidden, 3 * hidden, true)
      .linear(hidden, hidden, true)
      .layer_norm(hidden)
      .linear(hidden, inner, true)
      .linear(inner, hidden, true);
  return layer;
}

Result<ModelDesc> gpt2(JsonValue config) {
  Reader read(config);
  const uint64_t hidden = read.size("n_embd", kMostHidden);
  const uint64_t layers = read.size("n_layer", kMaxLayers);
  const uint64_t vocabulary = read.size("vocab_size", kMostVocabulary);
  const uint64_t positions = read.size("n_positions", kMostVocabulary);
  const uint64_t inner = read.size_or("n_inner", kMostHidden, 4 * hidden);
  const bool tied = read.flag("tie_word_embeddings", true);
  const DType dtype = read.dtype();
  MERON_TRY(read.status());
  Model model;
  MERON_TRY(model.unit("transformer.wte", Tensors(dtype).add({vocabulary, hidden})));
  MERON_TRY(model.unit("transformer.wpe", Tensors(dtype).add({positions, hidden})));
  MERON_TRY(model.layers("transformer.h", layers, gpt_layer(hidden, inner, dtype)));
  MERON_TRY(model.unit("transformer.ln_f", Tensors(dtype).layer_norm(hidden)));
  if (!tied) MERON_TRY(model.unit("lm_head", Tensors(dtype).add({vocabulary, hidden})));
  return model.take();
}

Result<ModelDesc> gpt_neox(JsonValue config) {
  Reader read(config);
  const uint64_t hidden = read.size("hidden_size", kMostHidden);
  const uint64_t inner = read.size("intermediate_size", kMostHidden);
  const uint64_t layers = read.size("num_hidden_layers", kMaxLayers);
  const uint64_t vocabulary = read.size("vocab_size", kMostVocabulary);
  const bool tied = read.flag("tie_word_embeddings", false);
  const DType dtype = read.dtype();
  MERON_TRY(read.status());
  Model model;
  MERON_TRY(model.unit("gpt_neox.embed_in", Tensors(dtype).add({vocabulary, hidden})));
  MERON_TRY(model.layers("gpt_neox.layers", layers, gpt_layer(hidden, inner, dtype)));
  MERON_TRY(model.unit("gpt_neox.final_layer_norm", Tensors(dtype).layer_norm(hidden)));
  if (!tied) MERON_TRY(model.unit("embed_out", Tensors(dtype).add({vocabulary, hidden})));
  return model.take();
}

Result<ModelDesc> model_from_config(JsonValue config) {
  MERON_ASSIGN(const JsonValue type, config.require("model_type"));
  MERON_ASSIGN(const std::string_view name, type.string());
  if (name == "llama" || name == "mistral") return llama_like(config, {});
  if (name == "mixtral") return llama_like(config, {.experts = true});
  if (name == "qwen2") return llama_like(config, {.qkv_bias = true, .output_bias = false});
  if (name == "qwen3") return llama_like(config, {.qk_norm = true});
  if (name == "gpt2") return gpt2(config);
  if (name == "gpt_neox") return gpt_neox(config);
  return type.error(MERON_E_UNSUPPORTED,
                    fmt::format("the shapes of model type {} are not known", in_quotes(name)),
                    "known are llama, mistral, mixtral, qwen2, qwen3, gpt2 and gpt_neox. Describe "
                    "others by --safetensors FILE, or by --parameters 7B --layers 32");
}

}  // namespace

Result<ModelDesc> parse_model_or_config(std::string_view json) {
  MERON_ASSIGN(const JsonText text,
               JsonText::parse(json, "model", {.bytes = kMaxModelText, .depth = kMaxModelDepth}));
  const JsonValue root = text.root();
  const bool is_model = root.find("units") || root.find("parameters");
  if (is_model || !root.find("model_type")) return parse_model(json);
  return model_from_config(root);
}

}  // namespace meron::planning
