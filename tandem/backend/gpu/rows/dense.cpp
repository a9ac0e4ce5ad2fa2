// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/rows/dense_internal.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/backend/gpu/rows/philox_internal.h"
#include "tandem/base/error.h"

namespace tandem::gpu {
namespace {

size_t padded_to_lines(size_t bytes) { return (bytes + 255) / 256 * 256; }
// An array without elements has an address, too.
size_t scratch_bytes(size_t bytes) { return padded_to_lines(std::max<size_t>(bytes, 1)); }

bool wants_copy(const Array& a) { return a.present() && !a.is_scalar && !a.contiguous; }
size_t dense_bytes(const Array& a) { return static_cast<size_t>(a.numel) * size_of(a.dtype); }

DType type_of_number(const Array& a) { return a.scalar.kind == 2 ? DType::f64 : DType::i64; }
DType type_of_input(const Array& a) { return a.is_scalar ? type_of_number(a) : a.dtype; }

std::string sum_of(DType t) {
  if (t == DType::b8) return "((a) | (b))";
  if (is_floating(t)) return "((a) + (b))";
  return fmt::format("(({})((td_u64)(a) + (td_u64)(b)))", td_type(t));
}

// The words of the text that stand for input or output k.
class Words {
 public:
  void define(const std::string& name, const std::string& arguments, const std::string& text) {
    defined += fmt::format("#define {}{} {}\n", name, arguments, text);
    undefined += fmt::format("#undef {}\n", name);
  }
  void input(int k, const Array& a) {
    const std::string type = register_type(type_of_input(a));
    define(fmt::format("TI{}", k), "", type);
    define(fmt::format("HAS{}", k), "", a.present() ? "1" : "0");
    define(fmt::format("I{}", k), "(i)",
           !a.present()  ? fmt::format("(({})0)", type)
           : a.is_scalar ? fmt::format("(td_in{})", k)
                         : fmt::format("({})", loaded(fmt::format("td_in{}[i]", k), a.dtype)));
  }
  void output(int k, const Array& a) {
    define(fmt::format("TO{}", k), "", register_type(a.dtype));
    define(fmt::format("O{}", k), "(i)",
           fmt::format("({})", loaded(fmt::format("td_out{}[i]", k), a.dtype)));
    define(fmt::format("P{}", k), "(i, v)",
           fmt::format("td_out{}[i] = {}", k, stored("(v)", a.dtype)));
    define(fmt::format("ADD{}", k), "(a, b)", sum_of(a.dtype));
  }
  std::string defined, undefined;
};

}  // namespace

std::shared_ptr<const Plan> plan_dense(const KernelCall& c, std::initializer_list<size_t> scratch) {
  auto plan = std::make_shared<Plan>();
  for (int i = 0; i < c.n_in; ++i) {
    if (wants_copy(c.in[i])) plan->workspace += padded_to_lines(dense_bytes(c.in[i]));
  }
  for (const size_t bytes : scratch) plan->workspace += scratch_bytes(bytes);
  return plan;
}
std::shared_ptr<const Plan> prepare_dense(const KernelCall& c) { return plan_dense(c); }

DenseCall::DenseCall(const KernelCall& c) : c_(c), free_(address_of(c.scratch)) {
  for (int i = 0; i < c.n_in; ++i) {
    const Array& a = c.in[i];
    in_.push_back(a.present() && !a.is_scalar ? address_of(a.data) : 0);
    if (!wants_copy(a) || a.numel == 0) continue;
    in_.back() = free_;
    copy_dense(c, a, free_);
    free_ += padded_to_lines(dense_bytes(a));
  }
  for (int i = 0; i < c.n_out; ++i) TD_ASSERT(!c.out[i].data || c.out[i].contiguous);
}

DenseCall& DenseCall::number(const char* name, int64_t v) {
  numbers_.push_back({.name = name, .type = DType::i64, .whole = v});
  return *this;
}
DenseCall& DenseCall::number(const char* name, double v) {
  numbers_.push_back({.name = name, .type = DType::f64, .real = v});
  return *this;
}
DenseCall& DenseCall::scratch(const char* name, DType type, int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * size_of(type);
  numbers_.push_back(
      {.name = name, .type = type, .at = free_, .bytes = std::max(bytes, size_of(type))});
  free_ += scratch_bytes(bytes);
  return *this;
}
DenseCall& DenseCall::table(const char* name, DType type, Address at, size_t bytes) {
  numbers_.push_back({.name = name, .type = type, .at = at, .bytes = bytes, .is_table = true});
  return *this;
}
DenseCall& DenseCall::draws() {
  draws_ = true;
  return *this;
}

// Dtypes of all operands; 0 for one that is not there, the high bit for a number.
uint64_t DenseCall::types() const {
  uint64_t bits = 1;
  for (int i = 0; i < c_.n_in; ++i) {
    const Array& a = c_.in[i];
    const uint64_t type = a.present() ? static_cast<uint64_t>(type_of_input(a)) + 1 : 0;
    bits = bits << 5 | type | uint64_t{a.is_scalar} << 4;
  }
  for (int i = 0; i < c_.n_out; ++i) bits = bits << 4 | static_cast<uint64_t>(c_.out[i].dtype);
  return bits;
}

KernelSource DenseCall::source(const DenseKernel& kernel) const {
  KernelSource s{.name = kernel.name, .threads = kernel.blocks ? kThreads : 0, .prelude = true};
  Words words;
  for (int i = 0; i < c_.n_out; ++i) {
    words.output(i, c_.out[i]);
    s.parameters.push_back({Parameter::out, word_of(c_.out[i].dtype), fmt::format("td_out{}", i)});
  }
  for (int i = 0; i < c_.n_in; ++i) {
    const Array& a = c_.in[i];
    words.input(i, a);
    if (!a.present()) continue;
    s.parameters.push_back({a.is_scalar ? Parameter::value : Parameter::in,
                            word_of(type_of_input(a)), fmt::format("td_in{}", i)});
  }
  words.define("MATH", "(name)", c_.out[0].dtype == DType::f64 ? "name" : "name##f");
  for (const Number& n : numbers_) {
    const auto array = n.is_table ? Parameter::in : Parameter::out;
    s.parameters.push_back({n.bytes ? array : Parameter::value, n.type, n.name});
  }
  if (draws_) declare_key(s);
  for (const char* text : kernel.functions) {
    if (text) s.functions.push_back(text);
  }
  if (!kernel.blocks) s.parameters.push_back({Parameter::value, DType::i64, "td_count"});
  if (kernel.reports) declare_reports(s);
  s.body = words.defined;
  s.body += kernel.blocks
                ? "  const td_i64 me = td_block(x);\n  const td_i32 t = td_thread(x);\n"
                : "  const td_i64 me = (td_i64)td_block(x) * td_threads(x) + td_thread(x);\n"
                  "  if (me >= td_count) return;\n";
  for (const char* part : kernel.body) {
    if (part) s.body += part;
  }
  s.body += words.undefined;
  return s;
}

void DenseCall::run(const DenseKernel& kernel, int64_t count) const {
  if (count == 0) return;
  Engine& e = engine_of(c_.device);
  const KernelRef k = plain_kernel(e, {&kernel, types(), 0}, [&] { return source(kernel); });
  Arguments a;
  for (int i = 0; i < c_.n_out; ++i) argue_array(a, c_.out[i]);
  for (int i = 0; i < c_.n_in; ++i) {
    const Array& x = c_.in[i];
    if (!x.present()) continue;
    if (!x.is_scalar)
      a.address(in_[static_cast<size_t>(i)], dense_bytes(x));
    else if (x.scalar.kind == 2)
      a.value(x.scalar.to_double());
    else
      a.value(x.scalar.to_int());
  }
  for (const Number& n : numbers_) {
    if (n.bytes)
      a.address(n.at, n.bytes);
    else if (n.type == DType::f64)
      a.value(n.real);
    else
      a.value(n.whole);
  }
  if (draws_) argue_key(a, c_);
  if (!kernel.blocks) a.value(count);
  if (kernel.reports) argue_reports(a, e, c_);
  if (!kernel.blocks) return launch_each(e, k, count, a, c_.stream);
  e.launch(k, {static_cast<uint32_t>(count)}, {kThreads}, a, e.stream(c_.stream));
}

}  // namespace tandem::gpu
