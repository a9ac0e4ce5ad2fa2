// SPDX-License-Identifier: Apache-2.0
// TensorFlow's ops that read and write by index, and lists of tensors (TensorArray), which are
// sequences here.
#include <algorithm>

#include "tandem/onnx/import/run_internal.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

// Gather, GatherV2(x, index, axis) with leading dimensions in common, and tables of variables.
void tf_gather(OnnxCall& c) {
  const int64_t rank = c.value(0).tensor().dim();
  int64_t batch = c.attr("batch_dims", 0);
  if (batch < 0) batch += c.value(1).tensor().dim();
  const int64_t axis = normalize_dim(c.has(2) ? c.int_at(2) : batch, static_cast<int>(rank));
  if (batch == 0) {
    c.set(0, run_as_onnx(c, "Gather", {c.value(0), c.value(1)}, {onnx_int("axis", axis)})[0]);
    return;
  }
  const Tensor x = c.x(0), index = c.x(1);
  TD_CHECK(batch > 0 && batch <= index.dim() && batch <= axis, Shape,
           "batch_dims {} do not fit {} and {}", batch, c.value(0).describe(),
           c.value(1).describe());
  // As GatherND: the gathered dimension comes right after the common ones, and goes back.
  const Tensor turned = movedim(x, IntList{axis}, IntList{batch});
  const Tensor y = as_onnx(c, "GatherND", {OnnxValue(turned), OnnxValue(index.unsqueeze(-1))},
                           {onnx_int("batch_dims", batch)});
  std::vector<int64_t> from, to;  // dimensions of the index beyond the common ones
  for (int64_t d = batch; d < index.dim(); ++d) {
    from.push_back(d);
    to.push_back(axis + d - batch);
  }
  c.set(0, from.empty() ? y : movedim(y, IntList(from), IntList(to)), c.type(0));
}

void tf_gather_nd(OnnxCall& c) {
  c.set(0, run_as_onnx(c, "GatherND", {c.value(0), c.value(1)},
                       {onnx_int("batch_dims", c.attr("batch_dims", 0))})[0]);
}

void tf_scatter_nd(OnnxCall& c) {
  const Tensor updates = c.x(1);
  const Tensor base = zeros(onnx_shape(c.ints(2)), updates.dtype());
  c.set(0, run_as_onnx(c, "ScatterND",
                       {OnnxValue(base, c.type(1)), c.value(0), OnnxValue(updates, c.type(1))},
                       {onnx_text("reduction", "add")})[0]);
}
void tf_tensor_scatter(OnnxCall& c) {
  const std::string& op = c.node().op;
  OnnxValue updates = c.value(2);
  if (op.ends_with("Sub")) updates = OnnxValue(-c.x(2), c.type(2));
  const char* reduction = op.ends_with("Update") ? "none"
                          : op.ends_with("Max")  ? "max"
                          : op.ends_with("Min")  ? "min"
                                                 : "add";
  c.set(0, run_as_onnx(c, "ScatterND", {c.value(0), c.value(1), updates},
                       {onnx_text("reduction", reduction)})[0]);
}

// Rows of a variable: x[index] = updates, or added.
void tf_scatter_rows(OnnxCall& c) {
  const bool adds = c.node().op == "ScatterRowsAdd";
  const Tensor index = c.x(1).to(DType::i64);
  c.set(0, run_as_onnx(c, "ScatterND", {c.value(0), OnnxValue(index.unsqueeze(-1)), c.value(2)},
                       {onnx_text("reduction", adds ? "add" : "none")})[0]);
}

void tf_one_hot(OnnxCall& c) {
  const Tensor values = stack({c.x(3).reshape({}), c.x(2).reshape({})}, 0);
  c.set(0, run_as_onnx(c, "OneHot", {c.value(0), c.value(1), OnnxValue(values, c.type(2))},
                       {onnx_int("axis", c.attr("axis", -1))})[0]);
}

