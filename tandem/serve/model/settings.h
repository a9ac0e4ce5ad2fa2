// SPDX-License-Identifier: Apache-2.0
// How models are served: MODELS/NAME/serve.yaml, or `defaults` of the server's settings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/base/fields.h"

namespace tandem::serve {

/// When a version that is tried gets no more requests.
struct RollbackSettings {
  double error_rate = 0, p99_ratio = 0;
  int64_t requests = 50;

  template <class V>
  void fields(V& v) {
    v("error_rate", error_rate,
      {.doc = "the part of its answers that may be errors beyond that of the other version; 0: any",
       .at_least = 0,
       .at_most = 1});
    v("p99_ratio", p99_ratio,
      {.doc = "how many times the other version's p99 its own may be; 0: any", .at_least = 0});
    v("requests", requests, {.doc = "answers before the rules hold", .at_least = 1});
  }
};
/// A version that answers a part of the requests that name none.
struct CanarySettings {
  int64_t version = 0;
  double share = 0;
  RollbackSettings rollback = {};

  template <class V>
  void fields(V& v) {
    v("version", version, {.doc = "the version that is tried; 0: none", .at_least = 0});
    v("share", share,
      {.doc = "its part of the requests that name no version", .at_least = 0, .at_most = 1});
    v("rollback", rollback, {.doc = "when it gets no more of them"});
  }
};

/// A model that an ensemble runs, and which tensors go in and come out.
struct EnsembleStep {
  std::string model = "";
  int64_t version = 0;
  std::vector<std::string> input_map = {}, output_map = {};

  template <class V>
  void fields(V& v) {
    v("model", model, {.doc = "a model of the same folder", .required = true});
    v("version", version, {.doc = "0: the one that answers what names none", .at_least = 0});
    v("input_map", input_map, {.doc = "its inputs and the ensemble's tensors, as [x=image]"});
    v("output_map", output_map, {.doc = "its outputs and the ensemble's tensors, as [y=features]"});
  }
};

/// Levels of priority, at most.
constexpr int64_t kMostPriorities = 64;

struct ModelSettings {
  int64_t latest = 1;
  std::vector<int64_t> versions = {};
  std::vector<std::string> labels = {};
  int64_t max_batch = 32;
  bool same_bits = true;
  double delay_us = 0;
  int64_t queue = 256;
  double timeout_ms = 30000;
  int64_t priority_levels = 0, default_priority = 0;
  double priority_step_ms = 0;
  int64_t instances = 1;
  std::vector<std::string> devices = {};
  int64_t threads = 0;
  std::string shapes = "";
  std::string weights = "last";
  double warm_seconds = 5;
  double response_cache_mb = 0;
  std::vector<std::string> state = {}, controls = {};
  int64_t sequences = 1024;
  double sequence_idle_seconds = 60;
  std::vector<EnsembleStep> ensemble = {};
  std::vector<std::string> ensemble_outputs = {};
  bool copy = true;
  bool text = true;
  std::string dtype = "f32";
  int64_t streams = 16;
  int64_t length = 0;
  double cache_mb = 1024;
  int64_t piece = 64;
  std::vector<std::string> adapters = {};
  std::string draft = "";
  int64_t speculate = 4;
  CanarySettings canary = {};
  int64_t shadow = 0;

