// SPDX-License-Identifier: Apache-2.0
// What the parts of EventFile share.
#pragma once

#include <string_view>

#include "tandem/io/protobuf.h"

namespace tandem::runs {

/// SummaryMetadata that names the plugin a value belongs to, with that plugin's own message.
io::ProtoWriter tensorboard_metadata(const char* plugin, std::string_view content);

}  // namespace tandem::runs
