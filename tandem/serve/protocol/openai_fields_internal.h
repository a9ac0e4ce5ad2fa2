// SPDX-License-Identifier: Apache-2.0
// How the requests of OpenAI's API are read: field by field, and nothing is overlooked.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/io/json.h"
#include "tandem/serve/server_internal.h"
#include "tandem/serve/text/text_model.h"

namespace tandem::serve {

/// The fields of a request; each is asked for once, and what nobody asked for is refused.
class OpenAiFields {
 public:
  explicit OpenAiFields(const io::Json& object) : body_(object) {
    if (!object.as_object()) refuse(400, "there is {}, expected a JSON object", object.kind());
  }
  const io::Json* find(std::string_view name) {
    known_.emplace_back(name);
    const io::Json* j = body_.find(name);
    return j && !j->is_null() ? j : nullptr;
  }
  double number(std::string_view name, double usual, double least, double most) {
    const io::Json* j = find(name);
    if (!j) return usual;
    const double v = io::number_of(j);
    if (!(v >= least && v <= most))
      refuse(400, "'{}' expects a number from {} to {}, got {}", name, least, most,
             one_line(j->dump()));
    return v;
  }
  int64_t whole(std::string_view name, int64_t usual, int64_t least, int64_t most) {
    const io::Json* j = find(name);
    if (!j) return usual;
    if (!j->as_int() || *j->as_int() < least || *j->as_int() > most)
      refuse(400, "'{}' expects a whole number from {} to {}, got {}", name, least, most,
             one_line(j->dump()));
    return *j->as_int();
  }
  bool flag(std::string_view name, bool usual) {
    const io::Json* j = find(name);
    if (!j) return usual;
    if (!j->as_bool()) refuse(400, "'{}' expects true or false, got {}", name, one_line(j->dump()));
    return *j->as_bool();
  }
  /// Fields that change nothing here.
  void pass(std::initializer_list<std::string_view> names) {
    for (const std::string_view n : names) known_.emplace_back(n);
  }
  /// A field of which only the usual value is supported.
  void only(std::string_view name, const io::Json& usual) {
    if (const io::Json* j = find(name); j && j->dump() != usual.dump())
      refuse(400, "'{}' is not supported", name);
  }
  void finish() const {
    for (const auto& [name, value] : *body_.as_object())
      if (std::find(known_.begin(), known_.end(), name) == known_.end())
        refuse(400, "there is no field '{}' in this request", one_line(name, 64));
  }

 private:
  const io::Json& body_;
  std::vector<std::string> known_;
};

/// What the answer is held to, by `response_format`, `structured_outputs` or one of vLLM's
/// `guided_` fields; nothing where the request has none.
std::shared_ptr<text::Constraint> read_constraint(OpenAiFields& f, const TextModel& model);

/// `tools` and `tool_choice` of a chat: into `extra`, the further names of the chat template, and
/// into the request.
struct OpenAiRequest;
void read_tools(OpenAiFields& f, const TextModel& model, OpenAiRequest& r, io::Json& extra);

}  // namespace tandem::serve
