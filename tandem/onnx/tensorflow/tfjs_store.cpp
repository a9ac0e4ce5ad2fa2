// SPDX-License-Identifier: Apache-2.0
// Constants as the shards of a TensorFlow.js model hold them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tandem/onnx/import/tensor_internal.h"
#include "tandem/onnx/tensorflow/tfjs_write_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr int64_t kLeastStored = 256;  ///< numbers; smaller constants stay as they are

/// Codes of `Code` that times `scale` plus `min` are the numbers; 0 is one of the codes if it lies
/// within the numbers, so padding and zeros stay exact.
template <class Code>
void store_codes(const std::vector<float>& v, double low, double high, TfjsStored& s) {
  constexpr double kMost = std::numeric_limits<Code>::max();
  s.scale = 1;
  s.min = low;
  if (low < high) {
    s.scale = (high - low) / kMost;
    if (low <= 0 && high >= 0) s.min = -std::nearbyint(-low / s.scale) * s.scale;
    high = s.scale * kMost + s.min;
    low = s.min;
  }
  s.bytes.resize(v.size() * sizeof(Code));
  for (size_t i = 0; i < v.size(); ++i) {
    const double x = std::clamp<double>(v[i], low, std::max(low, high));
    const auto code = static_cast<Code>(std::nearbyint((x - s.min) / s.scale));
    std::memcpy(s.bytes.data() + i * sizeof(Code), &code, sizeof(Code));
  }
}

void store_floats(const Tensor& x, const std::string& weights, TfjsStored& s) {
  s.dtype = "float32";
  constexpr double kMostHalf = 65504;
  const Tensor t = x.to(DType::f32).contiguous();
  if (!weights.empty() && t.numel() >= kLeastStored) {
    const double low = t.min().item<float>(), high = t.max().item<float>();
    const bool half = weights == "float16";
    const bool fits = std::isfinite(low) && std::isfinite(high) && std::isfinite(high - low);
    if (fits && (!half || std::max(-low, high) <= kMostHalf)) {
      s.quantization = weights;
      if (half)
        s.bytes = raw_bytes(OnnxValue(t.to(DType::f16)));
      else if (weights == "uint8")
        store_codes<uint8_t>(t.reshape({-1}).to_vector<float>(), low, high, s);
      else
        store_codes<uint16_t>(t.reshape({-1}).to_vector<float>(), low, high, s);
      return;
    }
  }
  s.bytes = raw_bytes(OnnxValue(t));
}

}  // namespace

TfjsStored store_tfjs_weight(const std::string& name, const OnnxValue& v,
                             const std::string& weights) {
  TD_CHECK(v.is_tensor() && v.type() != OnnxType::u64, Unsupported,
           "the constant '{}' is of {}, which TensorFlow.js does not have", name,
           to_string(v.type()));
  const Tensor& t = v.tensor();
  TfjsStored s;
  if (is_floating(t.dtype())) {
    store_floats(t, weights, s);
  } else if (t.dtype() == DType::b8) {
    s.dtype = "bool";
    s.bytes = raw_bytes(v);
  } else {
    s.dtype = "int32";
    const Tensor whole = t.to(DType::i32).contiguous();
    TD_CHECK(t.numel() == 0 || equal(whole.to(DType::i64), t.to(DType::i64)), Unsupported,
             "the constant '{}' has numbers beyond 32 bits, which TensorFlow.js does not have",
             name);
    s.bytes = raw_bytes(OnnxValue(whole));
  }
  return s;
}

}  // namespace tandem::onnx
