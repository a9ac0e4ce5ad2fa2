// SPDX-License-Identifier: Apache-2.0
// A row's reference with the dtypes that its loops take: f16 and bf16 operands of loops for f32 are
// replaced by dense f32 copies, and results are rounded once.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tandem/graph/apply.h"
#include "tandem/graph/run/array_walk.h"
#include "tandem/graph/run/kernel_choice.h"
#include "tandem/tensor/allocator.h"
#include "tandem/tensor/strided.h"

namespace tandem {
namespace {

bool takes(const OpDef& op, DType t) { return op.reference_dtypes >> static_cast<int>(t) & 1; }

bool takes_all(const OpDef& op, const Array* arrays, int n) {
  for (int i = 0; i < n; ++i)
    if (arrays[i].data && !takes(op, arrays[i].dtype)) return false;
  return true;
}

std::string dtypes_of(const OpDef& op) {
  std::string text;
  for (DType t : kEveryDType)
    if (takes(op, t)) text += (text.empty() ? "" : ", ") + std::string(to_string(t));
  return text;
}

// The elements of `a` in row-major order, read into `to` or written from it.
void convert_array(const Array& a, float* to, bool read) {
  const auto size = static_cast<int64_t>(size_of(a.dtype));
  for_each_offset(a, [&](int64_t offset) {
    char* element = a.as<char>() + offset * size;
    if (read)
      detail::convert_elements(element, a.dtype, to++, DType::f32, 1);
    else
      detail::convert_elements(to++, DType::f32, element, a.dtype, 1);
  });
}

// An operand as the loops take it.
class Widened {
 public:
  Widened(const OpDef& op, const Array& a, const char* name) : original_(a), array_(a) {
    if (!a.data || takes(op, a.dtype)) return;
    const bool narrow = is_short_float(a.dtype);
    TD_CHECK(
        narrow && takes(op, DType::f32), DType,
        "'{}' is {}, and the reference of this op takes {}\nConvert it with .to(), or register "
        "a kernel that takes it.",
        name, to_string(a.dtype), dtypes_of(op));
    array_.dtype = DType::f32;
    if (a.numel == 0) return;
    bytes_ = static_cast<size_t>(a.numel) * sizeof(float);
    array_.data = detail::allocate(bytes_);
    array_.contiguous = true;
    strides_ = row_major_strides(a);
  }
  ~Widened() {
    if (bytes_) detail::deallocate(array_.data, bytes_);
  }
  Widened(const Widened&) = delete;
  Widened& operator=(const Widened&) = delete;

  Array array() {
    Array a = array_;
    if (bytes_) a.strides = strides_.data();
    return a;
  }
  void read() const {
    if (bytes_) convert_array(original_, array_.as<float>(), true);
  }
  void write() const {
    if (bytes_) convert_array(original_, array_.as<float>(), false);
  }

 private:
  Array original_, array_;
  Strides strides_;
  size_t bytes_ = 0;
};

void run_widened(const KernelCall& call) {
  const OpDef& op = call.op;
  std::vector<std::unique_ptr<Widened>> operands;
  std::vector<Array> in, out;
  const auto add = [&](const Array& a, const char* name, std::vector<Array>& list) {
    operands.push_back(std::make_unique<Widened>(op, a, name));
    list.push_back(operands.back()->array());
  };
  for (int i = 0; i < call.n_in; ++i) {
    add(call.in[i], op.in_names[std::min<int>(i, op.n_in - 1)], in);
    operands.back()->read();
  }
  for (int o = 0; o < call.n_out; ++o) add(call.out[o], op.out_names[o], out);
  KernelCall c = call;
  c.in = in.data();
  c.out = out.data();
  op.reference_fn(c);
  for (int o = 0; o < call.n_out; ++o) operands[static_cast<size_t>(call.n_in + o)]->write();
}

}  // namespace

void run_reference(const KernelCall& call) {
  const OpDef& op = call.op;
  TD_CHECK(op.reference_fn, Unsupported, "no kernel and no reference for these inputs");
  if (op.reference_dtypes == 0 ||
      (takes_all(op, call.in, call.n_in) && takes_all(op, call.out, call.n_out)))
    return op.reference_fn(call);
  run_widened(call);
}

}  // namespace tandem
