// SPDX-License-Identifier: Apache-2.0
// Softmax, norms and their backward rows from the CPU's row programs: a block a row, whose threads
// take neighbouring elements. What a program keeps of a row for later stages is recomputed there:
// that costs arithmetic, which is there in plenty, and no memory.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/backend/gpu/rows/values_internal.h"
#include "tandem/base/error.h"
#include "tandem/codegen/reduce_program.h"
#include "tandem/codegen/row_programs.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/nn/softmax.h"

namespace tandem::gpu {
namespace {

using codegen::RowCall;
using codegen::RowKernel;
using codegen::RowKind;
using codegen::RowProgram;
using codegen::RowSink;
using codegen::RowStage;
using codegen::RowWalk;

constexpr int kShortRowThreads = 32;
constexpr int64_t kShortRow = 64;

int threads_for(int64_t length) { return length <= kShortRow ? kShortRowThreads : kThreads; }

struct StageValue {
  size_t stage = 0;
  ValueParameter value;
};

struct RowsKernel : Built {
  KernelRef kernel = nullptr;
  std::vector<StageValue> values;
};

class RowText {
 public:
  RowText(const RowKernel& kernel, const Walk& rows, int threads, RowsKernel& made)
      : plans_(kernel.plans), p_(kernel.program), rows_(rows), threads_(threads), made_(made) {}

  KernelSource source() {
    std::string body = rows_.lines("", fmt::format("({})td_block(x)", rows_.index()));
    body += "  const td_i32 t = td_thread(x);\n";
    for (size_t s = 0; s < p_.stages.size(); ++s) body += stage(s);
    KernelSource k{.name = "rows", .threads = threads_, .prelude = true};
    const int n_in = static_cast<int>(p_.ins.size()), n_out = static_cast<int>(p_.outs.size());
    for (int i = 0; i < n_out; ++i) {
      const DType t = p_.out_types[static_cast<size_t>(i)];
      k.parameters.push_back({Parameter::out, word_of(t), fmt::format("y{}", i)});
    }
    for (int i = 0; i < n_in; ++i) {
      if (p_.ins[static_cast<size_t>(i)] == RowKind::number) continue;
      const DType t = p_.in_types[static_cast<size_t>(i)];
      k.parameters.push_back({Parameter::in, word_of(t), fmt::format("p{}", i)});
    }
    for (const StageValue& v : made_.values) {
      k.parameters.push_back(parameter_of(v.value, fmt::format("s{}", v.stage)));
    }
    rows_.declare(k);
    k.parameters.push_back({Parameter::value, DType::i64, "row_size"});
    for (int i = 0; i < n_in + n_out; ++i) {
      if (codegen::kind_of(p_, i) != RowKind::matrix) continue;
      k.parameters.push_back({Parameter::value, DType::i64, fmt::format("along{}", i)});
    }
    if (p_.n_folds) k.shared.push_back({p_.compute, "partial", threads_});
    k.body = std::move(body);
    return k;
  }

 private:
  // One writing of a stage's steps; names begin with `prefix`.
  struct Names : codegen::BlockNames {
    RowText& text;
    size_t stage;
    std::string prefix, loads;
    std::vector<std::string> outputs;

    Names(RowText& t, size_t s, std::string p)
        : text(t), stage(s), prefix(std::move(p)), outputs(t.p_.stages[s].sinks.size()) {}
    std::string input(int slot, const char* type) override { return text.input(*this, slot, type); }
    void output(int k, const char*, const std::string& name) override {
      outputs[static_cast<size_t>(k)] = name;
    }
    /// Everything that element j needs, outputs last.
    std::string lines() {
      const codegen::BlockText block = codegen::emit_block(text.plans_[stage], prefix, *this);
      TD_ASSERT(!block.divides);
      return loads + block.row + block.body;
    }
  };

  int n_ins() const { return static_cast<int>(p_.ins.size()); }

  std::string element(int array) const {
    return fmt::format("{} + j * along{}", rows_.place(array), array);
  }

  std::string input(Names& names, int slot, const char* type) {
    const bool is_input = slot < n_ins();
    const RowKind kind = is_input ? p_.ins[static_cast<size_t>(slot)] : RowKind::number;
    if (slot >= plans_[names.stage].first_value() || slot == RowProgram::kCount ||
        (is_input && kind == RowKind::number)) {
      return value(names.stage, slot, register_named(type));
    }
    if (!is_input && slot < RowProgram::kFirstStored) {
      return fmt::format("f{}", slot - RowProgram::kFirstFold);
    }
    if (!is_input) return kept_element(names, slot - RowProgram::kFirstStored);
    const std::string x = fmt::format("{}x{}", names.prefix, slot);
    std::string from;
    switch (kind) {
      case RowKind::row:
        from = loaded(fmt::format("p{}[{}]", slot, rows_.place(slot)),
                      p_.in_types[static_cast<size_t>(slot)]);
        break;
      case RowKind::columns:
        from = fmt::format("p{}[j]", slot);
        break;
      default:
        from = fmt::format("p{}[{}]", slot, element(slot));
    }
    names.loads += fmt::format("    const {0} {1} = ({0}){2};\n", type, x, from);
    return x;
  }

