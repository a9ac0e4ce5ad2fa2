// SPDX-License-Identifier: Apache-2.0
#include "tandem/edge/footprint.h"

#include <charconv>
#include <string_view>

#include "tandem/base/error.h"
#include "tandem/edge/toolchain_internal.h"

namespace tandem::edge {
namespace {

// The sum over sections .text* of a table "name size address", as binutils' `size -A -d` writes it.
size_t sum_of_code(std::string_view table) {
  size_t sum = 0;
  while (!table.empty()) {
    const std::string_view line = table.substr(0, table.find('\n'));
    table.remove_prefix(std::min(table.size(), line.size() + 1));
    if (!line.starts_with(".text")) continue;
    const size_t digits = line.find_first_of("0123456789", line.find(' '));
    if (digits == std::string_view::npos) continue;
    size_t bytes = 0;
    std::from_chars(line.data() + digits, line.data() + line.size(), bytes);
    sum += bytes;
  }
  return sum;
}

}  // namespace

size_t code_bytes(const EdgeSource& net, const EdgeOptions& options) {
  const std::string compiler = program_on_path({"cc", "gcc", "clang"});
  const std::string size = program_on_path({"size", "llvm-size", "llvm-size-14"});
  if (compiler.empty() || size.empty()) return 0;
  const WorkFolder folder;
  folder.write(options.name + ".c", net.source);
  folder.write(options.name + ".h", net.header);
  folder.run({compiler, "-std=c99", "-Os", "-ffp-contract=off", "-fno-asynchronous-unwind-tables",
              "-c", options.name + ".c", "-o", "net.o"});
  const size_t bytes = sum_of_code(folder.run({size, "-A", "-d", "net.o"}));
  TD_CHECK(bytes > 0, Value, "{} lists no code in the file that {} made", size, compiler);
  return bytes;
}

}  // namespace tandem::edge
