// SPDX-License-Identifier: Apache-2.0
// Between transform_table.cpp and the files of rows: *_rows.cpp. Arguments of a transform are a
// struct of what its function takes; options structs say their own fields.
#pragma once

#include "tandem/data/transforms/transform_table.h"

namespace tandem::data::detail {

std::span<const TransformRow> choice_rows();
std::span<const TransformRow> geometry_rows();
std::span<const TransformRow> color_rows();
std::span<const TransformRow> value_rows();
std::span<const TransformRow> policy_rows();

/// A transform whose only arguments are its options.
template <class Options, auto function>
struct OnlyOptions {
  Options options = {};
  template <class V>
  void fields(V& v) {
    options.fields(v);
  }
  Transform make() const { return function(options); }
};
/// A transform that happens with a probability and has no other arguments.
template <auto function>
struct OnlyProbability {
  double p = 0.5;
  template <class V>
  void fields(V& v) {
    v("p", p, {.doc = "probability", .at_least = 0, .at_most = 1});
  }
  Transform make() const { return function(p); }
};
/// A transform without arguments.
template <auto function>
constexpr TransformRow plain_row(const char* name, const char* doc, const char* example) {
  return {{name, doc, example}, [](const void*) { return function(); }};
}

template <class V>
void probability_field(V& v, double& p, const char* doc = "probability") {
  v("p", p, {.doc = doc, .at_least = 0, .at_most = 1});
}
/// {both} or {height, width}, without a default.
template <class V>
void size_field(V& v, Sizes& size, const char* doc, const char* name = "size") {
  v(name, size,
    {.doc = doc, .unit = "pixels", .at_least = 1, .counts = counts(1, 2), .required = true});
}
template <class V>
void degrees_field(V& v, Range& degrees) {
  v("degrees", degrees,
    {.doc = "range that the angle is drawn from; a number d stands for -d to d",
     .unit = "degrees",
     .single = Single::around_zero,
     .required = true});
}
template <class V>
void fill_field(V& v, Fill& fill,
                const char* doc = "value outside the image, one or one per channel") {
  v("fill", fill, {.doc = doc, .single = Single::itself});
}
template <class V>
void interpolation_field(V& v, Interpolation& mode) {
  v("interpolation", mode, {.doc = "how pixels between pixels are computed"});
}
template <class V>
void resize_fields(V& v, ResizeArgs& args) {
  interpolation_field(v, args.interpolation);
  v("antialias", args.antialias, {.doc = "average over the pixels that one new pixel covers"});
}

}  // namespace tandem::data::detail
