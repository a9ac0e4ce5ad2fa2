// SPDX-License-Identifier: Apache-2.0
// Pointwise rows and fused loops: the steps of the plan that the CPU runs. A thread takes 16 bytes
// of an array, the same number of elements of all, where they lie side by side and aligned, else
// one element. All loads stand before all stores, so an output may be an input's array.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/backend/gpu/rows/values_internal.h"
#include "tandem/base/error.h"
#include "tandem/codegen/pointwise.h"
#include "tandem/graph/expression/scalar_eval.h"

namespace tandem::gpu {
namespace {

using codegen::Access;
using codegen::TilePlan;

// What a group of elements may take of a thread: registers for its elements, in bytes, and text.
constexpr size_t kMostGroupBytes = 256, kMostLineBytes = 32;
constexpr double kMostUnrolledCost = 768;

struct PointwiseKernel : Built {
  KernelRef kernel = nullptr;
  TilePlan plan;
  std::vector<ValueParameter> values;
  bool reports = false;  ///< a division by zero
};

// The arrays of a loop: inputs that are not numbers, then outputs, as a Walk numbers them.
struct PointwiseArrays {
  const Array* all[codegen::kMaxLoopArrays];
  int n = 0, number_of[codegen::kMaxLoopArrays];  // of input k, or -1
  int n_in = 0;

  PointwiseArrays(const Array* in, int n_in_, const Array* out, int n_out) : n_in(n_in_) {
    for (int k = 0; k < n_in; ++k) {
      number_of[k] = in[k].is_scalar ? -1 : n;
      if (!in[k].is_scalar) all[n++] = &in[k];
    }
    for (int k = 0; k < n_out; ++k) {
      number_of[n_in + k] = n;
      all[n++] = &out[k];
    }
  }
  /// Elements of a group: 16 bytes of the narrowest array, at most twice that of the widest.
  int group() const {
    size_t narrowest = 16, widest = 1, bytes = 0;
    for (int k = 0; k < n; ++k) {
      const size_t size = size_of(all[k]->dtype);
      narrowest = std::min(narrowest, size);
      widest = std::max(widest, size);
      bytes += std::max<size_t>(size, 4);
    }
    size_t e = std::min(16 / narrowest, kMostLineBytes / widest);
    while (e > 1 && e * bytes > kMostGroupBytes) e /= 2;
    return static_cast<int>(e);
  }
  bool aligned(int e) const {
    for (int k = 0; k < n; ++k) {
      if (all[k]->numel > 1 && !lies_on_groups(*all[k], e)) return false;
    }
    return true;
  }
  bool flat() const {
    const int64_t count = all[n - 1]->numel;
    for (int k = 0; k < n; ++k) {
      if (all[k]->numel != 1 && (all[k]->numel != count || !all[k]->contiguous)) return false;
    }
    return true;
  }
};

class PointwiseText : codegen::BlockNames {
 public:
  PointwiseText(const ScalarProgram& program, const PointwiseArrays& arrays, const Walk& walk,
                PointwiseKernel& made)
      : program_(program), arrays_(arrays), walk_(walk), made_(made) {}

  KernelSource source() {
    const codegen::BlockText block = codegen::emit_block(made_.plan, "", *this);
    made_.reports = block.divides;
    KernelSource k;
    k.name = "loop";
    k.prelude = true;
    for (int i = 0; i < made_.plan.n_out; ++i) {
      const DType t = program_.out[static_cast<size_t>(i)].dtype;
      k.parameters.push_back({Parameter::out, word_of(t), fmt::format("y{}", i)});
    }
    for (int i = 0; i < made_.plan.n_in; ++i) {
      if (arrays_.number_of[i] < 0) continue;
      const DType t = program_.in[static_cast<size_t>(i)];
      k.parameters.push_back({Parameter::in, word_of(t), fmt::format("p{}", i)});
    }
    for (const ValueParameter& v : made_.values) k.parameters.push_back(parameter_of(v, ""));
    walk_.declare(k);
    if (block.divides) declare_reports(k);
    TD_ASSERT(block.row.empty());
    k.body = walk_.lines() + once_;
    if (block.divides) k.body += "  int bad = 0;\n";
    k.body += walk_.grouped() > 1 ? of_group(block.body) : loads_ + block.body + stores_;
    if (block.divides) k.body += fmt::format("  if (bad) td_report({}, 0);\n", kDivisionByZero);
    return k;
  }

 private:
  // Array `array` of a walk in groups is line<array> of the thread.
  std::string input(int slot, const char* type) override {
    if (slot >= made_.plan.n_in || arrays_.number_of[slot] < 0) {
      made_.values.push_back({slot, register_named(type)});
      return fmt::format("v{}", slot);
    }
    const int array = arrays_.number_of[slot];
    const std::string p = fmt::format("p{}", slot), place = walk_.place(array);
    const bool in_line = walk_.grouped() > 1 && walk_.in_groups(array);
    if (in_line) {
      declare_line(array, program_.in[static_cast<size_t>(slot)]);
      lines_in_ +=
          fmt::format("    td_load({}, line{}, {}, {});\n", walk_.grouped(), array, p, place);
      tail_in_ += fmt::format("      line{}[e] = {}[own];\n", array, p);
    }
    std::string& to = walk_.grouped() > 1 && !in_line ? once_ : loads_;
    to += fmt::format("  const {0} x{1} = ({0}){2};\n", type, slot,
                      in_line ? fmt::format("line{}[e]", array) : fmt::format("{}[{}]", p, place));
    return fmt::format("x{}", slot);
  }
  void output(int k, const char*, const std::string& name) override {
    const int array = arrays_.number_of[made_.plan.n_in + k];
    if (walk_.grouped() == 1) {
      stores_ += fmt::format("  y{}[{}] = {};\n", k, walk_.place(array), name);
      return;
    }
    declare_line(array, program_.out[static_cast<size_t>(k)].dtype);
    stores_ += fmt::format("    line{}[e] = {};\n", array, name);
    lines_out_ += fmt::format("    td_store({}, y{}, {}, line{});\n", walk_.grouped(), k,
                              walk_.place(array), array);
    tail_out_ += fmt::format("      y{}[i * {} + e] = line{}[e];\n", k, walk_.grouped(), array);
  }

