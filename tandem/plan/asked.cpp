// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/asked.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <filesystem>

#include "tandem/base/ascii.h"
#include "tandem/base/error.h"
#include "tandem/plan/names_internal.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& text,
                         const std::string& reason, const std::string& nearest,
                         const std::string& form) {
  const std::string shown = text.size() > 60 ? text.substr(0, 57) + "..." : text;
  TD_FAIL(Value, "{} '{}': {}\n{}{}", option, shown, reason,
          nearest.empty() ? "" : "Did you mean '" + nearest + "'? ", form);
}

std::string trimmed(const std::string& s) {
  const size_t from = s.find_first_not_of(" \t"), to = s.find_last_not_of(" \t");
  return from == s.npos ? "" : s.substr(from, to - from + 1);
}
std::string without(const std::string& s, const std::string& chars) {
  std::string out;
  for (char c : s)
    if (chars.find(c) == chars.npos) out += c;
  return out;
}

// The number that a text begins with, and what follows it. No infinities, no hexadecimals.
struct Leading {
  std::optional<double> value;
  std::string rest;
};
Leading leading(const std::string& text) {
  Leading out;
  out.rest = text;
  const size_t sign = !text.empty() && text[0] == '-' ? 1 : 0;
  if (text.size() <= sign || !((text[sign] >= '0' && text[sign] <= '9') || text[sign] == '.'))
    return out;
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || !std::isfinite(v)) return out;
  out.value = v;
  out.rest = trimmed(text.substr(static_cast<size_t>(end - text.data())));
  return out;
}

std::string plainly(double v) {
  return v == std::floor(v) && std::abs(v) < 1e15 ? fmt::format("{:.0f}", v) : fmt::format("{}", v);
}

struct Unit {
  const char* name;
  double scale;
};
constexpr Unit kTimes[] = {
    {"ms", 1e-3},        {"s", 1},        {"sec", 1},       {"seconds", 1},
    {"m", 60},           {"min", 60},     {"minutes", 60},  {"h", 3600},
    {"hr", 3600},        {"hour", 3600},  {"hours", 3600},  {"d", 86400},
    {"day", 86400},      {"days", 86400}, {"w", 7 * 86400}, {"week", 7 * 86400},
    {"weeks", 7 * 86400}};
constexpr Unit kMany[] = {{"", 1}, {"k", 1e3}, {"m", 1e6}, {"b", 1e9}, {"g", 1e9}, {"t", 1e12}};

template <size_t n>
const Unit* unit_of(const Unit (&all)[n], const std::string& name) {
  for (const Unit& u : all)
    if (ascii_lower(name) == u.name) return &u;
  return nullptr;
}

constexpr const char* kTimeForm = "Write it as 36h, 2d, 90m, 1d12h or 3600s.";

// A number above 0 with a multiplier, in a form that is said.
double many(const std::string& text, const std::string& given, const std::string& option,
            const std::string& form, const std::string& before = "") {
  const Leading n = leading(given);
  if (!n.value) {
    const size_t digit = given.find_first_of("0123456789");
    const Leading bare = leading(digit == given.npos ? "" : given.substr(digit));
    refuse(option, text, "it is not a number",
           bare.value && *bare.value > 0 ? before + plainly(*bare.value) : "", form);
  }
  const std::string positive = before + without(given, "-, ");
  if (n.rest.starts_with(",")) refuse(option, text, "commas do not belong into it", positive, form);
  if (*n.value < 0) refuse(option, text, "it is negative", positive, form);
  const Unit* u = unit_of(kMany, n.rest);
  if (!u)
    refuse(option, text, "'" + n.rest + "' is not a multiplier", before + plainly(*n.value), form);
  if (*n.value == 0) refuse(option, text, "it is 0, which asks for nothing", "", form);
  const double v = *n.value * u->scale;
  if (!(v <= 1e30)) refuse(option, text, "it is more than 1e30", "", form);
  return v;
}

}  // namespace

// "key=value,key=value"
std::vector<std::pair<std::string, std::string>> pairs(const std::string& text,
                                                       const std::string& option,
                                                       const std::vector<std::string>& known,
                                                       const std::string& form) {
  std::vector<std::pair<std::string, std::string>> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = trimmed(text.substr(at, end - at));
    at = end + 1;
    size_t eq = part.find('=');
    const std::string key = trimmed(part.substr(0, eq));
    if (eq == part.npos) {
      const size_t blank = part.find_first_of(" :");
      const bool two = blank != part.npos;
      refuse(option, text, "'" + part + "' has no '='",
             two ? trimmed(part.substr(0, blank)) + "=" + trimmed(part.substr(blank + 1)) : "",
             form);
    }
    bool found = false, twice = false;
    for (const std::string& k : known) found |= k == key;
    for (const auto& [k, v] : out) twice |= k == key;
    if (!found) {
      const std::string near = nearest_word(key, known);
      refuse(option, text, "'" + key + "' is not known here",
             near.empty() ? "" : near + part.substr(eq), form);
    }
    if (twice) refuse(option, text, "'" + key + "' is there twice", "", form);
    out.emplace_back(key, trimmed(part.substr(eq + 1)));
  }
  return out;
}