  // What an earlier stage kept of element j, recomputed.
  std::string kept_element(Names& names, int k) {
    for (size_t s = 0; s < names.stage; ++s) {
      const auto& sinks = p_.stages[s].sinks;
      for (size_t o = 0; o < sinks.size(); ++o) {
        if (sinks[o].kind != RowSink::store || sinks[o].index != k) continue;
        Names again(*this, s, fmt::format("{}again{}_", names.prefix, s));
        names.loads += again.lines();
        return again.outputs[o];
      }
    }
    TD_FAIL(Internal, "no stage keeps row {}", k);
  }

  std::string value(size_t stage, int slot, Reg type) {
    const auto& all = made_.values;
    const bool known = std::any_of(all.begin(), all.end(), [&](const StageValue& v) {
      return v.stage == stage && v.value.slot == slot;
    });
    if (!known) made_.values.push_back({stage, {slot, type}});
    return fmt::format("s{}v{}", stage, slot);
  }

  std::string stage(size_t s) {
    static constexpr const char* kFolds[] = {"add", "mul", "max", "min"};
    static constexpr double kFirst[] = {0, 1, -__builtin_inf(), __builtin_inf()};
    const RowStage& st = p_.stages[s];
    const Reg reg = reg_of(p_.compute);
    const char letter = reg == Reg::f64 ? 'd' : 'f';
    const std::string type = td_type(p_.compute);
    Names names(*this, s, fmt::format("a{}_", s));
    std::string lines = names.lines(), start, ends;
    for (size_t o = 0; o < st.sinks.size(); ++o) {
      const RowSink& sink = st.sinks[o];
      const std::string& got = names.outputs[o];
      const auto op = static_cast<size_t>(sink.op);
      const std::string fold = fmt::format("tdo_{}_{}", kFolds[op], letter);
      const int array = n_ins() + sink.index;
      if (sink.kind == RowSink::fold) {
        start += fmt::format("  {} fold{} = {};\n", type, sink.index,
                             literal_of(reg, codegen::register_bits(Scalar(kFirst[op]), reg)));
        lines += fmt::format("    fold{0} = {1}(fold{0}, {2});\n", sink.index, fold, got);
        ends += combined(sink.index, fold, type);
      } else if (sink.kind == RowSink::matrix) {
        lines += fmt::format("    y{}[{}] = {};\n", sink.index, element(array), got);
      } else if (sink.kind == RowSink::row) {
        lines += fmt::format("    y{}[{}] = {};\n", sink.index, rows_.place(array), got);
      }
    }
    const char* loop = st.once ? "  for (td_i64 j = 0; j < 1 && t == 0; ++j) {\n"
                               : "  for (td_i64 j = t; j < row_size; j += td_threads(x)) {\n";
    return start + loop + lines + "  }\n" + ends;
  }

  // The fold of all threads, for all threads.
  static std::string combined(int k, const std::string& fold, const std::string& type) {
    return fmt::format(
        "  partial[t] = fold{0};\n"
        "  for (td_i32 gap = td_threads(x) / 2; gap > 0; gap /= 2) {{\n"
        "    td_barrier();\n"
        "    if (t < gap) partial[t] = {1}(partial[t], partial[t + gap]);\n"
        "  }}\n"
        "  td_barrier();\n"
        "  const {2} f{0} = partial[0];\n"
        "  td_barrier();\n",
        k, fold, type);
  }

