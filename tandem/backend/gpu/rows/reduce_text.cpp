// SPDX-License-Identifier: Apache-2.0
// A block of threads is a grid of `lanes` by `others`. Neighbouring lanes read neighbouring
// addresses. Each thread takes every so many elements; then those that share a kept element are
// combined pairwise through shared memory. Which elements a thread takes follows from the shape, so
// a reduction has the same bits in each run.
#include "tandem/backend/gpu/rows/reduce_text_internal.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/backend/gpu/rows/values_internal.h"
#include "tandem/base/error.h"

namespace tandem::gpu {

using codegen::Access;
using codegen::ReduceGeometry;
using codegen::TileLoop;
using codegen::TilePlan;

namespace {

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

// Where position `r` of a loop lies in array 0.
std::string reduced_offset(const TileLoop& loop) {
  std::string s = "    td_i64 left = r, off = 0;\n";
  for (int d = loop.rank - 1; d > 0; --d) {
    s += fmt::format("    off += left % rn{0} * rs{0};\n    left /= rn{0};\n", d);
  }
  return s + "    off += left * rs0;\n";
}

// "for each element of a group {", for text that reads e.
std::string each_of(int group) {
  return group == 1 ? "  {\n"
                    : fmt::format("  td_unroll\n  for (td_i32 e = 0; e < {}; ++e) {{\n", group);
}
const char* at_of(int group) { return group == 1 ? "" : "[e]"; }

}  // namespace

std::vector<std::string> ReduceText::state_names(const char* prefix, const char* at) const {
  std::vector<std::string> names;
  for (int k = 0; k < states(); ++k) names.push_back(fmt::format("{}{}{}", prefix, k, at));
  return names;
}

std::string ReduceText::start(const char* prefix, int group) const {
  std::string defined, set;
  for (int k = 0; k < states(); ++k) {
    const std::string many = group == 1 ? "" : fmt::format("[{}]", group);
    defined += fmt::format("  {} {}{}{};\n", c_type(p.state[k]), prefix, k, many);
    set += fmt::format("    {}{}{} = {};\n", prefix, k, at_of(group),
                       literal_of(p.state[k], p.init[k]));
  }
  return defined + each_of(group) + set + "  }\n";
}

std::string ReduceText::step(const std::string& x, const std::string& index, const char* at) const {
  std::vector<std::string> in = state_names("a", at);
  in.push_back(x);
  in.push_back(index);
  return program_lines(p.step, "st", std::move(in), state_names("a", at));
}

std::string ReduceText::combine(const char* at) const {
  std::vector<std::string> in = state_names("a", at);
  for (std::string& name : state_names("b")) in.push_back(std::move(name));
  return program_lines(p.combine, "co", std::move(in), state_names("a", at));
}

std::string ReduceText::finish(const std::vector<std::string>& places, const char* at) const {
  std::vector<std::string> in = state_names("a", at), to;
  in.push_back("((tdm_i64)count)");
  for (int k = 1; k < call.n_in; ++k) in.push_back(fmt::format("number{}", k));
  for (int k = 0; k < call.n_out; ++k) {
    to.push_back(fmt::format("y{}[{}]", k, places[static_cast<size_t>(k)]));
  }
  return program_lines(p.finish, "fi", std::move(in), to);
}

std::string ReduceText::element(const std::string& stored) const {
  const DType t = call.in[0].dtype;
  const bool small = t == DType::i32 || t == DType::i16 || t == DType::i8 || t == DType::u8;
  const std::string type = is_short_float(t) ? "tdm_u16" : small ? td_type(t) : c_type(reg_of(t));
  return fmt::format("    const {0} v = ({0}){1};\n", type, stored);
}

void ReduceText::declare_input(KernelSource& k) const {
  k.parameters.push_back({Parameter::in, word_of(call.in[0].dtype), "x"});
}

void ReduceText::declare_finish(KernelSource& k) const {
  for (int i = 0; i < call.n_out; ++i) {
    k.parameters.push_back({Parameter::out, word_of(call.out[i].dtype), fmt::format("y{}", i)});
  }
  k.parameters.push_back({Parameter::value, DType::i64, "count"});
  for (int i = 1; i < call.n_in; ++i) {
    k.parameters.push_back({Parameter::value, DType::f64, fmt::format("number{}", i)});
  }
}

void ReduceText::argue_finish(Arguments& a, int64_t count) const {
  for (int i = 0; i < call.n_out; ++i) argue_array(a, call.out[i]);
  a.value(count);
  for (int i = 1; i < call.n_in; ++i) a.value(call.in[i].scalar.to_double());
}

void ReduceText::declare_parts(KernelSource& k, Parameter::Kind kind) const {
  for (int s = 0; s < states(); ++s) {
    k.parameters.push_back({kind, word_of_reg(p.state[s]), fmt::format("part{}", s)});
  }
}

// The reduced dimensions, and what else cuts: argue_reduced() has the values.
void ReduceText::declare_cut(KernelSource& k, const TileLoop& loop, int group) const {
  for (int d = 0; d < loop.rank; ++d) {
    if (d > 0) k.parameters.push_back({Parameter::value, DType::i64, fmt::format("rn{}", d)});
    k.parameters.push_back({Parameter::value, DType::i64, fmt::format("rs{}", d)});
  }
  k.parameters.push_back({Parameter::value, DType::i32, "lanes"});
  k.parameters.push_back({Parameter::value, DType::i64, "pieces"});
  for (int s = 0; s < states(); ++s) {
    k.shared.push_back(
        {word_of_reg(p.state[s]), fmt::format("shared{}", s), kReduceThreads * group});
  }
}

void ReduceText::argue_reduced(Arguments& a, const TileLoop& loop, const ReduceCut& cut) const {
  for (int d = 0; d < loop.rank; ++d) {
    if (d > 0) a.value(loop.size[d]);
    a.value(cut.columns ? loop.stride[0][d] / cut.group : loop.stride[0][d]);
  }
  a.value(static_cast<int32_t>(cut.lanes)).value(cut.pieces);
}

// The states of the threads that differ in `along` ("lane" or "other"), of which the first `filled`
// have elements, into those of number 0.
std::string ReduceText::combined(const char* along, int group) const {
  const std::string place = group == 1 ? "t" : fmt::format("t * {} + e", group);
  const bool by_lanes = along == std::string("lane");
  const char* far = by_lanes ? "gap" : "gap * lanes";
  const std::string other =
      group == 1 ? fmt::format("t + {}", far) : fmt::format("(t + {}) * {} + e", far, group);
  std::string put, get;
  for (int k = 0; k < states(); ++k) {
    put += fmt::format("    shared{}[{}] = a{}{};\n", k, place, k, at_of(group));
    get += fmt::format("    const {} b{} = shared{}[{}];\n", c_type(p.state[k]), k, k, other);
  }
  return each_of(group) + put + "  }\n" +
         fmt::format(
             "  for (td_i32 gap = {} / 2; gap > 0; gap /= 2) {{\n"
             "    td_barrier();\n"
             "    if ({} < gap && {} + gap < filled) {{\n",
             by_lanes ? "lanes" : "others", along, along) +
         each_of(group) + get + combine(at_of(group)) + put +
         "  }\n    }\n"
         "    filled = filled < gap ? filled : gap;\n"
         "  }\n";
}

std::string ReduceText::results(bool split, const Walk& kept, int group) const {
  const std::string e = group == 1 ? "" : fmt::format(" * {} + e", group);
  std::string s = each_of(group);
  if (split) {
    for (int k = 0; k < states(); ++k) {
      s += fmt::format("    part{}[(piece * n + i){}] = a{}{};\n", k, e, k, at_of(group));
    }
  } else {
    std::vector<std::string> places;
    for (int k = 0; k < call.n_out; ++k) places.push_back(kept.place(1 + k) + e);
    s += finish(places, at_of(group));
  }
  return s + "  }\n";
}

namespace {

std::string guarded(const Walk& kept) {
  return "  const td_i32 live = mine < n;\n" +
         kept.lines("", fmt::format("({})(live ? mine : 0)", kept.index()));
}

}  // namespace

KernelSource ReduceText::rows(const ReduceGeometry& g, const ReduceCut& cut,
                              const Walk& kept) const {
  const bool split = cut.pieces > 1;
  KernelSource k{.name = "reduce_rows", .threads = kReduceThreads, .prelude = true};
  declare_input(k);
  declare_finish(k);
  kept.declare(k);
  declare_cut(k, g.reduced, 1);
  if (split) declare_parts(k, Parameter::out);
  k.body = std::string(kGridLines) + "  const td_i64 mine = block * others + other;\n" +
           guarded(kept) + fmt::format("  const td_i64 base = {};\n", kept.place(0)) +
           fmt::format("  const td_i64 units = count / {};\n", cut.group) +
           "  const td_i64 first = units * piece / pieces, last = units * (piece + 1) / pieces;\n" +
           start("a");
  const std::string head =
      "  for (td_i64 r = live ? first + lane : last; r < last; r += lanes) {\n";
  if (cut.group == 1) {
    k.body += head + reduced_offset(g.reduced) + element("x[base + off]") + step("v", "r") +
              "  }\n" + "  td_i64 filled = last - first;\n";
  } else {
    // Elements behind the last group, of the only kept element.
    const std::string e = std::to_string(cut.group);
    const std::string load =
        cut.aligned
            ? fmt::format("    td_load({0}, line, x, base / {0} + r);\n", e)
            : each_of(cut.group) + fmt::format("    line[e] = x[base + r * {} + e];\n  }}\n", e);
    k.body +=
        head + fmt::format("    td_line({}, line, {});\n", td_type(word_of(call.in[0].dtype)), e) +
        load + each_of(cut.group) + element("line[e]") + step("v", fmt::format("(r * {} + e)", e)) +
        "  }\n  }\n" +
        fmt::format("  const td_i64 tail = piece == pieces - 1 ? count - units * {} : 0;\n", e) +
        "  for (td_i64 r = live ? count - tail + lane : count; r < count; r += lanes) {\n" +
        element("x[base + r]") + step("v", "r") + "  }\n" +
        "  td_i64 filled = last - first > tail ? last - first : tail;\n";
  }
  k.body +=
      combined("lane", 1) + "  if (live && lane == 0) {\n" + results(split, kept, 1) + "  }\n";
  return k;
}

KernelSource ReduceText::columns(const ReduceGeometry& g, const ReduceCut& cut,
                                 const Walk& kept) const {
  const bool split = cut.pieces > 1;
  const int group = cut.group;
  KernelSource k{.name = "reduce_columns", .threads = kReduceThreads, .prelude = true};
  declare_input(k);
  declare_finish(k);
  kept.declare(k);
  declare_cut(k, g.reduced, group);
  if (split) declare_parts(k, Parameter::out);
  k.body = std::string(kGridLines) + "  const td_i64 mine = block * lanes + lane;\n" +
           guarded(kept) + fmt::format("  const td_i64 base = {};\n", kept.place(0)) +
           "  const td_i64 first = count * piece / pieces, last = count * (piece + 1) / pieces;\n" +
           start("a", group) +
           "  for (td_i64 r = live ? first + other : last; r < last; r += others) {\n" +
           reduced_offset(g.reduced);
  if (group == 1) {
    k.body += element("x[base + off]") + step("v", "r");
  } else {
    k.body +=
        fmt::format("    td_line({}, line, {});\n", td_type(word_of(call.in[0].dtype)), group);
    k.body += cut.aligned
                  ? fmt::format("    td_load({}, line, x, base + off);\n", group)
                  : each_of(group) +
                        fmt::format("    line[e] = x[(base + off) * {} + e];\n  }}\n", group);
    k.body += each_of(group) + element("line[e]") + step("v", "r", "[e]") + "  }\n";
  }
  k.body += "  }\n  td_i64 filled = last - first;\n" + combined("other", group) +
            "  if (live && other == 0) {\n" + results(split, kept, group) + "  }\n";
  return k;
}

// Neighbouring threads have neighbouring kept elements.
KernelSource ReduceText::of_pieces(const Walk& kept) const {
  KernelSource k{.name = "reduce_of_pieces", .threads = kReduceThreads, .prelude = true};
  declare_finish(k);
  kept.declare(k);
  declare_cut(k, TileLoop{}, 1);
  declare_parts(k, Parameter::in);
  std::string get;
  for (int s = 0; s < states(); ++s) {
    get += fmt::format("    const {0} b{1} = part{1}[r * n + i];\n", c_type(p.state[s]), s);
  }
  std::string take = combine(), first;
  for (int s = 0; s < states(); ++s)
    first += fmt::format("    a{0} = part{0}[other * (td_i64)n + i];\n", s);
  k.body =
      "  const td_i32 t = td_thread(x), lane = t % lanes, other = t / lanes;\n"
      "  const td_i32 others = td_threads(x) / lanes;\n"
      "  const td_i64 mine = (td_i64)td_block(x) * lanes + lane;\n" +
      guarded(kept) + start("a") + "  if (live && other < pieces) {\n" + first +
      "  for (td_i64 r = other + others; r < pieces; r += others) {\n" + get + take +
      "  }\n  }\n  td_i64 filled = pieces;\n" + combined("other", 1) +
      "  if (live && other == 0) {\n" + results(false, kept, 1) + "  }\n";
  return k;
}

}  // namespace tandem::gpu
