// SPDX-License-Identifier: Apache-2.0
// `tandem launch -n 4 PROGRAM ...` runs a program, or a verb of this tool, once per rank.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/commands_internal.h"
#include "tandem/base/error.h"
#include "tandem/dist/launch.h"

namespace tandem::cli {
namespace {

struct LaunchWords {
  distributed::LaunchOptions options;
  distributed::HostsOptions how;
  std::string hosts;
  int nodes = 1, node = -1;
  bool no_prefix = false, token_stdin = false;
};

// The first line of standard input, without what follows.
std::string token_of_input() {
  std::string line;
  for (char c = 0; line.size() < 4096 && ::read(0, &c, 1) == 1 && c != '\n';) line += c;
  TD_CHECK(!line.empty(), Io, "there is no token on standard input");
  return line;
}

int launch_verb(const LaunchWords& w) {
  distributed::LaunchOptions o = w.options;
  o.prefix = !w.no_prefix;
  // The verbs that run on several ranks; anything else is a program.
  if (o.command[0] == "train") o.command.insert(o.command.begin(), "/proc/self/exe");
  if (w.token_stdin) {
    o.token = token_of_input();
    o.parent = 0;
  } else if (const char* token = std::getenv("TANDEM_TOKEN"); token && o.world + w.nodes > 1) {
    o.token = token;
  }
  if (w.nodes > 1) {
    TD_CHECK(w.node >= 0 && w.node < w.nodes, Value,
             "--nnodes {} expects --node-rank 0 to {}, another one on each machine", w.nodes,
             w.nodes - 1);
    o.world = w.nodes * o.ranks;
    o.first = w.node * o.ranks;
  }
  if (w.node >= 0) o.node = w.node;
  const distributed::LaunchResult r =
      w.hosts.empty()
          ? distributed::launch(o)
          : distributed::launch_on_hosts(distributed::launch_hosts(w.hosts, o.ranks), o, w.how);
  if (r.code != 0) fmt::print(stderr, "tandem launch: {}\n", r.text);
  return r.code;
}

}  // namespace

void add_launch(CLI::App& app, int& code) {
  auto w = std::make_shared<LaunchWords>();
  distributed::LaunchOptions* o = &w->options;
  CLI::App* verb = app.add_subcommand(
      "launch",
      "Run a program on several ranks\n\n"
      "  tandem launch -n 2 train recipes/digits-mlp.yaml\n"
      "  tandem launch --hosts a:8,b:8 train recipe.yaml     # by ssh\n"
      "  tandem launch -n 8 --nnodes 2 --node-rank 0 --master-addr a --port 29400 ./program");
  CLI::Option* ranks = verb->add_option("-n,--nproc-per-node", o->ranks, "Ranks on this machine")
                           ->check(CLI::Range(1, 1024));
  CLI::Option* hosts =
      verb->add_option("--hosts", w->hosts,
                       "Machines and ranks of each, a:8,b:8: `tandem launch` is started there by "
                       "ssh, in this folder; rank 0 is on the first");
  verb->add_option("--ssh", w->how.shell,
                   "What runs a line of shell on a machine; default: ssh -o BatchMode=yes")
      ->needs(hosts);
  verb->add_option("--remote-tool", w->how.tool, "Path of tandem there; default: as here")
      ->needs(hosts);
  verb->add_option("--nnodes", w->nodes, "Machines that start the same command")
      ->excludes(hosts)
      ->check(CLI::Range(1, 4096));
  verb->add_option("--node-rank", w->node, "Number of this machine, from 0")
      ->check(CLI::Range(0, 4095));
  verb->add_option("--master-addr", o->master, "Address of rank 0's machine");
  // What --hosts tells the launchers that it starts.
  verb->add_option("--world-size", o->world, "")->group("");
  verb->add_option("--first-rank", o->first, "")->group("");
  verb->add_flag("--token-stdin", w->token_stdin, "")->group("");
  verb->add_option(
      "--engine", o->engine,
      "What moves large calls (tandem doctor lists it); default: TANDEM_DIST_ENGINE, else auto");
  verb->add_option("--port", o->port, "MASTER_PORT; default: a free one")
      ->check(CLI::Range(1, 65535));
  verb->add_option("--threads", o->threads,
                   "Threads of each rank; default: TANDEM_NUM_THREADS, else an equal share")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--bind-to", o->bind_to,
                   "What a rank's threads may run on: core: its share of the processors, where "
                   "there are enough; numa: the NUMA nodes of that share; none: all")
      ->check(CLI::IsMember({"core", "numa", "none"}));
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
  verb->add_flag("--no-prefix", w->no_prefix, "Lines without the rank before them");
  verb->footer("Then comes the program with its arguments, or: train RECIPE ...");
  verb->prefix_command();  // from the first word that is not an option of launch on
  verb->callback([w, ranks, hosts, verb, &code] {
    w->options.command = verb->remaining();
    if (w->options.command.empty()) throw CLI::RequiredError("launch: a program to run");
    if (ranks->count() + hosts->count() == 0) throw CLI::RequiredError("launch: -n or --hosts");
    code = launch_verb(*w);
  });
}

}  // namespace tandem::cli
