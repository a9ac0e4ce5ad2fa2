// SPDX-License-Identifier: Apache-2.0
// Repository: a folder of models and their versions, loaded, replaced and unloaded while requests
// run. A request holds the version that it began with; a version is freed when nobody holds it.
//   MODELS/NAME.onnx                 version 1 of NAME
//   MODELS/NAME/                     a run's folder, a Hugging Face folder or model.onnx: version 1
//   MODELS/NAME/3/                   version 3: one of those
//   MODELS/NAME/serve.yaml           ModelSettings
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/serve/model/response_cache.h"
#include "tandem/serve/model/scheduler.h"
#include "tandem/serve/model/sequences.h"
#include "tandem/serve/model/settings.h"
#include "tandem/serve/model/traffic.h"
#include "tandem/serve/text/text_encoder.h"
#include "tandem/serve/text/text_model.h"

namespace tandem::serve {

/// A loaded version of a model.
struct ModelVersion {
  std::string name;
  int64_t version = 1;
  ModelSettings settings;
  std::shared_ptr<Servable> model;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<TextModel> text;       ///< of a language model with its tokenizer, else nullptr
  std::unique_ptr<TextEncoder> encoder;  ///< of an encoder of texts with its tokenizer
  std::unique_ptr<ResponseCache> cache;  ///< of a model whose answers are kept
  Sequences* sequences = nullptr;        ///< of a model with state: of all its versions
  double loaded = 0;                     ///< seconds since 1970
  /// Of all versions of the model, where a canary or a shadow is among them; else nullptr.
  std::shared_ptr<Traffic> traffic = {};
  /// Does it answer texts with vectors?
  bool embeds() const { return encoder && encoder->embeds(); }
};
using ModelVersionPtr = std::shared_ptr<ModelVersion>;

struct IndexEntry {
  std::string name;
  int64_t version = 0;  ///< 0: none is known
  bool ready = false;
  std::string reason = "";  ///< why not, or what the last attempt to load it gave
};

struct RepositoryOptions {
  std::string folder;
  ModelSettings defaults = {};
  bool links = false;     ///< links may lead out of the folder
  std::string from = "";  ///< triton, tfserving, torchserve: whose layout the folder has
};

class TD_API Repository {
 public:
  /// Throws Io where there is no such folder. A folder or file that is a model itself is served
  /// under its own name.
  explicit Repository(RepositoryOptions options);
  /// Waits for everybody who holds a version.
  ~Repository();
  Repository(const Repository&) = delete;
  Repository& operator=(const Repository&) = delete;

  /// Load every model; those that fail stay in index() with the reason. Larger batches are prepared
  /// in the background.
  void load_all();
  /// Load a model's versions as the folder has them now, warm them up and put them in the place of
  /// what was there. Where that fails, what was there stays, and the error says why.
  void load(const std::string& name);
  /// No new request gets this model.
  void unload(const std::string& name);

  /// The version asked for: "" the newest, a number, or a label. nullptr where there is none.
  ModelVersionPtr find(std::string_view name, std::string_view version = "") const;
  /// The version for a request that names none: the newest, or a canary in its turn.
  ModelVersionPtr pick(std::string_view name) const;
  /// Versions that are served, oldest first; empty for an unknown name.
  std::vector<ModelVersionPtr> versions(std::string_view name) const;
  std::vector<ModelVersionPtr> all() const;
  std::vector<IndexEntry> index() const;
  /// Does index() have an entry of this name?
  bool knows(const std::string& name) const;
  /// Has every model of the folder been loaded?
  bool ready() const;
  /// Waits for the warm-up of load_all().
  void wait_for_warm_up();
  /// From now on changes of the folder are loaded by themselves: what looks the same in two looks,
  /// `seconds` apart, is complete. Where loading fails, what was there stays.
  void watch(double seconds);
  /// `text` without the folder's path: for messages to clients.
  std::string without_paths(std::string text) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Letters, digits, '_', '-' and '.', at most 128, no dot in front: a name of a model.
TD_API bool is_model_name(std::string_view name);

}  // namespace tandem::serve
