// SPDX-License-Identifier: Apache-2.0
// `tandem onnx-test`: runs models against recorded inputs and outputs in the layout of ONNX's
// backend tests, with the tolerances of its runner. A model that cannot be run counts as failed.
#include <fmt/core.h>

#include <algorithm>
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
  std::string filter;
  bool json = false, quiet = false, markdown = false;
};

using Failures = std::vector<std::pair<std::string, std::string>>;

/// What came of one folder's models.
struct SuiteResult {
  std::string version;
  std::vector<onnx::OnnxCase> cases;
  Failures failures;
};

/// One line per full-size net: its nodes, its ops by how often they stand there, what came.
void print_nets(const SuiteResult& suite) {
  size_t nets = 0, failed = 0;
  std::string lines;
  for (const onnx::OnnxCase& c : suite.cases) {
    if (!c.light) continue;
    std::string result = "passes";
    for (const auto& [name, reason] : suite.failures)
      if (name == c.name) result = "fails";
    ++nets;
    failed += result != "passes";
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

/// The models that fail, each with the suites where it does.
void print_failures(const std::vector<SuiteResult>& suites) {
  std::vector<std::string> names;
  std::map<std::string, std::pair<std::string, std::string>> rows;
  for (const SuiteResult& s : suites)
    for (const auto& [name, reason] : s.failures) {
      auto& [versions, text] = rows[name];
      if (versions.empty()) names.push_back(name);
      versions += (versions.empty() ? "" : ", ") + s.version;
      if (text.empty()) text = reason.substr(0, reason.find('\n'));
    }
  fmt::print("| model | of ONNX | reason |\n|---|---|---|\n");
  for (const std::string& n : names)
    fmt::print("| {} | {} | {} |\n", n, rows[n].first, rows[n].second);
}

/// The ops that can be imported, in lines.
void print_ops() {
  std::string domains;
  for (const onnx::OnnxDomain& d : onnx::onnx_domains())
    domains += fmt::format("{}{} ({}{})", domains.empty() ? "" : ", ", *d.name ? d.name : "ai.onnx",
                           d.last > 1 ? "1 to " : "", d.last);
  fmt::print(
      "\n## Ops\n\nBy domain and opsets: {}.\n"
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

/// docs/onnx.md: what passes, what does not and why, and the ops that can be imported.
void print_page(const std::vector<SuiteResult>& suites) {
  std::string counts;
  for (const SuiteResult& s : suites)
    counts += fmt::format("{}{} of {} models of ONNX {}", counts.empty() ? "" : ", ",
                          s.cases.size() - s.failures.size(), s.cases.size(), s.version);
  fmt::print(
      "# ONNX\n\n"
      "`tandem onnx-test DIR` runs models against recorded inputs and outputs. The models are "
      "those of ONNX's\nbackend tests, fetched by `scripts/onnx_suite` and, for later versions, "
      "made by `scripts/onnx_suite VERSION`; the\ntolerances are those of its runner (relative "
      "1e-3, for bfloat16 1/64, absolute 1e-7 unless a model says otherwise).\nThis page is what "
      "`build/release/tandem onnx-test --markdown build/deps/onnx_suite "
      "build/deps/onnx_suite-1.23.2`\nprints. Export: [onnx-export.md](onnx-export.md).\n\n"
      "{} pass. The others:\n\n",
      counts);
  print_failures(suites);
  fmt::print(
      "\nThe recorded results of Bernoulli are draws from a generator whose state is not part of "
      "the models. Those of\nthe inverse DFT contain rounding errors of a single-precision "
      "transform where ours gives zeros. The float16\nmodel records a softmax that was rounded to "
      "float16 after each of its steps; ours is rounded once.\nThe models of 1.23.2 draw their "
      "data while they are made, from seed 0.\n");
  print_nets(suites[0]);
  print_ops();
}

/// Run the models of one folder; nothing when interrupted.
std::optional<SuiteResult> run_folder(const OnnxTestOptions& o, const std::string& folder,
                                      io::Json::Array& list) {
  SuiteResult r{onnx::onnx_suite_version(folder), onnx::find_onnx_cases(folder, o.filter), {}};
  TD_CHECK(!r.cases.empty(), Value, "there are no models in '{}'{}", folder,
           o.filter.empty() ? "" : fmt::format(" whose name holds '{}'", o.filter));
  for (const onnx::OnnxCase& c : r.cases) {
    if (interrupted()) return std::nullopt;
    const std::string reason = onnx::run_onnx_case(c);
    if (!reason.empty()) r.failures.emplace_back(c.name, reason);
    if (o.markdown) continue;
    if (o.json) {
      io::Json::Object entry{{"name", c.name}, {"passed", reason.empty()}};
      if (!reason.empty()) entry.emplace_back("reason", reason);
      list.push_back(std::move(entry));
    } else if (!reason.empty()) {
      fmt::print("failed {}: {}\n", c.name, reason);
      std::fflush(stdout);
    } else if (!o.quiet) {
      fmt::print("passed {}\n", c.name);
    }
  }
  return r;
}

int run_suite(const OnnxTestOptions& o) {
  init();
  std::vector<SuiteResult> suites;
  io::Json::Array list;
  size_t passed = 0, failed = 0;
  for (const std::string& folder : o.folders) {
    std::optional<SuiteResult> r = run_folder(o, folder, list);
    if (!r) return 130;
    failed += r->failures.size();
    passed += r->cases.size() - r->failures.size();
    suites.push_back(std::move(*r));
  }
  if (o.markdown) {
    print_page(suites);
  } else if (o.json) {
    fmt::print("{}\n",
               io::Json(io::Json::Object{
                            {"passed", passed}, {"failed", failed}, {"cases", std::move(list)}})
                   .dump(1));
    fmt::print(stderr, "{} passed, {} failed\n", passed, failed);
  } else {
    fmt::print("{} passed, {} failed\n", passed, failed);
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
  verb->add_flag("--json", o->json, "The result as JSON on stdout");
  verb->add_flag("--markdown", o->markdown, "The page docs/onnx.md");
  verb->add_flag("--quiet", o->quiet, "Print only what failed, and the count");
  verb->callback([&code, o] { code = run_suite(*o); });
}

}  // namespace tandem::cli
