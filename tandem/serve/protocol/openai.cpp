// SPDX-License-Identifier: Apache-2.0
// The routes of OpenAI's API, and what their requests say.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tandem/base/error.h"
#include "tandem/serve/protocol/openai_fields_internal.h"
#include "tandem/serve/protocol/openai_internal.h"

namespace tandem::serve {
namespace {

constexpr int64_t kMostChoices = 64, kMostTop = 20, kMostPrompts = 64;
constexpr size_t kMostStops = 16, kMostBiases = 1024;

void read_stops(OpenAiFields& f, OpenAiRequest& r) {
  const io::Json* stop = f.find("stop");
  if (!stop) return;
  const auto add = [&](const io::Json& j) {
    if (!j.as_string()) refuse(400, "'stop' expects a text or a list of them");
    if (!j.as_string()->empty()) r.stops.push_back(*j.as_string());
  };
  if (const io::Json::Array* all = stop->as_array()) {
    if (all->size() > kMostStops) refuse(400, "'stop' has more than {} texts", kMostStops);
    for (const io::Json& j : *all) add(j);
  } else {
    add(*stop);
  }
}

void read_biases(OpenAiFields& f, const TextModel& model, OpenAiRequest& r) {
  const io::Json* biases = f.find("logit_bias");
  if (!biases) return;
  if (!biases->as_object()) refuse(400, "'logit_bias' expects an object of tokens and numbers");
  if (biases->as_object()->size() > kMostBiases)
    refuse(400, "'logit_bias' has more than {} tokens", kMostBiases);
  for (const auto& [token, bias] : *biases->as_object()) {
    const auto id = parse_digits(token, static_cast<uint64_t>(model.engine.vocabulary() - 1));
    const double by = io::number_of(&bias);
    if (!id || !(by >= -100 && by <= 100))
      refuse(400, "'logit_bias' expects tokens below {} with numbers from -100 to 100, got {}: {}",
             model.engine.vocabulary(), one_line(token, 32), one_line(bias.dump(), 32));
    r.options.logit_bias.emplace_back(static_cast<int64_t>(*id), by);
  }
}

// What both kinds of requests have.
void read_common(OpenAiFields& f, const TextModel& model, OpenAiRequest& r) {
  const io::Json* name = f.find("model");
  if (name && !name->as_string()) refuse(400, "'model' expects a name");
  models::GenerateOptions& o = r.options;
  const double temperature = f.number("temperature", 1, 0, 100);
  o.do_sample = temperature > 0;
  o.temperature = temperature > 0 ? temperature : 1;
  o.top_p = f.number("top_p", 1, 0, 1);
  if (o.top_p == 0) o.do_sample = false, o.top_p = 1;
  o.top_k = f.whole("top_k", 0, -1, int64_t{1} << 31);
  o.top_k = std::max<int64_t>(o.top_k, 0);
  o.min_p = f.number("min_p", 0, 0, 1);
  o.presence_penalty = f.number("presence_penalty", 0, -2, 2);
  o.frequency_penalty = f.number("frequency_penalty", 0, -2, 2);
  o.repetition_penalty = f.number("repetition_penalty", 1, 1e-3, 1e3);
  o.min_new_tokens = f.whole("min_tokens", 0, 0, model.engine.length());
  if (const io::Json* seed = f.find("seed")) {
    if (!seed->as_int()) refuse(400, "'seed' expects a whole number");
    o.seed = static_cast<uint64_t>(*seed->as_int());
  } else {
    o.seed = (static_cast<uint64_t>(std::random_device()()) << 32) | std::random_device()();
  }
  if (f.flag("ignore_eos", false)) o.eos_token_id = {-1};
  r.n = f.whole("n", 1, 1, kMostChoices);
  r.priority = f.whole("priority", 0, 0, int64_t{1} << 31);
  r.stream = f.flag("stream", false);
  if (const io::Json* options = f.find("stream_options")) {
    OpenAiFields own(*options);
    r.usage = own.flag("include_usage", false);
    own.pass({"continuous_usage_stats", "include_obfuscation"});
    own.finish();
  }
  read_stops(f, r);
  read_biases(f, model, r);
  r.constraint = read_constraint(f, model);
  f.pass({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"});
}

std::vector<int64_t> tokens_of(const io::Json::Array& ids) {
  std::vector<int64_t> out;
  for (const io::Json& j : ids) {
    if (!j.as_int()) refuse(400, "'prompt' holds {}, expected texts or whole numbers", j.kind());
    out.push_back(*j.as_int());
  }
  return out;
}

void read_prompts(OpenAiFields& f, const TextModel& model, OpenAiRequest& r) {
  const io::Json* prompt = f.find("prompt");
  if (!prompt) refuse(400, "'prompt' is missing");
  const auto text = [&](const std::string& t) {
    r.prompts.push_back(model.tokenizer.encode(t).ids);
    r.texts.push_back(t);
  };
  const auto ids = [&](const io::Json::Array& a) {
    r.prompts.push_back(tokens_of(a));
    r.texts.push_back(r.echo ? model.tokenizer.decode(r.prompts.back()) : "");
  };
  if (prompt->as_string()) return text(*prompt->as_string());
  const io::Json::Array* all = prompt->as_array();
  if (!all || all->empty())
    refuse(400, "'prompt' is {}, expected a text, tokens or a list of them", prompt->kind());
  if ((*all)[0].as_int()) return ids(*all);
  if (all->size() > static_cast<size_t>(kMostPrompts))
    refuse(400, "'prompt' has {} entries, at most {} are answered at once", all->size(),
           kMostPrompts);
  for (const io::Json& j : *all) {
    if (j.as_string())
      text(*j.as_string());
    else if (j.as_array())
      ids(*j.as_array());
    else
      refuse(400, "'prompt' holds {}, expected texts or lists of tokens", j.kind());
  }
}

// As many tokens as there is room for, where the request does not say.
void set_length(OpenAiRequest& r, const TextModel& model, int64_t asked) {
  for (const std::vector<int64_t>& p : r.prompts) {
    const int64_t room = model.engine.room(static_cast<int64_t>(p.size()));
    if (asked <= room) continue;
    if (!model.engine.answers())
      refuse(400,
             "a text may have {} tokens with its answer: the prompt has {} and the answer was to "
             "have {}",
             model.engine.length(), p.size(), asked);
    if (room < 0)
      refuse(400, "a prompt may have {} tokens, and has {}", model.engine.length(), p.size());
    refuse(400, "an answer may have {} tokens, and was to have {}", room, asked);
  }
  r.options.max_new_tokens = asked >= 0 ? asked : model.engine.length();
  if (r.options.min_new_tokens > r.options.max_new_tokens)
    refuse(400, "'min_tokens' is {}, more than the {} that the answer may have",
           r.options.min_new_tokens, r.options.max_new_tokens);
}

void models_list(Call& call) {
  call.only("GET");
  std::string out;
  const auto add = [&out](const ModelVersion& v, const std::string& id, const std::string& parent) {
    const std::string of =
        parent.empty() ? "" : fmt::format(",\"root\":{0},\"parent\":{0}", io::quote_json(parent));
    out += fmt::format(
        "{}{{\"id\":{},\"object\":\"model\",\"created\":{:.0f},\"owned_by\":"
        "\"tandem\",\"max_model_len\":{}{}}}",
        out.empty() ? "" : ",", io::quote_json(id), v.loaded,
        v.text ? v.text->engine.length() : v.encoder->length(), of);
  };
  for (const ModelVersionPtr& v : call.server.repository.all()) {
    if (!v->text && !v->embeds()) continue;
    add(*v, v->name, "");
    if (!v->text) continue;
    for (const std::string& adapter : v->text->engine.adapters()) add(*v, adapter, v->name);
  }
  call.json("{\"object\":\"list\",\"data\":[" + out + "]}");
}

/// What a request wants of a model.
struct Wanted {
  bool (*has)(const ModelVersion& v);
  const char *lacks, *is_done;
};
constexpr Wanted kContinues = {[](const ModelVersion& v) { return v.text != nullptr; },
                               "does not continue texts", "continues texts"};
constexpr Wanted kEmbeds = {[](const ModelVersion& v) { return v.embeds(); },
                            "does not embed texts", "embeds texts"};

/// What a request is answered by.
struct Answering {
  ModelVersionPtr version;
  int64_t adapter = 0;
  std::string name;  ///< as the request has it
};

// "sql" or "base:sql": an adapter of a model's newest version.
std::optional<Answering> find_adapter(const Repository& repository, const std::string& name) {
  const size_t colon = name.find(':');
  const std::string own = name.substr(colon == name.npos ? 0 : colon + 1);
  std::optional<Answering> found;
  for (const ModelVersionPtr& any : repository.all()) {
    if (colon != name.npos && name.compare(0, colon, any->name) != 0) continue;
    const ModelVersionPtr v = repository.find(any->name);
    const int64_t adapter = v && v->text ? v->text->engine.adapter(own) : 0;
    if (adapter == 0) continue;
    if (found && found->version != v)
      refuse(400, "several models have an adapter '{}': write {}:{}", own, v->name, own);
    found = {v, adapter, name};
  }
  return found;
}

// The model of the request, which may be left out where there is one.
Answering wanted_version(const Call& call, const io::Json& body, const Wanted& wanted) {
  if (!body.as_object()) refuse(400, "the body is {}, expected a JSON object", body.kind());
  const io::Json* name = body.find("model");
  if (name && name->as_string()) {
    const std::string& asked = *name->as_string();
    if (!call.server.repository.find(asked) && wanted.has == kContinues.has)
      if (auto adapted = find_adapter(call.server.repository, asked)) return *adapted;
    ModelVersionPtr v = picked_version(call, asked);
    if (!wanted.has(*v)) refuse(400, "the model '{}' {}", v->name, wanted.lacks);
    return {v, 0, v->name};
  }
  ModelVersionPtr found;
  for (const ModelVersionPtr& v : call.server.repository.all()) {
    if (!wanted.has(*v)) continue;
    if (found && found->name != v->name) refuse(400, "'model' is missing");
    found = v;
  }
  if (!found) refuse(404, "no model that {} is served", wanted.is_done);
  if (ModelVersionPtr v = picked_version(call, found->name); wanted.has(*v)) found = v;
  return {found, 0, found->name};
}

}  // namespace

HttpResponse openai_error(int status, std::string_view text) {
  const char* type = status == 429   ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                     : status == 404 ? "not_found_error"
                                     : "invalid_request_error";
  HttpResponse r{.status = status};
  r.body =
      fmt::format("{{\"error\":{{\"message\":{},\"type\":\"{}\",\"param\":null,\"code\":null}}}}",
                  io::quote_json(text), type);
  if (status == 429 || status == 503) r.headers.emplace_back("Retry-After", "1");
  return r;
}

OpenAiRequest read_completion(const io::Json& body, const TextModel& model) {
  OpenAiFields f(body);
  OpenAiRequest r;
  read_common(f, model, r);
  r.echo = f.flag("echo", false);
  r.top = f.whole("logprobs", -1, 0, kMostTop);
  if (r.echo && r.top >= 0) refuse(400, "'echo' with 'logprobs' is not supported");
  read_prompts(f, model, r);
  const int64_t best = f.whole("best_of", r.n, 1, kMostChoices);
  if (best != r.n) refuse(400, "'best_of' other than 'n' is not supported");
  f.only("suffix", "");
  set_length(r, model, f.whole("max_tokens", 16, 0, int64_t{1} << 31));
  f.finish();
  return r;
}

/// Content that comes as a list of parts, as one text: templates know no parts.
io::Json text_of_parts(const io::Json::Array& parts) {
  std::string text;
  for (const io::Json& part : parts) {
    const io::Json* type = part.find("type");
    const io::Json* words = part.find("text");
    if (!type || !type->as_string() || *type->as_string() != "text" || !words ||
        !words->as_string())
      refuse(400, "a message has a part that is not text: {}", one_line(part.dump()));
    text += *words->as_string();
  }
  return text;
}

/// Calls of earlier answers: templates want the arguments as an object, OpenAI sends their text.
io::Json calls_for_template(const io::Json& calls) {
  if (!calls.as_array()) refuse(400, "'tool_calls' expects a list, got {}", calls.kind());
  io::Json::Array out;
  for (const io::Json& call : *calls.as_array()) {
    const io::Json* function = call.find("function");
    if (!function || !function->as_object())
      refuse(400, "an entry of 'tool_calls' expects a 'function': {}", one_line(call.dump()));
    io::Json::Object inner = *function->as_object(), whole = *call.as_object();
    for (auto& [name, value] : inner)
      if (name == "arguments" && value.as_string())
        value = io::parse_json(value.as_string()->empty() ? "{}" : *value.as_string(),
                               "'arguments' of a call");
    for (auto& [name, value] : whole)
      if (name == "function") value = inner;
    out.emplace_back(std::move(whole));
  }
  return out;
}

/// The messages of a chat as a template wants them.
io::Json messages_of(const io::Json* list) {
  if (!list || !list->as_array() || list->as_array()->empty())
    refuse(400, "'messages' expects a list of messages");
  io::Json::Array out;
  for (const io::Json& message : *list->as_array()) {
    if (!message.as_object())
      refuse(400, "'messages' expects objects with a role and a content, got {}",
             one_line(message.dump()));
    const io::Json* role = message.find("role");
    if (!role || !role->as_string())
      refuse(400, "a message needs a role, as \"user\": {}", one_line(message.dump()));
    if (!message.find("content") && !message.find("tool_calls"))
      refuse(400, "a message needs content: {}", one_line(message.dump()));
    io::Json::Object fields = *message.as_object();
    for (auto& [name, value] : fields) {
      if (name == "tool_calls") value = calls_for_template(value);
      if (name != "content") continue;
      if (value.as_array()) value = text_of_parts(*value.as_array());
      if (!value.as_string() && !value.is_null())
        refuse(400, "a message's content is a text or a list of parts, got {}",
               one_line(value.dump()));
    }
    out.emplace_back(std::move(fields));
  }
  return out;
}

OpenAiRequest read_chat(const io::Json& body, const TextModel& model) {
  OpenAiFields f(body);
  OpenAiRequest r;
  r.chat = true;
  read_common(f, model, r);
  if (f.flag("logprobs", false)) r.top = 0;
  if (const int64_t top = f.whole("top_logprobs", -1, 0, kMostTop); top >= 0) {
    if (r.top < 0) refuse(400, "'top_logprobs' requires 'logprobs': true");
    r.top = top;
  }
  const io::Json messages = messages_of(f.find("messages"));
  if (!model.chat)
    refuse(400, "the model has no chat template: use /v1/completions, or add chat_template.jinja");
  const bool more = f.flag("add_generation_prompt", true);
  const io::Json* extra = f.find("chat_template_kwargs");
  io::Json names = extra ? *extra : io::Json(io::Json::Object{});
  read_tools(f, model, r, names);
  std::string prompt;
  try {
    prompt = model.chat->render(messages, more, names);
  } catch (const Error& e) {
    refuse(400, "{}", e.text());
  }
  r.prompts.push_back(model.tokenizer.encode(prompt, false).ids);
  int64_t asked = f.whole("max_tokens", -1, 0, int64_t{1} << 31);
  asked = f.whole("max_completion_tokens", asked, 0, int64_t{1} << 31);
  set_length(r, model, asked);
  f.finish();
  return r;
}

bool handle_openai(Call& call) {
  const std::vector<std::string>& p = call.path;
  if (p.empty() || p[0] != "v1") return false;
  const bool list = p.size() == 2 && p[1] == "models";
  const bool chat = p.size() == 3 && p[1] == "chat" && p[2] == "completions";
  const bool completion = p.size() == 2 && p[1] == "completions";
  const bool embedding = p.size() == 2 && p[1] == "embeddings";
  if (!list && !chat && !completion && !embedding) return false;
  try {
    if (list) {
      models_list(call);
      return true;
    }
    call.only("POST");
    const io::Json body = io::parse_json(call.request().body, "the body");
    const Answering by = wanted_version(call, body, embedding ? kEmbeds : kContinues);
    if (embedding) {
      answer_embeddings(call, by.version, body);
      return true;
    }
    const TextModel& text = *by.version->text;
    OpenAiRequest request = chat ? read_chat(body, text) : read_completion(body, text);
    request.model = by.name;
    request.adapter = by.adapter;
    answer_openai(call, by.version, std::move(request));
  } catch (...) {
    const Refusal refusal = refusal_of(std::current_exception());
    call.answer(openai_error(refusal.status, refusal.text));
  }
  return true;
}

}  // namespace tandem::serve
