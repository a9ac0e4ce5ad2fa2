// SPDX-License-Identifier: Apache-2.0
// Prompts for tests/peers/chat_templates: the argument is a file of a JSON array of {"template",
// "names"}; prints a JSON array of the prompts, or of null where an error was thrown.
#include <fmt/core.h>

#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/text/chat_template.h"

using namespace tandem;

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const io::Json cases = io::parse_json(read_file(argv[1]));
  io::Json::Array out;
  for (const io::Json& c : *cases.as_array()) {
    const io::Json& names = *c.find("names");
    try {
      const text::ChatTemplate t(*c.find("template")->as_string(), *c.find("tokens"));
      out.emplace_back(t.render(*names.find("messages"),
                                *names.find("add_generation_prompt")->as_bool(), names));
    } catch (const Error& e) {
      fmt::print(stderr, "{}\n", e.what());
      out.emplace_back();
    }
  }
  fmt::print("{}\n", io::Json(out).dump());
}
