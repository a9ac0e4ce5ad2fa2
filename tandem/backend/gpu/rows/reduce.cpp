// SPDX-License-Identifier: Apache-2.0
// Reductions and scans from the expressions of their rows. Few reduced elements: a thread for each
// kept one. Many: a block, whose threads take every 128th element each and are combined pairwise;
// with few kept elements several blocks, combined by a second kernel. How a reduction is cut
// follows from the shape alone, so its bits are the same in every run.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/backend/gpu/rows/values_internal.h"
#include "tandem/base/error.h"
#include "tandem/codegen/reduce_geometry.h"
#include "tandem/codegen/reduce_program.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/reduce_attrs.h"

namespace tandem::gpu {
namespace {

using codegen::Access;
using codegen::ReduceProgram;
using codegen::TileLoop;
using codegen::TilePlan;

constexpr int64_t kMostByThread = 64;  // reduced elements of one thread where there is a choice
constexpr int64_t kElementsOfBlock = 4096, kBlocksWanted = 512;

const char* c_type(Reg r) {
  static constexpr const char* kNames[] = {"float", "double", "tdm_i64", "tdm_b8"};
  return kNames[static_cast<int>(r)];
}
DType word_of_reg(Reg r) { return word_of(codegen::dtype_of_reg(r)); }

// Text of one of a row's programs: its inputs by name, its outputs assigned to `to`.
std::string program_lines(const ScalarProgram& program, const std::string& prefix,
                          std::vector<std::string> in, const std::vector<std::string>& to) {
  std::vector<Access> access(program.in.size(), Access::dense);
  const TilePlan plan = codegen::make_tile_plan(program, access.data(), {}, codegen::tiles());
  BlockOfElements names(plan, std::move(in));
  const codegen::BlockText block = codegen::emit_block(plan, prefix, names);
  TD_ASSERT(block.row.empty() && !block.divides);
  std::string s = block.body;
  for (size_t k = 0; k < to.size(); ++k) {
    s += fmt::format("    {} = {};\n", to[k], names.outputs[k]);
  }
  return s;
}

struct ReduceText {
  const ReduceProgram& p;
  const KernelCall& call;

  int states() const { return p.n_states; }
  std::vector<std::string> state_names(const char* prefix) const {
    std::vector<std::string> names;
    for (int k = 0; k < states(); ++k) names.push_back(fmt::format("{}{}", prefix, k));
    return names;
  }
  // "float a0 = ..., a1 = ...": the states of no element.
  std::string start(const char* prefix) const {
    std::string s;
    for (int k = 0; k < states(); ++k) {
      s += fmt::format("  {} {}{} = {};\n", c_type(p.state[k]), prefix, k,
                       literal_of(p.state[k], p.init[k]));
    }
    return s;
  }
  std::string step(const std::string& x, const std::string& index) const {
    std::vector<std::string> in = state_names("a");
    in.push_back(x);
    in.push_back(index);
    return program_lines(p.step, "st", std::move(in), state_names("a"));
  }
  // a = combine(a, b).
  std::string combine(const char* later) const {
    std::vector<std::string> in = state_names("a");
    for (std::string& name : state_names(later)) in.push_back(std::move(name));
    return program_lines(p.combine, "co", std::move(in), state_names("a"));
  }
  // Outputs from the states, at `place` of each.
  std::string finish(const std::vector<std::string>& places) const {
    std::vector<std::string> in = state_names("a"), to;
    in.push_back("((tdm_i64)count)");
    for (int k = 1; k < call.n_in; ++k) in.push_back(fmt::format("number{}", k));
    for (int k = 0; k < call.n_out; ++k) to.push_back(fmt::format("y{}[{}]", k, places[k]));
    return program_lines(p.finish, "fi", std::move(in), to);
  }

