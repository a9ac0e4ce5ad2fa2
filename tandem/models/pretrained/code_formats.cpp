// SPDX-License-Identifier: Apache-2.0
// The tensors of GPTQ's and AWQ's formats. Both pack codes in numbers of 32 bits: GPTQ along the
// inputs, the lowest bits first; AWQ along the outputs, in an order of its own. GPTQ's first format
// stores zero points less one.
#include <algorithm>
#include <cstring>
#include <optional>

#include "tandem/models/codes.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

constexpr int64_t kWord = 32;
constexpr int kAwqOrder[] = {0, 4, 1, 5, 2, 6, 3, 7};  // where output i of eight lies in a word

/// What "quantization_config" says.
struct CodesConfig {
  explicit CodesConfig(const ModelConfig& whole) {
    const ModelConfig c = whole.part("quantization_config");
    const std::string method = c.text("quant_method", "");
    awq = method == "awq";
    if (!awq && method != "gptq")
      c.fail(fmt::format(
          "quantised weights of method '{}' are not supported: there are gptq and awq", method));
    bits = c.integer("bits", c.integer("w_bit", 4), 1, 32);
    group = c.integer("group_size", c.integer("q_group_size", 128, -1), -1);
    if (bits != 4 && (awq || (bits != 2 && bits != 8)))
      c.fail(fmt::format("codes of {} bits are not supported", bits));
    if (awq && c.text("version", "gemm") != "gemm" && c.text("version", "gemm") != "GEMM")
      c.fail(fmt::format("AWQ's version '{}' is not supported", c.text("version", "")));
    const std::string format = c.text("checkpoint_format", "gptq");
    if (!awq && format != "gptq" && format != "gptq_v2")
      c.fail(fmt::format("'checkpoint_format': '{}' is not supported", format));
    less_one = !awq && format == "gptq";
    accuracy_level = c.integer("accuracy_level", 0, 0, kCodesOfInputs);
    for (const char* key : {"sym", "desc_act", "true_sequential", "zero_point", "static_groups"})
      c.flag(key, false);
  }
  bool awq = false, less_one = true;
  int64_t bits = 4, group = 128, accuracy_level = 0;
};

/// One layer's tensors, dense.
struct Packed {
  const int32_t* data;
  Tensor held;
  int64_t rows, columns;
  Packed(const Tensor& t, const std::string& name) {
    TD_CHECK(t.dtype() == DType::i32 && t.dim() == 2, Format, "{} is {}, expected int32 [r, c]",
             name, t.shape().to_string());
    held = t.contiguous();
    rows = t.size(0), columns = t.size(1);
    words = held.to_vector<int32_t>();
    data = words.data();
  }
  std::vector<int32_t> words;
  uint32_t at(int64_t r, int64_t c) const { return static_cast<uint32_t>(data[r * columns + c]); }
};

/// Code [r, j] of words that lie along the outputs.
uint32_t across(const Packed& p, const CodesConfig& c, int64_t r, int64_t j) {
  const int64_t each = kWord / c.bits, i = j % each;
  const int64_t place = c.awq ? kAwqOrder[i] : i;
  return p.at(r, j / each) >> (place * c.bits) & ((1u << c.bits) - 1);
}

PackedCodes codes_of(const StateDict& files, const std::string& layer, const CodesConfig& c,
                     const Shape& weight) {
  const auto tensor_at = [&](const char* part) -> const Tensor& {
    const Tensor* t = files.find(layer + part);
    TD_CHECK(t, Format, "{}{} is not in the files", layer, part);
    return *t;
  };
  const Packed w(tensor_at(".qweight"), layer + ".qweight"),
      z(tensor_at(".qzeros"), layer + ".qzeros");
  const Tensor& scales = tensor_at(".scales");
  TD_CHECK(scales.dim() == 2 && is_floating(scales.dtype()), Format,
           "{}.scales is {}, expected floating [groups, n]", layer, scales.shape().to_string());
  const int64_t each = kWord / c.bits, groups = scales.size(0), n = scales.size(1);
  const int64_t k = c.awq ? w.rows : w.rows * each;
  const int64_t group = c.group < 0 ? k : std::min(c.group, k);  // larger than k: all of it
  const bool fits = (c.awq ? w.columns * each : w.columns) == n && z.rows == groups &&
                    z.columns * each == n && group > 0 && groups == (k + group - 1) / group &&
                    group * c.bits % 8 == 0;
  TD_CHECK(fits, Format, "{}: qweight, qzeros and scales do not fit each other", layer);
  TD_CHECK(weight == Shape(n, k), Format, "{}.qweight holds codes [{}, {}], the model expects {}",
           layer, n, k, weight.to_string());
  if (const Tensor* g = files.find(layer + ".g_idx")) {
    const std::vector<int64_t> at = g->to_vector<int64_t>();
    bool plain = static_cast<int64_t>(at.size()) == k;
    for (int64_t i = 0; plain && i < k; ++i) plain = at[static_cast<size_t>(i)] == i / group;
    TD_CHECK(plain, Unsupported,
             "{}.g_idx puts inputs in groups by another order (desc_act)\nQuantise with "
             "static_groups, or without desc_act.",
             layer);
  }
  PackedCodes out;
  out.bits = c.bits;
  out.accuracy_level = c.accuracy_level;
  std::vector<uint8_t> codes(static_cast<size_t>(n * groups * group)),
      zeros(static_cast<size_t>(n * groups));
  const uint32_t mask = (1u << c.bits) - 1;
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < n; ++j)
      codes[static_cast<size_t>(j * groups * group + i)] = static_cast<uint8_t>(
          c.awq ? across(w, c, i, j) : w.at(i / each, j) >> (i % each * c.bits) & mask);
  bool middle = true;
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t j = 0; j < n; ++j) {
      const uint32_t zero = (across(z, c, g, j) + (c.less_one ? 1 : 0)) & mask;
      middle = middle && zero == 1u << (c.bits - 1);
      zeros[static_cast<size_t>(j * groups + g)] = static_cast<uint8_t>(zero);
    }
  out.codes = pack_codes(tensor(codes, Shape(n, groups, group)), c.bits);
  out.scale = scales.to(DType::f32).t().contiguous();
  if (middle) return out;
  const int64_t beyond = (8 / c.bits - groups % (8 / c.bits)) % (8 / c.bits);
  out.zero = pack_codes(pad(tensor(zeros, Shape(n, groups)), {0, beyond}), c.bits);
  return out;
}

}  // namespace

