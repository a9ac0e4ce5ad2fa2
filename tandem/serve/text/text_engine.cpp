// SPDX-License-Identifier: Apache-2.0
// The loop of a TextEngine: admit who waits, read a piece of a prompt or of several short ones,
// give everybody who has read theirs the next token.
#include "tandem/serve/text/text_engine.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <future>
#include <iterator>
#include <list>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/parallel.h"
#include "tandem/serve/http/server.h"
#include "tandem/serve/model/priority_internal.h"
#include "tandem/serve/refusal_internal.h"
#include "tandem/serve/text/block_pool.h"
#include "tandem/serve/text/growing_text_internal.h"
#include "tandem/serve/text/text_drafts_internal.h"
#include "tandem/serve/text/text_steps_internal.h"

namespace tandem::serve {

namespace {

// log softmax of the chosen and of the likeliest tokens.
void add_probabilities(const std::vector<float>& logits, int64_t count, TextToken& token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(l - top);
  const double whole = top + std::log(sum);
  token.log_probability = logits[static_cast<size_t>(token.id)] - whole;
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto k = std::min(static_cast<size_t>(count), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(k), order.end(),
                    [&](int64_t a, int64_t b) {
                      const float x = logits[static_cast<size_t>(a)],
                                  y = logits[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  for (size_t i = 0; i < k; ++i)
    token.top.emplace_back(order[i], logits[static_cast<size_t>(order[i])] - whole);
}

}  // namespace

struct TextEngine::State {
  State(std::shared_ptr<models::PretrainedModel> model, const TextEngineOptions& o)
      : options(o),
        steps(model, o, o.draft || o.draft_from_text ? o.speculate + 1 : 1),
        pool(steps.blocks(), o.block) {
    {
      const ThreadLimitGuard limit(threads());
      steps.warm_up(o.same_bits);
      if (steps.wide() > 1) drafts.emplace(o, steps);
    }
    eos = model->config.tokens("eos_token_id");
    if (steps.is_pair()) start = model->config.integer("decoder_start_token_id", 0, 0);
    thread = std::thread([this] { work(); });
  }
  ~State() {
    {
      const std::lock_guard hold(lock);
      ends = true;
    }
    ready.notify_one();
    thread.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  int threads() const { return options.threads > 0 ? options.threads : 1024; }

  void work() {
    const ThreadLimitGuard limit(threads());
    for (;;) {
      {
        std::unique_lock hold(lock);
        ready.wait(hold, [this] { return ends || !waiting.empty() || !running.empty(); });
        if (ends) break;
      }
      try {
        turn();
      } catch (const std::exception& e) {
        // What ran is lost; the model may serve others.
        log_warning("decoding failed: {}", e.what());
        while (!running.empty())
          finish(running.begin(), 500, refusal_of(std::current_exception()).text);
      }
      count_state();
    }
    while (!running.empty()) finish(running.begin(), 503, "the model is being unloaded");
    for (GrowingText& t : waiting) answer(t, 503, "the model is being unloaded", false);
    waiting.clear();
  }

  void turn() {
    for (auto at = running.begin(); at != running.end();) {
      const auto next = std::next(at);
      if (at->request.gone && at->request.gone()) finish(at, 499, "the client went away");
      at = next;
    }
    drop_late();
    admit();
    read_pieces();
    grow();
  }

  void count_state() {
    const std::lock_guard hold(lock);
    counts.running = static_cast<int64_t>(running.size());
    counts.waiting = static_cast<int64_t>(waiting.size());
    counts.blocks_held = pool.count() - pool.available();
  }

  // ---- who runs

  std::optional<GrowingText> next_waiting() {
    const std::lock_guard hold(lock);
    if (waiting.empty()) return std::nullopt;
    GrowingText t = std::move(waiting.front());
    waiting.pop_front();
    return t;
  }
  void put_back(GrowingText t) {
    const std::lock_guard hold(lock);
    put_in_order(waiting, std::move(t), true);
  }

  // Texts that nobody waits for, and those that have waited too long, make room for others.
  void drop_late() {
    const auto left = [](const GrowingText& t) { return t.request.gone && t.request.gone(); };
    const auto late = [](const GrowingText& t) {
      return !t.begun && t.request.timeout > 0 && seconds_since(t.since) > t.request.timeout;
    };
    std::vector<GrowingText> over;
    {
      const std::lock_guard hold(lock);
      const auto end = std::stable_partition(waiting.begin(), waiting.end(),
                                             [&](const auto& t) { return !left(t) && !late(t); });
      std::move(end, waiting.end(), std::back_inserter(over));
      waiting.erase(end, waiting.end());
    }
    for (GrowingText& t : over) try {
        if (left(t))
          answer(t, 499, "the client went away", false);
        else
          answer(t, 504, "the request waited too long", false);
      } catch (const std::exception& e) {
        log_warning("an answer failed: {}", e.what());
      }
  }

  void admit() {
    while (static_cast<int64_t>(running.size()) < options.streams) {
      std::optional<GrowingText> t = next_waiting();
      if (!t) return;
      if (!begin(*t)) {
        put_back(std::move(*t));
        return;
      } else {
        t->begun = true;
        running.push_back(std::move(*t));
        if (!start) continue;
        // Whole, at once: each of an encoder's tokens sees all of them.
        steps.read_prompt(running.back().request.prompt, running.back().blocks);
        counts.prompt_tokens += static_cast<uint64_t>(running.back().encoded);
      }
    }
  }

  // Gives a text the blocks of its tokens: those that others have computed, and fresh ones. False:
  // there is no room now.
  bool begin(GrowingText& t) {
    while (!start && t.unread() > options.block) {
      const int64_t before = t.blocks.empty() ? t.root() : t.blocks.back();
      const auto from = t.tokens.begin() + t.read;
      const auto found = pool.find(before, std::vector<int64_t>(from, from + options.block));
      if (!found) break;
      t.blocks.push_back(*found);
      t.read += options.block;
    }
    t.shared = t.draft_read = t.read;
    t.published = static_cast<int64_t>(t.blocks.size());
    // With the next token's. An encoder's prompt has none behind it.
    const int64_t tokens = std::max(t.size() + 1, t.encoded);
    const int64_t wanted = (tokens + options.block - 1) / options.block;
    if (wanted - static_cast<int64_t>(t.blocks.size()) > pool.available()) {
      forget(t);
      return false;
    }
    reserve(t, t.room());
    return true;
  }
  void reserve(GrowingText& t, int64_t size) {
    while (static_cast<int64_t>(t.blocks.size()) * options.block < size) {
      const std::optional<int64_t> b = pool.take();
      if (!b) return;
      t.blocks.push_back(*b);
    }
  }
  void forget(GrowingText& t) {
    for (const int64_t b : t.blocks) pool.release(b);
    t.blocks.clear();
    t.read = t.draft_read = t.published = 0;
  }

  // Room for all tokens of `t`. Where there is none, the youngest start again later; false: `t` was
  // the youngest itself.
  bool make_room(GrowingText& t) {
    for (;;) {
      reserve(t, t.size());
      if (static_cast<int64_t>(t.blocks.size()) * options.block >= t.size()) return true;
      const auto last = std::prev(running.end());
      const bool itself = &*last == &t;
      forget(*last);
      ++counts.preempted;
      put_back(std::move(*last));
      running.erase(last);
      if (itself) return false;
    }
  }

  // ---- steps

  TextPart part(const GrowingText& t, int64_t count) const {
    return {std::span(t.tokens).subspan(static_cast<size_t>(t.read), static_cast<size_t>(count)),
            t.read, t.blocks, t.request.adapter, t.encoded};
  }

  // A piece of the first prompt that is not read, and of those after it that fit into its step.
  void read_pieces() {
    std::vector<std::list<GrowingText>::iterator> group;
    std::vector<TextPart> parts;
    TextSteps::PieceSize size{0, 1};
    for (auto at = running.begin(); at != running.end(); ++at) {
      if (at->unread() <= 1) continue;
      const int64_t count = std::min(at->unread(), options.piece);
      if (group.empty()) size = steps.read_with(count);
      if (!group.empty() && (count > size.each || !may_share_step(*group[0], *at))) continue;
      group.push_back(at);
      parts.push_back(part(*at, count));
      if (static_cast<int64_t>(group.size()) == size.parts) break;
    }
    if (group.empty()) return;
    ++counts.prompt_steps;
    const std::vector<std::vector<float>> logits = steps.run(parts);
    const AnswersTogether together;
    for (size_t k = 0; k < group.size(); ++k) {
      const auto at = group[k];
      const auto count = static_cast<int64_t>(parts[k].ids.size());
      if (drafts && at->draft_read == at->read) {
        drafts->read(parts[k]);
        at->draft_read += count;
      }
      counts.prompt_tokens += static_cast<uint64_t>(count);
      advance(*at, count);
      if (at->unread() == 0) take(at, logits[k]);
    }
  }
  bool may_share_step(const GrowingText& a, const GrowingText& b) const {
    return steps.mixes_adapters() || (a.request.adapter == 0) == (b.request.adapter == 0);
  }

  void grow() {
    std::vector<std::list<GrowingText>::iterator> all;
    for (auto at = running.begin(); at != running.end(); ++at)
      if (at->unread() == 1 && !make_room(*at)) break;
    for (auto at = running.begin(); at != running.end(); ++at)
      if (at->unread() == 1) all.push_back(at);
    if (steps.mixes_adapters()) return grow(all);
    const auto plain = std::stable_partition(
        all.begin(), all.end(), [](const auto& at) { return at->request.adapter == 0; });
    grow(std::span(all.begin(), plain));
    grow(std::span(plain, all.end()));
  }
  void grow(std::span<const std::list<GrowingText>::iterator> all) {
    const auto most = static_cast<size_t>(steps.most_parts());
    for (size_t i = 0; i < all.size(); i += most) {
      const std::span group = all.subspan(i, std::min(most, all.size() - i));
      ++counts.steps;
      counts.step_rows += group.size();
      if (drafts && speculate(group)) continue;
      std::vector<TextPart> parts;
      for (const auto& at : group) parts.push_back(part(*at, 1));
      const std::vector<std::vector<float>> logits = steps.run(parts);
      const AnswersTogether together;
      for (size_t k = 0; k < group.size(); ++k) {
        advance(*group[k], 1);
        take(group[k], logits[k]);
      }
    }
  }

  // How many guesses a text has room for. One that is held to a constraint gets none: what follows
  // a guess would be held by a state that may have to be taken back.
  int64_t guesses_for(GrowingText& t) {
    const int64_t left =
        std::min(t.request.options.max_new_tokens - t.fresh(), steps.length() - t.size());
    int64_t count = t.held ? 0 : std::min(steps.wide() - 1, left - 1);
    if (count <= 0) return 0;
    reserve(t, t.size() + count);
    return std::min(count, static_cast<int64_t>(t.blocks.size()) * options.block - t.size());
  }

  // A step in which texts are read with guesses at their next tokens. False: there are none.
  bool speculate(std::span<const std::list<GrowingText>::iterator> group) {
    std::vector<TextToGuess> wishes;
    for (const auto& at : group) {
      const int64_t count = guesses_for(*at);
      wishes.push_back({&at->tokens, at->blocks, at->fresh(), count, &at->request.options,
                        &ends_of(*at), &at->draws, &at->draft_read});
    }
    const std::vector<std::vector<TextGuess>> guesses = drafts->guess(wishes);
    std::vector<std::vector<int64_t>> ids;
    std::vector<TextPart> parts;
    bool any = false;
    for (size_t i = 0; i < group.size(); ++i) {
      ids.push_back({group[i]->tokens.back()});
      for (const TextGuess& g : guesses[i]) ids.back().push_back(g.token);
      any = any || !guesses[i].empty();
      counts.drafted_tokens += guesses[i].size();
    }
    if (!any) return false;
    for (size_t i = 0; i < group.size(); ++i)
      parts.push_back({ids[i], group[i]->read, group[i]->blocks, group[i]->request.adapter});
    const std::vector<std::vector<float>> logits = steps.run_wide(parts);
    const AnswersTogether together;
    for (size_t i = 0; i < group.size(); ++i)
      keep_right(group[i], guesses[i],
                 std::span(logits).subspan(i * static_cast<size_t>(steps.wide())));
    return true;
  }

  // The text takes its guesses up to the first that is wrong, and a token of the model after them.
  void keep_right(std::list<GrowingText>::iterator at, const std::vector<TextGuess>& guesses,
                  std::span<const std::vector<float>> logits) {
    const int64_t drafted = at->draft_read;
    at->draft_read = std::min(drafted, at->read);
    for (size_t k = 0; k <= guesses.size(); ++k) {
      advance(*at, 1);
      const TextGuess* guess = k < guesses.size() ? &guesses[k] : nullptr;
      const Taken taken = take(at, logits[k], guess);
      counts.accepted_tokens += taken.guess ? 1 : 0;
      if (!taken.more) return;
      if (!taken.guess) break;
    }
    // What the draft model read after the first wrong guess is not part of the text.
    at->draft_read = std::min(drafted, at->size() - 1);
  }

  // `count` more tokens have been read: what is full now can be found by others.
  void advance(GrowingText& t, int64_t count) {
    t.read += count;
    if (start) return;  // what it wrote depends on its prompt, too
    const int64_t known = drafts && drafts->reads() ? std::min(t.read, t.draft_read) : t.read;
    for (; (t.published + 1) * options.block <= known; ++t.published) {
      const auto from = t.tokens.begin() + t.published * options.block;
      const auto k = static_cast<size_t>(t.published);
      pool.publish(k == 0 ? t.root() : t.blocks[k - 1],
                   std::vector<int64_t>(from, from + options.block), t.blocks[k]);
    }
  }

  // Leaves what the text's constraint allows. False: the text has ended here.
  bool hold(std::list<GrowingText>::iterator at, const std::vector<int64_t>& ends_with,
            const std::vector<float>& all, std::vector<float>& logits) {
    if (!at->held) return true;
    try {
      if (!at->held->mask(logits)) {
        const bool whole = at->held->may_end();
        finish(at, whole ? 200 : 400,
               whole ? "" : "no token of the model continues the text as its constraint requires");
        return false;
      }
      if (!at->held->may_end()) return true;
      for (const int64_t e : ends_with)
        if (e >= 0 && e < static_cast<int64_t>(logits.size()))
          logits[static_cast<size_t>(e)] = all[static_cast<size_t>(e)];
      return true;
    } catch (const Error&) {
      const Refusal why = refusal_of(std::current_exception());
      finish(at, why.status, why.text);
      return false;
    }
  }

  // The text's constraint takes the token. False: it could not, and the text has ended here.
  bool follow(std::list<GrowingText>::iterator at, int64_t token) {
    if (!at->held) return true;
    try {
      if (at->held->push(token)) return true;
      finish(at, 500, "the model's numbers are not finite");
    } catch (const Error&) {
      const Refusal why = refusal_of(std::current_exception());
      finish(at, why.status, why.text);
    }
    return false;
  }

  const std::vector<int64_t>& ends_of(const GrowingText& t) const {
    const std::vector<int64_t>& own = t.request.options.eos_token_id;
    return own.empty() ? eos : own;
  }

  struct Taken {
    bool more = false;   ///< the text has not ended
    bool guess = false;  ///< its token is the one that was guessed
  };
  // The next token of a text from its logits.
  Taken take(std::list<GrowingText>::iterator at, const std::vector<float>& logits,
             const TextGuess* guess = nullptr) {
    GrowingText& t = *at;
    const models::GenerateOptions& o = t.request.options;
    const std::vector<int64_t>& ends_with = ends_of(t);
    std::vector<float> changed = logits;
    if (!hold(at, ends_with, logits, changed)) return {};
    const TextChoice choice =
        choose_token(models::token_choices(changed, t.tokens, t.fresh(), ends_with, o), guess,
                     t.draws, o.do_sample);
    TextToken token;
    token.id = choice.token;
    if (t.request.top >= 0) add_probabilities(logits, t.request.top, token);
    t.tokens.push_back(token.id);
    ++counts.new_tokens;
    (t.fresh() == 1 ? counts.first_token : counts.between_tokens)
        .add(t.fresh() == 1 ? seconds_since(t.since) : seconds_since(t.last_token));
    t.last_token = Clock::now();
    const bool ended = std::find(ends_with.begin(), ends_with.end(), token.id) != ends_with.end();
    token.end = ended;
    if (!ended && !follow(at, token.id)) return {};
    const bool more = !t.request.token || t.request.token(token);
    const bool stopped = ended || !more || (t.held && t.held->must_end());
    if (stopped || t.fresh() >= o.max_new_tokens || t.size() >= steps.length()) {
      finish(at, 200, "", stopped);
      return {false, choice.taken};
    }
    return {true, choice.taken};
  }

  // ---- answers

  void finish(std::list<GrowingText>::iterator at, int status, const std::string& error,
              bool stopped = true) {
    GrowingText t = std::move(*at);
    running.erase(at);
    forget(t);
    count_state();
    answer(t, status, error, stopped);
  }
  void answer(const GrowingText& t, int status, const std::string& error, bool stopped) {
    ++(status == 200 ? counts.ok : status == 499 ? counts.cancelled : counts.failed);
    counts.shared_tokens += static_cast<uint64_t>(t.shared);
    const TextEnd end{status,   error,    stopped, static_cast<int64_t>(t.request.prompt.size()),
                      t.shared, t.fresh()};
    if (t.request.done) t.request.done(end);
  }

  TextEngineOptions options;
  TextSteps steps;
  std::optional<TextDrafts> drafts;
  BlockPool pool;
  std::vector<int64_t> eos;
  std::optional<int64_t> start;  ///< of a model with an encoder
  TextCounts counts;
  std::list<GrowingText> running;  ///< of the thread alone, oldest first
  std::mutex lock;
  std::condition_variable ready;
  std::deque<GrowingText> waiting;
  bool ends = false;
  std::thread thread;
};

TextEngine::TextEngine(std::shared_ptr<models::PretrainedModel> model,
                       const TextEngineOptions& options)
    : state_(std::make_unique<State>(std::move(model), options)) {}
TextEngine::~TextEngine() = default;

void TextEngine::submit(TextRequest request) {
  State& s = *state_;
  const auto refused = [&](int status, const std::string& error) {
    ++s.counts.rejected;
    if (request.done)
      request.done({status, error, true, static_cast<int64_t>(request.prompt.size())});
  };
  try {
    models::check(request.options);
    TD_CHECK(
        request.adapter >= 0 && request.adapter <= static_cast<int64_t>(s.options.adapters.size()),
        Value, "there is no adapter {}", request.adapter);
    TD_CHECK(!request.prompt.empty(), Value, "the prompt has no tokens");
    for (const int64_t t : request.prompt)
      TD_CHECK(t >= 0 && t < vocabulary(), Value, "token {} is outside of the vocabulary of {}", t,
               vocabulary());
    TD_CHECK(room(static_cast<int64_t>(request.prompt.size())) > 0, Value,
             "the prompt has {} tokens; {} may have {}", request.prompt.size(),
             answers() ? "it" : "with its answer it", length());
  } catch (const Error& e) {
    return refused(400, e.text());
  }
  if (request.options.max_new_tokens == 0) {
    if (request.done) request.done({200, "", false, static_cast<int64_t>(request.prompt.size())});
    return;
  }
  bool ends = false, took = false;
  std::optional<GrowingText> displaced;
  {
    const std::lock_guard hold(s.lock);
    ends = s.ends;
    const bool full = s.waiting.size() >= s.options.queue;
    if (full && !ends && !s.waiting.empty() && !s.waiting.back().begun &&
        request.priority < s.waiting.back().request.priority) {
      displaced = std::move(s.waiting.back());
      s.waiting.pop_back();
    }
    if ((!full || displaced) && !ends) {
      ++s.counts.accepted;
      put_in_order(s.waiting, GrowingText(std::move(request), s.start, s.options.priority_step));
      s.ready.notify_one();
      took = true;
    }
  }
  if (displaced) {
    ++s.counts.displaced;
    TextRequest& r = displaced->request;
    if (r.done)
      r.done({429, "a request of a higher priority took its place", true,
              static_cast<int64_t>(r.prompt.size())});
  }
  if (took) return;
  refused(ends ? 503 : 429, ends ? "the model is being unloaded" : "too many texts wait");
}

std::vector<int64_t> TextEngine::generate(std::vector<int64_t> prompt,
                                          const models::GenerateOptions& options) {
  std::vector<int64_t> out;
  std::promise<TextEnd> end;
  TextRequest r;
  r.prompt = std::move(prompt);
  r.options = options;
  r.token = [&out](const TextToken& t) {
    out.push_back(t.id);
    return true;
  };
  r.done = [&end](const TextEnd& e) { end.set_value(e); };
  submit(std::move(r));
  const TextEnd e = end.get_future().get();
  TD_CHECK(e.status == 200, Value, "{}", e.error);
  return out;
}

std::vector<std::string> TextEngine::adapters() const {
  std::vector<std::string> out;
  for (const TextAdapter& a : state_->options.adapters) out.push_back(a.name);
  return out;
}
int64_t TextEngine::adapter(std::string_view name) const {
  const std::vector<TextAdapter>& all = state_->options.adapters;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].name == name) return static_cast<int64_t>(i) + 1;
  return 0;
}
int64_t TextEngine::length() const { return state_->steps.length(); }
int64_t TextEngine::room(int64_t prompt) const {
  const int64_t left = length() - prompt;
  return answers() && left >= 0 ? length() - 1 : left;
}
bool TextEngine::answers() const { return state_->start.has_value(); }
int64_t TextEngine::vocabulary() const { return state_->steps.vocabulary(); }
int64_t TextEngine::blocks() const { return state_->pool.count(); }
std::vector<int64_t> TextEngine::sizes() const { return state_->steps.sizes(); }
TextCounts& TextEngine::counts() { return state_->counts; }

}  // namespace tandem::serve
