// SPDX-License-Identifier: Apache-2.0
// Calls whose function depends on shapes or on more than one attribute: what a view does, windows,
// norms, indexing.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/edge/module/calls_internal.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"

namespace tandem::edge {
namespace {

bool has_open_size(const Shape& s) {
  return std::any_of(s.begin(), s.end(), [](Dim d) { return d.is_symbolic(); });
}
// `longer` has the sizes of `shorter`, but for those at..at + n in the place of one at `at`.
bool splits(const Shape& shorter, const Shape& longer, int at, int n) {
  for (int i = 0; i < shorter.rank(); ++i)
    if (i != at && !(shorter[i] == longer[i < at ? i : i + n - 1])) return false;
  return true;
}
// Where n sizes of `longer` stand for one of `shorter`; -1 where no such place is.
int place_of_split(const Shape& shorter, const Shape& longer) {
  const int n = longer.rank() - shorter.rank() + 1;
  for (int at = 0; at < shorter.rank(); ++at)
    if (splits(shorter, longer, at, n)) return at;
  return -1;
}
// The dimension of size 1 that `longer` has more; -1 where it is not that.
int place_of_one(const Shape& shorter, const Shape& longer) {
  if (longer.rank() != shorter.rank() + 1) return -1;
  for (int d = 0; d < longer.rank(); ++d) {
    Shape rest = longer;
    rest.erase(d);
    if (longer[d] == Dim(1) && rest == shorter) return d;
  }
  return -1;
}

// flatten, unflatten, squeeze or unsqueeze where that is what a view does; else a reshape.
std::optional<CallText> view_call(const OpCall& c) {
  const Shape &x = c.spec(0).shape, &y = c.result();
  const auto dim = [](int d) { return words(std::to_string(d)); };
  if (x == y) return CallText{c.in(0, CallText::call)};
  if (const int d = place_of_one(y, x); d >= 0)
    return CallText{text_of("squeeze(", c.in(0), ", ", dim(d), ")")};
  if (const int d = place_of_one(x, y); d >= 0)
    return CallText{text_of("unsqueeze(", c.in(0), ", ", dim(d), ")")};
  if (const int d = y.rank() < x.rank() ? place_of_split(y, x) : -1; d >= 0) {
    const int end = d + x.rank() - y.rank();
    Text t = text_of("flatten(", c.in(0));
    if (d > 0 || end < x.rank() - 1) append(t, text_of(", ", dim(d)));
    if (end < x.rank() - 1) append(t, text_of(", ", dim(end)));
    return CallText{text_of(t, ")")};
  }
  if (const int d = y.rank() > x.rank() && x.rank() > 0 ? place_of_split(x, y) : -1; d >= 0) {
    IntList parts;
    for (int i = d; i <= d + y.rank() - x.rank(); ++i) parts.push_back(y[i]);
    if (!has_open_size(parts))
      return CallText{
          text_of("unflatten(", c.in(0), ", ", dim(d), ", ", c.list(parts, "size"), ")")};
  }
  // One open size follows from the others.
  Shape wanted = y;
  const auto open = std::count_if(y.begin(), y.end(), [](Dim d) { return d.is_symbolic(); });
  if (open == 1)
    for (Dim& d : wanted)
      if (d.is_symbolic()) d = -1;
  if (wanted.rank() == 1)
    return CallText{text_of("reshape(", c.in(0), ", {", c.list(wanted, "size"), "})")};
  return CallText{text_of("reshape(", c.in(0), ", ", c.list(wanted, "size"), ")")};
}

std::optional<CallText> expand_call(const OpCall& c) {
  const Shape &x = c.spec(0).shape, &y = c.result();
  Shape wanted = y;
  const int more = y.rank() - x.rank();
  for (int i = more; i < y.rank(); ++i)
    if (x[i - more] == y[i] && y[i].is_symbolic()) wanted[i] = -1;
  if (wanted.rank() == 1)
    return CallText{text_of("expand(", c.in(0), ", {", c.list(wanted, "size"), "})")};
  return CallText{text_of("expand(", c.in(0), ", ", c.list(wanted, "size"), ")")};
}

std::optional<CallText> permute_call(const OpCall& c) {
  const IntList& dims = c.attrs<PermuteAttrs>().dims;
  std::vector<int> moved;
  for (int i = 0; i < dims.rank(); ++i)
    if (!(dims[i] == Dim(i))) moved.push_back(i);
  if (moved.size() == 2)
    return CallText{text_of("transpose(", c.in(0), ", ", std::to_string(moved[0]), ", ",
                            std::to_string(moved[1]), ")")};
  return CallText{text_of("permute(", c.in(0), ", ", c.list(dims, ""), ")")};
}

std::optional<CallText> slice_call(const OpCall& c) {
  const auto& a = c.attrs<SliceAttrs>();
  if (!(a.range[2] == Dim(1))) {
    if (has_open_size(a.range)) return {};
    const int64_t start = a.range[0].value(), step = a.range[2].value();
    const int64_t end = start + (a.range[1].value() - 1) * step + 1;
    return CallText{text_of("slice(", c.in(0), ", ", std::to_string(a.dim), ", ",
                            number(start, "start"), ", ", number(end, "end"), ", ",
                            number(step, "step"), ")")};
  }
  IntList start{a.range[0]}, length{a.range[1]};
  return CallText{text_of("narrow(", c.in(0), ", ", std::to_string(a.dim), ", ",
                          c.list(start, "start"), ", ", c.list(length, "length"), ")")};
}

std::optional<CallText> select_call(const OpCall& c) {
  const auto& a = c.attrs<SelectAttrs>();
  if (a.index[0].is_symbolic())
    return CallText{text_of("squeeze(narrow(", c.in(0), ", ", std::to_string(a.dim), ", ",
                            c.list(a.index, "index"), ", 1), ", std::to_string(a.dim), ")")};
  return CallText{text_of("select(", c.in(0), ", ", std::to_string(a.dim), ", ",
                          c.list(a.index, "index"), ")")};
}

std::optional<CallText> pad_call(const OpCall& c) {
  const auto& a = c.attrs<PadAttrs>();
  IntList all;  // (before, after), the last dimension first
  for (int d = a.before.rank() - 1; d >= 0 && all.rank() + 2 <= kMaxRank; --d) {
    all.push_back(a.before[d]);
    all.push_back(a.after[d]);
  }
  for (int d = 0; d < a.before.rank() - kMaxRank / 2; ++d)
    if (!(a.before[d] == Dim(0)) || !(a.after[d] == Dim(0))) return {};
  while (all.rank() > 2 && all.back() == Dim(0) && all[all.rank() - 2] == Dim(0))
    all.resize(all.rank() - 2);
  Text t = text_of("pad(", c.in(0), ", ", c.list(all, "padding"));
  if (a.value.to_double() != 0)
    append(t,
           ", \"constant\", " + (a.value.kind == 2 ? real(a.value.f) : std::to_string(a.value.i)));
  return CallText{text_of(t, ")")};
}

std::optional<CallText> matmul_call(const OpCall& c) {
  const auto& a = c.attrs<MatmulAttrs>();
  Text t = text_of("matmul(", c.in(0), ", ", c.in(1));
  if (a.trans_a && a.trans_b)
    append(t, ", {.trans_a = true, .trans_b = true}");
  else if (a.trans_a || a.trans_b)
    append(t, fmt::format(", {{.trans_{} = true}}", a.trans_a ? 'a' : 'b'));
  return CallText{text_of(t, ")")};
}

// The arguments after x, w and b, those at the end left out that have their defaults.
Text window_arguments(const OpCall& c, const ConvAttrs& a) {
  const Text all[] = {c.list(a.stride, "stride", true), c.list(a.padding, "padding", true),
                      c.list(a.dilation, "dilation", true), number(a.groups, "groups")};
  const char* defaults[] = {"1", "0", "1", "1"};
  size_t n = 4;
  while (n > 0 && all[n - 1].size() == 1 && all[n - 1][0].words == defaults[n - 1]) --n;
  Text t;
  for (size_t i = 0; i < n; ++i) append(t, text_of(", ", all[i]));
  return t;
}

// ".stride = ..." to ".size = ...".
Text conv_fields(const OpCall& c) {
  const auto& a = c.attrs<ConvAttrs>();
  return text_of(
      ".stride = ", c.list(a.stride, "stride"), ", .padding = ", c.list(a.padding, "padding"),
      ", .dilation = ", c.list(a.dilation, "dilation"), ", .groups = ", number(a.groups, "groups"),
      ", .padding_end = ", c.list(a.padding_end, "padding"), ", .size = ", c.list(a.size, "size"));
}

std::optional<CallText> conv_call(const OpCall& c) {
  const auto& a = c.attrs<ConvAttrs>();
  if (!(a.padding == a.padding_end))
    return CallText{
        text_of("conv(", c.in(0), ", ", c.in(1), ", ", c.in(2), ", {", conv_fields(c), "})")};
  const Text more = window_arguments(c, a);
  Text t = text_of(fmt::format("conv{}d(", c.spec(1).rank() - 2), c.in(0), ", ", c.in(1));
  if (c.has(2) || !more.empty()) append(t, text_of(", ", c.in(2)));
  return CallText{text_of(t, more, ")")};
}

std::optional<CallText> conv_backward_input_call(const OpCall& c) {
  return CallText{
      text_of("conv_backward_input(", c.in(0), ", ", c.in(1), ", {", conv_fields(c), "})")};
}

std::optional<CallText> conv_integer_call(const OpCall& c) {
  return CallText{text_of("conv_integer(", c.in(0), ", ", c.in(1), ", ", c.in(2), ", ", c.in(3),
                          ", {", conv_fields(c), "})")};
}

// A window as large as the input is what adaptive pooling to one element becomes.
std::optional<CallText> avg_pool_call(const OpCall& c) {
  const auto& a = c.attrs<PoolAttrs>();
  const int rank = c.spec(0).rank() - 2;
  const auto adaptive = [&](const IntList& size) {
    return CallText{text_of(fmt::format("adaptive_avg_pool{}d(", rank), c.in(0), ", ",
                            c.list(size, "output_size", true), ")")};
  };
  if (!a.output.empty()) return adaptive(a.output);
  bool whole = a.divisor_override == 0;
  for (int d = 0; d < rank; ++d)
    whole = whole && a.kernel[d] == c.spec(0).shape[d + 2] && a.padding[d] == Dim(0);
  if (whole) return adaptive({1});
  if (rank < 2 && a.divisor_override != 0) return {};
  Text t =
      text_of(fmt::format("avg_pool{}d(", rank), c.in(0), ", ", c.list(a.kernel, "kernel", true));
  std::vector<Text> more = {c.list(a.stride, "stride", true), c.list(a.padding, "padding", true),
                            words(a.ceil_mode ? "true" : "false"),
                            words(a.count_include_pad ? "true" : "false")};
  const bool usual = a.stride == a.kernel &&
                     a.padding == IntList(std::vector<int64_t>(static_cast<size_t>(rank), 0));
  if (!usual || a.ceil_mode || !a.count_include_pad || a.divisor_override) {
    if (!a.ceil_mode && a.count_include_pad && !a.divisor_override) more.resize(2);
    for (const Text& m : more) append(t, text_of(", ", m));
    if (a.divisor_override) append(t, text_of(", ", number(a.divisor_override, "divisor")));
  }
  return CallText{text_of(t, ")")};
}

std::optional<CallText> max_pool_call(const OpCall& c) {
  const auto& a = c.attrs<PoolAttrs>();
  const int rank = c.spec(0).rank() - 2;
  if (!a.output.empty())
    return CallText{text_of(fmt::format("adaptive_max_pool{}d(", rank), c.in(0), ", ",
                            c.list(a.output, "output_size", true), ")")};
  const Text all[] = {c.list(a.stride, "stride", true), c.list(a.padding, "padding", true),
                      c.list(a.dilation, "dilation", true), words(a.ceil_mode ? "true" : "false")};
  const Text kernel = c.list(a.kernel, "kernel", true);
  const std::string defaults[] = {kernel[0].words, "0", "1", "false"};
  size_t n = 4;
  while (n > 0 && all[n - 1].size() == 1 && kernel.size() == 1 &&
         all[n - 1][0].words == defaults[n - 1])
    --n;
  Text t = text_of(fmt::format("max_pool{}d(", rank), c.in(0), ", ", kernel);
  for (size_t i = 0; i < n; ++i) append(t, text_of(", ", all[i]));
  return CallText{text_of(t, ")")};
}

std::optional<CallText> batch_norm_call(const OpCall& c) {
  Text t = text_of("batch_norm(", c.in(0), ", ", c.in(1), ", ", c.in(2));
  const double eps = c.attrs<NormAttrs>().eps;
  if (c.has(3) || c.has(4) || eps != 1e-5) append(t, text_of(", ", c.in(3), ", ", c.in(4)));
  if (eps != 1e-5) append(t, ", false, 0.1, " + real(eps));
  return CallText{text_of(t, ").y")};
}

IntList last_sizes(const Shape& s, int64_t n) {
  IntList out;
  for (int d = s.rank() - static_cast<int>(n); d < s.rank(); ++d) out.push_back(s[d]);
  return out;
}

std::optional<CallText> layer_norm_call(const OpCall& c) {
  const auto& a = c.attrs<NormAttrs>();
  Text t = text_of("layer_norm(", c.in(0), ", ",
                   c.list(last_sizes(c.spec(0).shape, a.dims), "normalized_shape"));
  const bool eps = a.eps != 1e-5;
  if (c.has(1) || c.has(2) || eps) append(t, text_of(", ", c.in(1)));
  if (c.has(2) || eps) append(t, text_of(", ", c.in(2)));
  if (eps) append(t, ", " + real(a.eps));
  return CallText{text_of(t, ")")};
}

std::optional<CallText> rms_norm_call(const OpCall& c) {
  const auto& a = c.attrs<NormAttrs>();
  return CallText{text_of("rms_norm(", c.in(0), ", ",
                          c.list(last_sizes(c.spec(0).shape, a.dims), "normalized_shape"), ", ",
                          c.in(1), ", ", real(a.eps), ")")};
}

std::optional<CallText> attention_call(const OpCall& c) {
  const auto& a = c.attrs<AttentionAttrs>();
  Text t = text_of("scaled_dot_product_attention(", c.in(0), ", ", c.in(1), ", ", c.in(2));
  const Shape &q = c.spec(0).shape, &k = c.spec(1).shape;
  const bool shared = q.rank() > 2 && !(q[q.rank() - 3] == k[k.rank() - 3]);
  if (c.has(3) || a.causal || a.scale != 0 || shared) append(t, text_of(", ", c.in(3)));
  if (a.causal || a.scale != 0 || shared) append(t, a.causal ? ", 0, true" : ", 0, false");
  if (a.scale != 0 || shared) append(t, ", " + real(a.scale));
  if (shared) append(t, ", true");
  return CallText{text_of(t, ")")};
}

// "Slice(), i, j": of the inputs from `first` on. A member is no index by itself.
Text index_list(const OpCall& c, int64_t dim, size_t first) {
  Text t;
  for (int64_t d = 0; d < dim; ++d) append(t, "Slice(), ");
  for (size_t i = first; i < c.step().in.size(); ++i) {
    if (i > first) append(t, ", ");
    append(t, c.is_weight(i) ? text_of("Tensor(", c.in(i), ")") : c.in(i));
  }
  return t;
}

std::optional<CallText> index_call(const OpCall& c) {
  const auto& a = c.attrs<IndexAttrs>();
  if (c.step().in.size() == 2 && a.dim == 0 && !a.wrap && c.spec(0).rank() == 2)
    return CallText{text_of("embedding(", c.in(1), ", ", c.in(0), ")")};
  return CallText{text_of("index(", c.in(0), ", {", index_list(c, a.dim, 1), "})")};
}

std::optional<CallText> interpolate_call(const OpCall& c) {
  const auto& a = c.attrs<ResampleAttrs>();
  const int rank = c.spec(0).rank() - 2;
  const auto mode = static_cast<ResampleMode>(a.mode);
  constexpr const char* kLinear[] = {"linear", "bilinear", "trilinear"};
  const std::string name = mode == ResampleMode::nearest         ? "nearest"
                           : mode == ResampleMode::nearest_exact ? "nearest-exact"
                           : mode == ResampleMode::cubic         ? "bicubic"
                                                                 : kLinear[rank - 1];
  Text t = text_of("interpolate(", c.in(0));
  bool open = has_open_size(a.output);
  const double scales[] = {a.scale0, a.scale1, a.scale2};
  bool scaled = true;
  for (int d = 0; d < rank; ++d) scaled = scaled && scales[d] != 0;
  if (scaled) {
    append(t, ", {.scale_factor = {");
    for (int d = 0; d < rank; ++d) append(t, (d ? ", " : "") + real(scales[d]));
    append(t, "}");
  } else {
    if (open && a.scale0 + a.scale1 + a.scale2 != 0) return {};
    append(t, text_of(", {.size = ", c.list(a.output, "size", true)));
  }
  if (name != "nearest") append(t, ", .mode = \"" + name + "\"");
  if (a.align_corners) append(t, ", .align_corners = true");
  if (a.antialias) append(t, ", .antialias = true");
  return CallText{text_of(t, "})")};
}

std::optional<CallText> cast_call(const OpCall& c) {
  return CallText{
      text_of(c.in(0, CallText::call), ".to(", dtype_text(c.attrs<CastAttrs>().dtype), ")")};
}

std::optional<CallText> fake_quantize_call(const OpCall& c) {
  const auto& a = c.attrs<FakeQuantizeAttrs>();
  return CallText{text_of("fake_quantize(", c.in(0), ", ", c.in(1), ", ", c.in(2),
                          ", {.axis = ", number(a.axis, ""), ", .low = ", number(a.low, ""),
                          ", .high = ", number(a.high, ""), "})")};
}

std::optional<CallText> grid_sample_call(const OpCall& c) {
  const auto& a = c.attrs<GridSampleAttrs>();
  const auto mode = static_cast<ResampleMode>(a.mode);
  constexpr const char* kPadding[] = {"zeros", "border", "reflection"};
  const char* name = mode == ResampleMode::nearest ? "nearest"
                     : mode == ResampleMode::cubic ? "bicubic"
                                                   : "bilinear";
  return CallText{text_of("grid_sample(", c.in(0), ", ", c.in(1), ", \"", name, "\", \"",
                          kPadding[a.padding], a.align_corners ? "\", true)" : "\")")};
}

// Of a size that does not depend on values.
std::optional<CallText> nms_call(const OpCall& c) {
  const auto& a = c.attrs<NmsAttrs>();
  if (c.has(2) || a.size == 0) return {};
  return CallText{text_of("nms(", c.in(0), ", ", c.in(1), ", ", real(a.iou_threshold), ", ",
                          number(a.size, "size"), ", ", number(a.fill, ""), ")")};
}

std::optional<CallText> solve_call(const OpCall& c) {
  if (c.spec(0).rank() != c.spec(1).rank()) return {};  // the function takes vectors, too
  return CallText{text_of("linalg::solve(", c.in(0), ", ", c.in(1), ")")};
}

std::optional<CallText> index_put_call(const OpCall& c) {
  const auto& a = c.attrs<IndexAttrs>();
  return CallText{text_of("index_put(", c.in(0), ", {", index_list(c, a.dim, 2), "}, ", c.in(1),
                          a.accumulate ? ", true)" : ")")};
}

std::string scalar_text(const Scalar& v) {
  return v.kind == 2 ? real(v.f) : v.kind == 0 ? (v.i ? "true" : "false") : std::to_string(v.i);
}

std::optional<CallText> fill_call(const OpCall& c) {
  const auto& a = c.attrs<FillAttrs>();
  const Text shape =
      a.shape.rank() == 1 ? text_of("{", c.list(a.shape, "size"), "}") : c.list(a.shape, "size");
  if (a.value.to_double() == 0 && a.dtype == DType::f32)
    return CallText{text_of("zeros(", shape, ")")};
  return CallText{
      text_of("full(", shape, ", ", scalar_text(a.value), ", ", dtype_text(a.dtype), ")")};
}

std::optional<CallText> arange_call(const OpCall& c) {
  const auto& a = c.attrs<ArangeAttrs>();
  const Dim n = a.count[0];
  const bool plain = a.start.to_double() == 0 && a.step.to_double() == 1;
  if (plain && a.dtype == DType::i64)
    return CallText{text_of("arange_dim(", c.list(a.count, "length"), ")")};
  if (n.is_symbolic() || a.step.kind == 2 || a.start.kind == 2) return {};
  const int64_t end = a.start.i + n.value() * a.step.i;
  return CallText{
      words(fmt::format("arange({}, {}, {}, {})", a.start.i, end, a.step.i, dtype_text(a.dtype)))};
}

struct SpecialRow {
  const char* row;
  SpecialCall call;
};
constexpr SpecialRow kSpecialRows[] = {
    {"view", view_call},
    {"expand", expand_call},
    {"permute", permute_call},
    {"slice", slice_call},
    {"select", select_call},
    {"pad", pad_call},
    {"matmul", matmul_call},
    {"conv", conv_call},
    {"conv_backward_input", conv_backward_input_call},
    {"avg_pool", avg_pool_call},
    {"max_pool", max_pool_call},
    {"batch_norm_infer", batch_norm_call},
    {"layer_norm", layer_norm_call},
    {"rms_norm", rms_norm_call},
    {"attention", attention_call},
    {"conv_integer", conv_integer_call},
    {"fake_quantize", fake_quantize_call},
    {"grid_sample", grid_sample_call},
    {"nms", nms_call},
    {"solve", solve_call},
    {"index", index_call},
    {"index_put", index_put_call},
    {"interpolate", interpolate_call},
    {"cast", cast_call},
    {"fill", fill_call},
    {"arange", arange_call},
};

}  // namespace

SpecialCall special_call(std::string_view row) {
  for (const SpecialRow& r : kSpecialRows)
    if (row == r.row) return r.call;
  return nullptr;
}
std::vector<std::string> special_rows() {
  std::vector<std::string> out;
  for (const SpecialRow& r : kSpecialRows) out.emplace_back(r.row);
  return out;
}

}  // namespace tandem::edge
