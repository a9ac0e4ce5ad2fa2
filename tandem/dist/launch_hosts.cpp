// SPDX-License-Identifier: Apache-2.0
// launch() on several machines: one of them starts the launchers of all.
#include <algorithm>
#include <cstdlib>

#include "tandem/base/error.h"
#include "tandem/base/hash/hash.h"
#include "tandem/base/process_state.h"
#include "tandem/dist/cpu_shares_internal.h"
#include "tandem/dist/launch.h"
#include "tandem/dist/started_programs_internal.h"
#include "tandem/dist/token_internal.h"

namespace tandem::distributed {

std::vector<LaunchHost> launch_hosts(const std::string& text, int ranks) {
  std::vector<LaunchHost> all;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    at = end + 1;
    const size_t colon = part.rfind(':');
    LaunchHost h{part.substr(0, colon), ranks};
    const std::string count = colon == part.npos ? "" : part.substr(colon + 1);
    const bool digits =
        !count.empty() && count.size() < 5 && count.find_first_not_of("0123456789") == count.npos;
    if (digits) h.ranks = std::atoi(count.c_str());
    // A name that begins with '-' would be an option of ssh.
    TD_CHECK(!h.name.empty() && h.name[0] != '-' && (colon == part.npos || digits) && h.ranks > 0,
             Value, "'{}' names no machine\nWrite --hosts a:8,b:8: names, and ranks of each.",
             part);
    for (const LaunchHost& other : all)
      TD_CHECK(other.name != h.name, Value, "'{}' is there twice", h.name);
    all.push_back(std::move(h));
  }
  return all;
}

namespace {

// As one word of a line of shell.
std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

LaunchResult launch_on_hosts(const std::vector<LaunchHost>& hosts, const LaunchOptions& o,
                             const HostsOptions& how) {
  TD_CHECK(!hosts.empty() && !o.command.empty(), Value,
           "launch expects machines and a program to run");
  TD_CHECK(o.min_ranks == 0, Unsupported,
           "launch on several machines restarts with as many ranks as before");
  (void)bind_to(o.bind_to);
  int world = 0;
  for (const LaunchHost& h : hosts) world += h.ranks;
  const std::string token = random_token();
  const std::string tool = how.tool.empty() ? path_of_link("/proc/self/exe") : how.tool;
  const std::string folder = how.folder.empty() ? path_of_link("/proc/self/cwd") : how.folder;
  // Which ports are free there is not known here: one that few others take.
  const int port = o.port > 0 ? o.port : 20000 + static_cast<int>(hash_string(token) % 10000);
  std::vector<std::string> shell;
  for (size_t at = 0, end = 0; at < how.shell.size(); at = end + 1) {
    end = std::min(how.shell.find(' ', at), how.shell.size());
    if (end > at) shell.push_back(how.shell.substr(at, end - at));
  }
  TD_CHECK(!shell.empty(), Value, "launch expects a program that runs commands on other machines");
  std::vector<Program> programs;
  int first = 0;
  for (size_t i = 0; i < hosts.size(); ++i) {
    std::vector<std::string> words = {tool, "launch", "--token-stdin"};
    const auto option = [&](const char* name, const std::string& value) {
      words.emplace_back(name);
      words.push_back(value);
    };
    option("-n", std::to_string(hosts[i].ranks));
    option("--world-size", std::to_string(world));
    option("--first-rank", std::to_string(first));
    option("--node-rank", std::to_string(i));
    option("--master-addr", o.master.empty() ? hosts[0].name : o.master);
    option("--port", std::to_string(port));
    option("--grace", fmt::format("{}", o.grace));
    option("--max-restarts", std::to_string(o.max_restarts));
    if (!o.engine.empty()) option("--engine", o.engine);
    if (o.threads > 0) option("--threads", std::to_string(o.threads));
    if (o.bind_to != "core") option("--bind-to", o.bind_to);
    if (!o.prefix) words.emplace_back("--no-prefix");
    words.insert(words.end(), o.command.begin(), o.command.end());
    std::string line = "cd " + quoted(folder) + " && exec";
    for (const std::string& w : words) line += " " + quoted(w);
    Program p;
    p.number = static_cast<int>(i);
    p.name = "the launcher on " + hosts[i].name;
    p.command = shell;
    p.command.push_back(hosts[i].name);
    p.command.push_back(line);
    p.env = environment_with({});
    p.input = token + "\n";
    programs.push_back(std::move(p));
    first += hosts[i].ranks;
  }
  LaunchOptions here = o;
  here.notice += o.grace;  // a launcher ends its ranks before it ends
  LaunchResult r = run_programs(here, std::move(programs)).result;
  r.ranks = world;
  return r;
}

}  // namespace tandem::distributed
