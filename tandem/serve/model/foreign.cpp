// SPDX-License-Identifier: Apache-2.0
// Which layouts there are, and what those of Triton and TensorFlow Serving share.
#include "tandem/serve/model/foreign_text_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/nearest.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/model/folder_internal.h"

namespace tandem::serve {

namespace fs = std::filesystem;

std::unique_ptr<ForeignLayout> open_foreign(const std::string& from, const std::string& path) {
  TD_CHECK(file_exists(path), Io, "'{}': there is no such file or folder", path);
  if (from == "triton") return open_triton(path);
  if (from == "tfserving") return open_tfserving(path);
  if (from == "torchserve") return open_torchserve(path);
  const std::string near = nearest_word(from, {"triton", "tfserving", "torchserve"});
  TD_FAIL(Value,
          "'{}' is not a server whose folders are read{}\nThere are triton, tfserving and "
          "torchserve.",
          from, near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

void FieldNotes::unused(const io::TextField& f, const std::string& why) {
  std::string note =
      fmt::format("'{}' (line {}) has no effect{}{}", f.name, f.line, why.empty() ? "" : ": ", why);
  if (notes.empty() || notes.back() != note) notes.push_back(std::move(note));  // lists say it once
}

int64_t FieldNotes::whole(const io::TextField& f, int64_t least, int64_t most) const {
  const auto n = f.as_int();
  TD_CHECK(n && *n >= least && *n <= most, Format,
           "'{}', line {}: '{}' expects a whole number from {} to {}, got '{}'", what, f.line,
           f.name, least, most, one_line(f.text, 64));
  return *n;
}

const io::TextMessage& FieldNotes::message(const io::TextField& f) const {
  TD_CHECK(!f.message.empty(), Format, "'{}', line {}: '{}' expects {{ ... }}", what, f.line,
           f.name);
  return f.message[0];
}

void FieldNotes::version_policy(const io::TextField& f, ModelSettings& s) {
  s.versions.clear();
  for (const io::TextField& kind : message(f).fields) {
    if (kind.name == "latest") {
      s.latest = 1;
      if (const io::TextField* n = message(kind).find("num_versions"))
        s.latest = whole(*n, 1, 1 << 20);
    } else if (kind.name == "all") {
      s.latest = 0;
    } else if (kind.name == "specific") {
      for (const io::TextField& v : message(kind).fields)
        if (v.name == "versions") s.versions.push_back(whole(v, 1, int64_t{1} << 53));
    } else {
      unused(kind);
    }
  }
}

std::map<int64_t, std::string> version_folders(const std::string& folder) {
  std::map<int64_t, std::string> out;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return out;
  for (const std::string& name : list_folder(folder)) {
    const auto v = parse_digits(name, uint64_t{1} << 53);
    if (v && *v > 0 && fs::is_directory(folder + "/" + name, error))
      out[static_cast<int64_t>(*v)] = folder + "/" + name;
  }
  return out;
}

}  // namespace tandem::serve
