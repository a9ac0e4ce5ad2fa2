// SPDX-License-Identifier: Apache-2.0
// `tandem advise RUN`: what holds a run back.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include "cli/commands_internal.h"
#include "cli/plan_internal.h"
#include "tandem/base/files/file.h"
#include "tandem/init.h"
#include "tandem/plan/advise.h"

namespace tandem::cli {
namespace {

struct AdviseOptions {
  std::string run, profile;
  int64_t batch = 0;
  bool json = false;
};

}  // namespace

void add_advise(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand("advise",
                                      "What holds a run back, and what an upgrade would gain\n\n"
                                      "  tandem bench --machine\n"
                                      "  tandem advise runs/digits-mlp-20261122-101500");
  auto o = std::make_shared<AdviseOptions>();
  verb->add_option("run", o->run, "Folder of a run of `tandem train`")->required();
  verb->add_option("--batch", o->batch, "Samples of a step, where the recipe's is not meant");
  verb->add_option("--profile", o->profile, "File of `bench --machine`");
  verb->add_flag("--json", o->json, "The answer as JSON");
  verb->callback([&code, o] {
    init();
    const plan::MachineProfile m = machine_profile_of(o->profile);
    const plan::RunFacts run = plan::run_facts(o->run);
    // The run's own recipe, as it stands.
    const plan::PlanRequest r = recipe_request(o->run + "/recipe.yaml");
    plan::WorkOptions of_run{.batch = o->batch > 0 ? o->batch : r.batch / r.accumulate,
                             .compiled = r.compiled,
                             .precision = r.precision.value_or(plan::Precision::f32),
                             .optimizer = r.optimizer,
                             .clip_norm = r.clip_norm,
                             .this_backend = true};
    const plan::Workload w = plan::dry_run(r.job, of_run);
    of_run.batch *= 8;
    const plan::Workload larger = plan::dry_run(r.job, of_run);
    const plan::Advice a = plan::advise(run, w, m, &larger);
    plan::check(a.time);
    if (o->json)
      fmt::print("{}\n", io::Json(io::Json::Object{{"limit", plan::to_string(a.limit)},
                                                   {"share", a.share},
                                                   {"gain", a.gain},
                                                   {"upgrade", a.upgrade},
                                                   {"text", a.text},
                                                   {"time", plan::to_json(a.time)}})
                             .dump(2));
    else
      fmt::print("{}\n\n{}", a.text, plan::explain(a.time));
    code = 0;
  });
}

}  // namespace tandem::cli
