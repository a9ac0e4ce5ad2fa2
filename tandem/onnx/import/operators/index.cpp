// SPDX-License-Identifier: Apache-2.0
// ONNX ops that read and write by index, sort and search.
#include <algorithm>
#include <limits>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr int64_t kSignBit = std::numeric_limits<int64_t>::min();

/// Indices as i64, negative ones counted from the end.
Tensor wrapped(const Tensor& index, int64_t n) {
  const Tensor i = index.to(DType::i64);
  return where(i < 0, i + n, i);
}

void gather_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int d = c.axis("axis", 0, x.dim());
  if (const Tensor& at = c.value(1).tensor(); at.dim() == 0 && !at.is_symbolic()) {
    c.set(0, select(x, d, at.item<int64_t>()), c.type(0));
    return;
  }
  const Tensor i = c.x(1);
  const Tensor flat = wrapped(i, x.size(d)).reshape({-1});
  const Tensor y = index_select(x, d, flat);
  Shape s;
  for (int k = 0; k < d; ++k) s.push_back(x.shape(k));
  for (const Dim k : i.shape()) s.push_back(k);
  for (int k = d + 1; k < x.dim(); ++k) s.push_back(x.shape(k));
  c.set(0, y.reshape(s), c.type(0));
}

void gather_elements(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int d = c.axis("axis", 0, x.dim());
  c.set(0, gather(x, d, wrapped(c.x(1), x.size(d))), c.type(0));
}

Tensor reduced_scatter(const Tensor& x, int d, const Tensor& index, const Tensor& src,
                       const std::string& reduction) {
  if (reduction == "none") return scatter(x, d, index, src);
  if (reduction == "add") return scatter_add(x, d, index, src);
  const char* name = reduction == "mul"   ? "prod"
                     : reduction == "max" ? "amax"
                     : reduction == "min" ? "amin"
                                          : nullptr;
  TD_CHECK(name, Unsupported, "there is no reduction '{}'", reduction);
  return scatter_reduce(x, d, index, src, name);
}

void scatter_elements(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int d = c.axis("axis", 0, x.dim());
  c.set_like(0, reduced_scatter(x, d, wrapped(c.x(1), x.size(d)), c.x(2),
                                c.attr_text("reduction", "none")));
}

/// Row positions: index [..., k] over the sizes of the first k dimensions.
Tensor row_numbers(const Tensor& index, const Tensor& x, int first, int64_t k) {
  Tensor at = zeros({1}, DType::i64);
  for (int64_t j = 0; j < k; ++j) {
    const int64_t n = x.size(first + j);
    at = at * n + wrapped(index.select(-1, j), n);
  }
  return at;
}

void gather_nd(OnnxCall& c) {
  const Tensor x = c.x(0), index = c.x(1).to(DType::i64);
  const auto batch = static_cast<int>(c.attr("batch_dims", 0));
  TD_CHECK(batch >= 0 && index.dim() > batch && x.dim() > batch, Shape,
           "batch_dims {} do not fit {} and {}", batch, x.shape().to_string(),
           index.shape().to_string());
  const int64_t k = index.size(-1);
  TD_CHECK(k >= 1 && batch + k <= x.dim(), Shape, "indices of {} do not fit {}", k,
           x.shape().to_string());
  int64_t batches = 1, rows = 1;
  for (int d = 0; d < batch; ++d) batches *= x.size(d);
  for (int64_t d = 0; d < k; ++d) rows *= x.size(batch + d);
  Tensor at = row_numbers(index, x, batch, k).reshape({batches, -1});
  at = at + arange(0, batches, 1, DType::i64).reshape({batches, 1}) * rows;
  Shape s;
  for (int d = 0; d + 1 < index.dim(); ++d) s.push_back(index.shape(d));
  int64_t rest = 1;
  for (int64_t d = batch + k; d < x.dim(); ++d) {
    s.push_back(x.shape(d));
    rest *= x.size(d);
  }
  c.set(0, index_select(x.reshape({batches * rows, rest}), 0, at.reshape({-1})).reshape(s),
        c.type(0));
}

void scatter_nd(OnnxCall& c) {
  const Tensor x = c.x(0), index = c.x(1).to(DType::i64), updates = c.x(2);
  const int64_t k = index.size(-1);
  TD_CHECK(k >= 1 && k <= x.dim(), Shape, "indices of {} do not fit {}", k, x.shape().to_string());
  int64_t rows = 1, rest = 1;
  for (int64_t d = 0; d < x.dim(); ++d) (d < k ? rows : rest) *= x.size(d);
  const Tensor at = row_numbers(index, x, 0, k).reshape({-1, 1});
  const Tensor flat = x.reshape({rows, rest}), src = updates.reshape({-1, rest});
  const Tensor y = reduced_scatter(flat, 0, contiguous(expand(at, {at.shape(0), rest})), src,
                                   c.attr_text("reduction", "none"));
  c.set_like(0, y.reshape(x.shape()));
}

