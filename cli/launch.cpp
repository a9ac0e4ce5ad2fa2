// SPDX-License-Identifier: Apache-2.0
// `tandem launch -n 4 PROGRAM ...` runs a program, or a verb of this tool, once per rank.
#include <fmt/core.h>

#include "cli/commands_internal.h"
#include "tandem/dist/launch.h"

namespace tandem::cli {
namespace {

int launch_verb(distributed::LaunchOptions o) {
  // The verbs that run on several ranks; anything else is a program.
  if (o.command[0] == "train") o.command.insert(o.command.begin(), "/proc/self/exe");
  const distributed::LaunchResult r = distributed::launch(o);
  if (r.code != 0) fmt::print(stderr, "tandem launch: {}\n", r.text);
  return r.code;
}

}  // namespace

void add_launch(CLI::App& app, int& code) {
  auto o = std::make_shared<distributed::LaunchOptions>();
  auto no_prefix = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand(
      "launch", "Run a program on several ranks: tandem launch -n 2 train recipes/digits-mlp.yaml");
  verb->add_option("-n,--nproc-per-node", o->ranks, "Ranks on this machine")
      ->required()
      ->check(CLI::Range(1, 1024));
  verb->add_option(
      "--engine", o->engine,
      "What moves large calls (tandem doctor lists it); default: TANDEM_DIST_ENGINE, else auto");
  verb->add_option("--port", o->port, "MASTER_PORT; default: a free one")
      ->check(CLI::Range(1, 65535));
  verb->add_option("--threads", o->threads,
                   "Threads of each rank; default: TANDEM_NUM_THREADS, else an equal share")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--grace", o->grace, "Seconds between SIGTERM and SIGKILL")
      ->check(CLI::NonNegativeNumber);
  verb->add_option(
          "--max-restarts", o->max_restarts,
          "Restart all ranks up to this many times after one fails; `train` resumes from its "
          "newest checkpoint")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--min-ranks", o->min_ranks,
                   "Restart with one rank fewer each time, down to this many; default: always with "
                   "as many as before")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--no-prefix", *no_prefix, "Lines without the rank before them");
  verb->footer("Then comes the program with its arguments, or: train RECIPE ...");
  verb->prefix_command();  // from the first word that is not an option of launch on
  verb->callback([o, no_prefix, verb, &code] {
    o->command = verb->remaining();
    if (o->command.empty()) throw CLI::RequiredError("launch: a program to run");
    o->prefix = !*no_prefix;
    code = launch_verb(*o);
  });
}

}  // namespace tandem::cli
