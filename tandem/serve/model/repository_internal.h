// SPDX-License-Identifier: Apache-2.0
// What a Repository holds: its versions, what their files looked like, and the threads that free
// and replace them.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tandem/serve/model/folder_internal.h"
#include "tandem/serve/model/folder_watch_internal.h"
#include "tandem/serve/model/repository.h"

namespace tandem::serve {

/// Frees versions on a thread of its own: their last holder may be one of their own threads.
class Reaper {
 public:
  Reaper() : thread_([this] { run(); }) {}
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;
  /// Waits until nobody holds a version any more.
  ~Reaper();
  ModelVersionPtr watch(std::unique_ptr<ModelVersion> v);

 private:
  void take(ModelVersion* v);
  void run();
  std::mutex lock_;
  std::condition_variable ready_;
  std::vector<std::unique_ptr<ModelVersion>> dead_;
  size_t live_ = 0;  ///< versions that are not freed yet
  bool ended_ = false;
  std::thread thread_;  ///< last: it uses the others
};

using Versions = std::map<int64_t, ModelVersionPtr>;

/// Why a model, or its newest files, are not served.
struct LoadFailure {
  std::string reason;
  bool late = false;  ///< it came when the server was ready already
};

struct Repository::State {
  explicit State(RepositoryOptions o)
      : options(std::move(o)), folder(options.folder, options.links, options.from) {}

  /// The versions that the folder and the settings choose; those in `kept` as they are.
  Versions load_versions(const std::string& name, bool warm, const Versions& kept = {});
  std::unique_ptr<ModelVersion> load_version(const std::string& name, int64_t number,
                                             const std::string& path, const ModelSettings& settings,
                                             bool warm);
  ModelVersionPtr load_ensemble(const std::string& name, const ModelSettings& settings, bool warm);
  void check_circles(const std::string& name, const ModelSettings& settings) const;
  void serve(ModelVersion& v) const;
  /// The steps of an ensemble; none of another model, and where its settings cannot be read.
  std::vector<EnsembleStep> steps_of(const std::string& name) const;
  /// Names, ensembles after the models that they run. Those that wait for one another come last.
  std::vector<std::string> in_order(const std::vector<std::string>& names) const;
  /// Makes ensembles again that run this model, which has changed.
  void load_dependents(const std::string& name);
  ModelVersionPtr find(std::string_view name, int64_t version) const;
  void put(const std::string& name, Versions versions);
  void note(const std::string& name, const std::string& reason, bool late = false);
  std::string without_paths(std::string text) const;
  /// How the files of a model look that is about to be loaded; their changes count from here.
  ModelStamps look_before(const std::string& name);
  /// One look at all files. What is new and has been the same in two looks is loaded, what has gone
  /// is let go. True where the next look may tell more.
  bool look(FolderLook& files);
  bool look_at(const std::string& name, bool there, FolderLook& files);
  void refresh(const std::string& name, const ModelStamps& now);
  void retire(const std::string& name);
  void watch_folder(double seconds);

  RepositoryOptions options;
  ModelFolder folder;
  Reaper reaper;  ///< before the versions: they end before it does
  /// Of models with state, by name. They hold versions, too.
  std::map<std::string, std::unique_ptr<Sequences>> sequences;
  std::mutex loading;       ///< one load or unload at a time; of `seen` and `held`, too
  mutable std::mutex lock;  ///< of what follows
  std::map<std::string, Versions, std::less<>> models;
  std::map<std::string, LoadFailure, std::less<>> failures;
  std::map<std::string, std::vector<int64_t>> unloaded;
  std::thread warming;
  std::atomic<bool> stops{false};
  /// How files looked: at the last look, when they were acted on, and when what is served was made.
  std::map<std::string, ModelStamps> seen, acted, held;
  FolderWatch changes;
  std::thread watching;
};

ServableOptions servable_options(const ModelSettings& s);
/// The version that answers what names none: the newest that is not tried.
ModelVersionPtr stable_of(const Versions& all);

}  // namespace tandem::serve
