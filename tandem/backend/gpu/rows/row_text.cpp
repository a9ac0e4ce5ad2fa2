// SPDX-License-Identifier: Apache-2.0
// In the text: a block is `lines` by `lanes` threads. Unit u of a line is a group of its elements;
// lane l of the line takes units l, l + lanes ..., of which it keeps q = 0 to groups - 1.
#include "tandem/backend/gpu/rows/row_text_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tandem/base/error.h"
#include "tandem/codegen/reduce_program.h"

namespace tandem::gpu {

using codegen::RowKind;
using codegen::RowProgram;
using codegen::RowSink;
using codegen::RowStage;

namespace {

std::string each_element(int group) {
  return fmt::format("    td_unroll\n    for (td_i32 e = 0; e < {}; ++e) {{\n", group);
}

const char* fold_name(codegen::Fold op) {
  static constexpr const char* kNames[] = {"add", "mul", "max", "min"};
  return kNames[static_cast<size_t>(op)];
}

}  // namespace

// One writing of a stage's steps; names begin with `prefix`.
struct RowText::Names : codegen::BlockNames {
  RowText& text;
  const size_t stage;
  const std::string prefix;
  std::string row, loads;  ///< once a line, once an element
  std::set<int> arrays;    ///< inputs of which the unit's elements are read
  std::vector<std::string> outputs;

