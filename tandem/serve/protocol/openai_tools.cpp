// SPDX-License-Identifier: Apache-2.0
// The tools of a chat: what the template is told of them, and which answers they allow.
#include "tandem/base/error.h"
#include "tandem/serve/protocol/openai_fields_internal.h"
#include "tandem/serve/protocol/openai_internal.h"

namespace tandem::serve {
namespace {

constexpr size_t kMostTools = 128;

// The functions of a list of tools: {"name", "description", "parameters"}.
io::Json::Array functions_of(const io::Json& tools) {
  if (!tools.as_array()) refuse(400, "'tools' expects a list, got {}", tools.kind());
  if (tools.as_array()->size() > kMostTools)
    refuse(400, "'tools' has more than {} entries", kMostTools);
  io::Json::Array out;
  for (const io::Json& tool : *tools.as_array()) {
    const io::Json* function = tool.find("function");
    if (io::text_of(tool.find("type")) != "function" || !function || !function->as_object())
      refuse(400, "'tools' expects entries of type function, got {}", one_line(tool.dump()));
    if (io::text_of(function->find("name")).empty())
      refuse(400, "a function of 'tools' needs a name: {}", one_line(function->dump()));
    out.push_back(*function);
  }
  return out;
}

}  // namespace

void read_tools(OpenAiFields& f, const TextModel& model, OpenAiRequest& r, io::Json& extra) {
  const io::Json *tools = f.find("tools"), *choice = f.find("tool_choice");
  const bool several = f.flag("parallel_tool_calls", true);
  io::Json::Array functions = tools ? functions_of(*tools) : io::Json::Array{};
  const std::string word = !choice ? "auto" : choice->as_string() ? *choice->as_string() : "named";
  if (word != "none" && word != "auto" && word != "required" && word != "named")
    refuse(400, "'tool_choice' must be none, auto, required or a function, got {}",
           one_line(choice->dump(), 64));
  const bool forced = word == "required" || word == "named";
  if (functions.empty() && forced) refuse(400, "'tool_choice' requires 'tools'");
  if (functions.empty() || word == "none") return;
  r.tools = tool_form_of(*model.chat);
  if (!r.tools) refuse(400, "'tools': the model's chat template knows none that are supported");
  io::Json::Object names = extra.as_object() ? *extra.as_object() : io::Json::Object{};
  names.emplace_back("tools", *tools);
  extra = std::move(names);
  if (!forced) return;
  if (word == "named") {
    const io::Json* function = choice->find("function");
    const std::string name = function ? io::text_of(function->find("name")) : "";
    std::erase_if(functions,
                  [&](const io::Json& g) { return io::text_of(g.find("name")) != name; });
    if (functions.empty())
      refuse(400, "'tool_choice' names the function '{}', which 'tools' does not have",
             one_line(name, 64));
  }
  if (r.constraint) refuse(400, "'tool_choice' and a constraint on the answer exclude each other");
  const bool more = several && word == "required";
  const std::string key = "tools " + std::to_string(static_cast<int>(*r.tools)) +
                          (more ? " more " : " ") + io::Json(functions).dump();
  try {
    r.constraint =
        model.constraints->get(key, [&] { return tool_grammar(*r.tools, functions, more); });
  } catch (const Error& e) {
    refuse(400, "'tools': {}", e.text());
  }
}

}  // namespace tandem::serve
