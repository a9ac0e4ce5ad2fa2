// SPDX-License-Identifier: Apache-2.0
// Which texts a request of OpenAI's API allows as its answer: the fields of OpenAI and of vLLM.
#include <optional>

#include "tandem/base/error.h"
#include "tandem/serve/protocol/openai_fields_internal.h"

namespace tandem::serve {
namespace {

/// What is asked for, and by which field.
struct AskedConstraint {
  enum class Kind : uint8_t { object, schema, regex, choice, grammar };
  Kind kind = Kind::object;
  std::string field;
  io::Json value = {};
};

class ConstraintReader {
 public:
  void add(AskedConstraint::Kind kind, std::string_view field, const io::Json& value) {
    if (asked_)
      refuse(400, "'{}' and '{}' hold the answer to two things; one is supported", asked_->field,
             field);
    asked_ = AskedConstraint{kind, std::string(field), value};
  }
  void add_schema(std::string_view field, const io::Json& value) {
    // vLLM takes a schema as a text, too.
    add(AskedConstraint::Kind::schema, field,
        value.as_string() ? io::parse_json(*value.as_string(), field) : value);
  }
  void add_regex(std::string_view field, const io::Json& value) {
    if (!value.as_string())
      refuse(400, "'{}' expects a regular expression, got {}", field, value.kind());
    add(AskedConstraint::Kind::regex, field, value);
  }
  void add_grammar(std::string_view field, const io::Json& value) {
    if (!value.as_string())
      refuse(400, "'{}' expects the rules of a grammar, got {}", field, value.kind());
    add(AskedConstraint::Kind::grammar, field, value);
  }
  void add_choice(std::string_view field, const io::Json& value) {
    bool texts = value.as_array() && !value.as_array()->empty();
    if (texts)
      for (const io::Json& j : *value.as_array()) texts = texts && j.as_string();
    if (!texts) refuse(400, "'{}' expects a list of texts, got {}", field, one_line(value.dump()));
    add(AskedConstraint::Kind::choice, field, value);
  }
  const std::optional<AskedConstraint>& asked() const { return asked_; }

 private:
  std::optional<AskedConstraint> asked_;
};

text::Grammar grammar_of(const AskedConstraint& asked) {
  using Kind = AskedConstraint::Kind;
  if (asked.kind == Kind::object) return text::Grammar::json_object();
  if (asked.kind == Kind::schema) return text::Grammar::json_schema(asked.value);
  if (asked.kind == Kind::regex) return text::Grammar::regex(*asked.value.as_string());
  if (asked.kind == Kind::grammar) return text::Grammar::ebnf(*asked.value.as_string());
  std::vector<std::string> texts;
  for (const io::Json& j : *asked.value.as_array()) texts.push_back(*j.as_string());
  return text::Grammar::choice(texts);
}

void read_response_format(OpenAiFields& f, ConstraintReader& out) {
  const io::Json* format = f.find("response_format");
  if (!format) return;
  OpenAiFields own(*format);
  const std::string type = io::text_of(own.find("type"));
  if (type == "json_schema") {
    const io::Json* named = own.find("json_schema");
    if (!named) refuse(400, "'response_format' expects a 'json_schema'");
    OpenAiFields inner(*named);
    inner.pass({"name", "description", "strict"});
    const io::Json* schema = inner.find("schema");
    if (!schema) refuse(400, "'json_schema' expects a 'schema'");
    inner.finish();
    out.add_schema("response_format", *schema);
  } else if (type == "json_object") {
    out.add(AskedConstraint::Kind::object, "response_format", {});
  } else if (type != "text") {
    refuse(400, "'response_format' expects the type text, json_object or json_schema, got '{}'",
           one_line(type, 64));
  }
  own.finish();
}

}  // namespace

std::shared_ptr<text::Constraint> read_constraint(OpenAiFields& f, const TextModel& model) {
  ConstraintReader out;
  read_response_format(f, out);
  if (const io::Json* j = f.find("guided_json")) out.add_schema("guided_json", *j);
  if (const io::Json* j = f.find("guided_regex")) out.add_regex("guided_regex", *j);
  if (const io::Json* j = f.find("guided_choice")) out.add_choice("guided_choice", *j);
  for (const char* field : {"guided_grammar", "grammar"})  // of vLLM, and of llama.cpp
    if (const io::Json* j = f.find(field)) out.add_grammar(field, *j);
  f.only("guided_whitespace_pattern", {});
  f.pass({"guided_decoding_backend"});
  if (const io::Json* all = f.find("structured_outputs")) {
    OpenAiFields own(*all);
    if (const io::Json* j = own.find("json")) out.add_schema("structured_outputs", *j);
    if (const io::Json* j = own.find("regex")) out.add_regex("structured_outputs", *j);
    if (const io::Json* j = own.find("choice")) out.add_choice("structured_outputs", *j);
    if (own.flag("json_object", false))
      out.add(AskedConstraint::Kind::object, "structured_outputs", {});
    if (const io::Json* j = own.find("grammar")) out.add_grammar("structured_outputs", *j);
    own.only("structural_tag", {});
    own.only("whitespace_pattern", {});
    own.finish();
  }
  if (!out.asked()) return nullptr;
  const AskedConstraint& asked = *out.asked();
  const std::string key = std::to_string(static_cast<int>(asked.kind)) + " " + asked.value.dump();
  try {
    return model.constraints->get(key, [&] { return grammar_of(asked); });
  } catch (const Error& e) {
    refuse(400, "'{}': {}", asked.field, e.text());
  }
}

}  // namespace tandem::serve