  void declare_input(KernelSource& k) const {
    k.parameters.push_back({Parameter::in, word_of(call.in[0].dtype), "x"});
  }
  // What finish() reads and writes.
  void declare_finish(KernelSource& k) const {
    for (int i = 0; i < call.n_out; ++i) {
      k.parameters.push_back({Parameter::out, word_of(call.out[i].dtype), fmt::format("y{}", i)});
    }
    k.parameters.push_back({Parameter::value, DType::i64, "count"});
    for (int i = 1; i < call.n_in; ++i) {
      k.parameters.push_back({Parameter::value, DType::f64, fmt::format("number{}", i)});
    }
  }
  void argue_finish(Arguments& a, int64_t count) const {
    for (int i = 0; i < call.n_out; ++i) argue_array(a, call.out[i]);
    a.value(count);
    for (int i = 1; i < call.n_in; ++i) a.value(call.in[i].scalar.to_double());
  }
  std::string element() const {
    return fmt::format("    const {0} e = ({0})x[base + off];\n", stored_type());
  }
  std::string stored_type() const {
    const DType t = call.in[0].dtype;
    if (t == DType::f16 || t == DType::bf16) return "tdm_u16";
    return t == DType::i32 || t == DType::i16 || t == DType::i8 || t == DType::u8
               ? td_type(t)
               : c_type(reg_of(t));
  }
};

// How a call is cut: by its shape alone.
struct Cut {
  enum How : uint64_t { threads, blocks, split } how = threads;
  int64_t pieces = 1;