void compress(OnnxCall& c) {
  Tensor x = c.x(0);
  int d = 0;
  if (c.attribute("axis"))
    d = c.axis("axis", 0, x.dim());
  else
    x = x.reshape({-1});
  const std::vector<bool> keep = c.flags(1);
  TD_CHECK(static_cast<int64_t>(keep.size()) <= x.size(d), Shape,
           "{} conditions for a dimension of {}", keep.size(), x.size(d));
  std::vector<int64_t> at;
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i]) at.push_back(static_cast<int64_t>(i));
  c.set(0, index_select(x, d, tensor(at, Shape(at.size()))), c.type(0));
}

void non_zero(OnnxCall& c) {
  const Tensor x = c.x(0);
  const Tensor at = nonzero(x.dim() == 0 ? x.reshape({1}) : x);
  c.set(0, contiguous(at.transpose(0, 1)));
}

void unique_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  std::optional<int64_t> dim;
  if (c.attribute("axis")) dim = c.axis("axis", 0, x.dim());
  UniqueResult u = unique(x, dim);
  const std::vector<int64_t> inverse = u.inverse_indices.reshape({-1}).to_vector<int64_t>();
  const auto n = static_cast<size_t>(u.counts.numel());
  std::vector<int64_t> first(n, -1);
  for (size_t i = 0; i < inverse.size(); ++i) {
    int64_t& f = first[static_cast<size_t>(inverse[i])];
    if (f < 0) f = static_cast<int64_t>(i);
  }
  std::vector<int64_t> order(n), place(n);
  for (size_t i = 0; i < n; ++i) order[i] = static_cast<int64_t>(i);
  if (!c.attr("sorted", 1))
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return first[static_cast<size_t>(a)] < first[static_cast<size_t>(b)];
    });
  for (size_t i = 0; i < n; ++i) place[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  const Tensor by = tensor(order, Shape(n));
  c.set(0, index_select(u.output, dim.value_or(0), by), c.type(0));
  c.set(1, index_select(tensor(first, Shape(n)), 0, by));
  c.set(2, index_select(tensor(place, Shape(n)), 0, u.inverse_indices.reshape({-1})));
  c.set(3, index_select(u.counts, 0, by));
}

void top_k(OnnxCall& c) {
  Tensor x = c.x(0);
  const bool turn = c.type(0) == OnnxType::u64;
  if (turn) x = bitwise_xor(x, kSignBit);
  const int d = c.axis("axis", -1, x.dim());
  const int64_t k = c.has(1) ? c.int_at(1) : c.attr("k", 1);
  TD_CHECK(k >= 0 && k <= x.size(d), Value, "expected the best {} of {}", k, x.size(d));
  auto [values, indices] = topk(x, k, d, c.attr("largest", 1) != 0);
  c.set(0, turn ? bitwise_xor(values, kSignBit) : values, c.type(0));
  c.set(1, indices);
}

template <bool largest>
void arg_best(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int d = c.axis("axis", 0, x.dim());
  const bool keep = c.attr("keepdims", 1);
  auto best = [&](const Tensor& t) { return largest ? argmax(t, d, keep) : argmin(t, d, keep); };
  if (c.attr("select_last_index", 0))
    c.set(0, x.size(d) - 1 - best(flip(x, {d})));
  else
    c.set(0, best(x));
}

void tensor_scatter(OnnxCall& c) {
  Tensor cache = c.x(0);
  const Tensor update = c.x(1);
  const int d = c.axis("axis", -2, cache.dim());
  const int64_t batch = cache.size(0), n = update.size(d), size = cache.size(d);
  const bool circular = c.attr_choice("mode", "linear", {"linear", "circular"}) == "circular";
  if (c.hidden(2)) {  // positions out of range: scatter throws
    const Tensor begin = c.x(2).to(DType::i64);
    TD_CHECK(d > 0 && begin.dim() == 1 && begin.size(0) == batch, Shape,
             "expected {} write indices, got {}", batch, begin.shape().to_string());
    Shape rows, steps;
    for (int k = 0; k < cache.dim(); ++k) {
      rows.push_back(k == 0 ? batch : 1);
      steps.push_back(k == d ? n : 1);
    }
    Tensor p = begin.reshape(rows) + arange(0, n, 1, DType::i64).reshape(steps);
    if (circular) p = remainder(p, size);
    return c.set(0, scatter(cache, d, contiguous(expand(p, update.shape())), update), c.type(0));
  }
  const std::vector<int64_t> start =
      c.has(2) ? c.ints(2) : std::vector<int64_t>(static_cast<size_t>(batch), 0);
  TD_CHECK(d > 0 && static_cast<int64_t>(start.size()) == batch, Shape,
           "expected {} write indices, got {}", batch, start.size());
  std::vector<int64_t> at;
  for (const int64_t s : start)
    for (int64_t i = 0; i < n; ++i) {
      const int64_t p = circular ? (s + i) % size : s + i;
      TD_CHECK(p >= 0 && p < size, Index, "writes at {} of {}", p, size);
      at.push_back(p);
    }
  Shape s;
  for (int k = 0; k < cache.dim(); ++k) s.push_back(k == 0 ? batch : k == d ? n : 1);
  const Tensor index = contiguous(expand(tensor(at).reshape(s), update.shape()));
  c.set(0, scatter(cache, d, index, update), c.type(0));
}

