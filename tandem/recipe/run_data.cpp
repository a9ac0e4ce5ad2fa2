// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/run_data.h"

#include "tandem/base/files/file.h"
#include "tandem/io/json.h"

namespace tandem::recipe {
namespace {

std::string file_of(const std::string& folder) { return folder + "/data.json"; }

int64_t whole(const io::Json& j, const std::string& file) {
  TD_CHECK(j.as_int(), Format, "'{}' expects whole numbers, got a {}", file, j.kind());
  return *j.as_int();
}
std::string text(const io::Json& j, const std::string& file) {
  TD_CHECK(j.as_string(), Format, "'{}' expects texts, got a {}", file, j.kind());
  return *j.as_string();
}
DType dtype(const io::Json& j, const std::string& file) {
  const std::string name = text(j, file);
#define X(short_name, type, text) \
  if (name == text) return DType::short_name;
  TD_FOR_EACH_DTYPE(X)
#undef X
  TD_FAIL(Format, "'{}': there is no dtype '{}'", file, name);
}

template <class T>
io::Json list(const std::vector<T>& values) {
  io::Json::Array out;
  for (const T& v : values) out.emplace_back(v);
  return out;
}
// The items of a list that need not be there.
template <class F>
auto items(const io::Json& j, const char* key, const std::string& file, F read) {
  std::vector<decltype(read(j, file))> out;
  const io::Json* list = j.find(key);
  if (!list) return out;
  TD_CHECK(list->as_array(), Format, "'{}': \"{}\" expects a list", file, key);
  for (const io::Json& item : *list->as_array()) out.push_back(read(item, file));
  return out;
}

}  // namespace

std::string run_data_text(const RecipeData& data) {
  io::Json::Object info;
  for (const auto& [key, value] : data.info) info.emplace_back(key, value);
  io::Json::Object j{{"train", data.train.text()}, {"info", std::move(info)}};
  io::Json::Array fields;  // of the first batch
  for (const Tensor& x : data.train.fields(0)) {
    io::Json::Array shape;
    for (int d = 0; d < x.dim(); ++d) shape.push_back(x.size(d));
    fields.push_back(
        io::Json::Object{{"dtype", to_string(x.dtype())}, {"shape", std::move(shape)}});
  }
  j.emplace_back("fields", std::move(fields));
  if (!data.facts.classes.empty()) j.emplace_back("classes", list(data.facts.classes));
  if (!data.facts.characters.empty()) j.emplace_back("characters", list(data.facts.characters));
  j.emplace_back("image", list(data.facts.image));
  if (!data.facts.kept.is_null()) j.emplace_back("kept", data.facts.kept);
  return io::Json(std::move(j)).dump(1) + "\n";
}

RunData read_run_data(const std::string& folder) {
  const std::string file = file_of(folder);
  const io::Json j = io::parse_json(read_file(file), file);
  const io::Json *info = j.find("info"), *fields = j.find("fields");
  TD_CHECK(info && info->as_object() && fields && fields->as_array(), Format,
           "'{}' expects \"info\" and \"fields\"", file);
  RunData out;
  for (const auto& [key, value] : *info->as_object()) out.info[key] = whole(value, file);
  for (const io::Json& field : *fields->as_array()) {
    const io::Json* type = field.find("dtype");
    TD_CHECK(type && field.find("shape"), Format, "'{}': a field expects \"dtype\" and \"shape\"",
             file);
    out.fields.push_back({dtype(*type, file), items(field, "shape", file, whole)});
  }
  out.facts = {.classes = items(j, "classes", file, text),
               .characters = items(j, "characters", file, whole),
               .image = items(j, "image", file, whole)};
  if (const io::Json* kept = j.find("kept")) out.facts.kept = *kept;
  // Of a run from before the shape was kept: that after the transforms.
  if (!j.find("image") && !out.fields.empty() && out.fields[0].shape.size() == 4)
    out.facts.image.assign(out.fields[0].shape.begin() + 1, out.fields[0].shape.end());
  for (const int64_t character : out.facts.characters)
    TD_CHECK(character >= -1 && character < 256, Format,
             "'{}': a character is a byte, or -1 for the end of a line, got {}", file, character);
  TD_CHECK(out.facts.image.empty() || out.facts.image.size() == 3, Format,
           "'{}': \"image\" expects [channels, height, width]", file);
  return out;
}

}  // namespace tandem::recipe
