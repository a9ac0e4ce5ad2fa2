// SPDX-License-Identifier: Apache-2.0
// Answers of OpenAI's form: one JSON document, or events as the tokens come.
#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <random>

#include "tandem/serve/model/priority_internal.h"
#include "tandem/serve/part_feeder.h"
#include "tandem/serve/protocol/openai_internal.h"

namespace tandem::serve {
namespace {

std::string bytes_of(std::string_view text) {
  std::string out = "[";
  for (const char c : text)
    out += fmt::format("{}{}", out.size() > 1 ? "," : "",
                       static_cast<unsigned>(static_cast<unsigned char>(c)));
  return out + "]";
}

// OpenAI writes the logarithm of nothing as -9999; JSON has no infinities.
double finite(double log_probability) { return log_probability >= -9999 ? log_probability : -9999; }

/// The probabilities of a choice's tokens since they were last written.
struct Probabilities {
  std::vector<std::string> tokens, tops;
  std::vector<double> values;
  std::vector<size_t> offsets;
  bool empty() const { return tokens.empty(); }
};

struct Choice {
  Choice(TextStream s, std::string begin)
      : stream(std::move(s)), text(std::move(begin)), echoed(utf8_characters(text)) {}
  TextStream stream;
  std::string text;  ///< all of it; of a stream, what has been sent
  size_t echoed;     ///< characters of the prompt that it begins with
  Probabilities probabilities = {};
  std::string reason = "";
  std::optional<ToolReader> reader = {};
  std::vector<std::string> calls = {};  ///< as JSON, without their index
  bool role_sent = false;
  bool begun = false;  ///< of a stream: something has been sent
};

/// An answer on its way. The engine's thread writes it; submit() may end it on another.
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(const Call& call, ModelVersionPtr v, OpenAiRequest r)
      : call_(call), version_(std::move(v)), request_(std::move(r)) {
    std::random_device random;
    id_ = fmt::format("{}-{:08x}{:08x}{:08x}", request_.chat ? "chatcmpl" : "cmpl", random(),
                      random(), random());
    created_ = std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count();
  }

  void start() {
    const auto& prompts = request_.prompts;
    for (size_t p = 0; p < prompts.size(); ++p)
      for (int64_t k = 0; k < request_.n; ++k)
        choices_.emplace_back(
            TextStream(model().tokenizer,
                       model().engine.answers() ? std::vector<int64_t>() : prompts[p],
                       request_.stops),
            request_.echo ? request_.texts[p] : "");
    if (request_.tools)
      for (Choice& c : choices_) c.reader.emplace(*request_.tools);
    left_ = choices_.size();
    if (const auto& access = call_.exchange->access)
      access->names(version_->name, version_->version);
    feeder_.emplace(choices_.size(), parts_at_once(static_cast<size_t>(version_->settings.queue)),
                    [this](size_t i) { write(i); });
    feeder_->begin();
  }

 private:
  void write(size_t i) {
    TextRequest t;
    t.prompt = request_.prompts[i / static_cast<size_t>(request_.n)];
    t.options = request_.options;
    t.options.seed += i % static_cast<size_t>(request_.n);
    t.top = request_.top;
    t.adapter = request_.adapter;
    t.constraint = request_.constraint;
    t.timeout = version_->settings.timeout_ms / 1000;
    t.priority = priority_of(version_->settings, request_.priority);
    t.gone = [self = shared_from_this()] { return self->unwanted(); };
    t.token = [self = shared_from_this(), i](const TextToken& token) {
      return self->take(i, token);
    };
    t.done = [self = shared_from_this(), i](const TextEnd& end) {
      self->finish(i, end);
      self->feeder_->ended();
    };
    model().engine.submit(std::move(t));
  }
  TextModel& model() { return *version_->text; }

  bool unwanted() {
    const std::lock_guard hold(lock_);
    return failed_ || call_.exchange->gone();
  }

  bool take(size_t i, const TextToken& token) {
    const std::lock_guard hold(lock_);
    if (failed_) return false;
    Choice& c = choices_[i];
    if (token.end) return true;
    if (request_.top >= 0) add_probability(c, token);
    add_text(i, c.stream.push(token.id));
    return !c.stream.stopped();
  }

