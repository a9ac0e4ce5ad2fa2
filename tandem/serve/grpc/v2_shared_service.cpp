// SPDX-License-Identifier: Apache-2.0
// Regions of shared memory by gRPC, as Triton's clients register them.
#include "tandem/serve/grpc/v2_messages_internal.h"

namespace tandem::serve {
namespace {

/// A request of the three methods; status and unregister have a name alone, "" for all regions.
struct RegionRequest {
  std::string name, key;
  uint64_t offset = 0, bytes = 0;
};
RegionRequest read_region(std::string_view message) {
  RegionRequest out;
  for_fields(message, "the request", [&](io::ProtoReader& r) {
    if (r.field() == 1) out.name = r.text();
    if (r.field() == 2) out.key = r.text();
    if (r.field() == 3) out.offset = r.unsigned_value();
    if (r.field() == 4) out.bytes = r.unsigned_value();
  });
  return out;
}

}  // namespace

void shared_memory_status(const GrpcCall& call, std::string_view message) {
  io::ProtoWriter out = new_message();
  for (const SharedRegionPtr& r : call.server.shared_memory.list(read_region(message).name)) {
    io::ProtoWriter region, entry;
    region.add_bytes(1, r->name());
    region.add_bytes(2, r->key());
    region.add_varint(3, r->offset());
    region.add_varint(4, r->bytes());
    entry.add_bytes(1, r->name());
    entry.add_message(2, region);
    out.add_message(1, entry);
  }
  call.answer(std::move(out));
}

void shared_memory_register(const GrpcCall& call, std::string_view message) {
  const RegionRequest r = read_region(message);
  call.server.shared_memory.add(r.name, r.key, r.offset, r.bytes);
  call.answer(new_message());
}

void shared_memory_unregister(const GrpcCall& call, std::string_view message) {
  call.server.shared_memory.remove(read_region(message).name);
  call.answer(new_message());
}

void cuda_memory_status(const GrpcCall& call, std::string_view message) {
  refuse_cuda_region(read_region(message).name);
  call.answer(new_message());
}

void cuda_memory_register(const GrpcCall&, std::string_view) { refuse_cuda(); }

void cuda_memory_unregister(const GrpcCall& call, std::string_view) { call.answer(new_message()); }

}  // namespace tandem::serve
