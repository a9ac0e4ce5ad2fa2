// SPDX-License-Identifier: Apache-2.0
// `tandem onnx-test`: runs models against recorded inputs and outputs in the layout of ONNX's
// backend tests, with the tolerances of its runner: op by op, and compiled as `tandem predict` runs
// models. A model that cannot be run counts as failed.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "cli/commands_internal.h"
#include "tandem/init.h"
#include "tandem/io/json.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/onnx/suite.h"

namespace tandem::cli {
namespace {

struct OnnxTestOptions {
  std::vector<std::string> folders;
  std::string filter, way = "both";
  bool json = false, quiet = false, markdown = false;
};

/// One model, op by op and compiled.
struct Evaluated {
  const onnx::OnnxCase* model;
  std::optional<onnx::OnnxVerdict> eager, compiled;
  bool passed() const { return (!eager || eager->passed()) && (!compiled || compiled->passed()); }
};
using Verdicts = std::vector<Evaluated>;

std::string first_line(const std::string& s) { return s.substr(0, s.find('\n')); }

/// Of the compiled runs: how many went this way.
size_t count(const Verdicts& all, onnx::OnnxWay way) {
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const Evaluated& j) {
    return j.compiled && j.compiled->passed() && j.compiled->way == way;
  }));
}
size_t count_passed(const Verdicts& all, std::optional<onnx::OnnxVerdict> Evaluated::*how) {
  return static_cast<size_t>(std::count_if(
      all.begin(), all.end(), [&](const Evaluated& j) { return (j.*how) && (j.*how)->passed(); }));
}

/// What came of one folder's models.
struct SuiteResult {
  std::string version;
  std::vector<onnx::OnnxCase> cases;
  Verdicts all;
};

/// Lines of a table: models with the versions they belong to and a reason.
struct Rows {
  std::vector<std::string> names;
  std::map<std::string, std::pair<std::string, std::string>> by_name;

  void add(const std::string& version, const std::string& name, const std::string& reason) {
    auto& [versions, text] = by_name[name];
    if (versions.empty()) names.push_back(name);
    versions += (versions.empty() ? "" : ", ") + version;
    if (text.empty()) text = first_line(reason);
  }
  void print() const {
    fmt::print("| model | of ONNX | reason |\n|---|---|---|\n");
    for (const std::string& n : names)
      fmt::print("| {} | {} | {} |\n", n, by_name.at(n).first, by_name.at(n).second);
  }
};

/// One line per full-size net: its nodes, its ops by how often they stand there, what came.
void print_nets(const SuiteResult& suite) {
  size_t nets = 0, failed = 0;
  std::string lines;
  for (const Evaluated& j : suite.all) {
    const onnx::OnnxCase& c = *j.model;
    if (!c.light) continue;
    const char* result = j.passed() ? "passes" : "fails";
    ++nets;
    failed += !j.passed();
    std::map<std::string, int> counts;
    const onnx::OnnxModel model = onnx::OnnxModel::load(c.model);
    for (const onnx::OnnxNode& n : model.proto().graph.nodes) ++counts[n.op];
    std::vector<std::pair<int, std::string>> ops;
    for (const auto& [op, count] : counts) ops.emplace_back(-count, op);
    std::sort(ops.begin(), ops.end());
    std::string text;
    for (const auto& [count, op] : ops)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", -count, op);
    lines += fmt::format("| {} | {} | {} | {} |\n", c.name, model.proto().graph.nodes.size(), text,
                         result);
  }
  fmt::print(
      "\n## Full-size nets\n\n"
      "{} of {} nets of the folder `light`, counted above, pass. Their models generate their own "
      "weights,\nthe input counts from 0 to 1 as in ONNX's runner, and the outputs are "
      "recorded.\n`tests/peers/onnx_light` compares them with onnxruntime, with random weights.\n\n"
      "| model | nodes | ops | result |\n|---|---|---|---|\n{}",
      nets - failed, nets, lines);
}

