// SPDX-License-Identifier: Apache-2.0
// SourceLocation: the source line of a call. Public functions take one as their last, defaulted
// parameter; operators get it from their Operand. Library lines begin with "@" (file prefix map),
// so the innermost line that does not is the user's.
#pragma once

namespace tandem {

/// A source line. `SourceLocation::here()` as a default argument is the caller's line.
struct SourceLocation {
  const char* file = nullptr;
  int line = 0;

  static constexpr SourceLocation here(const char* file = __builtin_FILE(),
                                       int line = __builtin_LINE()) {
    return SourceLocation{file, line};
  }
  /// True for a line of the user's code (known, and not inside the library).
  constexpr bool is_user() const { return file != nullptr && file[0] != '@'; }
};

}  // namespace tandem
