// SPDX-License-Identifier: Apache-2.0
// Regions of shared memory by REST, as Triton's clients register them.
// https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_shared_memory.md
#include <fmt/format.h>

#include "tandem/io/json.h"
#include "tandem/serve/protocol/v2_internal.h"

namespace tandem::serve {
namespace {

uint64_t read_size(JsonCursor& json, std::string_view key) {
  const int64_t n = json.read_int();
  if (n < 0) refuse(400, "'{}' is {}, which is negative", key, n);
  return static_cast<uint64_t>(n);
}

void register_region(Call& call, const std::string& name) {
  std::string memory;
  uint64_t offset = 0, bytes = 0;
  JsonKeys keys;
  JsonCursor json(call.request().body, "the body");
  json.open('{');
  while (const auto key = json.next_key(&keys)) {
    if (*key == "key")
      memory = json.read_string();
    else if (*key == "offset")
      offset = read_size(json, "offset");
    else if (*key == "byte_size")
      bytes = read_size(json, "byte_size");
    else
      json.skip();
  }
  json.finish();
  call.server.shared_memory.add(name, memory, offset, bytes);
  call.json("{}");
}

void region_status(Call& call, const std::string& name) {
  std::string out;
  for (const SharedRegionPtr& r : call.server.shared_memory.list(name))
    out += fmt::format("{}{{\"name\":{},\"key\":{},\"offset\":{},\"byte_size\":{}}}",
                       out.empty() ? "" : ",", io::quote_json(r->name()), io::quote_json(r->key()),
                       r->offset(), r->bytes());
  call.json("[" + out + "]");
}

void cuda_region(Call& call, const std::string& name, const std::string& verb) {
  if (verb == "register") refuse_cuda();
  if (verb == "status") refuse_cuda_region(name);
  call.json(verb == "status" ? "[]" : "{}");
}

}  // namespace

void refuse_cuda() {
  refuse(501, "memory of CUDA is not taken; register system shared memory, or send the tensor");
}
void refuse_cuda_region(const std::string& name) {
  if (!name.empty()) refuse(404, "there is no region '{}' of CUDA's memory", one_line(name, 64));
}

void shared_memory_v2(Call& call) {
  const std::vector<std::string>& p = call.path;
  const bool system = p[1] == "systemsharedmemory", named = p.size() == 5 && p[2] == "region";
  const std::string& verb = p.back();
  const bool known = verb == "status" || verb == "unregister" || (verb == "register" && named);
  if ((!system && p[1] != "cudasharedmemory") || !known || (!named && p.size() != 3))
    refuse(404, "there is nothing at this path");
  call.only(verb == "status" ? "GET" : "POST");
  const std::string name = named ? p[3] : "";
  if (named && name.empty()) refuse(400, "the region has no name");
  if (!system) return cuda_region(call, name, verb);
  if (verb == "register") return register_region(call, name);
  if (verb == "status") return region_status(call, name);
  call.server.shared_memory.remove(name);
  call.json("{}");
}

}  // namespace tandem::serve