  Names(RowText& t, size_t s, std::string p)
      : text(t), stage(s), prefix(std::move(p)), outputs(t.p_.stages[s].sinks.size()) {}
  std::string input(int slot, const char* type) override { return text.input(*this, slot, type); }
  void output(int k, const char*, const std::string& name) override {
    outputs[static_cast<size_t>(k)] = name;
  }
  /// Everything that an element needs, outputs last.
  std::string lines() {
    const codegen::BlockText block = codegen::emit_block(text.plans_[stage], prefix, *this);
    TD_ASSERT(!block.divides);
    row += block.row;
    return loads + block.body;
  }
};

bool RowText::sums_columns() const {
  return std::find(p_.outs.begin(), p_.outs.end(), RowKind::columns) != p_.outs.end();
}

std::string RowText::value(size_t stage, int slot, Reg type) {
  const bool known = std::any_of(values.begin(), values.end(), [&](const StageValue& v) {
    return v.stage == stage && v.value.slot == slot;
  });
  if (!known) values.push_back({stage, {slot, type}});
  return fmt::format("s{}v{}", stage, slot);
}

std::string RowText::input(Names& names, int slot, const char* type) {
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
  if (kind == RowKind::row) {
    const DType t = p_.in_types[static_cast<size_t>(slot)];
    names.row += fmt::format("  const {0} {1} = ({0}){2};\n", type, x,
                             loaded(fmt::format("p{}[{}]", slot, rows_.place(slot)), t));
    return x;
  }
  names.arrays.insert(slot);
  const bool all = keeps() && kind == RowKind::matrix;
  names.loads += fmt::format("      const {0} {1} = ({0})in{2}[{3}];\n", type, x, slot,
                             all ? fmt::format("q * {} + e", cut_.group) : "e");
  return x;
}

// What an earlier stage kept of the element, or the steps that give it.
std::string RowText::kept_element(Names& names, int k) {
  if (keeps()) return fmt::format("kept{}[q * {} + e]", k, cut_.group);
  for (size_t s = 0; s < names.stage; ++s) {
    const auto& sinks = p_.stages[s].sinks;
    for (size_t o = 0; o < sinks.size(); ++o) {
      if (sinks[o].kind != RowSink::store || sinks[o].index != k) continue;
      Names again(*this, s, fmt::format("{}again{}_", names.prefix, s));
      names.loads += again.lines();
      names.row += again.row;
      names.arrays.merge(again.arrays);
      return again.outputs[o];
    }
  }
  TD_FAIL(Internal, "no stage keeps row {}", k);
}

// Unit u of an array into `line`, or back.
std::string RowText::moved(bool load, const std::string& line, const std::string& pointer,
                           int array) const {
  const int group = cut_.group;
  const bool columns = codegen::kind_of(p_, array) == RowKind::columns;
  const std::string first = columns ? "0" : rows_.place(array);
  if (group > 1 && cut_.aligned) {
    return load ? fmt::format("    td_load({}, {}, {}, {} / {} + u);\n", group, line, pointer,
                              first, group)
                : fmt::format("    td_store({}, {}, {} / {} + u, {});\n", group, pointer, first,
                              group, line);
  }
  const std::string step = columns ? "" : fmt::format(" * along{}", array);
  const std::string there = fmt::format("{}[{} + (u * {} + e){}]", pointer, first, group, step);
  const std::string here = fmt::format("({})[e]", line);
  return each_element(group) +
         (load ? fmt::format("      {} = {};\n", here, there)
               : fmt::format("      {} = {};\n", there, here)) +
         "    }\n";
}

// `text` for each unit u of the thread.
std::string RowText::of_groups(const std::string& text) const {
  if (!keeps()) {
    return fmt::format("  for (td_i64 u = lane; u < mine; u += {}) {{\n", cut_.lanes) + text +
           "  }\n";
  }
  return fmt::format(
             "  td_unroll\n  for (td_i32 q = 0; q < {}; ++q) {{\n"
             "    const td_i32 u = q * {} + lane;\n    if (u >= mine) continue;\n",
             cut_.groups, cut_.lanes) +
         text + "  }\n";
}

// The thread's place, and what is there before a line.
std::string RowText::heads() const {
  const int lines = cut_.lines(), all = cut_.groups * cut_.group;
  std::string s = "  const td_i32 t = td_thread(x), ";
  s += cut_.across ? fmt::format("lane = t / {0}, other = t % {0};\n", lines)
                   : fmt::format("lane = t % {0}, other = t / {0};\n", cut_.lanes);
  s +=
      fmt::format("  const {} units = row_size / {};\n", keeps() ? "td_i32" : "td_i64", cut_.group);
  if (!sums_columns()) {
    s += fmt::format("  const td_i64 line = (td_i64)td_block(x) * {} + other;\n", lines) +
         "  const td_i32 live = line < n;\n  {\n";
  } else {
    for (size_t k = 0; k < p_.outs.size(); ++k) {
      if (p_.outs[k] != RowKind::columns) continue;
      s += fmt::format("  {} sum{}[{}];\n  td_unroll\n", compute(), k, all) +
           fmt::format("  for (td_i32 e = 0; e < {}; ++e) sum{}[e] = 0;\n", all, k);
    }
    s += "  const td_i64 last = (td_i64)n * (td_block(x) + 1) / td_blocks(x);\n"
         "  for (td_i64 some = (td_i64)n * td_block(x) / td_blocks(x); some < last; " +
         fmt::format("some += {}) {{\n", lines) +
         "  const td_i64 line = some + other;\n  const td_i32 live = line < last;\n";
  }
  s += rows_.lines("", fmt::format("({})(live ? line : 0)", rows_.index()));
  return s + fmt::format("  const {} mine = live ? units : 0;\n", keeps() ? "td_i32" : "td_i64");
}

// All of the line that the thread has.
std::string RowText::loads() const {
  if (!keeps()) return "";
  std::string defined, each;
  const int all = cut_.groups * cut_.group;
  for (int k = 0; k < n_ins(); ++k) {
    if (p_.ins[static_cast<size_t>(k)] != RowKind::matrix) continue;
    const DType t = word_of(p_.in_types[static_cast<size_t>(k)]);
    defined += fmt::format("  td_line({}, in{}, {});\n", td_type(t), k, all);
    each += moved(true, fmt::format("in{} + q * {}", k, cut_.group), fmt::format("p{}", k), k);
  }
  for (int k = 0; k < p_.n_stored; ++k) {
    defined += fmt::format("  {} kept{}[{}];\n", compute(), k, all);
  }
  return defined + of_groups(each);
}

// Statements that take the outputs of a stage, for an element; `lines` defines what they fill,
// `stores` writes it. Folds are listed.
std::string RowText::sinks(size_t s, Names& names, std::string& lines, std::string& stores,
                           std::vector<int>& folds) {
  std::string text;
  const std::string at = fmt::format("q * {} + e", cut_.group);
  for (size_t o = 0; o < names.outputs.size(); ++o) {
    const RowSink& sink = p_.stages[s].sinks[o];
    const std::string& got = names.outputs[o];
    const int k = sink.index;
    switch (sink.kind) {
      case RowSink::fold:
        folds.push_back(static_cast<int>(o));
        text += fmt::format("      fold{0} = tdo_{1}_{2}(fold{0}, {3});\n", k, fold_name(sink.op),
                            p_.compute == DType::f64 ? 'd' : 'f', got);
        break;
      case RowSink::store:
        if (keeps()) text += fmt::format("      kept{}[{}] = {};\n", k, at, got);
        break;
      case RowSink::columns:
        text += fmt::format("      sum{0}[{1}] = sum{0}[{1}] + {2};\n", k, at, got);
        break;
      case RowSink::matrix: {
        const DType t = word_of(p_.out_types[static_cast<size_t>(k)]);
        lines += fmt::format("    td_line({}, out{}, {});\n", td_type(t), k, cut_.group);
        text += fmt::format("      out{}[e] = {};\n", k, got);
        stores += moved(false, fmt::format("out{}", k), fmt::format("y{}", k), n_ins() + k);
        break;
      }
      default:
        break;
    }
  }
  return text;
}

std::string RowText::stage(size_t s) {
  const RowStage& st = p_.stages[s];
  Names names(*this, s, fmt::format("a{}_", s));
  std::string steps = names.lines();
  if (st.once) {
    const int k = st.sinks[0].index;
    return "  if (live && lane == 0) {\n" + names.row + steps +
           fmt::format("    y{}[{}] = {};\n  }}\n", k, rows_.place(n_ins() + k), names.outputs[0]);
  }
  std::string lines, stores, starts;
  std::vector<int> folds;
  steps += sinks(s, names, lines, stores, folds);
  for (const int o : folds) {
    static constexpr double kFirst[] = {0, 1, -__builtin_inf(), __builtin_inf()};
    const RowSink& sink = st.sinks[static_cast<size_t>(o)];
    const Reg reg = reg_of(p_.compute);
    const Scalar first(kFirst[static_cast<size_t>(sink.op)]);
    starts += fmt::format("  {} fold{} = {};\n", compute(), sink.index,
                          literal_of(reg, codegen::register_bits(first, reg)));
  }
  for (const int k : names.arrays) {
    const bool columns = p_.ins[static_cast<size_t>(k)] == RowKind::columns;
    if (keeps() && !columns) continue;  // the whole line is there
    const DType t = word_of(p_.in_types[static_cast<size_t>(k)]);
    lines += fmt::format("    td_line({}, in{}, {});\n", td_type(t), k, cut_.group) +
             moved(true, fmt::format("in{}", k), fmt::format("p{}", k), k);
  }
  return names.row + starts +
         of_groups(lines + each_element(cut_.group) + steps + "    }\n" + stores) +
         combined(folds, s);
}

// The folds of all lanes of a line, for all of them.
std::string RowText::combined(const std::vector<int>& folds, size_t s) const {
  if (folds.empty()) return "";
  const char letter = p_.compute == DType::f64 ? 'd' : 'f';
  const int step = cut_.across ? cut_.lines() : 1, lanes = cut_.lanes;
  std::string shuffles, put, tree, get, result;
  for (size_t i = 0; i < folds.size(); ++i) {
    const RowSink& sink = p_.stages[s].sinks[static_cast<size_t>(folds[i])];
    const std::string fold = fmt::format("fold{}", sink.index);
    const std::string op = fmt::format("tdo_{}_{}", fold_name(sink.op), letter);
    for (int gap = std::min(lanes, kWarp) / 2; cut_.warps && gap > 0; gap /= 2) {
      shuffles += fmt::format("  {0} = {1}({0}, td_shuffle_xor({0}, {2}));\n", fold, op, gap);
    }
    result += fmt::format("  const {} f{} = {};\n", compute(), sink.index, fold);
    if (cut_.warps) {
      put += fmt::format("  if (t % {1} == 0) partial{0}[t / {1}] = {2};\n", i, kWarp, fold);
      get +=
          fmt::format("  {} = partial{}[other * {}];\n", fold, i, lanes / kWarp) +
          fmt::format("  for (td_i32 w = 1; w < {}; ++w) ", lanes / kWarp) +
          fmt::format("{0} = {1}({0}, partial{2}[other * {3} + w]);\n", fold, op, i, lanes / kWarp);
    } else {
      put += fmt::format("  partial{}[t] = {};\n", i, fold);
      tree += fmt::format("      partial{0}[t] = {1}(partial{0}[t], partial{0}[t + gap * {2}]);\n",
                          i, op, step);
      get += fmt::format("  {} = partial{}[t - lane * {}];\n", fold, i, step);
    }
  }
  if (lanes == 1 || (cut_.warps && lanes <= kWarp)) return shuffles + result;
  if (!tree.empty()) {
    tree = fmt::format("  for (td_i32 gap = {}; gap > 0; gap /= 2) {{\n", lanes / 2) +
           "    td_barrier();\n    if (lane < gap) {\n" + tree + "    }\n  }\n";
  }
  return shuffles + put + tree + "  td_barrier();\n" + get + "  td_barrier();\n" + result;
}

// The block's sums down the columns.
std::string RowText::column_parts() const {
  std::string s;
  const int lines = cut_.lines(), group = cut_.group;
  for (size_t k = 0; k < p_.outs.size(); ++k) {
    if (p_.outs[k] != RowKind::columns) continue;
    std::string shared,
        all = fmt::format("      {} all = sum{}[q * {} + e];\n", compute(), k, group);
    if (lines > 1) {
      shared =
          each_element(group) +
          fmt::format("      partial0[t * {0} + e] = sum{1}[q * {0} + e];\n    }}\n", group, k) +
          "    td_barrier();\n";
      all += fmt::format("      for (td_i32 o = 1; other == 0 && o < {}; ++o) ", lines) +
             fmt::format("all = all + partial0[(t + o * {}) * {} + e];\n", cut_.lanes, group);
    }
    const std::string each =
        shared + each_element(group) + all +
        fmt::format(
            "      if (other == 0 && u < units) y{}[td_block(x) * row_size + u * {} + e] = all;\n",
            k, group) +
        (lines > 1 ? "    }\n    td_barrier();\n" : "    }\n");
    s += fmt::format("  td_unroll\n  for (td_i32 q = 0; q < {}; ++q) {{\n", cut_.groups) +
         fmt::format("    const td_i32 u = q * {} + lane;\n", cut_.lanes) + each + "  }\n";
  }
  return s;
}

void RowText::declare(KernelSource& k) const {
  const int n_out = static_cast<int>(p_.outs.size());
  for (int i = 0; i < n_out; ++i) {
    const auto at = static_cast<size_t>(i);
    const DType t = p_.outs[at] == RowKind::columns ? p_.compute : word_of(p_.out_types[at]);
    k.parameters.push_back({Parameter::out, t, fmt::format("y{}", i)});
  }
  for (int i = 0; i < n_ins(); ++i) {
    if (p_.ins[static_cast<size_t>(i)] == RowKind::number) continue;
    const DType t = p_.in_types[static_cast<size_t>(i)];
    k.parameters.push_back({Parameter::in, word_of(t), fmt::format("p{}", i)});
  }
  for (const StageValue& v : values) {
    k.parameters.push_back(parameter_of(v.value, fmt::format("s{}", v.stage)));
  }
  rows_.declare(k);
  k.parameters.push_back({Parameter::value, DType::i64, "row_size"});
  for (int i = 0; i < n_ins() + n_out; ++i) {
    if (codegen::kind_of(p_, i) != RowKind::matrix) continue;
    k.parameters.push_back({Parameter::value, DType::i64, fmt::format("along{}", i)});
  }
  size_t folds = sums_columns() ? 1 : 0;
  for (const RowStage& s : p_.stages) {
    const auto is_fold = [](const RowSink& sink) { return sink.kind == RowSink::fold; };
    folds = std::max(folds,
                     static_cast<size_t>(std::count_if(s.sinks.begin(), s.sinks.end(), is_fold)));
  }
  for (size_t i = 0; i < folds && k.body.find("partial") != std::string::npos; ++i) {
    const int count = cut_.threads * (sums_columns() && i == 0 ? cut_.group : 1);
    k.shared.push_back({p_.compute, fmt::format("partial{}", i), count});
  }
}

KernelSource RowText::source() {
  KernelSource k{.name = "rows", .threads = cut_.threads, .prelude = true, .warps = cut_.warps};
  k.body = heads() + loads();
  for (size_t s = 0; s < p_.stages.size(); ++s) k.body += stage(s);
  k.body += "  }\n";
  if (sums_columns()) k.body += column_parts();
  declare(k);
  return k;
}

}  // namespace tandem::gpu
