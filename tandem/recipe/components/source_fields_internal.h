// SPDX-License-Identifier: Apache-2.0
// Fields that data sources share: where they lie, how their rows become batches, what their images
// go through.
#pragma once

#include "tandem/data/transforms/transform_table.h"
#include "tandem/recipe/components/components_internal.h"

namespace tandem::recipe {

/// How images are read.
enum class ImageColor : uint8_t { gray, rgb };
constexpr const char* field_names(ImageColor) { return "gray rgb"; }
inline io::ImageMode mode_of(ImageColor color) {
  return color == ImageColor::gray ? io::ImageMode::gray : io::ImageMode::rgb;
}

template <class V>
void root_field(V& v, std::string& root, const char* doc) {
  v("root", root, {.doc = doc, .resumable = true});
}
/// A file or folder that has to be named.
template <class V>
void path_field(V& v, std::string& root, const char* doc) {
  v("root", root, {.doc = doc, .required = true, .resumable = true});
}
template <class V>
void test_field(V& v, std::string& test, const char* doc = "another file for the test") {
  v("test", test, {.doc = doc, .resumable = true});
}
template <class V>
void skip_field(V& v, bool& skip_damaged) {
  v("skip_damaged", skip_damaged,
    {.doc = "replace a sample that cannot be read by the next one, and count it"});
}
template <class V>
void dtype_field(V& v, const char* name, std::string& dtype, const char* doc) {
  v(name, dtype, {.doc = doc});
}

}  // namespace tandem::recipe