  const std::vector<codegen::TilePlan>& plans_;
  const RowProgram& p_;
  const Walk& rows_;
  const int threads_;
  RowsKernel& made_;
};

std::unique_ptr<RowsKernel> make_rows(Engine& e, const RowKernel& kernel, const Walk& rows,
                                      int threads) {
  auto made = std::make_unique<RowsKernel>();
  made->kernel = e.build(RowText(kernel, rows, threads, *made).source());
  return made;
}

void argue_values(Arguments& a, const RowsKernel& made, const RowCall& c, int64_t length) {
  const RowProgram& p = c.kernel->program;
  std::vector<PlanValues> values;
  for (const codegen::TilePlan& plan : c.kernel->plans) {
    PlanValues& v = values.emplace_back(plan);
    for (size_t k = 0; k < p.ins.size(); ++k) {
      if (p.ins[k] != RowKind::number) continue;
      const Reg r = is_floating(p.in_types[k]) ? Reg::f64 : Reg::i64;
      v.set(static_cast<int>(k), codegen::register_bits(c.in[k]->scalar, r));
    }
    v.set(RowProgram::kCount,
          codegen::register_bits(Scalar(static_cast<double>(length)), Reg::f64));
    v.compute();
  }
  for (const StageValue& v : made.values) {
    argue_value(a, v.value.type, values[v.stage].bits(v.value.slot));
  }
}

void run_rows(const RowCall& c, const KernelCall& call) {
  Engine& e = engine_of(call.device);
  const RowProgram& p = c.kernel->program;
  const int n_in = static_cast<int>(p.ins.size()), n_out = static_cast<int>(p.outs.size());
  RowWalk w = codegen::make_row_walk(p, c.space, c.in, c.out);
  w.rows.normalise(-1);
  const auto array = [&](int k) -> const Array& { return k < n_in ? *c.in[k] : *c.out[k - n_in]; };
  size_t largest = 0;
  for (int k = 0; k < n_in + n_out; ++k) {
    if (!array(k).is_scalar) largest = std::max(largest, span_of(array(k)));
  }
  const Walk rows(w.rows, static_cast<int64_t>(largest));
  const int threads = threads_for(w.length);
  const KernelId id{c.kernel, rows.ways(), rows.shape_key() << 8 | static_cast<uint64_t>(threads)};
  const RowsKernel& k = e.built(id, [&] { return make_rows(e, *c.kernel, rows, threads); });
  Arguments a;
  for (int i = 0; i < n_out; ++i) argue_array(a, *c.out[i]);
  for (int i = 0; i < n_in; ++i) {
    if (p.ins[static_cast<size_t>(i)] != RowKind::number) argue_array(a, *c.in[i]);
  }
  argue_values(a, k, c, w.length);
  rows.argue(a);
  a.value(w.length);
  for (int i = 0; i < n_in + n_out; ++i) {
    if (codegen::kind_of(p, i) == RowKind::matrix) a.value(w.stride[i]);
  }
  e.launch(k.kernel, {static_cast<uint32_t>(w.n_rows)}, {static_cast<uint32_t>(threads)}, a,
           e.stream(call.stream));
}

// ---- the rows

template <bool log>
void softmax_run(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  RowCall r;
  codegen::make_softmax(c.in[0], c.out[0], static_cast<int>(c.get_attrs<SoftmaxAttrs>().dim), log,
                        r);
  run_rows(r, c);
}
template <bool log>
void softmax_backward_run(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  RowCall r;
  codegen::make_softmax_backward(c.in[0], c.in[1], c.out[0],
                                 static_cast<int>(c.get_attrs<SoftmaxAttrs>().dim), log, r);
  run_rows(r, c);
}
bool has_rank(const KernelCall& c) { return has_types(c) && c.in[0].rank > 0; }

codegen::NormArrays operands(const KernelCall& c, bool centred, bool backward) {
  if (backward) {
    const auto dims = c.get_attrs<NormBackwardAttrs>().dims;
    return codegen::norm_backward_arrays(c, centred, static_cast<int>(dims));
  }
  const auto& a = c.get_attrs<NormAttrs>();
  return codegen::norm_arrays(c, centred, static_cast<int>(a.dims), a.eps);
}
template <bool centred>
constexpr Kernel kNorm{[](const KernelCall& c) {
                         return has_rank(c) && codegen::norm_supported(operands(c, centred, false));
                       },
                       nullptr, nullptr,
                       [](const KernelCall& c) {
                         if (c.out[0].numel == 0) return;
                         RowCall r;
                         codegen::make_norm(operands(c, centred, false), r);
                         run_rows(r, c);
                       },
                       /*converts=*/true};
bool has_elements(const Array* a) {
  return a && a->shape && std::find(a->shape, a->shape + a->rank, 0) == a->shape + a->rank;
}
// Gradients of weight and bias are sums over rows: those come from the row's body.
template <bool centred>
constexpr Kernel kNormBackward{[](const KernelCall& c) {
                                 const codegen::NormArrays a = operands(c, centred, true);
                                 return has_rank(c) && !has_elements(a.gw) && !has_elements(a.gb) &&
                                        codegen::norm_supported(a);
                               },
                               nullptr, nullptr,
                               [](const KernelCall& c) {
                                 if (c.out[0].numel == 0) return;
                                 RowCall r;
                                 codegen::make_norm_backward(operands(c, centred, true), r);
                                 run_rows(r, c);
                               },
                               /*converts=*/true};

}  // namespace

// Each takes every float for its operands and results: Kernel::converts.
void register_row_programs(DeviceKind kind) {
  register_kernel(kind, op::softmax, {has_rank, nullptr, nullptr, softmax_run<false>, true});
  register_kernel(kind, op::log_softmax, {has_rank, nullptr, nullptr, softmax_run<true>, true});
  register_kernel(kind, op::softmax_backward,
                  {has_rank, nullptr, nullptr, softmax_backward_run<false>, true});
  register_kernel(kind, op::log_softmax_backward,
                  {has_rank, nullptr, nullptr, softmax_backward_run<true>, true});
  register_kernel(kind, op::layer_norm, kNorm<true>);
  register_kernel(kind, op::rms_norm, kNorm<false>);
  register_kernel(kind, op::layer_norm_backward, kNormBackward<true>);
  register_kernel(kind, op::rms_norm_backward, kNormBackward<false>);
}

}  // namespace tandem::gpu