/// How models run when they are compiled, and which of them are not.
void print_ways(const std::vector<SuiteResult>& suites) {
  fmt::print(
      "\n## Compiled\n\n"
      "`tandem predict`, `tandem bench` and `onnx::OnnxRunner` compile a model. The same models, "
      "run so:\n\n"
      "| ONNX | one program | compiled parts between nodes that read values | op by op | fail |\n"
      "|---|---|---|---|---|\n");
  Rows rows;
  for (const SuiteResult& s : suites) {
    fmt::print("| {} | {} | {} | {} | {} |\n", s.version, count(s.all, onnx::OnnxWay::whole),
               count(s.all, onnx::OnnxWay::parts), count(s.all, onnx::OnnxWay::eager),
               s.all.size() - count_passed(s.all, &Evaluated::compiled));
    for (const Evaluated& j : s.all)
      if (j.compiled && j.compiled->passed() && j.compiled->way == onnx::OnnxWay::eager)
        rows.add(s.version, j.model->name, j.compiled->reason);
  }
  fmt::print(
      "\n`If`, `Loop` and `Scan` become `cond`, `while_loop` and `scan`. Sizes, axes and "
      "conditions "
      "that follow from a\nfew numbers among the inputs are taken from these numbers. Where a "
      "size depends on other values, the model\nis split. Those that run op by op as a whole:\n\n");
  rows.print();
}

/// The models that fail, each with the suites where it does.
void print_failures(const std::vector<SuiteResult>& suites) {
  Rows rows;
  for (const SuiteResult& s : suites)
    for (const Evaluated& j : s.all) {
      if (j.passed()) continue;
      const bool eager = !j.eager->passed();
      rows.add(s.version, j.model->name,
               eager ? j.eager->differs : "compiled: " + j.compiled->differs);
    }
  rows.print();
}

/// The ops that can be imported, in lines.
void print_ops() {
  std::string domains;
  for (const onnx::OnnxDomain& d : onnx::onnx_domains())
    domains += fmt::format("{}{} ({}{})", domains.empty() ? "" : ", ", *d.name ? d.name : "ai.onnx",
                           d.last > 1 ? "1 to " : "", d.last);
  fmt::print(
      "\n## Ops\n\nBy domain and opsets: {}; tandem holds ops that only Tandem has.\n"
      "An attribute that an op does not have, or inputs and outputs beyond its own, are errors "
      "that "
      "name them;\nan opset beyond these gives a warning. `tests/peers/onnx_microsoft` compares "
      "ops of "
      "com.microsoft with\nonnxruntime.\n\n",
      domains);
  std::string line;
  for (const std::string& op : onnx::onnx_ops()) {
    if (line.size() + op.size() + 2 > 98) {
      fmt::print("{},\n", line);
      line.clear();
    }
    line += (line.empty() ? "" : ", ") + op;
  }
  fmt::print("{}.\n", line);
}

/// docs/onnx.md, after its program: what passes, what does not and why, and the ops that can be
/// imported.
void print_page(const std::vector<SuiteResult>& suites) {
  std::string counts;
  for (const SuiteResult& s : suites)
    counts += fmt::format("{}{} of {} models of ONNX {} pass op by op, {} compiled",
                          counts.empty() ? "" : "; ", count_passed(s.all, &Evaluated::eager),
                          s.all.size(), s.version, count_passed(s.all, &Evaluated::compiled));
  fmt::print(
      "## The models of ONNX's backend tests\n\n"
      "`tandem onnx-test DIR` runs models against recorded inputs and outputs. The models are "
      "those of ONNX's\nbackend tests, fetched by `scripts/onnx_suite` and, for later versions, "
      "made by `scripts/onnx_suite VERSION`; the\ntolerances are those of its runner (relative "
      "1e-3, for bfloat16 1/64, absolute 1e-7 unless a model says otherwise).\nFrom here on this "
      "page is what\n`build/release/tandem onnx-test --markdown build/deps/onnx_suite "
      "build/deps/onnx_suite-1.23.2` prints.\n\n"
      "{}. The others:\n\n",
      counts);
  print_failures(suites);
  fmt::print(
      "\nThe recorded results of Bernoulli are draws from a generator whose state is not part of "
      "the models. Those of\nthe inverse DFT contain rounding errors of a single-precision "
      "transform where ours gives zeros.\nThe models of 1.23.2 draw their data while they are "
      "made, from seed 0.\n");
  print_ways(suites);
  print_nets(suites[0]);
  print_ops();
}

void print_text(const Evaluated& j, bool quiet) {
  if (j.eager && !j.eager->passed()) fmt::print("failed {}: {}\n", j.model->name, j.eager->differs);
  if (j.compiled && !j.compiled->passed())
    fmt::print("failed {} compiled: {}\n", j.model->name, j.compiled->differs);
  std::fflush(stdout);
  if (quiet || !j.passed()) return;
  if (!j.compiled || j.compiled->way == onnx::OnnxWay::whole)
    fmt::print("passed {}\n", j.model->name);
  else
    fmt::print("passed {} ({}: {})\n", j.model->name, to_string(j.compiled->way),
               first_line(j.compiled->reason));
}

