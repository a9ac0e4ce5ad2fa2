// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/hardware/catalog.h"

#include <algorithm>

#include "tandem/base/ascii.h"
#include "tandem/base/error.h"
#include "tandem/plan/names_internal.h"

namespace tandem::plan {
namespace {

template <class T>
const T* known_by_name(const std::vector<T>& all, const std::string& name) {
  const std::string wanted = plain_name(name);
  for (const T& t : all) {
    if (plain_name(t.name) == wanted) return &t;
    for (const std::string& alias : t.aliases)
      if (plain_name(alias) == wanted) return &t;
  }
  return nullptr;
}

template <class T>
const T& by_name(const std::vector<T>& all, const std::string& name, const char* what) {
  if (const T* t = known_by_name(all, name)) return *t;
  const std::string wanted = plain_name(name);
  std::vector<std::string> names;
  std::map<std::string, std::string> proper;
  std::string list;
  for (const T& t : all) {
    std::vector<std::string> of = t.aliases;
    of.insert(of.begin(), t.name);
    for (const std::string& n : of) {
      names.push_back(plain_name(n));
      proper.try_emplace(names.back(), t.name);
    }
    list += (list.empty() ? "" : ", ") + t.name;
  }
  // "8xh100" asks for eight of them.
  size_t digits = 0;
  while (digits < wanted.size() && wanted[digits] >= '0' && wanted[digits] <= '9') ++digits;
  if (digits > 0 && digits < wanted.size() && wanted[digits] == 'x')
    if (const auto at = proper.find(wanted.substr(digits + 1)); at != proper.end())
      TD_FAIL(Value, "'{}' is not the name of a {}\nDid you mean --gpu '{}' --n {}?", name, what,
              at->second, wanted.substr(0, digits));
  // A name that continues what was typed is nearer than one of the same length.
  std::string near;
  for (const std::string& n : names)
    if (near.empty() && wanted.size() > 1 && n.starts_with(wanted)) near = n;
  if (near.empty()) near = nearest_word(wanted, names);
  if (!near.empty()) near = "Did you mean '" + proper.at(near) + "'? ";
  TD_FAIL(Value, "there is no {} '{}'\n{}Known are {}; a file for --hardware may know others.",
          what, name, near, list);
}

}  // namespace

std::string plain_name(const std::string& name) {
  static const char* const kMakers[] = {"nvidia", "geforce", "tesla", "amd", "instinct", "intel"};
  std::string out;
  for (size_t at = 0; at < name.size();) {
    size_t end = name.find_first_of(" -_", at);
    if (end == name.npos) end = name.size();
    const std::string word = ascii_lower(name.substr(at, end - at));
    at = end + 1;
    bool maker = false;
    for (const char* m : kMakers) maker |= word == m;
    if (!maker) out += word;
  }
  return out;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest_word(word, known);
  return near.empty() ? "" : "Did you mean '" + near + "'? ";
}

double Gpu::usable() const { return std::max(0.0, memory - kDriverKeeps); }

double Gpu::peak(const std::string& kind) const {
  static const std::map<std::string, std::vector<std::string>> kWider = {
      {"f32", {"f32"}},
      {"tf32", {"tf32", "f32"}},
      {"bf16", {"bf16", "f16", "tf32", "f32"}},
      {"f16", {"f16", "bf16", "tf32", "f32"}},
      {"fp8", {"fp8", "bf16", "f16", "f32"}},
      {"int8", {"int8", "f16", "f32"}}};
  const auto at = kWider.find(kind);
  TD_CHECK(at != kWider.end(), Value, "there is no kind of numbers '{}'", kind);
  // bf16 on a card without it runs as f32; f16 there is no stand-in, since ranges differ.
  for (const std::string& k : at->second) {
    if (kind == "bf16" && k == "f16" && !flops.count("bf16")) continue;
    if (const auto f = flops.find(k); f != flops.end()) return f->second;
  }
  return flops.at("f32");
}

const Gpu& Catalog::gpu(const std::string& name) const {
  if (!known_by_name(gpus_, name))
    if (const Cpu* cpu = known_by_name(cpus_, name))
      TD_FAIL(Value,
              "'{}' is a processor, {}: what kernels reach on it is not known from its data sheet\n"
              "Run `tandem bench --machine` on it, then plan with --gpu this.",
              name, cpu->name);
  return by_name(gpus_, name, "GPU");
}
const Cpu& Catalog::cpu(const std::string& name) const { return by_name(cpus_, name, "CPU"); }
const GpuPrice& Catalog::price(const Gpu& gpu) const {
  const auto at = prices_.gpus.find(gpu.name);
  TD_CHECK(at != prices_.gpus.end(), Value,
           "{} has no price of {}\nAdd a row to a copy of it and give --prices FILE.", prices_.file,
           gpu.name);
  return at->second;
}

}  // namespace tandem::plan
