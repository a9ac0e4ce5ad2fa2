// SPDX-License-Identifier: Apache-2.0
// grpc.health.v1.Health: the server ("", or the name of a service) and single models by their
// names. https://github.com/grpc/grpc/blob/master/doc/health-checking.md
#include <algorithm>

#include "tandem/serve/grpc/call_internal.h"

namespace tandem::serve {
namespace {

enum class Health : uint8_t { serving = 1, not_serving = 2, unknown_service = 3 };

Health health_of(ServerContext& server, const std::string& service) {
  const std::vector<std::string>& services = schema_services();
  if (service.empty() || std::find(services.begin(), services.end(), service) != services.end())
    return !server.draining() && server.repository.ready() ? Health::serving : Health::not_serving;
  if (!server.repository.knows(service)) return Health::unknown_service;
  return !server.draining() && server.repository.find(service) ? Health::serving
                                                               : Health::not_serving;
}

std::string read_service(std::string_view message) {
  std::string out;
  for_fields(message, "HealthCheckRequest", [&](io::ProtoReader& r) {
    if (r.field() == 1) out = r.text();
  });
  return out;
}

io::ProtoWriter health_message(Health health) {
  io::ProtoWriter out = new_message();
  out.add_varint(1, static_cast<uint64_t>(health));
  return out;
}

void check(const GrpcCall& call, std::string_view message) {
  const std::string service = read_service(message);
  const Health health = health_of(call.server, service);
  if (health == Health::unknown_service)
    refuse(404, "there is no service or model '{}'", one_line(service, 128));
  call.answer(health_message(health));
}

// Answers at once, and again when it changes, until the client leaves.
void watch(const std::shared_ptr<MessageStream>& stream, uint64_t number,
           std::string_view message) {
  if (stream->watches) refuse(400, "the call takes one message alone");
  stream->watches = true;
  const std::string service = read_service(message);
  Health now = health_of(stream->call().server, service);
  stream->answer(number, health_message(now));
  stream->on_tick = [raw = stream.get(), service, now]() mutable {
    const Health next = health_of(raw->call().server, service);
    if (next == now) return;
    now = next;
    raw->answer(raw->take_number(), health_message(next));
  };
}

}  // namespace

std::span<const GrpcMethod> health_methods() {
  static constexpr GrpcMethod kMethods[] = {
      {"/grpc.health.v1.Health/Check", check, nullptr, KeyScope::none},
      {"/grpc.health.v1.Health/Watch", nullptr, watch, KeyScope::none},
  };
  return kMethods;
}

}  // namespace tandem::serve
