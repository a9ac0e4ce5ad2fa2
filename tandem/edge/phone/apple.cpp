// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tandem/edge/mini/mini_internal.h"
#include "tandem/edge/phone/apple_internal.h"
#include "tandem/edge/phone/phone_internal.h"
#include "tandem/edge/text_internal.h"

namespace tandem::edge {
namespace {

std::set<std::string> swift_words() {
  return {"as",          "associatedtype",
          "break",       "case",
          "catch",       "class",
          "continue",    "default",
          "defer",       "deinit",
          "do",          "else",
          "enum",        "extension",
          "fallthrough", "false",
          "for",         "func",
          "guard",       "if",
          "import",      "in",
          "init",        "inout",
          "internal",    "is",
          "let",         "nil",
          "operator",    "private",
          "protocol",    "public",
          "repeat",      "rethrows",
          "return",      "self",
          "Self",        "static",
          "struct",      "subscript",
          "super",       "switch",
          "throw",       "throws",
          "true",        "try",
          "typealias",   "var",
          "where",       "while",
          "_",           "arena"};
}

const char* swift_type(DType t) {
  switch (t) {
    case DType::f64:
      return "Double";
    case DType::f32:
      return "Float";
    case DType::i64:
      return "Int64";
    case DType::i32:
      return "Int32";
    case DType::i16:
      return "Int16";
    case DType::f16:
    case DType::bf16:
      return "UInt16";
    case DType::i8:
      return "Int8";
    default:
      return "UInt8";
  }
}

std::string swift_class(const EdgeSource& net, const PhoneOptions& o) {
  std::string fields, docs, parameters, checks, arrays, arguments, results;
  const auto comma = [](const std::string& list) { return list.empty() ? "" : ", "; };
  for (const PhonePort& p : phone_ports(net, swift_words())) {
    const std::string text = to_string(p.spec.dtype) + p.spec.shape.to_string();
    const char* type = swift_type(p.spec.dtype);
    if (p.in) {
      docs += fmt::format("  /// - {}: {}\n", p.name, text);
      parameters += fmt::format("{}{}: [{}]", comma(parameters), p.name, type);
      checks += fmt::format("    try {0}.check(\"{1}\", {1}.count, {2})\n", class_name(o.name),
                            p.name, p.count());
      arguments += ", " + p.name;
    } else {
      fields += fmt::format("    /// {}\n    public let {}: [{}]\n", text, p.name, type);
      arrays +=
          fmt::format("    var {} = [{}](repeating: 0, count: {})\n", p.name, type, p.count());
      arguments += ", &" + p.name;
      results += fmt::format("{0}{1}: {1}", comma(results), p.name);
    }
  }
  return filled(kAppleClass, {{"CLASS", class_name(o.name)},
                              {"NAME", o.name},
                              {"MACRO", upper(o.name)},
                              {"FIELDS", fields},
                              {"DOCS", docs},
                              {"PARAMETERS", parameters},
                              {"CHECKS", checks},
                              {"ARRAYS", arrays},
                              {"ARGUMENTS", arguments},
                              {"RESULTS", results}});
}

// The entry of one library in Info.plist.
std::string library(const std::string& name, const char* folder, const char* platform,
                    const char* variant, std::initializer_list<const char*> processors) {
  const auto entry = [](const char* key, const std::string& value) {
    return fmt::format("      <key>{}</key>\n      <string>{}</string>\n", key, value);
  };
  std::string all = "    <dict>\n" + entry("HeadersPath", "Headers") +
                    entry("LibraryIdentifier", folder) + entry("LibraryPath", "lib" + name + ".a") +
                    "      <key>SupportedArchitectures</key>\n      <array>\n";
  for (const char* p : processors) all += fmt::format("        <string>{}</string>\n", p);
  all += "      </array>\n" + entry("SupportedPlatform", platform);
  if (*variant) all += entry("SupportedPlatformVariant", variant);
  return all + "    </dict>\n";
}

}  // namespace

FolderFiles write_apple(const EdgeSource& net, const PhoneOptions& o) {
  const std::string c = class_name(o.name), sources = "Sources/C" + c + "/",
                    mini = "Sources/C" + c + "Tandem/";
  const auto with_names = [&](const char* text) {
    return filled(text, {{"NAME", o.name}, {"CLASS", c}});
  };
  const std::string libraries =
      library(o.name, "ios-arm64", "ios", "", {"arm64"}) +
      library(o.name, "ios-arm64_x86_64-simulator", "ios", "simulator", {"arm64", "x86_64"}) +
      library(o.name, "macos-arm64_x86_64", "macos", "", {"arm64", "x86_64"});
  FolderFiles files = {
      {"Package.swift", with_names(kApplePackage)},
      {"make_xcframework.sh", with_names(kAppleScript)},
      {c + ".xcframework/Info.plist", filled(kApplePlist, {{"LIBRARIES", libraries}})},
      // Swift packages have no way to say so by a flag and still be a dependency.
      {sources + o.name + ".c", "#pragma STDC FP_CONTRACT OFF\n" + without_arena(net, o)},
      {sources + "include/" + o.name + ".h", net.header},
      {sources + "include/module.modulemap", with_names(kAppleModuleMap)},
      {mini + "include/module.modulemap", with_names(kAppleCModuleMap)},
      {"Sources/" + c + "/" + c + ".swift", swift_class(net, o)}};
  for (auto& [name, text] : mini_files(net, o.name))
    files.emplace_back(mini + (name == "tandem_c.h" ? "include/" : "") + name, std::move(text));
  return files;
}

}  // namespace tandem::edge