// A token that would repeat one of the last n-grams of its sequence gets the score -inf.
void ngram_block(OnnxCall& c) {
  const int64_t n = c.attr("ngram_size", 0);
  const Tensor ids = c.x(0), scores = c.x(1);
  TD_CHECK(n > 0 && ids.dim() == 2 && scores.dim() == 2 && ids.size(0) == scores.size(0), Shape,
           "expected ids [b, t], scores [b, v] and a positive ngram_size, got {}, {} and {}",
           ids.shape().to_string(), scores.shape().to_string(), n);
  const int64_t batch = ids.size(0), length = ids.size(1), words = scores.size(1);
  check_onnx_loop(static_cast<double>(batch) * static_cast<double>(length) *
                  static_cast<double>(std::min(n, length)));
  const std::vector<int64_t> token = c.ints(0);
  std::vector<uint8_t> banned(static_cast<size_t>(batch * words));
  for (int64_t b = 0; b < batch; ++b) {
    const auto row = token.begin() + b * length;
    for (int64_t i = 0; i <= length - n; ++i) {
      if (!std::equal(row + i, row + i + n - 1, row + length - n + 1)) continue;
      const int64_t next = row[i + n - 1];
      TD_CHECK(next >= 0 && next < words, Index, "token {} is not in 0 to {}", next, words - 1);
      banned[static_cast<size_t>(b * words + next)] = 1;
    }
  }
  const Tensor hit = tensor(banned, scores.shape()).to(DType::b8);
  c.set_like(0, where(hit, -std::numeric_limits<double>::infinity(), scores), 1);
}

}  // namespace

std::span<const OnnxRow> onnx_index_rows() {
  static constexpr OnnxRow kRows[] = {
      {"", "Gather", 1, 0, gather_of, {2, 1, "axis"}, &op::index, export_index},
      {"", "GatherElements", 11, 0, gather_elements, {2, 1, "axis"}, &op::gather, export_gather},
      {"", "GatherND", 11, 0, gather_nd, {2, 1, "batch_dims"}},
      {kOnnxMicrosoft, "GatherND", 1, 0, gather_nd, {2, 1, ""}},
      {kOnnxMicrosoft, "NGramRepeatBlock", 1, 0, ngram_block, {2, 1, "ngram_size"}},
      {"", "Scatter", 9, 10, scatter_elements, {3, 1, "axis"}},
      {"",
       "ScatterElements",
       11,
       0,
       scatter_elements,
       {3, 1, "axis reduction"},
       &op::scatter,
       export_scatter},
      {"", "ScatterND", 11, 0, scatter_nd, {3, 1, "reduction"}},
      {"", "Compress", 9, 0, compress, {2, 1, "axis"}},
      {"", "NonZero", 9, 0, non_zero, {1, 1, ""}, &op::nonzero, export_nonzero},
      {"", "Unique", 11, 0, unique_of, {1, 4, "axis sorted"}},
      settings_from(
          1, {"", "TopK", 1, 0, top_k, {2, 2, "axis k largest ~sorted"}, &op::topk, export_topk}),
      {"",
       "ArgMax",
       1,
       0,
       arg_best<true>,
       {1, 1, "axis keepdims select_last_index"},
       &op::argmax,
       export_argmax},
      {"",
       "ArgMin",
       1,
       0,
       arg_best<false>,
       {1, 1, "axis keepdims select_last_index"},
       &op::argmin,
       export_argmin},
      {"", "TensorScatter", 24, 0, tensor_scatter, {3, 1, "axis mode"}},
      exported(op::index_put, export_index_put),
      exported(op::index_backward, export_index_backward),
      exported(op::region_put, export_region_put),
      exported(op::scatter_add, export_scatter_add),
      exported(op::scatter_extreme, export_scatter_extreme),
      exported(op::dynamic_update, export_dynamic_update),
      exported(op::dynamic_slice, export_dynamic_slice),
      exported(op::sort, export_sort),
      exported(op::bincount, export_bincount),
      exported(op::searchsorted, export_searchsorted),
      exported(op::cdist, export_cdist),
  };
  return kRows;
}

}  // namespace tandem::onnx
