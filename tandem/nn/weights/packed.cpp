// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/packed.h"

#include <algorithm>
#include <numeric>

#include "tandem/graph/context.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace {

template <class F>
auto placed(const char* name, SourceLocation loc, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    if (!e.op().empty() && e.loc().file) throw;
    throw with_place(e, name, loc);
  }
}

void check_list(const std::vector<Tensor>& list) {
  TD_CHECK(!list.empty(), Value, "expected at least one sequence");
  for (const Tensor& t : list)
    TD_CHECK(t.dim() >= 1 && t.dim() == list[0].dim(), Shape,
             "sequences expect [t, ...] of one number of dimensions, got {} and {}",
             list[0].shape().to_string(), t.shape().to_string());
}

// Rows of the padded sequences [t, n] that are in the packed one, step by step.
std::vector<int64_t> packed_rows(const std::vector<int64_t>& batch_sizes, int64_t n) {
  std::vector<int64_t> rows;
  for (size_t t = 0; t < batch_sizes.size(); ++t)
    for (int64_t i = 0; i < batch_sizes[t]; ++i) rows.push_back(static_cast<int64_t>(t) * n + i);
  return rows;
}

}  // namespace

PackedSequence pack_padded_sequence(Tensor x, const std::vector<int64_t>& lengths, bool batch_first,
                                    bool enforce_sorted, SourceLocation loc) {
  return placed("pack_padded_sequence", loc, [&] {
    TD_CHECK(x.defined() && x.dim() >= 2, Shape, "x expects [t, n, ...], got {}",
             x.defined() ? x.shape().to_string() : "undefined");
    if (batch_first) x = transpose(x, 0, 1, loc);
    int64_t steps = x.size(0), n = x.size(1);
    TD_CHECK(static_cast<int64_t>(lengths.size()) == n, Shape, "{} lengths for {} sequences",
             lengths.size(), n);
    for (int64_t l : lengths)
      TD_CHECK(l > 0 && l <= steps, Value,
               "length {} is out of range, x has {} steps\n"
               "Leave out empty sequences.",
               l, steps);
    PackedSequence p;
    std::vector<int64_t> order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    if (enforce_sorted) {
      TD_CHECK(std::is_sorted(lengths.rbegin(), lengths.rend()), Value,
               "lengths must be sorted in decreasing order\nSort the sequences, or pass "
               "enforce_sorted = false.");
    } else {
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return lengths[static_cast<size_t>(a)] > lengths[static_cast<size_t>(b)];
      });
      std::vector<int64_t> back(order.size());
      for (size_t i = 0; i < order.size(); ++i)
        back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
      p.sorted_indices = tensor(order);
      p.unsorted_indices = tensor(back);
      x = index_select(x, 1, p.sorted_indices, loc);
    }
    int64_t longest = n ? lengths[static_cast<size_t>(order[0])] : 0;
    for (int64_t t = 0; t < longest; ++t)
      p.batch_sizes.push_back(
          std::count_if(lengths.begin(), lengths.end(), [&](int64_t l) { return l > t; }));
    Shape flat = x.shape();
    flat.erase(0);
    flat[0] = -1;
    p.data = index_select(reshape(x, flat, loc), 0, tensor(packed_rows(p.batch_sizes, n)), loc);
    return p;
  });
}

std::pair<Tensor, std::vector<int64_t>> pad_packed_sequence(const PackedSequence& p,
                                                            bool batch_first, double value,
                                                            int64_t total, SourceLocation loc) {
  return placed("pad_packed_sequence", loc, [&]() -> std::pair<Tensor, std::vector<int64_t>> {
    TD_CHECK(p.data.defined() && !p.batch_sizes.empty(), Value, "the packed sequence is empty");
    auto steps = static_cast<int64_t>(p.batch_sizes.size());
    TD_CHECK(total < 0 || total >= steps, Value,
             "total_length is {}, the longest sequence has {} steps", total, steps);
    int64_t n = p.batch_sizes[0], all = total < 0 ? steps : total;
    Shape s{all * n};
    for (int i = 1; i < p.data.dim(); ++i) s.push_back(p.data.shape(i));
    Tensor flat = index_copy(full(s, value, p.data.dtype(), loc), 0,
                             tensor(packed_rows(p.batch_sizes, n)), p.data, loc);
    s[0] = n;
    s.insert(0, all);
    Tensor y = reshape(flat, s, loc);
    std::vector<int64_t> lengths(static_cast<size_t>(n), 0);
    for (int64_t b : p.batch_sizes)
      for (int64_t i = 0; i < b; ++i) ++lengths[static_cast<size_t>(i)];
    if (p.unsorted_indices.defined()) {
      y = index_select(y, 1, p.unsorted_indices, loc);
      std::vector<int64_t> sorted = lengths, at = p.unsorted_indices.to_vector<int64_t>();
      for (size_t i = 0; i < at.size(); ++i) lengths[i] = sorted[static_cast<size_t>(at[i])];
    }
    return {batch_first ? transpose(y, 0, 1, loc) : y, lengths};
  });
}

Tensor pad_sequence(const std::vector<Tensor>& list, bool batch_first, double value,
                    const std::string& side, SourceLocation loc) {
  return placed("pad_sequence", loc, [&] {
    check_list(list);
    TD_CHECK(side == "right" || side == "left", Value,
             "padding_side is \"right\" or \"left\", got \"{}\"", side);
    int64_t longest = 0;
    for (const Tensor& t : list) longest = std::max(longest, t.size(0));
    std::vector<Tensor> padded;
    for (const Tensor& t : list) {
      IntList amounts;
      for (int i = 0; i < 2 * t.dim(); ++i) amounts.push_back(0);
      amounts[2 * t.dim() - (side == "right" ? 1 : 2)] = longest - t.size(0);
      padded.push_back(pad(t, amounts, "constant", value, loc));
    }
    return stack(padded, batch_first ? 0 : 1, loc);
  });
}

PackedSequence pack_sequence(const std::vector<Tensor>& list, bool enforce_sorted,
                             SourceLocation loc) {
  placed("pack_sequence", loc, [&] {
    check_list(list);
    return 0;
  });
  std::vector<int64_t> lengths;
  for (const Tensor& t : list) lengths.push_back(t.size(0));
  return pack_padded_sequence(pad_sequence(list, false, 0, "right", loc), lengths, false,
                              enforce_sorted, loc);
}

std::vector<Tensor> unpad_sequence(Tensor x, const std::vector<int64_t>& lengths, bool batch_first,
                                   SourceLocation loc) {
  return placed("unpad_sequence", loc, [&] {
    TD_CHECK(x.dim() >= 2, Shape, "x expects [t, n, ...], got {}", x.shape().to_string());
    if (!batch_first) x = transpose(x, 0, 1, loc);
    TD_CHECK(x.size(0) == static_cast<int64_t>(lengths.size()), Shape,
             "{} lengths for {} sequences", lengths.size(), x.size(0));
    std::vector<Tensor> out;
    for (size_t i = 0; i < lengths.size(); ++i)
      out.push_back(narrow(select(x, 0, static_cast<int64_t>(i), loc), 0, 0, lengths[i], loc));
    return out;
  });
}

}  // namespace tandem::nn