io::Json as_json(const Evaluated& j) {
  io::Json::Object entry{{"name", j.model->name}, {"passed", j.passed()}};
  if (j.eager && !j.eager->passed()) entry.emplace_back("reason", j.eager->differs);
  if (!j.compiled) return entry;
  io::Json::Object compiled{{"passed", j.compiled->passed()}};
  if (j.compiled->passed())
    compiled.emplace_back("way", to_string(j.compiled->way));
  else
    compiled.emplace_back("reason", j.compiled->differs);
  if (!j.compiled->reason.empty()) compiled.emplace_back("why", j.compiled->reason);
  entry.emplace_back("compiled", std::move(compiled));
  return entry;
}

/// Run the models of one folder; nothing when interrupted.
std::optional<SuiteResult> run_folder(const OnnxTestOptions& o, const std::string& folder) {
  SuiteResult r{onnx::onnx_suite_version(folder), onnx::find_onnx_cases(folder, o.filter), {}};
  TD_CHECK(!r.cases.empty(), Value, "there are no models in '{}'{}", folder,
           o.filter.empty() ? "" : fmt::format(" whose name holds '{}'", o.filter));
  for (const onnx::OnnxCase& c : r.cases) {
    if (interrupted()) return std::nullopt;
    Evaluated& j = r.all.emplace_back(Evaluated{&c, {}, {}});
    if (o.way != "compiled") j.eager = onnx::run_onnx_case(c);
    if (o.way != "eager") j.compiled = onnx::run_onnx_case(c, /*compiled=*/true);
    if (!o.markdown && !o.json) print_text(j, o.quiet);
  }
  return r;
}

int run_suite(const OnnxTestOptions& o) {
  // Every loop runs once or twice: compiling it to machine code would take far longer.
  ::setenv("TANDEM_JIT", "0", /*overwrite=*/0);
  init();
  std::vector<SuiteResult> suites;
  for (const std::string& folder : o.folders) {
    std::optional<SuiteResult> r = run_folder(o, folder);
    if (!r) return 130;
    suites.push_back(std::move(*r));
  }
  size_t passed = 0, failed = 0, whole = 0, parts = 0, eager = 0;
  io::Json::Array list;
  for (const SuiteResult& s : suites) {
    for (const Evaluated& j : s.all) {
      (j.passed() ? passed : failed)++;
      if (o.json) list.push_back(as_json(j));
    }
    whole += count(s.all, onnx::OnnxWay::whole);
    parts += count(s.all, onnx::OnnxWay::parts);
    eager += count(s.all, onnx::OnnxWay::eager);
  }
  std::string summary = fmt::format("{} passed, {} failed", passed, failed);
  if (o.way != "eager")
    summary +=
        fmt::format("; compiled: {} as one program, {} in parts, {} op by op", whole, parts, eager);
  if (o.markdown) {
    print_page(suites);
  } else if (o.json) {
    fmt::print("{}\n",
               io::Json(io::Json::Object{
                            {"passed", passed}, {"failed", failed}, {"cases", std::move(list)}})
                   .dump(1));
    fmt::print(stderr, "{}\n", summary);
  } else {
    fmt::print("{}\n", summary);
  }
  return failed == 0 ? 0 : 3;
}

}  // namespace

void add_onnx_test(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand(
      "onnx-test", "Run ONNX models against recorded inputs and outputs (ONNX's backend tests)");
  auto o = std::make_shared<OnnxTestOptions>();
  verb->add_option("folder", o->folders, "Folders of test folders, searched to any depth")
      ->required();
  verb->add_option("--filter", o->filter, "Only names that hold this text");
  verb->add_option("--way", o->way, "How models run: eager (op by op), compiled, or both")
      ->check(CLI::IsMember({"eager", "compiled", "both"}));
  verb->add_flag("--json", o->json, "The result as JSON on stdout");
  verb->add_flag("--markdown", o->markdown,
                 "The page docs/onnx.md after its program (runs models both ways)");
  verb->add_flag("--quiet", o->quiet, "Print only what failed, and the count");
  verb->callback([&code, o] {
    if (o->markdown) o->way = "both";
    code = run_suite(*o);
  });
}

}  // namespace tandem::cli