  void finish(size_t i, const TextEnd& end) {
    const std::lock_guard hold(lock_);
    --left_;
    if (failed_) return;
    if (end.status != 200) return fail(end);
    Choice& c = choices_[i];
    if (i % static_cast<size_t>(request_.n) == 0) prompt_ += end.prompt;
    shared_ += end.shared;
    fresh_ += end.fresh;
    add_text(i, c.stream.finish());
    if (c.reader) show(i, c.reader->finish());
    c.reason = !end.stopped ? "length" : c.calls.empty() ? "stop" : "tool_calls";
    if (request_.stream) send_choice(i, c.begun ? "" : c.text);
    if (left_ > 0) return;
    if (const auto& access = call_.exchange->access) access->texts(prompt_, fresh_);
    if (!request_.stream) return call_.json(whole());
    if (request_.usage) send(fmt::format("{},\"choices\":[],\"usage\":{}}}", head(true), usage()));
    call_.exchange->answer({.body = "data: [DONE]\n\n"});
  }

  void fail(const TextEnd& end) {
    failed_ = true;
    feeder_->stop();
    const HttpResponse r = openai_error(end.status, end.error);
    if (!begun_) return call_.answer(r);
    call_.exchange->answer({.body = "data: " + r.body + "\n\n"});
  }

  void add_text(size_t i, const std::string& text) {
    Choice& c = choices_[i];
    show(i, c.reader ? c.reader->push(text) : ToolReader::Part{text, {}});
  }
  void show(size_t i, const ToolReader::Part& part) {
    Choice& c = choices_[i];
    const bool first = !c.begun;
    c.text += part.text;
    if (request_.stream && !(part.text.empty() && c.probabilities.empty())) {
      c.begun = true;
      send_choice(i,
                  first ? c.text : part.text);  // the first with the prompt, where it is repeated
    }
    for (const ToolCall& call : part.calls) {
      std::random_device random;
      c.calls.push_back(fmt::format(
          "\"id\":\"call_{:08x}{:08x}\",\"type\":\"function\",\"function\":"
          "{{\"name\":{},\"arguments\":{}}}",
          random(), random(), io::quote_json(call.name), io::quote_json(call.arguments)));
      if (request_.stream) send_call(i);
    }
  }

  void add_probability(Choice& c, const TextToken& token) {
    const auto text = [this](int64_t id) {
      return model().tokenizer.decode(std::span(&id, 1), false);
    };
    const auto entry = [this, &text](int64_t id, double p) {
      const std::string t = text(id);
      return request_.chat ? fmt::format("{{\"token\":{},\"logprob\":{},\"bytes\":{}",
                                         io::quote_json(t), p, bytes_of(t))
                           : fmt::format("{}:{}", io::quote_json(t), p);
    };
    std::string top;
    for (const auto& [id, p] : token.top)
      top += (top.empty() ? "" : ",") + entry(id, finite(p)) + (request_.chat ? "}" : "");
    Probabilities& out = c.probabilities;
    out.tokens.push_back(request_.chat ? entry(token.id, finite(token.log_probability))
                                       : io::quote_json(text(token.id)));
    out.tops.push_back(top);
    out.values.push_back(finite(token.log_probability));
    out.offsets.push_back(c.echoed + c.stream.characters());
  }

  // Those of a choice as JSON; they are written once.
  std::string probabilities(Choice& c) const {
    if (request_.top < 0) return "null";
    const Probabilities p = std::exchange(c.probabilities, {});
    std::string out;
    if (request_.chat) {
      for (size_t k = 0; k < p.tokens.size(); ++k)
        out += fmt::format("{}{},\"top_logprobs\":[{}]}}", k ? "," : "", p.tokens[k], p.tops[k]);
      return "{\"content\":[" + out + "]}";
    }
    std::string values, tops, offsets;
    for (size_t k = 0; k < p.tokens.size(); ++k) {
      const char* comma = k ? "," : "";
      out += comma + p.tokens[k];
      values += fmt::format("{}{}", comma, p.values[k]);
      tops += fmt::format("{}{{{}}}", comma, p.tops[k]);
      offsets += fmt::format("{}{}", comma, p.offsets[k]);
    }
    return fmt::format(
        "{{\"tokens\":[{}],\"token_logprobs\":[{}],\"top_logprobs\":[{}],\"text_offset\":[{}]}}",
        out, values, tops, offsets);
  }

