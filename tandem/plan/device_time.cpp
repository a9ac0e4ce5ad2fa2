// SPDX-License-Identifier: Apache-2.0
// Time of kernels by a roofline: each takes as long as its arithmetic or its bytes, whichever is
// longer, and a matmul's arithmetic as long as the tiles of its shape. Kernels with the same limit
// share a rate, so their times add up as one quotient of sums.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tandem/base/error.h"
#include "tandem/plan/matmul_shape_internal.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

// Depthwise convolutions reach this share of the bandwidth, and convolutions in tf32 this share of
// the peak (their layout is NCHW there): EfficientNet-B0 and -B4, and ResNet-50, as NVIDIA
// publishes them for one A100 (tests/plan/conv_runs.csv). Assumed for all GPUs.
constexpr double kDepthwiseShare = 0.08, kTf32ConvShare = 0.2;
constexpr const char* kConvFrom =
    "NVIDIA's published runs of conv nets on one A100 (tests/plan/conv_runs.csv)";
// Without matrix units, 3 x 3 filters take 16 multiplications for 4 results of 9 each (Winograd's
// F(2 x 2, 3 x 3): Lavin and Gray, arXiv 1509.09308, 2015), as cuDNN computes them in f32.
constexpr double kWinograd = 36.0 / 16;
// Under autocast the libraries' batch norms read and write 16 bits, and so does what follows them.
constexpr double kNarrow = 0.5;

enum Kind : uint8_t { kF32, kTf32, kF16, kBf16, kInt8, kKinds };
constexpr const char* kKindNames[kKinds] = {"f32", "tf32", "f16", "bf16", "int8"};

Kind kind_of(DType d, Precision p) {
  if (d == DType::bf16) return kBf16;
  if (d == DType::f16) return kF16;
  if (d == DType::i8 || d == DType::u8) return kInt8;
  return p == Precision::tf32 ? kTf32 : kF32;
}

// Kernels with the same limit: arithmetic of a kind, or moving bytes.
struct Group {
  double flops = 0, bytes = 0;
  double wide = 0;     // of the bytes: those that are counted by half
  double seconds = 0;  // of the arithmetic
  int64_t kernels = 0;
};
enum : size_t {
  kMatmul = 0,                  // of each kind
  kAttention = kKinds,          // likewise, forward
  kAttentionBack = 2 * kKinds,  // likewise
  kTf32Conv = 3 * kKinds,
  kWinogradConv,
  kPointwise,
  kMoving,
  kDepthwise,
  kGroups
};

// Is all but matmuls half as wide on the GPU as in the dry run?
bool narrow_between_matmuls(const Workload& w) {
  const Precision p = w.options.precision;
  if (p != Precision::amp_bf16 && p != Precision::amp_f16) return false;
  return std::any_of(w.work.begin(), w.work.end(),
                     [](const Work& k) { return k.batch_norm && k.dtype == DType::f32; });
}

// What a GPU reaches: operations and bytes a second, each as its figure shows it.
class Rates {
 public:
  Rates(const Workload& w, const Gpu& gpu, int ways)
      : gpu_(gpu), ways_(ways), parameters_(w.sizes.begin(), w.sizes.end()) {}
  // Convolutions in tf32 are not slower than in f32.
  bool tf32_conv() const {
    return gpu_.peak("tf32") * kTf32ConvShare > gpu_.peak("f32") * gpu_.efficiency;
  }
  double flops(size_t group) const {
    if (group == kTf32Conv) return gpu_.peak("tf32") * kTf32ConvShare;
    return gpu_.peak(kind(group)) * gpu_.efficiency * attention(group) *
           (group == kWinogradConv ? kWinograd : 1);
  }
  double bytes(size_t group) const {
    return gpu_.bandwidth * (group == kDepthwise ? kDepthwiseShare : kBandwidthShare);
  }
  // What the arithmetic of a kernel takes.
  double seconds(const Work& k, size_t group) {
    const double full = k.flops / flops(group);
    if (group >= kKinds) return full;
    std::optional<MatmulShape> shape = matmul_shape(k);
    if (!shape) return full;
    if (ways_ > 1)
      shape = matmul_slice(*shape, k, ways_, [this](double n) {
        return parameters_.count(static_cast<int64_t>(n)) > 0;
      });
    const auto [at, fresh] = known_.try_emplace(
        {static_cast<double>(group), shape->batch, shape->m, shape->n, shape->k});
    if (fresh)
      at->second = matmul_seconds(*shape, {.flops = flops(group),
                                           .narrow = gpu_.peak("f16") * gpu_.efficiency,
                                           .bytes = bytes(kMoving),
                                           .processors = gpu_.processors,
                                           .width = static_cast<double>(size_of(k.dtype))});
    return at->second * ways_;
  }
  Quantity of(size_t group, const Group& g, const std::string& at) const;

