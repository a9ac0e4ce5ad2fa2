// SPDX-License-Identifier: Apache-2.0
// Near memory: ranks of one machine read each other's arrays where they lie, by cross-memory attach
// (process_vm_readv), which costs one copy where a connection costs two and a pass through the
// kernel's buffers.
#pragma once

#include "tandem/dist/rendezvous_internal.h"

namespace tandem::distributed {

/// What a rank tells the others so that they can try to read from it.
struct NearProbe {
  uint64_t address = 0;  ///< of `secret`, in its process
  uint8_t secret[32] = {};
  uint8_t willing = 0;  ///< it sees all others on its own network address
};
/// This rank's; `secret` must stay where it is while others read it. TANDEM_DIST_NEAR=0 makes it
/// unwilling.
NearProbe near_probe(const Mesh& mesh, const uint8_t (&secret)[32]);
/// Can this rank read the memory of all others? Process numbers of containers may name others'
/// processes, so what is read is compared.
bool can_read_all(const Mesh& mesh, const std::vector<NearProbe>& probes);

/// Copy from an address of that process; false where that cannot be done (it is gone).
bool read_near(int64_t pid, uint64_t from, void* to, size_t bytes);
/// Bytes that this process has read so.
uint64_t bytes_read_near();

}  // namespace tandem::distributed