namespace {

// The files of a folder and of those in it, hidden ones not counted.
DataSet folder_data(const std::string& path, const std::string& form) {
  namespace fs = std::filesystem;
  DataSet d;
  d.name = path;
  d.files = true;
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(path, options, error), end; !error && at != end;
       at.increment(error)) {
    const bool hidden = at->path().filename().string().starts_with(".");
    if (hidden && at->is_directory(error)) at.disable_recursion_pending();
    if (hidden || !at->is_regular_file(error)) continue;
    d.samples += 1;
    d.bytes += static_cast<double>(at->file_size(error));
  }
  if (error) refuse("--data", path, "it cannot be read: " + error.message(), "", form);
  if (d.samples == 0) refuse("--data", path, "the folder has no files", "", form);
  d.source = "its files, counted";
  return d;
}

}  // namespace

double duration(const std::string& text, const std::string& option, const std::string& unit) {
  const std::string form = unit == "ms" ? "Write it as 50ms or 1.5s." : kTimeForm;
  std::string rest = trimmed(text);
  double all = 0;
  bool first = true;
  while (first || !rest.empty()) {
    const Leading n = leading(rest);
    if (!n.value) refuse(option, text, "it is not a time", "", form);
    size_t letters = 0;
    while (letters < n.rest.size() && !(n.rest[letters] >= '0' && n.rest[letters] <= '9') &&
           n.rest[letters] != '.' && n.rest[letters] != '-')
      ++letters;
    std::string name = trimmed(n.rest.substr(0, letters));
    rest = n.rest.substr(letters);
    if (name.empty() && first && rest.empty()) name = unit;
    if (*n.value < 0) refuse(option, text, "it is negative", without(trimmed(text), "-"), form);
    const Unit* u = unit_of(kTimes, name);
    if (!u) {
      std::vector<std::string> known;
      for (const Unit& k : kTimes) known.emplace_back(k.name);
      // One letter is as near to each of them.
      const std::string near = name.size() > 1 ? nearest_word(ascii_lower(name), known) : "";
      refuse(option, text,
             name.empty() ? "a unit is missing" : "'" + name + "' is not a unit of time",
             plainly(*n.value) + (!near.empty()  ? near
                                  : unit == "ms" ? "ms"
                                                 : "h"),
             form);
    }
    all += *n.value * u->scale;
    first = false;
  }
  if (all <= 0) refuse(option, text, "a time is above 0", "", form);
  if (!(all <= 1e12)) refuse(option, text, "it is more than 30000 years", "", form);
  return all;
}

double dollars(const std::string& text, const std::string& option) {
  const std::string form = "Write it as 500, $500 or 1.5k (US dollars, above 0).";
  std::string s = trimmed(text);
  if (s.starts_with("$")) s = trimmed(s.substr(1));
  for (const char* word : {"usd", "dollars", "$"})
    if (ascii_lower(s).ends_with(word))
      s = trimmed(s.substr(0, s.size() - std::string(word).size()));
  const Leading n = leading(s);
  const std::string rest = ascii_lower(n.rest);
  for (const char* other : {"eur", "gbp", "chf", "yen", "jpy", "cny"})
    if (n.value && rest == other)
      refuse(option, text, "prices are in US dollars", plainly(std::abs(*n.value)), form);
  return many(text, s, option, form);
}

double amount(const std::string& text, const std::string& option) {
  return many(text, trimmed(text), option, "Write it as 90, 1e9, 300M or 1.2B (above 0).");
}

Claim claim_of(const std::string& text) {
  const std::string option = "--check-claim", s = trimmed(text), small = ascii_lower(s);
  const std::string form = "Write it as 4.2h, $500, 10kWh or 2500/s (above 0).";
  if (s.starts_with("$") || small.ends_with("usd") || small.ends_with("$"))
    return {Claim::Of::cost, dollars(text, option)};
  if (small.ends_with("kwh"))
    return {Claim::Of::energy, many(text, trimmed(s.substr(0, s.size() - 3)), option, form)};
  if (!small.ends_with("/s")) return {Claim::Of::time, duration(text, option)};
  // A multiplier or the name of what is counted stands before it: "2.5k/s", "2500 images/s".
  const Leading n = leading(s.substr(0, s.size() - 2));
  const bool named = n.value && n.rest.size() > 1;
  return {Claim::Of::rate,
          many(text, named ? plainly(*n.value) : trimmed(s.substr(0, s.size() - 2)), option, form)};
}

