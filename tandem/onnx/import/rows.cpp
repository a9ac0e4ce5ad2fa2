// SPDX-License-Identifier: Apache-2.0
// Which row or op of ours implements an ONNX op: the rows of all families and the column `onnx` of
// the op table.
#include "tandem/onnx/import/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <unordered_map>

#include "tandem/base/budget.h"
#include "tandem/onnx/onnx.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

std::vector<std::span<const OnnxRow>> onnx_rows() {
  return {onnx_math_rows(),
          onnx_activation_rows(),
          onnx_cast_rows(),
          onnx_shape_rows(),
          onnx_create_rows(),
          onnx_index_rows(),
          onnx_reduce_rows(),
          onnx_matmul_rows(),
          onnx_conv_rows(),
          onnx_pool_rows(),
          onnx_norm_rows(),
          onnx_attention_rows(),
          onnx_linear_attention_rows(),
          onnx_quant_rows(),
          onnx_quant_op_rows(),
          onnx_packed_rows(),
          onnx_expert_rows(),
          onnx_fused_attention_rows(),
          onnx_rnn_rows(),
          onnx_control_rows(),
          onnx_sequence_rows(),
          onnx_string_rows(),
          onnx_training_rows(),
          onnx_loss_rows(),
          onnx_signal_rows(),
          onnx_vision_rows(),
          onnx_resize_rows(),
          onnx_random_rows(),
          onnx_image_rows(),
          onnx_ml_rows(),
          onnx_tf_pointwise_rows(),
          onnx_tf_math_rows(),
          onnx_tf_shape_rows(),
          onnx_tf_index_rows(),
          onnx_tf_conv_rows(),
          onnx_tf_linalg_rows(),
          onnx_tf_segment_rows(),
          onnx_keras_rows(),
          onnx_tflite_rows()};
}

namespace {
using RowTable = std::unordered_map<std::string_view, std::vector<const OnnxRow*>>;

const RowTable& row_table() {
  static const RowTable* const table = [] {
    auto* t = new RowTable;  // never freed: runs may continue while the program exits
    for (const auto& family : onnx_rows())
      for (const OnnxRow& r : family)
        if (r.import) (*t)[r.name].push_back(&r);
    return t;
  }();
  return *table;
}
}  // namespace

const OnnxRow* find_onnx_row(std::string_view domain, std::string_view name, int64_t version) {
  const auto it = row_table().find(name);
  if (it == row_table().end()) return nullptr;
  for (const OnnxRow* r : it->second)
    if (domain == r->domain && version >= r->since && (r->last == 0 || version <= r->last))
      return r;
  return nullptr;
}

const OpDef* find_onnx_op(std::string_view name) {
  static const auto* const table = [] {
    auto* t = new std::unordered_map<std::string_view, const OpDef*>;
    for (const OpDef* op : all_ops())
      if (op->onnx_name && !op->attrs && op->family == Family::pointwise)
        t->emplace(op->onnx_name, op);
    return t;
  }();
  const auto it = table->find(name);
  return it == table->end() ? nullptr : it->second;
}

void run_direct(OnnxCall& c, const OpDef& op) {
  TD_CHECK(c.in.size() <= op.n_in, Value, "takes {} inputs, got {}", int{op.n_in}, c.in.size());
  const bool compares = op.types == Types::compare || op.types == Types::logical;
  // The bits of uint64 compare like int64 after flipping the highest one.
  const bool turn = compares && c.type(0) == OnnxType::u64;
  std::vector<Operand> in;
  in.reserve(op.n_in);
  for (size_t i = 0; i < op.n_in; ++i)
    in.emplace_back(turn ? bitwise_xor(c.x(i), std::numeric_limits<int64_t>::min()) : c.x(i));
  Tensor out[kMaxOpOuts];
  apply(op, nullptr, in, out, SourceLocation::here());
  if (compares)
    c.set(0, out[0]);
  else
    c.set_like(0, out[0], op.types == Types::where ? 1 : 0);
}

namespace {
// Fills an attrs struct from a node's attributes; absent ones keep their default.
class ReadAttributes : public AttrVisitor {
 public:
  explicit ReadAttributes(const OnnxCall& c) : c_(c) {}
  void operator()(const char* name, int64_t& v) override { v = c_.attr(name, v); }
  void operator()(const char* name, bool& v) override { v = c_.attr(name, v) != 0; }
  void operator()(const char* name, std::string& v) override { v = c_.attr_text(name, v); }
  void operator()(const char* name, double& v) override {
    if (const Tensor t = tensor_at(name); t.defined()) v = t.item<double>();
  }
  void operator()(const char* name, Scalar& v) override {
    const Tensor t = tensor_at(name);
    if (!t.defined()) return;
    if (is_floating(t.dtype()))
      v = t.item<double>();
    else if (is_bool(t.dtype()))
      v = t.item<bool>();
    else
      v = t.item<int64_t>();
  }
  void operator()(const char* name, DType& v) override {
    const int64_t n = c_.attr(name, static_cast<int64_t>(onnx_type_of(v)));
    for (int i = 0; i < kDTypeCount; ++i)
      if (static_cast<int64_t>(onnx_type_of(static_cast<DType>(i))) == n) {
        v = static_cast<DType>(i);
        return;
      }
    TD_FAIL(Format, "its attribute '{}' is the element type {}", name, n);
  }
  void operator()(const char* name, IntList& v) override {
    if (!c_.attribute(name)) return;
    const std::vector<int64_t> list = c_.attr_ints(name);
    TD_CHECK(list.size() <= static_cast<size_t>(kMaxRank), Format,
             "its attribute '{}' has {} entries", name, list.size());
    for (const int64_t n : list)
      TD_CHECK(n >= -(int64_t{1} << 40) && n <= (int64_t{1} << 40), Value,
               "its attribute '{}' is {}", name, n);
    v = IntList(list);
  }
  void operator()(const char* name, std::vector<int64_t>& v) override {
    if (c_.attribute(name)) v = c_.attr_ints(name);
  }
  void operator()(const char* name, Ref<RefCounted>&) override {
    TD_FAIL(Unsupported, "its attribute '{}' holds a function, which no file can", name);
  }