 private:
  static const char* kind(size_t group) {
    return group == kPointwise ? "f32" : group == kTf32Conv ? "tf32" : kKindNames[group % kKinds];
  }
  // Of the rate of matmuls.
  double attention(size_t group) const {
    if (group < kAttention || group >= kTf32Conv) return 1;
    return group < kAttentionBack ? gpu_.attention[0] : gpu_.attention[1];
  }
  const Gpu& gpu_;
  int ways_;
  std::set<int64_t> parameters_;                   // by their elements
  std::map<std::array<double, 5>, double> known_;  // seconds of matmuls by kind and shape
};

Quantity Rates::of(size_t group, const Group& g, const std::string& at) const {
  if (group == kMoving || group == kDepthwise)
    return product(
        at + ".rate", "rate", "B/s", "",
        {given(at + ".bandwidth", "memory bandwidth", gpu_.bandwidth, "B/s", gpu_.source),
         group == kMoving
             ? given(at + ".share", "share", kBandwidthShare, "", "what large copies reach on GPUs")
             : given(at + ".share", "share", kDepthwiseShare, "", kConvFrom)});
  std::vector<Quantity> parts = {given(at + ".peak", "peak of the " + gpu_.name,
                                       gpu_.peak(kind(group)), "FLOP/s", gpu_.source)};
  if (group == kTf32Conv)
    parts.push_back(given(at + ".efficiency", "efficiency", kTf32ConvShare, "", kConvFrom));
  else
    parts.push_back(given(at + ".efficiency", "efficiency", gpu_.efficiency, "",
                          "the constant of this GPU; " + gpu_.efficiency_from));
  if (group >= kAttention && group < kTf32Conv)
    parts.push_back(given(at + ".attention", "attention kernels", attention(group), "",
                          "of the rate of matmuls; " + gpu_.attention_from));
  else if (group == kWinogradConv)
    parts.push_back(given(at + ".winograd", "FLOPs for each done", kWinograd, "",
                          "Winograd's way with filters of 3 x 3, as cuDNN's in f32"));
  else if (group < kKinds)
    parts.push_back(given(at + ".shapes", "by their shapes", g.flops / flops(group) / g.seconds, "",
                          "last tiles and waves are not full, and results are written when their "
                          "sums are complete"));
  return product(at + ".rate", "rate", "FLOP/s", "", std::move(parts));
}

std::string label_of(size_t group) {
  switch (group) {
    case kMoving:
      return "moving bytes";
    case kDepthwise:
      return "depthwise convolutions";
    case kTf32Conv:
      return "convolutions in tf32";
    case kWinogradConv:
      return "convolutions of 3 x 3 in f32";
    case kPointwise:
      return "pointwise in f32";
    default: {
      const std::string kind = kKindNames[group % kKinds];
      if (group < kKinds) return "matmuls in " + kind;
      return (group < kAttentionBack ? "attention in " : "derivatives of attention in ") + kind;
    }
  }
}

