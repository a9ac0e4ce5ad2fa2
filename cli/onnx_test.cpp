// SPDX-License-Identifier: Apache-2.0
// `tandem onnx-test`: runs models against recorded inputs and outputs in the layout of ONNX's
// backend tests, with the tolerances of its runner. A model that cannot be run counts as failed.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "cli/commands_internal.h"
#include "tandem/init.h"
#include "tandem/io/json.h"
#include "tandem/onnx/suite.h"

namespace tandem::cli {
namespace {

struct OnnxTestOptions {
  std::string folder, filter;
  bool json = false, quiet = false, markdown = false;
};

using Failures = std::vector<std::pair<std::string, std::string>>;

/// One line per full-size net: its nodes, its ops by how often they stand there, what came.
void print_nets(const std::vector<onnx::OnnxCase>& cases, const Failures& failures) {
  size_t nets = 0, failed = 0;
  std::string lines;
  for (const onnx::OnnxCase& c : cases) {
    if (!c.light) continue;
    std::string result = "passes";
    for (const auto& [name, reason] : failures)
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

/// docs/onnx.md: what passes, what does not and why, and the ops that can be imported.
void print_page(const std::vector<onnx::OnnxCase>& cases, size_t passed, const Failures& failures) {
  fmt::print(
      "# ONNX\n\n"
      "`tandem onnx-test DIR` runs models against recorded inputs and outputs. The models are "
      "those "
      "of ONNX's\nbackend tests, fetched by `scripts/onnx_suite` into `build/deps/onnx_suite`; the "
      "tolerances are those of\nits runner (relative 1e-3, absolute 1e-7 unless a model says "
      "otherwise). This page is what\n`build/release/tandem onnx-test build/deps/onnx_suite "
      "--markdown` prints.\nExport: [onnx-export.md](onnx-export.md).\n\n"
      "{} of {} models pass. The others:\n\n| model | reason |\n|---|---|\n",
      passed, cases.size());
  for (const auto& [name, reason] : failures)
    fmt::print("| {} | {} |\n", name, reason.substr(0, reason.find('\n')));
  fmt::print(
      "\nThe recorded results of Bernoulli are draws from a generator whose state is not part of "
      "the "
      "models. Those of\nthe inverse DFT contain rounding errors of a single-precision transform "
      "where ours gives zeros.\n");
  print_nets(cases, failures);
  fmt::print("\n## Ops\n\nOpsets 1 to 27 of ai.onnx, ai.onnx.ml and the preview domains:\n\n");
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

int run_suite(const OnnxTestOptions& o) {
  init();
  const std::vector<onnx::OnnxCase> cases = onnx::find_onnx_cases(o.folder, o.filter);
  TD_CHECK(!cases.empty(), Value, "there are no models in '{}'{}", o.folder,
           o.filter.empty() ? "" : fmt::format(" whose name holds '{}'", o.filter));
  size_t passed = 0, failed = 0;
  io::Json::Array list;
  Failures failures;
  for (const onnx::OnnxCase& c : cases) {
    if (interrupted()) return 130;
    const std::string reason = onnx::run_onnx_case(c);
    (reason.empty() ? passed : failed)++;
    if (!reason.empty()) failures.emplace_back(c.name, reason);
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
  if (o.markdown) {
    print_page(cases, passed, failures);
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
  verb->add_option("folder", o->folder, "Folder of test folders, searched to any depth")
      ->required();
  verb->add_option("--filter", o->filter, "Only names that hold this text");
  verb->add_flag("--json", o->json, "The result as JSON on stdout");
  verb->add_flag("--markdown", o->markdown, "The page docs/onnx.md");
  verb->add_flag("--quiet", o->quiet, "Print only what failed, and the count");
  verb->callback([&code, o] { code = run_suite(*o); });
}

}  // namespace tandem::cli