 private:
  Tensor tensor_at(const char* name) const {
    const OnnxAttribute* a = c_.attribute(name);
    if (!a) return {};
    TD_CHECK(
        a->kind == OnnxAttribute::t && a->tensor.is_tensor() && a->tensor.tensor().numel() == 1,
        Format, "its attribute '{}' is not a tensor of one number", name);
    return a->tensor.tensor().reshape({});
  }
  const OnnxCall& c_;
};
}  // namespace

void run_own(OnnxCall& c, const OpDef& op) {
  TD_CHECK(op.family != Family::control, Unsupported, "'{}' is not an op that a file can call",
           op.name);
  TD_CHECK(op.variadic || c.in.size() <= op.n_in, Value, "takes {} inputs, got {}", int{op.n_in},
           c.in.size());
  AttrsHolder attrs;
  if (op.attrs) {
    const std::unique_ptr<void, void (*)(void*)> fresh(op.attrs->make(), op.attrs->destroy);
    ReadAttributes read(c);
    op.attrs->visit(fresh.get(), read);
    attrs = AttrsHolder(op.attrs, fresh.get());
  }
  if (&op == &op::nms && c.has(0) && !c.x(0).is_symbolic()) {  // every box may meet every other
    const auto n = static_cast<double>(c.x(0).numel()) / 4;
    check_onnx_loop(n * n);
  }
  std::vector<Operand> in;
  for (size_t i = 0; i < std::max<size_t>(c.in.size(), op.variadic ? 0 : op.n_in); ++i)
    in.emplace_back(c.has(i) ? c.x(i) : Tensor());
  Tensor out[kMaxOpOuts];
  ApplyOptions options;
  options.hidden = c.out.size() > static_cast<size_t>(op.shown());
  apply(op, attrs.get(), in, out, SourceLocation::here(), options);
  for (size_t i = 0; i < c.out.size() && i < op.n_out; ++i) c.set(i, OnnxValue(out[i]));
}

Shape onnx_shape(const std::vector<int64_t>& sizes) {
  Shape s;
  for (const int64_t d : sizes) {
    TD_CHECK(!Dim::from_raw(d).is_symbolic(), Unsupported, "computes a shape with an open size");
    TD_CHECK(d >= 0 && d <= (int64_t{1} << 40), Shape, "asks for a dimension of size {}", d);
    s.push_back(d);
  }
  check_onnx_size(s);
  return s;
}

void check_onnx_list(const std::vector<int64_t>& numbers) {
  for (const int64_t n : numbers)
    TD_CHECK(n >= -(int64_t{1} << 28) && n <= (int64_t{1} << 28), Value, "a number is {}", n);
}

IntList onnx_list(const std::vector<int64_t>& numbers) {
  check_onnx_list(numbers);
  return IntList(numbers);
}

void check_onnx_size(const Shape& shape, uint64_t element_bytes) {
  int64_t n = 1;
  for (const Dim d : shape) {
    if (d.is_symbolic()) return;
    TD_CHECK(d.value() >= 0, Shape, "asks for a tensor of shape {}", shape.to_string());
    const bool wide = __builtin_mul_overflow(n, std::max<int64_t>(d.value(), 1), &n);
    TD_CHECK(!wide && n <= (int64_t{1} << 34), Memory,
             "asks for a tensor of shape {}, more than 2^34 elements", shape.to_string());
  }
  check_onnx_loop(0, static_cast<uint64_t>(n) * element_bytes);
}

void check_onnx_loop(double steps, uint64_t bytes_each) {
  TD_CHECK(std::isfinite(steps), Value, "the number of steps is not finite");
  const double bytes = std::max(steps, 1.0) * static_cast<double>(bytes_each);
  const auto whole = static_cast<uint64_t>(std::min(bytes, 9e18));
  Budget::take(whole);  // the memory itself is charged, or short-lived
  Budget::give_back(whole);
  Budget::work(steps);
  Budget::check_time();
}

std::vector<std::string> onnx_ops() {
  std::vector<std::string> names;
  for (const auto& family : onnx_rows())
    for (const OnnxRow& r : family)
      if (r.import && !is_tensorflow_domain(r.domain))
        names.push_back(*r.domain ? std::string(r.domain) + "." + r.name : r.name);
  for (const OpDef* op : all_ops())
    if (op->onnx_name) names.push_back(op->onnx_name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace tandem::onnx
