// SPDX-License-Identifier: Apache-2.0
// POST /v1/embeddings: each text is a job of the version's scheduler, which puts those of one
// length together; texts are not padded, so that a text's vector is the one it has alone.
#include <fmt/format.h>

#include <mutex>

#include "tandem/base/base64.h"
#include "tandem/base/error.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/part_feeder.h"
#include "tandem/serve/protocol/openai_fields_internal.h"
#include "tandem/serve/protocol/openai_internal.h"

namespace tandem::serve {
namespace {

constexpr size_t kMostTexts = 2048;
constexpr int64_t kMostDimensions = int64_t{1} << 20;

struct EmbeddingRequest {
  std::vector<std::vector<int64_t>> texts;
  bool base64 = false;
  int64_t dimensions = 0, priority = 0;
};

EmbeddingRequest read_embedding(const io::Json& body, const TextEncoder& model) {
  OpenAiFields f(body);
  EmbeddingRequest r;
  f.pass({"model", "user"});
  const io::Json* format = f.find("encoding_format");
  const std::string form = format ? io::text_of(format) : "float";
  if (form != "float" && form != "base64")
    refuse(400, "'encoding_format' expects float or base64, got {}", one_line(format->dump(), 64));
  r.base64 = form == "base64";
  r.dimensions = f.whole("dimensions", 0, 1, kMostDimensions);
  r.priority = f.whole("priority", 0, 0, int64_t{1} << 31);
  const io::Json* input = f.find("input");
  if (!input) refuse(400, "'input' is missing");
  const auto ids = [&](const io::Json::Array& list) {
    std::vector<int64_t> out;
    for (const io::Json& j : list) {
      if (!j.as_int()) refuse(400, "'input' holds {}, expected texts or whole numbers", j.kind());
      out.push_back(*j.as_int());
    }
    r.texts.push_back(std::move(out));
  };
  const io::Json::Array* all = input->as_array();
  if (input->as_string()) {
    r.texts.push_back(model.tokens_of(*input->as_string()));
  } else if (!all || all->empty()) {
    refuse(400, "'input' is {}, expected a text, tokens or a list of them", input->kind());
  } else if ((*all)[0].as_int()) {
    ids(*all);
  } else {
    if (all->size() > kMostTexts)
      refuse(400, "'input' has {} entries, at most {} are answered at once", all->size(),
             kMostTexts);
    for (const io::Json& j : *all) {
      if (j.as_string())
        r.texts.push_back(model.tokens_of(*j.as_string()));
      else if (j.as_array())
        ids(*j.as_array());
      else
        refuse(400, "'input' holds {}, expected texts or lists of tokens", j.kind());
    }
  }
  f.finish();
  for (const std::vector<int64_t>& text : r.texts) {
    if (text.empty()) refuse(400, "a text of 'input' has no tokens");
    if (model.length() > 0 && static_cast<int64_t>(text.size()) > model.length())
      refuse(400, "a text of 'input' has {} tokens, the model reads {} at most", text.size(),
             model.length());
  }
  return r;
}

/// An answer on its way; the last of its texts to be ready sends it.
class EmbeddingAnswer : public std::enable_shared_from_this<EmbeddingAnswer> {
 public:
  EmbeddingAnswer(const Call& call, ModelVersionPtr v, EmbeddingRequest r)
      : call_(call),
        version_(std::move(v)),
        request_(std::move(r)),
        feeder_(request_.texts.size(), parts_at_once(static_cast<size_t>(version_->settings.queue)),
                [this](size_t i) { run(i); }) {
    vectors_.resize(request_.texts.size());
    left_ = request_.texts.size();
  }

  void start() { feeder_.begin(); }

 private:
  void run(size_t i) {
    const auto ended = [self = shared_from_this(), i](const JobResult& r) {
      self->take(i, r);
      self->feeder_.ended();
    };
    try {
      run_inputs(call_.exchange, version_, version_->encoder->inputs(request_.texts[i]),
                 {.priority = request_.priority}, ended);
    } catch (...) {
      const Refusal refusal = refusal_of(std::current_exception());
      ended({.status = refusal.status, .error = refusal.text});
    }
  }
  void take(size_t i, const JobResult& r) {
    const std::lock_guard hold(lock_);
    --left_;
    if (failed_) return;
    if (r.status != 200) return fail(r.status, r.error);
    try {
      vectors_[i] = version_->encoder->vector_of(r.outputs, request_.dimensions);
    } catch (...) {
      const Refusal refusal = refusal_of(std::current_exception());
      return fail(refusal.status, refusal.text);
    }
    if (left_ == 0) call_.json(whole());
  }
  void fail(int status, const std::string& text) {
    failed_ = true;
    feeder_.stop();
    call_.answer(openai_error(status, text));
  }

  std::string whole() const {
    std::string out = "{\"object\":\"list\",\"data\":[";
    size_t tokens = 0;
    for (size_t i = 0; i < vectors_.size(); ++i) {
      const std::vector<float>& v = vectors_[i];
      tokens += request_.texts[i].size();
      out +=
          fmt::format("{}{{\"object\":\"embedding\",\"index\":{},\"embedding\":", i ? "," : "", i);
      if (request_.base64) {
        out += '"';
        out += base64({reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float)});
        out += "\"}";
        continue;
      }
      write_array(out, tensor(v), NonFinite::null, false);
      out += '}';
    }
    return out +
           fmt::format("],\"model\":{},\"usage\":{{\"prompt_tokens\":{},\"total_tokens\":{}}}}}",
                       io::quote_json(version_->name), tokens, tokens);
  }

  Call call_;
  ModelVersionPtr version_;
  EmbeddingRequest request_;
  PartFeeder feeder_;
  std::mutex lock_;
  std::vector<std::vector<float>> vectors_;
  size_t left_ = 0;
  bool failed_ = false;
};

}  // namespace

void answer_embeddings(const Call& call, const ModelVersionPtr& v, const io::Json& body) {
  std::make_shared<EmbeddingAnswer>(call, v, read_embedding(body, *v->encoder))->start();
}

}  // namespace tandem::serve
