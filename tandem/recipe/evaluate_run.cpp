// SPDX-License-Identifier: Apache-2.0
// What is left to do with a trained run: evaluate it and write its report.
#include <algorithm>

#include "tandem/base/files/folder.h"
#include "tandem/compile/compile.h"
#include "tandem/graph/context.h"
#include "tandem/nn/prune.h"
#include "tandem/recipe/recipe.h"
#include "tandem/runs/run_record.h"
#include "tandem/train/evaluation.h"

namespace tandem::recipe {

train::Logs evaluate_run(RecipeParts& parts, const std::string& split, const std::string& folder,
                         const std::function<void(const Tensor& output)>& outputs) {
  train::Logs logs;
  if (!split.empty()) {
    std::optional<data::AnyPipeline> set = split == "train"  ? parts.data.train
                                           : split == "val"  ? parts.data.val
                                           : split == "test" ? parts.data.test
                                                             : std::nullopt;
    TD_CHECK(set, Value, "the recipe has no set '{}'\nThere are train{}{}.", split,
             parts.data.val ? ", val" : "", parts.data.test ? ", test" : "");
    train::Evaluation evaluation(folder.empty() ? 0 : 16);
    TD_CHECK(!outputs || parts.model.forward || parts.model.predict, Unsupported,
             "the recipe's model has no output for a batch alone");
    const int64_t fast = parts.trainer.options().debug.fast_dev_run;
    const int64_t batches = fast > 0 ? fast : -1;
    auto planned = compile([&](const train::Batch& b) { return parts.model.predict(b); });
    const Device device = parts.trainer.optimizer().params().front().device();
    const auto forward = [&](train::Batch b) {  // of a model whose step gives a loss alone
      const NoGradGuard no_grad;
      const DeviceGuard there(device);
      for (Tensor& t : b) t = t.to(device);
      return parts.trainer.options().compile ? planned(b) : parts.model.predict(b);
    };
    logs = parts.trainer.validate(*set, split + "/", batches,
                                  [&](const train::Batch& b, const train::StepOutput& o) {
                                    if (!folder.empty()) evaluation.see(b, o);
                                    if (outputs)
                                      outputs(o.output.defined() ? o.output : forward(b));
                                  });
    if (split == "test" && parts.model.evaluate && fast == 0) {
      parts.model.module->eval();
      parts.model.module->to(cpu);  // it counts there
      for (const auto& [key, value] : parts.model.evaluate(*set))
        logs.emplace_back(split + "/" + key, value);
    }
    if (!folder.empty()) {
      write_file(folder + "/evaluation.json", evaluation.to_json(split, logs).dump(1) + "\n");
      if (const int64_t step = parts.trainer.step(); step > 0) {  // it has just been trained
        runs::EventFile events(folder);
        evaluation.write_events(events, split, step);
      }
    }
  }
  if (!folder.empty() && file_exists(folder + "/metrics.jsonl"))
    write_file(folder + "/report.html", runs::run_report(runs::read_run(folder)));
  return logs;
}

RunWeights run_weights_of(const std::string& name) {
  TD_CHECK(name == "last" || name == "best", Value,
           "the weights of a run are 'last' or 'best', got '{}'", name);
  return name == "best" ? RunWeights::best : RunWeights::last;
}

StateDict run_weights(const std::string& folder, RunWeights which) {
  const std::string path = folder + "/model.safetensors", checkpoints = folder + "/checkpoints";
  if (which == RunWeights::last && file_exists(path)) return load(path);
  std::optional<train::Snapshot> s;
  if (file_exists(checkpoints)) {
    s = train::Checkpoints(checkpoints).load_latest();
    if (s && which == RunWeights::best) {
      const io::Json* more = s->state.find("more");
      const io::Json* higher = more ? more->find("higher_is_better") : nullptr;
      const bool up = !higher || !higher->as_bool() || *higher->as_bool();
      s = train::Checkpoints(checkpoints, {.higher_is_better = up}).load_best();
    }
  }
  TD_CHECK(s, Io, "'{}' has {}", folder,
           which == RunWeights::best
               ? "no checkpoint with a value of its monitor\nA run with validation keeps "
                 "trainer.keep_best of them; --weights last takes the last ones."
               : "no model.safetensors and no whole checkpoint");
  return nn::prune::plain_state(train::weights_of(*s));
}

}  // namespace tandem::recipe
