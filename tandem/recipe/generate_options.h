// SPDX-License-Identifier: Apache-2.0
// The options of what models generate, under the names of `tandem generate`'s flags.
#pragma once

#include "tandem/models/text/generate.h"
#include "tandem/recipe/recipe.h"

namespace tandem::recipe {

/// --max-new-tokens and the other options of text, with `defaults`.
TD_API models::GenerateOptions text_options(Options& o, models::GenerateOptions defaults);
/// --seed; throws Value below 0.
TD_API uint64_t seed_option(Options& o);
/// --prompt, each --num-return-sequences times. `drawn`: several texts for one prompt may differ.
TD_API std::vector<std::string> prompt_rows(Options& o, std::vector<std::string> defaults,
                                            bool drawn);

}  // namespace tandem::recipe
