// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tandem/dist/environment.h"

namespace tandem::distributed {

/// The rank that TF_CONFIG gives a process: the chief and the workers of its cluster are the ranks,
/// and the first one's address is where they meet. A process by itself where it names no cluster.
/// Throws Value for what is not a TF_CONFIG, and for a task that trains nothing.
/// https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
Place place_in_cluster(const char* text);

}  // namespace tandem::distributed
