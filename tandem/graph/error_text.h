// SPDX-License-Identifier: Apache-2.0
// The text of an error that a kernel reported: a row's text with the facts of the call filled in.
// The dispatcher and compiled programs throw by it.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem {

/// Throws what the row of `call` says of the code in call.error; nothing without one. In the row's
/// text `{}` is the reported value, `{x}` the shape of the input of that name, `{x.1}` its size in
/// dimension 1, `{x.dim}` that in the dimension of attribute `dim`, `{x.dim-1}` one less, `{dim}`
/// the attribute. What stands between `<` and `>` is left out where the call does not tell it.
TD_API void check_error_word(const KernelCall& call);

/// The same text; of a call whose operands are no longer known, `call` has its op alone.
TD_API std::string fill_error_text(const char* text, int64_t value, const KernelCall& call);

}  // namespace tandem
