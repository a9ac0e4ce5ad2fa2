// SPDX-License-Identifier: Apache-2.0
// grpc.reflection.v1.ServerReflection, and v1alpha: which services there are, and their messages.
// https://github.com/grpc/grpc/blob/master/doc/server-reflection.md
#include <algorithm>

#include "tandem/serve/grpc/call_internal.h"

namespace tandem::serve {
namespace {

void put_error(io::ProtoWriter& out, GrpcCode code, const std::string& text) {
  io::ProtoWriter error;
  error.add_int(1, static_cast<int64_t>(code));
  error.add_bytes(2, text);
  out.add_message(7, error);
}

void put_file(io::ProtoWriter& out, const SchemaFile* file, const std::string& asked) {
  if (!file) return put_error(out, GrpcCode::not_found, "there is no '" + asked + "'");
  io::ProtoWriter files;
  files.add_bytes(1, file->descriptor);
  out.add_message(4, files);
}

const SchemaFile* file_named(const std::string& name) {
  for (const SchemaFile& f : schema_files())
    if (f.name == name) return &f;
  return nullptr;
}

// A symbol, or something in it: a method or a field.
const SchemaFile* file_with(const std::string& symbol) {
  const std::string inside = symbol.substr(0, std::min(symbol.rfind('.'), symbol.size()));
  for (const SchemaFile& f : schema_files())
    for (const std::string& s : f.symbols)
      if (s == symbol || s == inside) return &f;
  return nullptr;
}

void put_services(io::ProtoWriter& out) {
  io::ProtoWriter list;
  for (const std::string& name : schema_services()) {
    io::ProtoWriter service;
    service.add_bytes(1, name);
    list.add_message(1, service);
  }
  out.add_message(6, list);
}

void reflect(const std::shared_ptr<MessageStream>& stream, uint64_t number,
             std::string_view message) {
  io::ProtoWriter out = new_message();
  bool answered = false;
  out.add_bytes(2, message);
  for_fields(message, "ServerReflectionRequest", [&](io::ProtoReader& r) {
    if (r.field() < 3 || r.field() > 7 || answered) return;
    answered = true;
    if (r.field() == 3) {
      const std::string name = r.text();
      put_file(out, file_named(name), one_line(name));
    } else if (r.field() == 4) {
      const std::string symbol = r.text();
      put_file(out, file_with(symbol), one_line(symbol));
    } else if (r.field() == 7) {
      put_services(out);
    } else {
      put_error(out, GrpcCode::not_found, "there are no extensions");
    }
  });
  if (!answered) put_error(out, GrpcCode::invalid_argument, "the request asks for nothing");
  stream->answer(number, std::move(out));
}

}  // namespace

std::span<const GrpcMethod> reflection_methods() {
  static constexpr GrpcMethod kMethods[] = {
      {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", nullptr, reflect},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", nullptr, reflect},
  };
  return kMethods;
}

}  // namespace tandem::serve
