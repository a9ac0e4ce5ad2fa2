// SPDX-License-Identifier: Apache-2.0
// `tandem`: one binary, one file per verb. Unknown verbs and options name the nearest known one.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands_internal.h"
#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/base/failures.h"
#include "tandem/base/nearest.h"
#include "tandem/runs/run_folder.h"

namespace tandem::cli {
namespace {

std::atomic<bool> g_interrupted{false};

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// What `app` knows (its commands and options) that is nearest to `word`, or "".
std::string nearest(const CLI::App& app, const std::string& word) {
  std::string best;
  size_t limit = std::max<size_t>(word.size() > 3 ? 2 : 1, word.size() / 3) + 1;
  auto look = [&](const std::string& name) {
    if (size_t d = edit_distance(word, name); d < limit) {
      limit = d;
      best = name;
    }
  };
  for (const CLI::App* verb : verbs_of(app)) look(verb->get_name());
  for (const CLI::Option* o : app.get_options())
    for (const std::string& name : o->get_lnames()) look("--" + name);
  return best;
}

int usage(const CLI::App& app, const CLI::ParseError& e, int argc, char** argv) {
  const CLI::App* verb = &app;  // the command that the words before named
  std::string path = "tandem", hints, unknown;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i], word = text.substr(0, text.find('='));
    const std::vector<const CLI::App*> verbs = verbs_of(*verb);
    const auto known = std::find_if(verbs.begin(), verbs.end(),
                                    [&](const CLI::App* v) { return v->get_name() == word; });
    if (known != verbs.end()) {
      verb = *known;
      path += " " + word;
      continue;
    }
    const bool option = word.starts_with("-");
    const bool value = !option && (verbs.empty() || std::string_view(argv[i - 1]).starts_with("-"));
    if (value) continue;
    if (!option && verb == &app && unknown.empty()) unknown = word;
    const std::string near = nearest(*verb, word);
    if (!near.empty() && near != word) hints += fmt::format("Did you mean `{}`?\n", near);
  }
  fmt::print(
      stderr, "tandem: {}\n{}",
      unknown.empty() ? std::string(e.what()) : fmt::format("there is no command '{}'", unknown),
      hints);
  fmt::print(stderr, "`{} --help` lists {}.\n", path,
             verbs_of(*verb).empty() ? "its options" : "the commands");
  return 2;
}

// The limits of files hold for whatever a verb reads.
void add_limits(CLI::App& app) {
  const auto add = [](CLI::App& to) {
    return to.add_option_function<std::string>(
        "--limits", [](const std::string& text) { set_default_limits(parse_limits(text)); },
        "What a file that you trust may cost to read or run: bytes=8e9,seconds=60 (also nodes, "
        "traced, operations)");
  };
  add(app);
  for (CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    add(*verb)->group("");  // help shows it once, with the commands
}

}  // namespace

bool interrupted() {
  static const bool installed = [] {
    std::signal(SIGINT, [](int) {
      if (g_interrupted.exchange(true)) std::_Exit(130);
    });
    return true;
  }();
  return installed && g_interrupted.load();
}

void leave_no_empty_runs() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto before = std::signal(signal, runs::end_by_signal);
    if (before != SIG_DFL) std::signal(signal, before);
  }
}

int run(int argc, char** argv) {
  CLI::App app{
      "  tandem demo              train a small net on hand-written digits\n"
      "  tandem train recipes/digits-mlp.yaml\n"
      "  tandem launch -n 2 train recipes/digits-mlp.yaml\n"
      "  tandem doctor            what this machine offers and what is used\n"
      "  tandem ops relu          what an op does, its inputs, types and derivative\n"
      "  tandem inspect net.pth   what a file of weights holds, or a model costs\n"
      "  tandem plan llama:7b     which server it needs, how long, how much\n\n"
      "Tandem: deep learning in C++20."};
  app.name("tandem");
  app.set_version_flag("--version", "tandem " TANDEM_VERSION);
  app.require_subcommand(1);
  int code = 0;
  add_demo(app, code);
  add_doctor(app, code);
  add_generate(app, code);
  add_onnx_test(app, code);
  add_ops(app, code);
  add_inspect(app, code);
  add_convert(app, code);
  add_export(app, code);
  add_quantize(app, code);
  add_verify(app, code);
  add_predict(app, code);
  add_bench(app, code);
  add_bench_serve(app, code);
  add_plan(app, code);
  add_advise(app, code);
  add_train(app, code);
  add_launch(app, code);
  add_find(app, code);
  add_recipe(app, code);
  add_runs(app, code);
  add_compile(app, code);
  add_config(app, code);
  add_tune(app, code);
  add_serve(app, code);
  add_deploy(app, code);
  add_data(app, code);
  add_limits(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return usage(app, e, argc, argv);
  }
  return code;
}

}  // namespace tandem::cli

int main(int argc, char** argv) {
  try {
    try {
      return tandem::cli::run(argc, argv);
    } catch (...) {
      tandem::rethrow_as_error(argc > 1 ? argv[1] : "tandem");
    }
  } catch (const tandem::Error& e) {
    fmt::print(stderr, "tandem: {}\n", e.what());
  } catch (const std::exception& e) {
    fmt::print(stderr, "tandem: {}\n", e.what());
  }
  return 1;
}