int64_t whole_number(const std::string& text, const std::string& option, int64_t low,
                     int64_t high) {
  static const std::vector<std::string> kWords = {"zero", "one",   "two",   "three", "four", "five",
                                                  "six",  "seven", "eight", "nine",  "ten"};
  const std::string form = fmt::format("It is a whole number from {} to {}.", low, high);
  const std::string s = trimmed(text);
  const auto near = [&](double v) {
    return fmt::format("{:.0f}", std::min(std::max(std::round(v), static_cast<double>(low)),
                                          static_cast<double>(high)));
  };
  Leading n = leading(s);
  if (!n.value) {
    for (size_t k = 0; k < kWords.size(); ++k)
      if (ascii_lower(s) == kWords[k])
        refuse(option, text, "it is not a number", near(static_cast<double>(k)), form);
    const size_t digit = s.find_first_of("0123456789");
    if (digit != s.npos) n = leading(s.substr(digit));
    refuse(option, text, "it is not a number", n.value ? near(*n.value) : "", form);
  }
  if (!n.rest.empty()) refuse(option, text, "'" + n.rest + "' is too much", near(*n.value), form);
  if (*n.value != std::floor(*n.value))
    refuse(option, text, "it is not a whole number", near(*n.value), form);
  if (*n.value < static_cast<double>(low) || *n.value > static_cast<double>(high))
    refuse(option, text, "it is out of range", near(*n.value), form);
  return static_cast<int64_t>(*n.value);
}

std::string one_of(const std::string& text, const std::string& option,
                   const std::vector<std::string>& known) {
  for (const std::string& k : known)
    if (text == k) return k;
  refuse(option, text, "there is no such choice", nearest_word(ascii_lower(trimmed(text)), known),
         fmt::format("It is one of {}.", fmt::join(known, ", ")));
}

ServeRequest serve_request(const std::string& text) {
  const std::string form = "Write --serve rps=200,p99=50ms (both above 0).";
  ServeRequest s;
  for (const auto& [key, value] : pairs(text, "--serve", {"rps", "p99"}, form)) {
    if (key == "rps")
      s.rps = many(text, value, "--serve", form, "rps=");
    else
      s.p99 = duration(value, "--serve p99", "ms");
  }
  if (s.rps == 0 || s.p99 == 0)
    refuse("--serve", text, s.rps == 0 ? "'rps' is missing" : "'p99' is missing",
           trimmed(text) + (s.rps == 0 ? ",rps=200" : ",p99=50ms"), form);
  return s;
}

DataSet data_set(const std::string& text) {
  static const std::vector<DataSet> kKnown = {
      {"mnist", 60000, 47e6, "60000 images of 28 x 28, as its files are", false},
      {"cifar10", 50000, 154e6, "50000 images of 32 x 32 x 3", false},
      {"cifar100", 50000, 154e6, "50000 images of 32 x 32 x 3", false},
      {"imagenet", 1281167, 147e9, "ILSVRC 2012: 1281167 JPEG photos", true},
      {"imagenet21k", 14197122, 1.31e12, "14197122 JPEG photos", true},
      {"coco", 118287, 19e9, "train2017", true},
      {"glue-sst2", 67349, 4e6, "67349 sentences", false},
      {"squad", 87599, 30e6, "version 1.1", false},
  };
  std::vector<std::string> names;
  for (const DataSet& d : kKnown) {
    if (plain_name(d.name) == plain_name(text)) return d;
    names.push_back(d.name);
  }
  const std::string form =
      fmt::format("Known are {}; others: --data FOLDER, samples=50000 or samples=50000,gb=12.",
                  fmt::join(names, ", "));
  std::error_code unseen;
  if (std::filesystem::is_directory(text, unseen)) return folder_data(text, form);
  if (std::filesystem::is_regular_file(text, unseen))
    refuse("--data", text, "it is a file, whose samples cannot be counted",
           fmt::format("samples=50000,gb={:.3g}",
                       static_cast<double>(std::filesystem::file_size(text, unseen)) / 1e9),
           form);
  if (text.find('=') == text.npos)
    refuse("--data", text, "there is no such data set",
           nearest_word(ascii_lower(trimmed(text)), names), form);
  DataSet d;
  d.name = "your data";
  d.source = "given";
  for (const auto& [key, value] : pairs(text, "--data", {"samples", "gb"}, form)) {
    if (key == "samples") {
      d.samples = many(text, value, "--data", form, "samples=");
      continue;
    }
    const Leading n = leading(value);
    for (const Unit& u : {Unit{"kb", 1e-6}, Unit{"mb", 1e-3}, Unit{"gb", 1}, Unit{"tb", 1e3}})
      if (n.value && ascii_lower(n.rest) == u.name)
        refuse("--data", text, "'gb' counts GB and takes no unit",
               "gb=" + plainly(std::abs(*n.value) * u.scale), form);
    d.bytes = 1e9 * many(text, value, "--data", form, "gb=");
  }
  if (d.samples == 0)
    refuse("--data", text, "'samples' is missing", "samples=50000," + trimmed(text), form);
  return d;
}

}  // namespace tandem::plan