// The bytes of a group, as a figure.
Quantity bytes_of(const Group& g, const std::string& at) {
  const char* const from = "the rows' cost columns over the dry run";
  if (g.wide == 0) return given(at + ".bytes", "bytes moved", g.bytes, "B", from);
  return sum(at + ".moved", "bytes moved", "B", "",
             {given(at + ".bytes", "of matmuls", g.bytes - g.wide, "B", from),
              product(at + ".narrow", "between matmuls", "B", "",
                      {given(at + ".wide", "as the dry run has it", g.wide, "B", from),
                       given(at + ".half", "16 of 32 bits", kNarrow, "",
                             "batch norms, and what follows them, read and write 16 bits under "
                             "autocast on GPUs")})});
}

// Which arithmetic a kernel does.
size_t arithmetic_of(const Work& k, Precision precision, const Rates& rates) {
  const size_t kind = kind_of(k.dtype, precision);
  if (k.attention) return (k.backward ? kAttentionBack : kAttention) + kind;
  if (!k.matrix) return kPointwise;
  if (kind == kF32 && k.winograd && !k.depthwise) return kWinogradConv;
  return kind == kTf32 && k.convolution && rates.tf32_conv() ? kTf32Conv : kMatmul + kind;
}

// A kernel: the group that its limit belongs to, its arithmetic, and what it takes.
struct Timed {
  size_t group;
  double by_flops, seconds;
  bool half;  // its bytes
};
Timed timed(const Work& k, Precision precision, Rates& rates, bool narrow) {
  const bool half = narrow && !k.matrix && k.phase != static_cast<uint8_t>(Phase::update);
  const size_t arithmetic = arithmetic_of(k, precision, rates);
  const size_t moving = k.depthwise ? kDepthwise : kMoving;
  const double by_bytes = k.bytes * (half ? kNarrow : 1) / rates.bytes(moving);
  const double by_flops = rates.seconds(k, arithmetic);
  return {by_flops > by_bytes ? arithmetic : moving, by_flops, std::max(by_flops, by_bytes), half};
}

}  // namespace

std::vector<double> kernel_times(const Workload& w, const Gpu& gpu) {
  Rates rates(w, gpu, 1);
  const bool narrow = narrow_between_matmuls(w);
  std::vector<double> all;
  for (const Work& k : w.work) all.push_back(timed(k, w.options.precision, rates, narrow).seconds);
  return all;
}

Quantity device_time(const Workload& w, const Gpu& gpu, const std::string& key,
                     const std::string& label, const Phases& wanted, int ways) {
  Rates rates(w, gpu, ways);
  const bool narrow = narrow_between_matmuls(w);
  Group groups[kGroups];
  for (const Work& k : w.work) {
    if (!wanted[k.phase]) continue;
    const Timed t = timed(k, w.options.precision, rates, narrow);
    Group& g = groups[t.group];
    g.flops += k.flops;
    g.seconds += t.by_flops;
    g.bytes += k.bytes;
    if (t.half) g.wide += k.bytes;
    ++g.kernels;
  }
  std::vector<Quantity> parts;
  for (size_t i = 0; i < kGroups; ++i) {
    const Group& g = groups[i];
    if (g.kernels == 0) continue;
    const std::string at = fmt::format("{}.{}", key, parts.size() + 1);
    const bool bytes = i == kMoving || i == kDepthwise;
    parts.push_back(quotient(
        at, label_of(i), "s",
        fmt::format("{} kernels that {} holds back", g.kernels, bytes ? "memory" : "arithmetic"),
        bytes ? bytes_of(g, at)
              : given(at + ".flops", "FLOPs", g.flops, "FLOP",
                      "the rows' cost columns over the dry run"),
        rates.of(i, g, at)));
  }
  if (parts.empty()) parts.push_back(given(key + ".0", "nothing", 0, "s", "no kernels"));
  return sum(key, label, "s", "", std::move(parts));
}

}  // namespace tandem::plan