bool fits_gptq(int64_t n, int64_t k, int64_t bits) {
  return n * bits % kWord == 0 && k * bits % kWord == 0;
}

StateDict gptq_tensors(const PackedCodes& w, int64_t k) {
  const int64_t n = w.codes.size(0), groups = w.codes.size(1), bits = w.bits, each = kWord / bits;
  const int64_t group = w.codes.size(2) * 8 / bits;
  TD_CHECK(fits_gptq(n, k, bits), Unsupported,
           "a weight [{}, {}] does not fill whole numbers of 32 bits with codes of {} bits", n, k,
           bits);
  const std::vector<uint8_t> codes = unpack_codes(w.codes, bits).to_vector<uint8_t>();
  std::vector<uint8_t> zeros;
  if (w.zero.defined()) zeros = unpack_codes(w.zero, bits).to_vector<uint8_t>();
  const int64_t zero_row = w.zero.defined() ? w.zero.size(1) * 8 / bits : 0;
  std::vector<int32_t> qweight(static_cast<size_t>(k / each * n)),
      qzeros(static_cast<size_t>(groups * n / each)), g_idx;
  for (int64_t r = 0; r < k / each; ++r)
    for (int64_t j = 0; j < n; ++j) {
      uint32_t word = 0;
      for (int64_t i = 0; i < each; ++i)
        word |= static_cast<uint32_t>(codes[static_cast<size_t>(j * groups * group + r * each + i)])
                << (i * bits);
      qweight[static_cast<size_t>(r * n + j)] = static_cast<int32_t>(word);
    }
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t j = 0; j < n; ++j) {
      const uint32_t zero =
          zeros.empty() ? 1u << (bits - 1) : zeros[static_cast<size_t>(j * zero_row + g)];
      auto& word = qzeros[static_cast<size_t>((g * n + j) / each)];
      word = static_cast<int32_t>(static_cast<uint32_t>(word) | ((zero - 1) & ((1u << bits) - 1))
                                                                    << (j % each * bits));
    }
  for (int64_t i = 0; i < k; ++i) g_idx.push_back(static_cast<int32_t>(i / group));
  StateDict out;
  out["qweight"] = tensor(qweight, Shape(k / each, n));
  out["qzeros"] = tensor(qzeros, Shape(groups, n / each));
  out["scales"] = w.scale.t().contiguous().to(DType::f16);
  out["g_idx"] = tensor(g_idx, Shape(k));
  return out;
}

void detail::check_codes_config(const ModelConfig& config) {
  if (config.object("quantization_config")) CodesConfig{config};
}

void detail::take_codes(PretrainedModel& model, StateDict& files) {
  if (!model.config.object("quantization_config")) return;
  const CodesConfig c(model.config);
  const std::vector<CodedLayer> layers = coded_layers(model);
  StateDict out;
  for (const CodedLayer& l : layers) {
    if (!files.contains(l.name + ".qweight")) continue;
    const PackedCodes w = codes_of(files, l.name, c, l.weight().shape());
    l.set_codes(w);
    out[l.name + ".codes"] = w.codes;
    out[l.name + ".scale"] = w.scale;
    if (w.zero.defined()) out[l.name + ".zero"] = w.zero;
  }
  const auto used = [&](const std::string& name) {
    for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx"})
      if (name.ends_with(part) &&
          out.contains(name.substr(0, name.size() - std::strlen(part)) + ".codes"))
        return true;
    return false;
  };
  for (const auto& [name, t] : files)
    if (!used(name)) out[name] = t;
  files = std::move(out);
}

}  // namespace tandem::models
