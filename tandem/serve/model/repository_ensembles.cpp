// SPDX-License-Identifier: Apache-2.0
// Ensembles among the models of a folder: they are loaded after the models that they run, and again
// when one of those is replaced.
#include <algorithm>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/failures.h"
#include "tandem/base/log.h"
#include "tandem/serve/model/ensemble.h"
#include "tandem/serve/model/repository_internal.h"

namespace tandem::serve {
namespace {

bool runs(const std::vector<EnsembleStep>& steps, const std::string& model) {
  return std::any_of(steps.begin(), steps.end(),
                     [&](const EnsembleStep& s) { return s.model == model; });
}

}  // namespace

ModelVersionPtr Repository::State::find(std::string_view name, int64_t version) const {
  const std::lock_guard hold(lock);
  const auto at = models.find(name);
  if (at == models.end() || at->second.empty()) return nullptr;
  if (version == 0) return stable_of(at->second);
  const auto found = at->second.find(version);
  return found == at->second.end() ? nullptr : found->second;
}

// Ensembles that run one another, as the settings are now.
void Repository::State::check_circles(const std::string& name,
                                      const ModelSettings& settings) const {
  std::vector<std::string> left;
  std::set<std::string> seen;
  for (const EnsembleStep& s : settings.ensemble)
    if (s.model != name) left.push_back(s.model);
  while (!left.empty()) {
    const std::string next = left.back();
    left.pop_back();
    if (!seen.insert(next).second) continue;
    for (const EnsembleStep& s : steps_of(next)) {
      TD_CHECK(s.model != name, Value, "the ensembles '{}' and '{}' run one another", name, next);
      left.push_back(s.model);
    }
  }
}

ModelVersionPtr Repository::State::load_ensemble(const std::string& name,
                                                 const ModelSettings& settings, bool warm) {
  check_circles(name, settings);
  const auto graph = std::make_shared<Ensemble>(
      name, settings.ensemble, settings.ensemble_outputs,
      [this](const std::string& model, int64_t version) { return find(model, version); });
  auto v = std::make_unique<ModelVersion>();
  v->name = name;
  v->settings = settings;
  v->model = std::make_shared<Servable>(graph, servable_options(settings));
  if (warm) v->model->warm_up();
  serve(*v);
  return reaper.watch(std::move(v));
}

std::vector<EnsembleStep> Repository::State::steps_of(const std::string& name) const {
  try {
    return folder.settings(name, options.defaults, true).ensemble;
  } catch (const Error&) {  // it is said when the model is loaded
    return {};
  }
}

std::vector<std::string> Repository::State::in_order(const std::vector<std::string>& names) const {
  std::vector<std::string> out, left;
  std::map<std::string, std::vector<EnsembleStep>> steps;
  for (const std::string& name : names) {
    steps[name] = steps_of(name);
    (steps[name].empty() ? out : left).push_back(name);
  }
  for (bool moves = true; moves;) {
    moves = false;
    for (auto at = left.begin(); at != left.end();) {
      const bool waits = std::any_of(left.begin(), left.end(), [&](const std::string& other) {
        return runs(steps[*at], other);
      });
      if (waits) {
        ++at;
        continue;
      }
      out.push_back(*at);
      at = left.erase(at);
      moves = true;
    }
  }
  out.insert(out.end(), left.begin(), left.end());
  return out;
}

void Repository::State::load_dependents(const std::string& name) {
  std::vector<std::string> candidates;
  {
    const std::lock_guard hold(lock);
    for (const auto& [model, versions] : models)
      if (!versions.empty() && runs(versions.rbegin()->second->settings.ensemble, name))
        candidates.push_back(model);
    for (const auto& [model, failure] : failures)
      if (!models.count(model)) candidates.push_back(model);
  }
  for (const std::string& model : candidates) {
    if (model == name || !runs(steps_of(model), name)) continue;
    try {
      const ModelStamps now = look_before(model);
      put(model, load_versions(model, true));
      held[model] = now;
    } catch (...) {
      try {
        rethrow_as_error(model);
      } catch (const Error& e) {
        note(model, without_paths(e.what()), true);
        log_warning("'{}' runs '{}', which has changed, and was not loaded: {}", model, name,
                    e.what());
        continue;
      }
    }
    load_dependents(model);
  }
}

}  // namespace tandem::serve