  void declare_line(int array, DType t) {
    once_ +=
        fmt::format("  td_line({}, line{}, {});\n", td_type(word_of(t)), array, walk_.grouped());
  }
  // The last group may be a part: its first element stands for those that are not there.
  std::string of_group(const std::string& body) const {
    const int group = walk_.grouped();
    const bool unrolled = made_.plan.cost * group <= kMostUnrolledCost;
    const std::string each =
        fmt::format("{}  for (td_i32 e = 0; e < {}; ++e)", unrolled ? "  td_unroll\n" : "", group);
    const std::string steps = fmt::format("{} {{\n{}{}{}  }}\n", each, loads_, body, stores_);
    if (!walk_.has_tail()) return lines_in_ + steps + lines_out_;
    return fmt::format("  const td_i32 whole = (i + 1) * {} <= elements;\n", group) +
           fmt::format("  if (whole) {{\n{}  }} else {{\n{} {{\n", lines_in_, each) +
           fmt::format("      const {0} own = i * {1} + (i * {1} + e < elements ? e : 0);\n",
                       walk_.index(), group) +
           tail_in_ + "    }\n  }\n" + steps +
           fmt::format("  if (whole) {{\n{}  }} else {{\n{} {{\n", lines_out_, each) +
           fmt::format("      if (i * {} + e >= elements) continue;\n", group) + tail_out_ +
           "    }\n  }\n";
  }

  const ScalarProgram& program_;
  const PointwiseArrays& arrays_;
  const Walk& walk_;
  PointwiseKernel& made_;
  std::string loads_, stores_;  // of an element
  std::string once_, lines_in_, lines_out_, tail_in_, tail_out_;
};

std::unique_ptr<PointwiseKernel> make_pointwise(Engine& e, const ScalarProgram& program,
                                                const PointwiseArrays& arrays, const Walk& walk) {
  auto made = std::make_unique<PointwiseKernel>();
  Access access[codegen::kMaxPlanIns];
  for (int k = 0; k < arrays.n_in; ++k) {
    access[k] = arrays.number_of[k] < 0 ? Access::value : Access::dense;
  }
  made->plan = codegen::make_tile_plan(program, access, {}, codegen::tiles());
  made->kernel = e.build(PointwiseText(program, arrays, walk, *made).source());
  return made;
}

// Which operands are numbers: the rest of what a kernel's text depends on, the walk knows.
uint64_t numbers_of(const PointwiseArrays& a) {
  uint64_t bits = 0;
  for (int k = 0; k < a.n_in; ++k) bits |= uint64_t{a.number_of[k] < 0} << k;
  return bits;
}

void argue_values(Arguments& a, const PointwiseKernel& k, const ScalarProgram& program,
                  const KernelCall& call) {
  if (k.values.empty()) return;
  PlanValues values(k.plan);
  for (int i = 0; i < call.n_in; ++i) {
    if (!call.in[i].is_scalar) continue;
    const Reg r = reg_of(program.in[static_cast<size_t>(i)]);
    values.set(i, codegen::register_bits(call.in[i].scalar, r));
  }
  values.compute();
  for (const ValueParameter& v : k.values) argue_value(a, v.type, values.bits(v.slot));
}

void run_program(const ScalarProgram& program, const KernelCall& call) {
  if (call.out[0].numel == 0) return;
  Engine& e = engine_of(call.device);
  const PointwiseArrays arrays(call.in, call.n_in, call.out, call.n_out);
  Walk walk = arrays.flat() ? Walk(call.out[0].numel, arrays.all, arrays.n)
                            : Walk(call.out[0].shape, call.out[0].rank, arrays.all, arrays.n,
                                   arrays.number_of[arrays.n_in]);
  const int group = arrays.group();
  const bool grouped = group > 1 && arrays.aligned(group) && walk.group(group);
  walk.fit(arrays.n + 16);
  const KernelId id{&program, walk.ways(),
                    walk.shape_key() ^ (numbers_of(arrays) << 1 | grouped) << 32};
  const PointwiseKernel& k = e.built(id, [&] { return make_pointwise(e, program, arrays, walk); });
  Arguments a;
  for (int i = 0; i < call.n_out; ++i) argue_array(a, call.out[i]);
  for (int i = 0; i < call.n_in; ++i) {
    if (!call.in[i].is_scalar) argue_array(a, call.in[i]);
  }
  argue_values(a, k, program, call);
  walk.argue(a);
  if (k.reports) argue_reports(a, e, call);
  launch_each(e, k.kernel, walk.count(), a, call.stream);
}

void run_pointwise(const KernelCall& call) { run_program(program_of(call), call); }

}  // namespace

void run_loop(const ScalarProgram& program, const KernelCall& call) { run_program(program, call); }

void register_pointwise(DeviceKind kind) {
  register_family_kernel(kind, Family::pointwise,
                         {has_types, codegen::pointwise_kernel().layout, nullptr, run_pointwise});
}

}  // namespace tandem::gpu
