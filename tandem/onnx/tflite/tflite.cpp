// SPDX-License-Identifier: Apache-2.0
// .tflite files: which signature, which subgraph.
#include "tandem/onnx/tflite.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tandem/base/budget.h"
#include "tandem/onnx/tflite/builder_internal.h"

namespace tandem::onnx {

bool is_tflite_model(std::string_view content) {
  return io::FlatDocument(content, "model").identifier() == "TFL3";
}

const TfliteSignature* find_tflite_signature(const TfliteModel& m, const std::string& wanted,
                                             const std::string& what) {
  std::string names;
  for (const TfliteSignature& s : m.signatures) {
    if (s.key == (wanted.empty() ? "serving_default" : wanted)) return &s;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", s.key);
  }
  if (wanted.empty()) {
    for (const TfliteSignature& s : m.signatures)
      if (s.graph == 0) return &s;
    return nullptr;
  }
  TD_FAIL(Value, "'{}': there is no signature '{}'\n{}.", what, wanted,
          names.empty() ? "It has none" : "It has " + names);
}

OnnxModelProto read_tflite_model(const FilePath& path, const std::string& signature) {
  const auto file = make_ref<MappedFile>(path.str());
  Budget::add_given(file->size());
  const io::FlatDocument document(file->view(), path.str());
  const TfliteModel m = parse_tflite(document);
  const TfliteSignature* s = find_tflite_signature(m, signature, path.str());
  return TfliteBuilder(m, path.str()).run(s ? s->graph : 0, s);
}

std::vector<std::string> tflite_signatures(const FilePath& path) {
  const auto file = make_ref<MappedFile>(path.str());
  const Budget budget(path.str(), file->size());
  const io::FlatDocument document(file->view(), path.str());
  std::vector<std::string> names;
  for (const TfliteSignature& s : parse_tflite(document).signatures) names.push_back(s.key);
  return names;
}

std::vector<std::string> tflite_ops() {
  std::vector<std::string> names;
  for (const auto& family : tflite_rows())
    for (const TfliteRow& r : family) names.emplace_back(r.name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tandem::onnx
