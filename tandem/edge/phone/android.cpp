// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tandem/base/error.h"
#include "tandem/edge/mini/mini_internal.h"
#include "tandem/edge/phone/android_internal.h"
#include "tandem/edge/phone/phone_internal.h"
#include "tandem/edge/text_internal.h"

namespace tandem::edge {
namespace {

std::set<std::string> java_words() {
  return {
      "abstract", "assert", "boolean",    "break",     "byte",       "case",      "catch",
      "char",     "class",  "const",      "continue",  "default",    "do",        "double",
      "else",     "enum",   "extends",    "final",     "finally",    "float",     "for",
      "goto",     "if",     "implements", "import",    "instanceof", "int",       "interface",
      "long",     "native", "new",        "package",   "private",    "protected", "public",
      "return",   "short",  "static",     "strictfp",  "super",      "switch",    "synchronized",
      "this",     "throw",  "throws",     "transient", "try",        "void",      "volatile",
      "while",    "true",   "false",      "null",      "_",          "arena",     "outputs_"};
}

// How Java names the elements, and how JNI does: "float", "Float".
struct JavaType {
  const char *java, *jni;
};
JavaType java_type(DType t) {
  switch (t) {
    case DType::f64:
      return {"double", "Double"};
    case DType::f32:
      return {"float", "Float"};
    case DType::i64:
      return {"long", "Long"};
    case DType::i32:
      return {"int", "Int"};
    case DType::f16:
    case DType::bf16:
    case DType::i16:
      return {"short", "Short"};
    default:
      return {"byte", "Byte"};
  }
}
std::string text_of(const Spec& s) { return to_string(s.dtype) + s.shape.to_string(); }

void check_package(const std::string& package) {
  for (size_t from = 0; from <= package.size();) {
    const size_t to = std::min(package.find('.', from), package.size());
    const std::string part = package.substr(from, to - from);
    TD_CHECK(!part.empty() && identifier(part) == part && !java_words().count(part), Value,
             "'{}' is not the name of a Java package\nGive one such as com.example.net.", package);
    from = to + 1;
  }
}

std::string java_class(const EdgeSource& net, const PhoneOptions& o) {
  std::string fields, docs, parameters, checks, arguments, native;
  for (const PhonePort& p : phone_ports(net, java_words())) {
    const std::string array = std::string(java_type(p.spec.dtype).java) + "[]";
    native += fmt::format(", {} {}", array, p.name);
    if (p.in) {
      docs += fmt::format("   * @param {} {}\n", p.name, text_of(p.spec));
      parameters += fmt::format("{}{} {}", parameters.empty() ? "" : ", ", array, p.name);
      checks += fmt::format("    check(\"{0}\", {0}.length, {1});\n", p.name, p.count());
      arguments += ", " + p.name;
    } else {
      fields +=
          fmt::format("    /** {} */\n    public final {} {} = new {}[{}];\n", text_of(p.spec),
                      array, p.name, java_type(p.spec.dtype).java, p.count());
      arguments += ", outputs_." + p.name;
    }
  }
  return filled(kAndroidClass, {{"PACKAGE", o.package},
                                {"CLASS", class_name(o.name)},
                                {"NAME", o.name},
                                {"ARENA", std::to_string(std::max<size_t>(net.arena_bytes, 8))},
                                {"FIELDS", fields},
                                {"DOCS", docs},
                                {"PARAMETERS", parameters},
                                {"CHECKS", checks},
                                {"ARGUMENTS", arguments},
                                {"NATIVE", native}});
}

// "net.tandem" and "Net" as the name of a C function has them.
std::string mangled(const PhoneOptions& o) {
  std::string out;
  for (const char c : o.package) out += c == '.' ? "_" : c == '_' ? "_1" : std::string(1, c);
  return out + "_" + class_name(o.name);
}

std::string jni_source(const EdgeSource& net, const PhoneOptions& o) {
  std::string parameters, values, gets, all, arguments, releases;
  size_t k = 0;
  for (const PhonePort& p : phone_ports(net, {})) {
    const JavaType t = java_type(p.spec.dtype);
    parameters += fmt::format(", j{}Array a{}", t.java, k);
    values += fmt::format("  j{} *p{} = 0;\n", t.java, k);
    gets += fmt::format("  {}p{} = (*env)->Get{}ArrayElements(env, a{}, 0);\n",
                        k ? fmt::format("if (p{}) ", k - 1) : "", k, t.jni, k);
    all = fmt::format("p{}", k);
    arguments += fmt::format(", ({}{} *)p{}", p.in ? "const " : "", c_type(p.spec.dtype), k);
    releases = fmt::format("  if (p{0}) (*env)->Release{1}ArrayElements(env, a{0}, p{0}, {2});\n",
                           k, t.jni, p.in ? "JNI_ABORT" : "0") +
               releases;
    ++k;
  }
  return filled(kAndroidJni, {{"CLASS", class_name(o.name)},
                              {"NAME", o.name},
                              {"HEADER", fmt::format("#include \"{}.h\"", o.name)},
                              {"MANGLED", mangled(o)},
                              {"PARAMETERS", parameters},
                              {"VALUES", values},
                              {"GETS", gets},
                              {"ALL", all.empty() ? "1" : all},
                              {"ARGUMENTS", arguments},
                              {"RELEASES", releases}});
}

}  // namespace

FolderFiles write_android(const EdgeSource& net, const PhoneOptions& o) {
  check_package(o.package);
  const std::string main = "src/main/", cpp = main + "cpp/" + o.name;
  std::string folder = o.package;
  for (char& c : folder) c = c == '.' ? '/' : c;
  const auto with_names = [&](const char* text) {
    return filled(text, {{"NAME", o.name}, {"PACKAGE", o.package}});
  };
  const auto manifest = [&](const std::string& attributes, const char* content) {
    return filled(kAndroidManifest, {{"ATTRIBUTES", attributes}, {"CONTENT", content}});
  };
  FolderFiles files = {
      {"build.gradle", with_names(kAndroidGradle)},
      {"make_aar.sh", with_names(kAndroidScript)},
      {"AndroidManifest.xml", manifest(fmt::format(" package=\"{}\"", o.package),
                                       "<uses-sdk android:minSdkVersion=\"21\"/>")},
      {main + "AndroidManifest.xml", manifest("", "")},
      {main + "cpp/CMakeLists.txt", with_names(kAndroidCmake)},
      {cpp + ".c", without_arena(net, o)},
      {cpp + ".h", net.header},
      {cpp + "_jni.c", jni_source(net, o)},
      {fmt::format("{}java/{}/{}.java", main, folder, class_name(o.name)), java_class(net, o)}};
  for (auto& [name, text] : mini_files(net, o.name))
    files.emplace_back(main + "cpp/" + name, std::move(text));
  return files;
}

}  // namespace tandem::edge