void tf_top_k(OnnxCall& c) {
  std::vector<OnnxValue> out = run_as_onnx(c, "TopK", {c.value(0), c.value(1)}, {}, 2);
  const auto type =
      static_cast<OnnxType>(c.attr("index_type", static_cast<int64_t>(OnnxType::i32)));
  c.set(0, out[0]);
  c.set(1, out[1].tensor().to(info_of(type).carrier), type);
}

// ---- lists of tensors

OnnxValue::Sequence items_of(const OnnxCall& c) {
  const OnnxValue& v = c.value(0);
  return v.is_none() ? OnnxValue::Sequence() : v.items();
}
size_t place_in(const OnnxCall& c, const OnnxValue::Sequence& all) {
  const int64_t i = c.int_at(1);
  TD_CHECK(i >= 0 && i < static_cast<int64_t>(all.size()), Index,
           "the list has {} tensors, so there is no number {}", all.size(), i);
  return static_cast<size_t>(i);
}
OnnxType element_type(const OnnxCall& c) {
  return static_cast<OnnxType>(c.attr("element_dtype", static_cast<int64_t>(OnnxType::f32)));
}

/// What was never set is zeros, of the shape of the others, or of the one that is given.
void fill_gaps(const OnnxCall& c, OnnxValue::Sequence& all, size_t shape_input) {
  const auto set =
      std::find_if(all.begin(), all.end(), [](const OnnxValue& v) { return v.is_tensor(); });
  for (OnnxValue& v : all) {
    if (v.is_tensor()) continue;
    if (set != all.end())
      v = OnnxValue(zeros_like(set->tensor()), set->type());
    else
      v = OnnxValue(zeros(onnx_shape(c.ints(shape_input)), info_of(element_type(c)).carrier),
                    element_type(c));
  }
}

void tf_list_reserve(OnnxCall& c) {
  const int64_t n = c.node().op == "EmptyTensorList" ? 0 : c.int_at(1);
  TD_CHECK(n >= 0, Value, "a list of {} tensors", n);
  check_onnx_loop(static_cast<double>(n), sizeof(OnnxValue));
  c.set(0, OnnxValue::sequence(OnnxValue::Sequence(static_cast<size_t>(n))));
}
void tf_list_from_tensor(OnnxCall& c) {
  OnnxValue::Sequence all;
  const OnnxType type = c.type(0);
  for (const Tensor& t : unbind(c.x(0), 0)) all.push_back(OnnxValue(t, type));
  c.set(0, OnnxValue::sequence(std::move(all), type));
}
void tf_list_get(OnnxCall& c) {
  OnnxValue::Sequence all = items_of(c);
  const size_t i = place_in(c, all);
  if (!all[i].is_tensor()) fill_gaps(c, all, 2);
  c.set(0, all[i]);
}
void tf_list_set(OnnxCall& c) {
  OnnxValue::Sequence all = items_of(c);
  const int64_t grown = c.int_at(1) + 1;
  if (c.attr("resize_if_index_out_of_bounds", 0) && grown > static_cast<int64_t>(all.size())) {
    check_onnx_loop(static_cast<double>(grown), sizeof(OnnxValue));
    all.resize(static_cast<size_t>(grown));
  }
  const size_t i = place_in(c, all);
  all[i] = c.value(2);
  c.set(0, OnnxValue::sequence(std::move(all), c.type(2)));
}
void tf_list_push(OnnxCall& c) {
  OnnxValue::Sequence all = items_of(c);
  all.push_back(c.value(1));
  c.set(0, OnnxValue::sequence(std::move(all), c.type(1)));
}
void tf_list_pop(OnnxCall& c) {
  OnnxValue::Sequence all = items_of(c);
  TD_CHECK(!all.empty(), Index, "takes a tensor from an empty list");
  c.set(1, all.back());
  all.pop_back();
  c.set(0, OnnxValue::sequence(std::move(all)));
}
void tf_list_stack(OnnxCall& c) {
  OnnxValue::Sequence all = items_of(c);
  fill_gaps(c, all, 1);
  if (all.empty()) {
    std::vector<int64_t> s = c.ints(1);
    for (int64_t& d : s) d = std::max<int64_t>(d, 0);
    s.insert(s.begin(), 0);
    c.set(0, zeros(onnx_shape(s), info_of(element_type(c)).carrier), element_type(c));
    return;
  }
  std::vector<Tensor> ts;
  for (const OnnxValue& v : all)
    ts.push_back(is_tracing() && !v.tensor().is_symbolic() ? constant(v.tensor()) : v.tensor());
  c.set(0, stack(ts, 0), all[0].type());
}
void tf_list_length(OnnxCall& c) {
  const OutsideTrace outside;
  c.set(0, tensor(static_cast<int64_t>(items_of(c).size()), DType::i32));
}

}  // namespace

