// SPDX-License-Identifier: Apache-2.0
// TextEngine: one language model that continues many texts at the same time. Texts join and leave
// the batch between any two tokens (continuous batching, Yu et al. 2022, "Orca"); their keys and
// values lie in blocks of a common pool, and texts that begin alike share them. Prompts are read in
// pieces, so that a long one does not hold up those who wait for their next token.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/models/text/generate.h"
#include "tandem/serve/histogram.h"
#include "tandem/text/constraint.h"

namespace tandem::serve {

/// A LoRA adapter that texts may ask for.
struct TextAdapter {
  std::string name, folder;
};

struct TextEngineOptions {
  int64_t streams = 16;  ///< texts that grow at the same time
  int64_t length = 0;    ///< tokens of a text with its answer; 0: what the model can, at most 4096
  int64_t cache_tokens = 0;  ///< of the pool; 0: `streams` texts of `length`, at most cache_bytes
  int64_t cache_bytes = int64_t{1} << 30;
  int64_t block = 16;        ///< tokens of a block
  int64_t piece = 64;        ///< tokens of a prompt, or of several, that are read between two steps
  size_t queue = 256;        ///< texts that may wait
  double priority_step = 0;  ///< as SchedulerOptions::priority_step
  int threads = 0;           ///< 0: all cores
  bool same_bits = true;  ///< only sizes of batches in which a text has the bits that it has alone
  std::vector<TextAdapter> adapters = {};
  /// Guesses tokens that the model then checks in one step (speculative decoding): texts are the
  /// same, and sampled ones have the same distribution. Of the model's vocabulary.
  std::shared_ptr<models::PretrainedModel> draft = {};
  bool draft_from_text = false;  ///< guess what followed the same tokens earlier in the text
  int64_t speculate = 4;         ///< tokens that are guessed at a time
};

/// A new token.
struct TextToken {
  int64_t id = 0;
  bool end = false;            ///< it ends the text and is not part of it
  double log_probability = 0;  ///< of the model, before temperature and penalties
  std::vector<std::pair<int64_t, double>> top = {};  ///< the likeliest, if they are wanted
};

/// How an answer ended.
struct TextEnd {
  int status = 200;        ///< as JobResult::status
  std::string error = "";  ///< of another status
  bool stopped = true;     ///< by a token or by its reader; else it is as long as it may be
  int64_t prompt = 0, shared = 0, fresh = 0;  ///< tokens: read, known before, new
};

struct TextRequest {
  std::vector<int64_t> prompt;
  models::GenerateOptions options = {};  ///< without streamer and compiled
  int64_t top = -1;                      ///< how many of the likeliest tokens are wanted; -1: no
                                         ///< probabilities at all
  int64_t adapter = 0;                   ///< adapter() knows it by name; 0: none
  std::shared_ptr<text::Constraint> constraint = {};  ///< what the answer is held to
  double timeout = 0;               ///< seconds until it is too late to begin; 0: never
  int64_t priority = 0;             ///< less is earlier
  std::function<bool()> gone = {};  ///< nobody waits for the answer any more
  std::function<bool(const TextToken&)> token = {};  ///< false: the answer ends here
  std::function<void(const TextEnd&)> done;          ///< called once
};

/// Counts since the start; times in seconds.
struct TextCounts {
  std::atomic<uint64_t> accepted{0}, ok{0}, failed{0}, cancelled{0}, rejected{0}, preempted{0};
  std::atomic<uint64_t> displaced{0};  ///< accepted, and given up for one of a higher priority
  std::atomic<uint64_t> prompt_tokens{0}, shared_tokens{0}, new_tokens{0}, steps{0}, step_rows{0};
  std::atomic<uint64_t> prompt_steps{0};  ///< that read prompts
  std::atomic<uint64_t> drafted_tokens{0}, accepted_tokens{0};
  std::atomic<int64_t> running{0}, waiting{0};
  std::atomic<int64_t> blocks_held{0};
  Histogram first_token, between_tokens;
};

class TD_API TextEngine {
 public:
  /// Throws Unsupported for a model that does not decode texts together.
  TextEngine(std::shared_ptr<models::PretrainedModel> model, const TextEngineOptions& options = {});
  /// Ends what runs and what waits with 503.
  ~TextEngine();
  TextEngine(const TextEngine&) = delete;
  TextEngine& operator=(const TextEngine&) = delete;

  /// From any thread; `token` and `done` are called on the engine's. `done` may be called at once,
  /// with 400 for a prompt that does not fit and 429 where too many wait.
  void submit(TextRequest request);
  /// Wait for the answer: the new tokens. Throws Value for a status other than 200.
  std::vector<int64_t> generate(std::vector<int64_t> prompt,
                                const models::GenerateOptions& options);

  /// The names of the adapters in their order, and the number of one; 0 where there is none.
  std::vector<std::string> adapters() const;
  int64_t adapter(std::string_view name) const;
  /// Tokens of a text with its answer, at most; where answers(), of a prompt, and of an answer and
  /// the token before it.
  int64_t length() const;
  /// New tokens that there is room for after a prompt of `prompt` tokens.
  int64_t room(int64_t prompt) const;
  /// Whether an encoder reads the prompt, and the answer does not continue it.
  bool answers() const;
  int64_t vocabulary() const;
  int64_t blocks() const;
  /// The sizes of batches that are used, ascending.
  std::vector<int64_t> sizes() const;
  TextCounts& counts();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem::serve
