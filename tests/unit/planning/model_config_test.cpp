// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/planning/model_config.h"

#include <gtest/gtest.h>

#include "tests/unit/plan/expect_error.h"

namespace meron::planning {
namespace {

uint64_t elements_of(std::string_view config) {
  const Result<ModelDesc> model = parse_model_or_config(config);
  EXPECT_TRUE(model.ok()) << model.error().info().what;
  uint64_t sum = 0;
  for (const UnitDesc& unit : model->units) {
    for (const FlatDesc& flat : unit.flats) sum += flat.elements;
  }
  return sum;
}

TEST(ModelConfig, HasTheParametersOfTheModelsThatPeopleTrain) {
  // Llama 2 7B, Mistral 7B, Mixtral 8x7B: as their files have them, to the parameter.
  EXPECT_EQ(elements_of(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
      "rms_norm_eps": 1e-05, "rope_scaling": null, "torch_dtype": "float16"})"),
            6'738'415'616u);
  EXPECT_EQ(elements_of(R"({"model_type": "mistral", "hidden_size": 4096, "head_dim": null,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "vocab_size": 32000})"),
            7'241'732'096u);
  EXPECT_EQ(elements_of(R"({"model_type": "mixtral", "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "num_local_experts": 8, "vocab_size": 32000})"),
            46'702'792'704u);
  // Qwen 2.5 0.5B, whose head is its embedding.
  EXPECT_EQ(elements_of(R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
      "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
      "vocab_size": 151936, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"),
            494'032'768u);
  // Qwen 3 0.6B: heads wider than their share of the model.
  EXPECT_EQ(elements_of(R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
      "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": true})"),
            596'049'920u);
  // GPT-2 and Pythia 70M, with a little padding of odd sizes.
  EXPECT_NEAR(static_cast<double>(elements_of(R"({"model_type": "gpt2", "n_embd": 768,
      "n_layer": 12, "n_positions": 1024, "n_inner": null, "vocab_size": 50257})")),
              124'439'808, 1000);
  EXPECT_NEAR(static_cast<double>(elements_of(R"({"model_type": "gpt_neox", "hidden_size": 512,
      "intermediate_size": 2048, "num_hidden_layers": 6, "vocab_size": 50304})")),
              70'426'624, 1000);
}

TEST(ModelConfig, UnitsAndDtype) {
  const Result<ModelDesc> model =
      parse_model_or_config(R"({"model_type": "llama", "hidden_size": 64,
      "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
      "vocab_size": 256, "torch_dtype": "bfloat16"})");
  ASSERT_TRUE(model.ok());
  std::vector<std::string> names;
  for (const UnitDesc& unit : model->units) {
    names.push_back(unit.name);
    for (const FlatDesc& flat : unit.flats) EXPECT_EQ(flat.dtype, DType::bf16);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"model.embed_tokens", "model.layers.0",
                                             "model.layers.1", "model.norm", "lm_head"}));
}

TEST(ModelConfig, SaysWhatIsMissingOrUnknown) {
  expect_error(parse_model_or_config(R"({"model_type": "bert"})"), MERON_E_UNSUPPORTED,
               "model type \"bert\" are not known", "safetensors");
  expect_error(parse_model_or_config(R"({"model_type": 7})"), MERON_E_PARSE, "model_type");
  expect_error(parse_model_or_config(R"({"model_type": "llama", "hidden_size": 64})"),
               MERON_E_PARSE, "intermediate_size");
  expect_error(parse_model_or_config(R"({"model_type": "llama", "hidden_size": 0,
      "intermediate_size": 1, "num_hidden_layers": 1, "num_attention_heads": 1,
      "vocab_size": 1})"),
               MERON_E_PARSE, "hidden_size");
  expect_error(
      parse_model_or_config(R"({"model_type": "llama", "hidden_size": 4, "intermediate_size": 1,
      "num_hidden_layers": 1, "num_attention_heads": 8, "vocab_size": 1})"),
      MERON_E_PARSE, "more heads");
}

}  // namespace
}  // namespace meron::planning