std::span<const OnnxRow> onnx_tf_index_rows() {
  static constexpr OnnxRow kRows[] = {
      {kOnnxTf,
       "Gather",
       1,
       0,
       tf_gather,
       {kOnnxAny, kOnnxAny, "batch_dims ~dtype validate_indices"}},
      {kOnnxTf, "GatherV2", 1, 0, tf_gather, {kOnnxAny, kOnnxAny, "batch_dims"}},
      {kOnnxTf, "GatherNd", 1, 0, tf_gather_nd, {kOnnxAny, kOnnxAny, "batch_dims ~dtype"}},
      {kOnnxTf, "ScatterNd", 1, 0, tf_scatter_nd, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "TensorScatterUpdate", 1, 0, tf_tensor_scatter, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "TensorScatterAdd", 1, 0, tf_tensor_scatter, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "TensorScatterSub", 1, 0, tf_tensor_scatter, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "TensorScatterMax", 1, 0, tf_tensor_scatter, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "TensorScatterMin", 1, 0, tf_tensor_scatter, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "ScatterRows", 1, 0, tf_scatter_rows, {kOnnxAny, kOnnxAny, ""}},
      {kOnnxTf, "ScatterRowsAdd", 1, 0, tf_scatter_rows, {kOnnxAny, kOnnxAny, ""}},
      settings_from(1, {kOnnxTf, "OneHot", 1, 0, tf_one_hot, {kOnnxAny, kOnnxAny, "axis"}}),
      settings_from(
          1, {kOnnxTf, "TopKV2", 1, 0, tf_top_k, {kOnnxAny, kOnnxAny, "index_type ~sorted"}}),
      {kOnnxTf,
       "TensorListReserve",
       1,
       0,
       tf_list_reserve,
       {kOnnxAny, kOnnxAny, "~element_dtype shape_type"}},
      {kOnnxTf,
       "EmptyTensorList",
       1,
       0,
       tf_list_reserve,
       {kOnnxAny, kOnnxAny, "~element_dtype shape_type"}},
      {kOnnxTf,
       "TensorListFromTensor",
       1,
       0,
       tf_list_from_tensor,
       {kOnnxAny, kOnnxAny, "~element_dtype shape_type"}},
      {kOnnxTf, "TensorListGetItem", 1, 0, tf_list_get, {kOnnxAny, kOnnxAny, "element_dtype"}},
      {kOnnxTf,
       "TensorListSetItem",
       1,
       0,
       tf_list_set,
       {kOnnxAny, kOnnxAny, "~element_dtype resize_if_index_out_of_bounds"}},
      {kOnnxTf, "TensorListPushBack", 1, 0, tf_list_push, {kOnnxAny, kOnnxAny, "~element_dtype"}},
      {kOnnxTf, "TensorListPopBack", 1, 0, tf_list_pop, {kOnnxAny, kOnnxAny, "~element_dtype"}},
      {kOnnxTf,
       "TensorListStack",
       1,
       0,
       tf_list_stack,
       {kOnnxAny, kOnnxAny, "element_dtype ~num_elements"}},
      {kOnnxTf, "TensorListLength", 1, 0, tf_list_length, {kOnnxAny, kOnnxAny, ""}},
  };
  return kRows;
}

}  // namespace tandem::onnx
