// SPDX-License-Identifier: Apache-2.0
// What is left to do with a trained run: judge it and write its report.
#include <algorithm>

#include "tandem/base/folder.h"
#include "tandem/train/judgement.h"
#include "tandem/train/recipe.h"
#include "tandem/train/run_record.h"

namespace tandem::train {

Logs judge_run(RecipeParts& parts, const std::string& split, const std::string& folder) {
  Logs logs;
  if (!split.empty()) {
    std::optional<data::AnyPipeline> set = split == "train"  ? parts.data.train
                                           : split == "val"  ? parts.data.val
                                           : split == "test" ? parts.data.test
                                                             : std::nullopt;
    TD_CHECK(set, Value, "the recipe has no set '{}'\nThere are train{}{}.", split,
             parts.data.val ? ", val" : "", parts.data.test ? ", test" : "");
    Judgement judgement(folder.empty() ? 0 : 16);
    logs = parts.trainer.validate(*set, split + "/", -1, [&](const Batch& b, const StepOutput& o) {
      if (!folder.empty()) judgement.see(b, o);
    });
    if (split == "test" && parts.model.judge) {
      parts.model.module->eval();
      for (const auto& [key, value] : parts.model.judge(*set))
        logs.emplace_back(split + "/" + key, value);
    }
    if (!folder.empty()) {
      write_file(folder + "/judgement.json", judgement.to_json(split, logs).dump(1) + "\n");
      if (const int64_t step = parts.trainer.step(); step > 0) {  // it has just been trained
        EventFile events(folder);
        judgement.write_events(events, split, step);
      }
    }
  }
  if (!folder.empty() && file_exists(folder + "/metrics.jsonl"))
    write_file(folder + "/report.html", run_report(read_run(folder)));
  return logs;
}

StateDict run_weights(const std::string& folder) {
  if (const std::string path = folder + "/model.safetensors"; file_exists(path)) return load(path);
  std::optional<Snapshot> s;
  if (file_exists(folder + "/checkpoints")) {
    const Checkpoints all(folder + "/checkpoints");
    s = all.load_best();
    if (!s) s = all.load_latest();
  }
  TD_CHECK(s, Io, "'{}' has no model.safetensors and no whole checkpoint", folder);
  return s->model;
}

}  // namespace tandem::train
