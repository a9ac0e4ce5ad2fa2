// SPDX-License-Identifier: Apache-2.0
// kSchemaText as FileDescriptorProtos:
// https://github.com/protocolbuffers/protobuf/blob/main/src/google/protobuf/descriptor.proto
#include <algorithm>
#include <map>
#include <set>

#include "tandem/base/error.h"
#include "tandem/serve/grpc/call_internal.h"
#include "tandem/serve/grpc/schema_text_internal.h"

namespace tandem::serve {
namespace {

constexpr std::pair<const char*, int> kScalars[] = {{"double", 1}, {"float", 2},  {"int64", 3},
                                                    {"uint64", 4}, {"int32", 5},  {"bool", 8},
                                                    {"string", 9}, {"bytes", 12}, {"uint32", 13}};
constexpr int kMessageType = 11, kEnumType = 14, kOptional = 1, kRepeated = 3;

using Words = std::vector<std::string>;

/// A message, enum or service with what stands in it, before it is written.
struct SchemaItem {
  std::string kind, name;
  std::vector<Words> lines;
};
struct SchemaUnit {
  std::string path, package;
  Words uses;
  std::vector<SchemaItem> items;
};

Words split(std::string_view line) {
  Words out;
  while (!line.empty()) {
    const size_t space = std::min(line.find(' '), line.size());
    if (space > 0) out.emplace_back(line.substr(0, space));
    line.remove_prefix(std::min(space + 1, line.size()));
  }
  return out;
}

std::vector<SchemaUnit> read_units(std::string_view text) {
  std::vector<SchemaUnit> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    Words words = split(line);
    if (words.empty()) continue;
    if (line[0] == ' ') {
      out.back().items.back().lines.push_back(std::move(words));
    } else if (words[0] == "file") {
      out.push_back({words[1], words[2], Words(words.begin() + 3, words.end()), {}});
    } else {
      out.back().items.push_back({words[0], words[1], {}});
    }
  }
  return out;
}

class SchemaWriter {
 public:
  SchemaWriter(const SchemaUnit& unit, const std::set<std::string>& enums)
      : unit_(unit), enums_(enums) {}

  SchemaFile write() {
    SchemaFile out{.name = unit_.path, .symbols = {}, .descriptor = {}};
    io::ProtoWriter file;
    file.add_bytes(1, unit_.path);
    file.add_bytes(2, unit_.package);
    for (const std::string& use : unit_.uses) file.add_bytes(3, use);
    for (const SchemaItem& item : unit_.items) {
      out.symbols.push_back(unit_.package + "." + item.name);
      if (item.name.find('.') != std::string::npos) continue;  // inside another
      if (item.kind == "message")
        file.add_message(4, message(item));
      else if (item.kind == "enum")
        file.add_message(5, enumeration(item));
      else
        file.add_message(6, service(item));
    }
    file.add_bytes(12, "proto3");
    out.descriptor = file.take();
    return out;
  }