  template <class V>
  void fields(V& v) {
    v("latest", latest,
      {.doc = "how many of the newest versions are served; 0: all", .at_least = 0});
    v("versions", versions, {.doc = "these versions and no others; [] leaves it to latest"});
    v("labels", labels, {.doc = "names of versions, as [stable=3, canary=4]"});
    v("max_batch", max_batch,
      {.doc = "rows that run together at most; 1: requests run alone",
       .at_least = 1,
       .at_most = 4096});
    v("same_bits", same_bits,
      {.doc = "only sizes of batches in which every row has the bits that it has alone"});
    v("delay_us", delay_us,
      {.doc = "how long a request waits for company",
       .unit = "microseconds",
       .at_least = 0,
       .at_most = 1e6});
    v("queue", queue, {.doc = "requests that may wait; more are answered with 429", .at_least = 1});
    v("timeout_ms", timeout_ms,
      {.doc = "how long a request may wait before it runs; 0: for ever",
       .unit = "milliseconds",
       .at_least = 0});
    v("priority_levels", priority_levels,
      {.doc = "levels of the parameter `priority`, of which 1 is the first to run; 0: requests run "
              "in the order in which they came",
       .at_least = 0,
       .at_most = kMostPriorities});
    v("default_priority", default_priority,
      {.doc = "the level of requests that name none; 0: the last",
       .at_least = 0,
       .at_most = kMostPriorities});
    v("priority_step_ms", priority_step_ms,
      {.doc =
           "a request that has waited so much longer goes before one of the level above; 0: never",
       .unit = "milliseconds",
       .at_least = 0,
       .at_most = 1e9});
    v("instances", instances,
      {.doc = "programs that may run at the same time", .at_least = 1, .at_most = 64});
    v("devices", devices,
      {.doc = "where instances run, in turn, at least one on each: [cuda:0, cuda:1]; []: the CPU"});
    v("threads", threads, {.doc = "threads of an instance; 0: all cores", .at_least = 0});
    v("shapes", shapes, {.doc = "open sizes of the inputs for the warm-up, as x:1x3x224x224"});
    v("weights", weights, {.doc = "of a run: which weights", .one_of = "last best"});
    v("warm_seconds", warm_seconds,
      {.doc = "the warm-up tries no larger batches after so long",
       .unit = "seconds",
       .at_least = 0});
    v("response_cache_mb", response_cache_mb,
      {.doc = "answers that are kept for requests with the same inputs; 0: none",
       .unit = "MiB",
       .at_least = 0,
       .at_most = 1048576});
    v("state", state,
      {.doc = "inputs that get what an output of the step before in their sequence gave, as "
              "[h_in=h_out]"});
    v("controls", controls,
      {.doc = "inputs that say where in its sequence a step is, as [start=START]: start, end, "
              "ready, id"});
    v("sequences", sequences,
      {.doc = "sequences whose state is kept at the same time", .at_least = 1});
    v("sequence_idle_seconds", sequence_idle_seconds,
      {.doc = "after which a sequence without a step is given up", .unit = "seconds", .above = 0});
    v("ensemble", ensemble, {.doc = "models that run on a request, instead of one of its own"});
    v("ensemble_outputs", ensemble_outputs,
      {.doc = "tensors that are answered; []: those that no step takes"});
    text_fields(v);
    v("canary", canary, {.doc = "a version that answers a part of the requests that name none"});
    v("shadow", shadow,
      {.doc = "a version that gets copies of requests, whose answers are compared and dropped; 0: "
              "none",
       .at_least = 0});
    v("copy", copy,
      {.doc = "map a private copy of the model's files, so that overwriting them does no harm"});
  }
  // Of language models.
  template <class V>
  void text_fields(V& v) {
    v("text", text, {.doc = "a language model with its tokenizer continues texts, too"});
    v("dtype", dtype,
      {.doc = "of a language model's weights and of its keys and values", .one_of = "f32 bf16"});
    v("streams", streams,
      {.doc = "texts that grow at the same time", .at_least = 1, .at_most = 1024});
    v("length", length,
      {.doc = "of a text with its answer; 0: what the model can, at most 4096",
       .unit = "tokens",
       .at_least = 0});
    v("cache_mb", cache_mb,
      {.doc = "of the keys and values of all texts, at most", .unit = "MiB", .above = 0});
    v("piece", piece,
      {.doc = "how much of a prompt is read between two steps", .unit = "tokens", .at_least = 1});
    v("adapters", adapters,
      {.doc = "LoRA adapters of a language model by name, as [sql=adapters/sql]: folders below the "
              "model's"});
    v("draft", draft,
      {.doc =
           "a smaller model of the same vocabulary that guesses tokens, as ../small; prompt: what "
           "followed the same tokens earlier in the text"});
    v("speculate", speculate,
      {.doc = "how many are guessed before the model checks them",
       .unit = "tokens",
       .at_least = 1,
       .at_most = 64});
  }
};

}  // namespace tandem::serve
