// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/sample_error.h"

#include <cxxabi.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <new>

#include "tandem/base/error.h"

namespace tandem::data::detail {

void rethrow_at_sample(const std::string& sample) {
  try {
    throw;
  } catch (const Error& e) {
    const std::string op = e.op().empty() ? "" : e.op() + ": ";
    throw Error(e.kind(), fmt::format("{}: {}{}", sample, op, e.message()), e.hint(), "", e.loc(),
                e.layer());
  } catch (const std::bad_alloc&) {
    std::throw_with_nested(
        Error(ErrorKind::Memory,
              fmt::format("{}: there is not enough memory for it\nFewer workers and a smaller "
                          "prefetch_factor hold fewer samples at once.",
                          sample)));
  } catch (const std::exception& e) {
    std::throw_with_nested(Error(
        ErrorKind::Value,
        fmt::format("{}: {} ({})\nCall your code with this sample alone, outside of the loader, to "
                    "see where.",
                    sample, e.what(), short_type_name(typeid(e)))));
  }
}

std::string short_type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 && text ? text.get() : type.name();
  // The last "::" outside of template arguments and of parameter lists.
  size_t from = 0;
  int depth = 0;
  for (size_t i = 0; i + 1 < name.size(); ++i) {
    if (name[i] == '<' || name[i] == '(' || name[i] == '{') ++depth;
    if (name[i] == '>' || name[i] == ')' || name[i] == '}') --depth;
    if (depth == 0 && name[i] == ':' && name[i + 1] == ':') from = i + 2;
  }
  return name.substr(from);
}

}  // namespace tandem::data::detail