 private:
  static std::string last_name(const std::string& name) { return name.substr(name.rfind('.') + 1); }
  // ".package.Name": names with the package of another file keep it.
  std::string full_name(const std::string& name) const {
    for (const char* package : {"google.protobuf.", "tensorflow."})
      if (name.starts_with(package)) return "." + name;
    return "." + unit_.package + "." + name;
  }
  void put_type(io::ProtoWriter& field, const std::string& type) const {
    for (const auto& [name, number] : kScalars)
      if (type == name) return field.add_int(5, number);
    const std::string full = full_name(type);
    field.add_int(5, enums_.count(full) > 0 ? kEnumType : kMessageType);
    field.add_bytes(6, full);
  }
  io::ProtoWriter field(const std::string& name, int number, int label,
                        const std::string& type) const {
    io::ProtoWriter out;
    out.add_bytes(1, name);
    out.add_int(3, number);
    out.add_int(4, label);
    put_type(out, type);
    return out;
  }
  // The entries of a map are messages of their own.
  static std::string entry_name(const std::string& name) {
    std::string out;
    bool upper = true;
    for (const char c : name) {
      if (c != '_') out += static_cast<char>(upper && c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
      upper = c == '_';
    }
    return out + "Entry";
  }
  void put_map(io::ProtoWriter& to, const SchemaItem& item, const Words& w) const {
    io::ProtoWriter entry, options;
    const std::string name = entry_name(w[3]);
    entry.add_bytes(1, name);
    entry.add_message(2, field("key", 1, kOptional, w[1]));
    entry.add_message(2, field("value", 2, kOptional, w[2]));
    options.add_varint(7, 1);
    entry.add_message(7, options);
    to.add_message(3, entry);
    to.add_message(2, field(w[3], std::stoi(w[4]), kRepeated, item.name + "." + name));
  }
  io::ProtoWriter message(const SchemaItem& item) const {
    io::ProtoWriter out;
    out.add_bytes(1, last_name(item.name));
    Words choices;
    for (const Words& w : item.lines) {
      if (w[0] == "map") {
        put_map(out, item, w);
      } else if (w[0] == "repeated") {
        out.add_message(2, field(w[2], std::stoi(w[3]), kRepeated, w[1]));
      } else if (w[0] == "oneof") {
        if (choices.empty() || choices.back() != w[1]) choices.push_back(w[1]);
        io::ProtoWriter f = field(w[3], std::stoi(w[4]), kOptional, w[2]);
        f.add_int(9, static_cast<int64_t>(choices.size()) - 1);
        out.add_message(2, f);
      } else {
        out.add_message(2, field(w[1], std::stoi(w[2]), kOptional, w[0]));
      }
    }
    for (const SchemaItem& other : unit_.items) {
      if (!other.name.starts_with(item.name + ".")) continue;
      if (other.kind == "enum")
        out.add_message(4, enumeration(other));
      else
        out.add_message(3, message(other));
    }
    for (const std::string& choice : choices) {
      io::ProtoWriter declared;
      declared.add_bytes(1, choice);
      out.add_message(8, declared);
    }
    return out;
  }
  static io::ProtoWriter enumeration(const SchemaItem& item) {
    io::ProtoWriter out;
    out.add_bytes(1, last_name(item.name));
    for (const Words& w : item.lines) {
      io::ProtoWriter value;
      value.add_bytes(1, w[0]);
      value.add_int(2, std::stoi(w[1]));
      out.add_message(2, value);
    }
    return out;
  }
  io::ProtoWriter service(const SchemaItem& item) const {
    io::ProtoWriter out;
    out.add_bytes(1, item.name);
    for (const Words& w : item.lines) {
      io::ProtoWriter method;
      size_t at = 2;
      const bool from_client = w[at] == "stream";
      if (from_client) ++at;
      method.add_bytes(1, w[1]);
      method.add_bytes(2, full_name(w[at++]));
      const bool from_server = w[at] == "stream";
      if (from_server) ++at;
      method.add_bytes(3, full_name(w[at]));
      if (from_client) method.add_varint(5, 1);
      if (from_server) method.add_varint(6, 1);
      out.add_message(2, method);
    }
    return out;
  }
  const SchemaUnit& unit_;
  const std::set<std::string>& enums_;
};

std::vector<SchemaUnit> all_units() {
  std::vector<SchemaUnit> out = read_units(kSchemaText);
  SchemaUnit alpha = out.back();  // reflection's older name
  alpha.path = "grpc/reflection/v1alpha/reflection.proto";
  alpha.package = "grpc.reflection.v1alpha";
  out.push_back(std::move(alpha));
  return out;
}

}  // namespace

const std::vector<SchemaFile>& schema_files() {
  static const std::vector<SchemaFile> files = [] {
    const std::vector<SchemaUnit> units = all_units();
    std::set<std::string> enums;
    for (const SchemaUnit& u : units)
      for (const SchemaItem& item : u.items)
        if (item.kind == "enum") enums.insert("." + u.package + "." + item.name);
    std::vector<SchemaFile> out;
    for (const SchemaUnit& u : units) out.push_back(SchemaWriter(u, enums).write());
    return out;
  }();
  return files;
}

const std::vector<std::string>& schema_services() {
  static const std::vector<std::string> services = [] {
    std::vector<std::string> out;
    for (const SchemaUnit& u : all_units())
      for (const SchemaItem& item : u.items)
        if (item.kind == "service") out.push_back(u.package + "." + item.name);
    return out;
  }();
  return services;
}

}  // namespace tandem::serve
