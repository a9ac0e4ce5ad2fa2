// SPDX-License-Identifier: Apache-2.0
// `tandem ops`: the op table as a list, one op in detail, or the generated reference page.
#include <fmt/core.h>

#include "cli/commands_internal.h"
#include "tandem/init.h"
#include "tandem/ops/reference_page.h"

namespace tandem::cli {

void add_ops(CLI::App& app, int& code) {
  CLI::App* verb = app.add_subcommand("ops", "The op table: all ops, or one in detail");
  auto name = std::make_shared<std::string>();
  auto markdown = std::make_shared<bool>(false);
  verb->add_option("name", *name, "Show this op only");
  verb->add_flag("--markdown", *markdown, "The reference page, docs/ops.md");
  verb->callback([&code, name, markdown] {
    init();
    code = 0;
    if (*markdown) {
      fmt::print("{}", op_reference_page());
      return;
    }
    if (name->empty()) {
      for (const OpDef* op : all_ops()) fmt::print("{:<28} {}\n", op->name, op->doc_text);
      return;
    }
    const OpDef* op = find_op(*name);
    TD_CHECK(op, Value, "there is no op named '{}'", *name);
    fmt::print("{}", describe_op(*op));
  });
}

}  // namespace tandem::cli