  std::string head(bool chunk) const {
    const char* kind = !request_.chat ? "text_completion"
                       : chunk        ? "chat.completion.chunk"
                                      : "chat.completion";
    return fmt::format("{{\"id\":\"{}\",\"object\":\"{}\",\"created\":{},\"model\":{}", id_, kind,
                       created_, io::quote_json(request_.model));
  }

  std::string usage() const {
    return fmt::format(
        "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},"
        "\"prompt_tokens_details\":{{\"cached_tokens\":{}}}}}",
        prompt_, fresh_, prompt_ + fresh_, shared_);
  }

  std::string reason_of(const Choice& c) const {
    return c.reason.empty() ? "null" : io::quote_json(c.reason);
  }

  std::string whole() {
    std::string out = head(false) + ",\"choices\":[";
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& c = choices_[i];
      const std::string text = request_.chat ? message(c) : "\"text\":" + io::quote_json(c.text);
      out += fmt::format("{}{{\"index\":{},{},\"logprobs\":{},\"finish_reason\":{}}}", i ? "," : "",
                         i, text, probabilities(c), reason_of(c));
    }
    return out + "],\"usage\":" + usage() + "}";
  }

  static std::string message(const Choice& c) {
    std::string calls;
    for (const std::string& call : c.calls) calls += (calls.empty() ? "{" : ",{") + call + "}";
    return fmt::format("\"message\":{{\"role\":\"assistant\",\"content\":{},\"refusal\":null{}}}",
                       calls.empty() || !c.text.empty() ? io::quote_json(c.text) : "null",
                       calls.empty() ? "" : ",\"tool_calls\":[" + calls + "]");
  }

  // An event with the last call of a choice.
  void send_call(size_t i) {
    Choice& c = choices_[i];
    c.begun = true;
    const bool first = !std::exchange(c.role_sent, true);
    send(fmt::format(
        "{},\"choices\":[{{\"index\":{},\"delta\":{{{}\"tool_calls\":[{{\"index\":{},{}}}]}},"
        "\"logprobs\":null,\"finish_reason\":null}}]{}}}",
        head(true), i, first ? "\"role\":\"assistant\",\"content\":null," : "", c.calls.size() - 1,
        c.calls.back(), request_.usage ? ",\"usage\":null" : ""));
  }

  // An event with what a choice has new: a text, and its reason where it has ended.
  void send_choice(size_t i, const std::string& text) {
    Choice& c = choices_[i];
    std::string part = "\"text\":" + io::quote_json(text);
    if (request_.chat) {
      const bool first = !std::exchange(c.role_sent, true);
      const std::string content =
          text.empty() && !first ? "" : "\"content\":" + io::quote_json(text);
      part = fmt::format("\"delta\":{{{}{}}}", first ? "\"role\":\"assistant\"," : "", content);
    }
    const std::string p = c.probabilities.empty() ? "null" : probabilities(c);
    send(
        fmt::format("{},\"choices\":[{{\"index\":{},{},\"logprobs\":{},\"finish_reason\":{}}}]{}}}",
                    head(true), i, part, p, reason_of(c), request_.usage ? ",\"usage\":null" : ""));
  }

  void send(const std::string& event) {
    HttpResponse piece{.body = "data: " + event + "\n\n"};
    if (!std::exchange(begun_, true)) {
      piece.content_type = "text/event-stream; charset=utf-8";
      piece.headers = {{"Cache-Control", "no-cache"}};
    }
    call_.exchange->write(std::move(piece));
  }

  Call call_;
  ModelVersionPtr version_;
  OpenAiRequest request_;
  std::string id_;
  int64_t created_ = 0;
  std::mutex lock_;
  std::vector<Choice> choices_;
  size_t left_ = 0;
  std::optional<PartFeeder> feeder_;
  bool failed_ = false, begun_ = false;
  int64_t prompt_ = 0, shared_ = 0, fresh_ = 0;
};

}  // namespace

void answer_openai(const Call& call, const ModelVersionPtr& v, OpenAiRequest request) {
  std::make_shared<Answer>(call, v, std::move(request))->start();
}

}  // namespace tandem::serve