  explicit Cut(const codegen::ReduceGeometry& g) {
    if (g.n_reduced <= kMostByThread || (!g.rows && g.n_kept >= kThreads * kBlocksWanted / 4)) {
      return;
    }
    how = blocks;
    if (g.n_kept >= kBlocksWanted) return;
    pieces = std::clamp(g.n_reduced / kElementsOfBlock, int64_t{1}, kBlocksWanted / g.n_kept);
    if (pieces > 1) how = split;
  }
};

// The dimensions of a loop as parameters, and the offset of position `r` of it in array 0.
void declare_reduced(KernelSource& k, const TileLoop& loop) {
  for (int d = 0; d < loop.rank; ++d) {
    if (d > 0) k.parameters.push_back({Parameter::value, DType::i64, fmt::format("rn{}", d)});
    k.parameters.push_back({Parameter::value, DType::i64, fmt::format("rs{}", d)});
  }
}
void argue_reduced(Arguments& a, const TileLoop& loop) {
  for (int d = 0; d < loop.rank; ++d) {
    if (d > 0) a.value(loop.size[d]);
    a.value(loop.stride[0][d]);
  }
}
std::string reduced_offset(const TileLoop& loop) {
  std::string s = "    td_i64 left = r, off = 0;\n";
  for (int d = loop.rank - 1; d > 0; --d) {
    s += fmt::format("    off += left % rn{0} * rs{0};\n    left /= rn{0};\n", d);
  }
  return s + "    off += left * rs0;\n";
}

// A thread for each kept element.
KernelSource by_threads(const ReduceText& t, const codegen::ReduceGeometry& g, const Walk& kept) {
  KernelSource k{.name = "reduce_by_threads", .prelude = true};
  t.declare_input(k);
  t.declare_finish(k);
  kept.declare(k);
  declare_reduced(k, g.reduced);
  std::vector<std::string> places;
  for (int i = 0; i < t.call.n_out; ++i) places.push_back(kept.place(1 + i));
  k.body = kept.lines() + fmt::format("  const td_i64 base = {};\n", kept.place(0)) + t.start("a") +
           "  for (td_i64 r = 0; r < count; ++r) {\n" + reduced_offset(g.reduced) + t.element() +
           t.step("e", "r") + "  }\n" + t.finish(places);
  return k;
}

// Threads of a block are combined in the order of their numbers: those without an element not.
std::string combined_block(const ReduceText& t) {
  std::string put, get, later;
  for (int k = 0; k < t.states(); ++k) {
    put += fmt::format("  shared{0}[t] = a{0};\n", k);
    get += fmt::format("      const {} b{} = shared{}[t + gap];\n", c_type(t.p.state[k]), k, k);
    later += fmt::format("      shared{0}[t] = a{0};\n", k);
  }
  return put +
         "  td_i64 filled = last - first < td_threads(x) ? last - first : td_threads(x);\n"
         "  for (td_i32 gap = td_threads(x) / 2; gap > 0; gap /= 2) {\n"
         "    td_barrier();\n"
         "    if (t < gap && t + gap < filled) {\n" +
         get + t.combine("b") + later +
         "    }\n"
         "    filled = filled < gap ? filled : gap;\n"
         "  }\n";
}

// A block for each kept element, or for a piece of its reduced elements.
KernelSource by_blocks(const ReduceText& t, const codegen::ReduceGeometry& g, const Walk& kept,
                       bool split) {
  KernelSource k{
      .name = split ? "reduce_pieces" : "reduce_by_blocks", .threads = kThreads, .prelude = true};
  t.declare_input(k);
  t.declare_finish(k);
  kept.declare(k);
  declare_reduced(k, g.reduced);
  k.parameters.push_back({Parameter::value, DType::i64, "pieces"});
  for (int s = 0; s < t.states(); ++s) {
    k.shared.push_back({word_of_reg(t.p.state[s]), fmt::format("shared{}", s), kThreads});
    if (split) {
      k.parameters.push_back({Parameter::out, word_of_reg(t.p.state[s]), fmt::format("part{}", s)});
    }
  }
  k.body = "  const td_i64 piece = td_block(x) % pieces;\n";
  k.body += kept.lines("", fmt::format("({})(td_block(x) / pieces)", kept.index()));
  k.body += fmt::format(
      "  const td_i64 base = {};\n"
      "  const td_i32 t = td_thread(x);\n"
      "  const td_i64 first = count * piece / pieces, last = count * (piece + 1) / pieces;\n",
      kept.place(0));
  k.body += t.start("a") + "  for (td_i64 r = first + t; r < last; r += td_threads(x)) {\n" +
            reduced_offset(g.reduced) + t.element() + t.step("e", "r") + "  }\n";
  k.body += combined_block(t) + "  if (t == 0) {\n";
  std::vector<std::string> places;
  for (int i = 0; i < t.call.n_out; ++i) places.push_back(kept.place(1 + i));
  if (split) {
    for (int s = 0; s < t.states(); ++s) {
      k.body += fmt::format("    part{0}[piece * n + i] = a{0};\n", s);
    }
  } else {
    k.body += t.finish(places);
  }
  k.body += "  }\n";
  return k;
}

// A thread for each kept element combines its pieces in order.
KernelSource of_pieces(const ReduceText& t, const Walk& kept) {
  KernelSource k{.name = "reduce_of_pieces", .prelude = true};
  t.declare_finish(k);
  kept.declare(k);
  k.parameters.push_back({Parameter::value, DType::i64, "pieces"});
  std::string first, next;
  for (int s = 0; s < t.states(); ++s) {
    k.parameters.push_back({Parameter::in, word_of_reg(t.p.state[s]), fmt::format("part{}", s)});
    first += fmt::format("  {0} a{1} = part{1}[i];\n", c_type(t.p.state[s]), s);
    next += fmt::format("    const {0} b{1} = part{1}[piece * n + i];\n", c_type(t.p.state[s]), s);
  }
  std::vector<std::string> places;
  for (int i = 0; i < t.call.n_out; ++i) places.push_back(kept.place(1 + i));
  k.body = kept.lines() + first + "  for (td_i64 piece = 1; piece < pieces; ++piece) {\n" + next +
           t.combine("b") + "  }\n" + t.finish(places);
  return k;
}

const ReduceProgram& program_of_call(const KernelCall& c) {
  DType outs[kMaxOpOuts];
  for (int k = 0; k < c.n_out; ++k) outs[k] = c.out[k].dtype;
  return codegen::reduce_program_of(c.op, c.in[0].dtype, outs, c.n_out, c.n_in - 1);
}

int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

struct ReducePlan : Plan {};

std::shared_ptr<const Plan> prepare_reduce(const KernelCall& c) {
  auto plan = std::make_shared<ReducePlan>();
  const codegen::ReduceGeometry g = codegen::make_reduce_geometry(c);
  const Cut cut(g);
  if (cut.how != Cut::split) return plan;
  const ReduceProgram& p = program_of_call(c);
  for (int k = 0; k < p.n_states; ++k) {
    plan->workspace += static_cast<size_t>(
        aligned(g.n_kept * cut.pieces * static_cast<int64_t>(size_of(word_of_reg(p.state[k])))));
  }
  return plan;
}

Walk kept_walk(const codegen::ReduceGeometry& g, const KernelCall& c) {
  size_t largest = span_of(c.in[0]);
  for (int k = 0; k < c.n_out; ++k) largest = std::max(largest, span_of(c.out[k]));
  return {g.kept, static_cast<int64_t>(largest)};
}

void run_reduce(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  Engine& e = engine_of(c.device);
  const ReduceProgram& p = program_of_call(c);
  const codegen::ReduceGeometry g = codegen::make_reduce_geometry(c);
  const ReduceText text{p, c};
  const Walk kept = kept_walk(g, c);
  const Cut cut(g);
  const uint64_t variant = kept.shape_key() << 8 | static_cast<uint64_t>(g.reduced.rank) << 4;
  const auto kernel = [&](uint64_t which, auto&& source) {
    return plain_kernel(e, {&p, kept.ways(), variant | which}, source);
  };
  Arguments a;
  argue_array(a, c.in[0]);
  text.argue_finish(a, g.n_reduced);
  kept.argue(a);
  argue_reduced(a, g.reduced);
  if (cut.how == Cut::threads) {
    const KernelRef k = kernel(0, [&] { return by_threads(text, g, kept); });
    return launch_each(e, k, kept.count(), a, c.stream);
  }
  a.value(cut.pieces);
  const bool split = cut.how == Cut::split;
  Arguments of;
  text.argue_finish(of, g.n_reduced);
  kept.argue(of);
  of.value(cut.pieces);
  Address part = address_of(c.scratch);
  for (int s = 0; split && s < p.n_states; ++s) {
    const int64_t bytes =
        g.n_kept * cut.pieces * static_cast<int64_t>(size_of(word_of_reg(p.state[s])));
    a.address(part, static_cast<size_t>(bytes));
    of.address(part, static_cast<size_t>(bytes));
    part += static_cast<Address>(aligned(bytes));
  }
  const KernelRef k = kernel(split ? 2 : 1, [&] { return by_blocks(text, g, kept, split); });
  e.launch(k, {static_cast<uint32_t>(g.n_kept * cut.pieces)}, {kThreads}, a, e.stream(c.stream));
  if (!split) return;
  launch_each(e, kernel(3, [&] { return of_pieces(text, kept); }), kept.count(), of, c.stream);
}

// ---- scans: a thread for each line

KernelSource scan_source(const ReduceText& t, const Walk& lines) {
  KernelSource k{.name = "scan", .prelude = true};
  t.declare_input(k);
  t.declare_finish(k);
  lines.declare(k);
  k.parameters.push_back({Parameter::value, DType::i64, "xs"});
  std::vector<std::string> places;
  for (int i = 0; i < t.call.n_out; ++i) {
    k.parameters.push_back({Parameter::value, DType::i64, fmt::format("ys{}", i)});
    places.push_back(fmt::format("{} + r * ys{}", lines.place(1 + i), i));
  }
  k.body = lines.lines() + fmt::format("  const td_i64 base = {};\n", lines.place(0)) +
           t.start("a") +
           "  for (td_i64 r = 0; r < count; ++r) {\n    const td_i64 off = r * xs;\n" +
           t.element() + t.step("e", "r") + t.finish(places) + "  }\n";
  return k;
}

void run_scan(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  Engine& e = engine_of(c.device);
  const Array& x = c.in[0];
  const ReduceProgram& p = program_of_call(c);
  const int dim = x.rank ? normalize_dim(c.get_attrs<ScanAttrs>().dim, x.rank) : 0;
  TileLoop loop;
  int64_t length = 1, along[1 + kMaxOpOuts] = {}, largest = static_cast<int64_t>(span_of(x));
  loop.n_arrays = 1 + c.n_out;
  for (int d = 0; d < x.rank; ++d) {
    if (d == dim) length = x.shape[d];
    for (int k = 0; k <= c.n_out; ++k) {
      const int64_t stride = k ? c.out[k - 1].strides[d] : x.strides[d];
      (d == dim ? along[k] : loop.stride[k][loop.rank]) = stride;
    }
    if (d != dim) loop.size[loop.rank++] = x.shape[d];
  }
  loop.normalise(0);
  for (int k = 0; k < c.n_out; ++k) {
    largest = std::max(largest, static_cast<int64_t>(span_of(c.out[k])));
  }
  const Walk lines(loop, largest);
  const ReduceText text{p, c};
  const KernelRef k = plain_kernel(e, {&p, lines.ways(), lines.shape_key() << 8 | 4},
                                   [&] { return scan_source(text, lines); });
  Arguments a;
  argue_array(a, x);
  text.argue_finish(a, length);
  lines.argue(a);
  for (int i = 0; i <= c.n_out; ++i) a.value(along[i]);
  launch_each(e, k, lines.count(), a, c.stream);
}

}  // namespace

void register_reductions(DeviceKind kind) {
  register_family_kernel(kind, Family::reduce, {has_types, nullptr, prepare_reduce, run_reduce});
  register_family_kernel(kind, Family::scan, {has_types, nullptr, nullptr, run_scan});
}

}  // namespace tandem::gpu
