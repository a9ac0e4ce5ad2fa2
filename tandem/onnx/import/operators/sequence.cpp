// SPDX-License-Identifier: Apache-2.0
// ONNX sequences and optionals.
#include <algorithm>

#include "tandem/onnx/import/run_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// A position that may be negative; with `end` also one past the end.
size_t place(const OnnxCall& c, size_t input, size_t size, bool end) {
  const auto n = static_cast<int64_t>(size);
  int64_t i = c.int_at(input);
  if (i < 0) i += n;
  TD_CHECK(i >= 0 && (i < n || (end && i == n)), Index, "position {} of a sequence of {}",
           c.int_at(input), n);
  return static_cast<size_t>(i);
}

void empty_sequence(OnnxCall& c) {
  c.set(0, OnnxValue::sequence({}, static_cast<OnnxType>(c.attr("dtype", 1))));
}
void construct(OnnxCall& c) { c.set(0, OnnxValue::sequence(c.in)); }
void at(OnnxCall& c) {
  const auto& items = c.value(0).items();
  c.set(0, items[place(c, 1, items.size(), false)]);
}
void length(OnnxCall& c) {
  const OutsideTrace outside;  // known in a trace, too
  c.set(0, tensor(static_cast<int64_t>(c.value(0).items().size()), DType::i64));
}
void insert(OnnxCall& c) {
  OnnxValue::Sequence items = c.value(0).items();
  const size_t i = c.has(2) ? place(c, 2, items.size(), true) : items.size();
  items.insert(items.begin() + static_cast<int64_t>(i), c.value(1));
  c.set(0, OnnxValue::sequence(std::move(items)));
}
void erase(OnnxCall& c) {
  OnnxValue::Sequence items = c.value(0).items();
  TD_CHECK(!items.empty(), Index, "the sequence is empty");
  const size_t i = c.has(1) ? place(c, 1, items.size(), false) : items.size() - 1;
  items.erase(items.begin() + static_cast<int64_t>(i));
  c.set(0, OnnxValue::sequence(std::move(items), c.value(0).type()));
}

void concat_from(OnnxCall& c) {
  std::vector<Tensor> xs;
  for (const OnnxValue& v : c.value(0).items()) xs.push_back(v.tensor());
  TD_CHECK(!xs.empty(), Value, "the sequence is empty");
  const bool fresh = c.attr("new_axis", 0);
  const int64_t axis = c.attr("axis", 0);
  c.set(0, fresh ? stack(xs, axis) : cat(xs, axis), c.value(0).items()[0].type());
}

void split_to(OnnxCall& c) {
  const Tensor x = c.x(0);
  const int d = c.axis("axis", 0, x.dim());
  std::vector<int64_t> sizes;
  const int64_t n = x.size(d);
  if (!c.has(1)) {
    sizes.assign(static_cast<size_t>(n), 1);
  } else if (c.value(1).tensor().dim() == 0) {
    const int64_t each = c.int_at(1);
    TD_CHECK(each > 0, Value, "expected parts of a positive size");
    for (int64_t at = 0; at < n; at += each) sizes.push_back(std::min(each, n - at));
  } else {
    sizes = c.ints(1);
  }
  OnnxValue::Sequence items;
  const bool keep = c.has(1) || c.attr("keepdims", 1);
  for (const Tensor& part : split(x, sizes, d))
    items.push_back(OnnxValue(keep ? part : part.squeeze(d), c.type(0)));
  c.set(0, OnnxValue::sequence(std::move(items), c.type(0)));
}

void map(OnnxCall& c) {
  const OnnxGraph& body = c.graph("body");
  const size_t n = c.value(0).items().size();
  std::vector<OnnxValue::Sequence> out(body.outputs.size());
  for (size_t i = 0; i < n; ++i) {
    std::vector<OnnxValue> in;
    for (const OnnxValue& v : c.in) {
      TD_CHECK(!v.is_sequence() || v.items().size() == n, Value,
               "sequences of {} and {} are iterated together", n, v.items().size());
      in.push_back(v.is_sequence() ? v.items()[i] : v);
    }
    const std::vector<OnnxValue> y = c.run_graph(body, std::move(in));
    for (size_t k = 0; k < out.size(); ++k) out[k].push_back(y[k]);
  }
  for (size_t k = 0; k < out.size(); ++k) c.set(k, OnnxValue::sequence(std::move(out[k])));
}

void optional(OnnxCall& c) {
  TD_CHECK(c.has(0) || c.attribute("type"), Format, "expected an input or a type");
  c.set(0, c.has(0) ? c.in[0] : OnnxValue());
}
void has_element(OnnxCall& c) {
  const OutsideTrace outside;
  c.set(0, tensor(c.has(0)));
}
void get_element(OnnxCall& c) { c.set(0, c.value(0)); }

}  // namespace

std::span<const OnnxRow> onnx_sequence_rows() {
  static constexpr OnnxRow kRows[] = {
      {"", "SequenceEmpty", 11, 0, empty_sequence, {0, 1, "dtype"}},
      {"", "SequenceConstruct", 11, 0, construct, {kOnnxAny, 1, ""}},
      {"", "SequenceAt", 11, 0, at, {2, 1, ""}},
      {"", "SequenceLength", 11, 0, length, {1, 1, ""}},
      {"", "SequenceInsert", 11, 0, insert, {3, 1, ""}},
      {"", "SequenceErase", 11, 0, erase, {2, 1, ""}},
      {"", "ConcatFromSequence", 11, 0, concat_from, {1, 1, "axis new_axis"}},
      {"", "SplitToSequence", 11, 0, split_to, {2, 1, "axis keepdims"}},
      {"", "SequenceMap", 17, 0, map, {kOnnxAny, kOnnxAny, "body"}},
      {"", "Optional", 15, 0, optional, {1, 1, "type"}},
      {"", "OptionalHasElement", 15, 0, has_element, {1, 1, ""}},
      {"", "OptionalGetElement", 15, 0, get_element, {1, 1, ""}},
  };
  return kRows;
}

}  // namespace tandem::onnx
