// SPDX-License-Identifier: Apache-2.0
// TFLite's operators that move, choose and create elements.
#include <algorithm>

#include "tandem/onnx/tflite/builder_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

using Codes = TfliteCodes;

void tflite_moved(TfliteCall& c) {
  const Names out = c.many(c.row.node, kOnnxTf, c.all(), c.op.out.size());
  for (size_t i = 0; i < out.size(); ++i) c.set(i, out[i]);
}

// The new shape is an input or, in older files, an option.
void tflite_reshape(TfliteCall& c) {
  std::string shape;
  if (c.has(1) && c.tensor(1).type == OnnxType::i32) {
    shape = c.x(1);
  } else {
    const auto list = c.op.options.numbers<int32_t>(0, 64);
    shape = c.list({list.begin(), list.end()});
  }
  c.set(0, c.tf("Reshape", {c.x(0), shape}));
}
void tflite_squeeze(TfliteCall& c) {
  const auto dims = c.op.options.numbers<int32_t>(0, 64);
  c.set(0, c.tf("Squeeze", {c.x(0)}, {onnx_ints("squeeze_dims", {dims.begin(), dims.end()})}));
}
void tflite_concat(TfliteCall& c) {
  Names in = c.all();
  in.push_back(c.number(static_cast<double>(c.option(0)), OnnxType::i64));
  c.set(0, c.tf("ConcatV2", std::move(in)));
}
void tflite_pack(TfliteCall& c) {
  c.set(0, c.tf("Pack", c.all(), {onnx_int("axis", c.option(1))}));
}
void tflite_parts(TfliteCall& c, OnnxAttributes attributes) {
  const Names out = c.many(c.row.node, kOnnxTf, c.all(), c.op.out.size(), std::move(attributes));
  for (size_t i = 0; i < out.size(); ++i) c.set(i, out[i]);
}
void tflite_unpack(TfliteCall& c) { tflite_parts(c, {onnx_int("axis", c.option(1))}); }
void tflite_split(TfliteCall& c) { tflite_parts(c, {onnx_int("num_split", c.option(0))}); }

void tflite_strided_slice(TfliteCall& c) {
  if (c.flag(5)) c.lacks("an end that counts from the beginning");
  c.set(0, c.tf("StridedSlice", c.all(),
                {onnx_int("begin_mask", c.option(0)), onnx_int("end_mask", c.option(1)),
                 onnx_int("ellipsis_mask", c.option(2)), onnx_int("new_axis_mask", c.option(3)),
                 onnx_int("shrink_axis_mask", c.option(4))}));
}
void tflite_gather(TfliteCall& c) {
  c.set(0, c.tf("GatherV2",
                {c.x(0), c.x(1), c.number(static_cast<double>(c.option(0)), OnnxType::i64)},
                {onnx_int("batch_dims", c.option(1))}));
}
void tflite_embedding(TfliteCall& c) {
  c.set(0, c.tf("GatherV2", {c.x(1), c.x(0), c.number(0, OnnxType::i64)}));
}
// What stands for 0 is the zero point.
void tflite_pad(TfliteCall& c) {
  Names in = c.all();
  const TfliteTensor& t = c.tensor(0);
  if (in.size() == 2 && t.is_quantised() && !c.as_numbers)
    in.push_back(c.number(static_cast<double>(t.scales.zero[0]), t.type));
  const char* const op = in.size() == 2 ? "Pad" : "PadV2";
  c.set(0, c.tf(op, std::move(in)));
}
void tflite_mirror_pad(TfliteCall& c) {
  c.set(0,
        c.tf("MirrorPad", c.all(), {onnx_text("mode", c.small(0) == 0 ? "REFLECT" : "SYMMETRIC")}));
}
void tflite_blocks(TfliteCall& c) {
  c.set(0, c.tf(c.row.node, {c.x(0)}, {onnx_int("block_size", c.option(0))}));
}
void tflite_shape(TfliteCall& c) {
  c.set(0, c.tf("Shape", {c.x(0)}, {onnx_int("out_type", static_cast<int64_t>(c.result(0).type))}));
}
void tflite_resize_nearest(TfliteCall& c) {
  c.set(0, c.tf("ResizeNearestNeighbor", {c.x(0), c.x(1)},
                {onnx_int("align_corners", c.flag(0)), onnx_int("half_pixel_centers", c.flag(1))}));
}
void tflite_resize_bilinear(TfliteCall& c) {
  c.set(0, c.tf("ResizeBilinear", {c.x(0), c.x(1)},
                {onnx_int("align_corners", c.flag(2)), onnx_int("half_pixel_centers", c.flag(3))}));
}
void tflite_update_slice(TfliteCall& c) {
  c.set(0, c.own("DynamicUpdateSlice", {c.x(0), c.x(1), c.x(2)}));
}
void tflite_reverse_sequence(TfliteCall& c) {
  c.set(0, c.tf("ReverseSequence", c.all(),
                {onnx_int("seq_dim", c.option(0)), onnx_int("batch_dim", c.option(1))}));
}
void tflite_unique(TfliteCall& c) {
  tflite_parts(c, {onnx_int("out_idx", static_cast<int64_t>(c.result(1).type))});
}
// Results are padded to the number of boxes that are asked for.
void tflite_suppress(TfliteCall& c) {
  const bool soft = std::string_view(c.row.name) == "NON_MAX_SUPPRESSION_V5";
  if (c.op.in.size() != (soft ? 6 : 5))
    c.b.fail(fmt::format("a {} has {} inputs", c.row.name, c.op.in.size()));
  if (soft && c.has(5) && !c.is_constant(5)) c.lacks("a computed share of soft suppression");
  if (soft && c.has(5) &&
      c.constant(5).tensor().to(DType::f32).reshape({-1}).abs().max().item<float>() > 0)
    c.lacks("soft suppression");
  const Names out =
      c.many(c.row.node, kOnnxTf, c.all(), soft ? 3 : 2, {onnx_int("pad_to_max_output_size", 1)});
  for (size_t i = 0; i < out.size(); ++i) c.set(i, out[i]);
}
// Rows of a table by their keys, zeros for a key that is not there; and whether it is.
void tflite_hashed(TfliteCall& c) {
  const TfliteTensor& values = c.tensor(2);
  if (values.type == OnnxType::string) c.lacks("a table of strings");
  const auto axis = [&](int64_t d) { return c.number(static_cast<double>(d), OnnxType::i32); };
  const auto as = [&](const std::string& x, OnnxType type) {
    return c.tf("Cast", {x}, {onnx_int("DstT", static_cast<int64_t>(type))});
  };
  const std::string equal =
      c.tf("Equal", {c.tf("ExpandDims", {c.x(0), axis(1)}), c.tf("ExpandDims", {c.x(1), axis(0)})});
  const std::string there = c.tf("Any", {equal, axis(1)}, {onnx_int("keep_dims", 0)});
  const std::string at = c.tf("ArgMax", {as(equal, OnnxType::i32), axis(1)},
                              {onnx_int("output_type", static_cast<int64_t>(OnnxType::i64))});
  const std::string rows = c.tf("GatherV2", {c.x(2), at, c.number(0, OnnxType::i64)});
  std::vector<int64_t> shape(std::max<size_t>(values.shape.size(), 1), 1);
  shape[0] = -1;
  c.set(0, c.tf("SelectV2", {c.tf("Reshape", {there, c.list(shape)}), rows,
                             c.number(0, c.as_numbers ? OnnxType::f32 : values.type)}));
  c.set(1, as(there, OnnxType::u8));
}
void tflite_bucketize(TfliteCall& c) {
  OnnxAttribute a;
  a.name = "boundaries";
  a.kind = OnnxAttribute::floats;
  a.float_list = c.op.options.numbers<float>(0);
  c.set(0, c.tf("Bucketize", {c.x(0)}, {std::move(a)}));
}

}  // namespace

std::span<const TfliteRow> tflite_shape_rows() {
  static constexpr TfliteRow kRows[] = {
      {22, "RESHAPE", tflite_reshape, nullptr, -1, Codes::moved},
      {43, "SQUEEZE", tflite_squeeze, nullptr, -1, Codes::moved},
      {70, "EXPAND_DIMS", tflite_moved, "ExpandDims", -1, Codes::moved},
      {39, "TRANSPOSE", tflite_moved, "Transpose", -1, Codes::moved},
      {2, "CONCATENATION", tflite_concat, nullptr, 1, Codes::moved, tflite_raw_shorts},
      {83, "PACK", tflite_pack, nullptr, -1, Codes::moved},
      {88, "UNPACK", tflite_unpack, "Unpack", -1, Codes::moved},
      {49, "SPLIT", tflite_split, "Split", -1, Codes::moved},
      {102, "SPLIT_V", tflite_moved, "SplitV", -1, Codes::moved},
      {45, "STRIDED_SLICE", tflite_strided_slice, nullptr, -1, Codes::moved},
      {65, "SLICE", tflite_moved, "Slice", -1, Codes::moved},
      {36, "GATHER", tflite_gather, nullptr, -1, Codes::moved},
      {107, "GATHER_ND", tflite_moved, "GatherNd", -1, Codes::moved},
      {122, "SCATTER_ND", tflite_moved, "ScatterNd"},
      {7, "EMBEDDING_LOOKUP", tflite_embedding, nullptr, -1, Codes::moved},
      {34, "PAD", tflite_pad, nullptr, -1, Codes::moved},
      {60, "PADV2", tflite_pad, nullptr, -1, Codes::moved},
      {100, "MIRROR_PAD", tflite_mirror_pad, nullptr, -1, Codes::moved},
      {105, "REVERSE_V2", tflite_moved, "ReverseV2", -1, Codes::moved},
      {112, "REVERSE_SEQUENCE", tflite_reverse_sequence, nullptr, -1, Codes::moved},
      {151, "DYNAMIC_UPDATE_SLICE", tflite_update_slice, nullptr, -1, Codes::moved},
      {69, "TILE", tflite_moved, "Tile", -1, Codes::moved},
      {130, "BROADCAST_TO", tflite_moved, "BroadcastTo", -1, Codes::moved},
      {145, "BROADCAST_ARGS", tflite_moved, "BroadcastArgs"},
      {26, "SPACE_TO_DEPTH", tflite_blocks, "SpaceToDepth", -1, Codes::moved},
      {5, "DEPTH_TO_SPACE", tflite_blocks, "DepthToSpace", -1, Codes::moved},
      {38, "SPACE_TO_BATCH_ND", tflite_moved, "SpaceToBatchND"},
      {37, "BATCH_TO_SPACE_ND", tflite_moved, "BatchToSpaceND", -1, Codes::moved},
      {97, "RESIZE_NEAREST_NEIGHBOR", tflite_resize_nearest, nullptr, -1, Codes::moved},
      {23, "RESIZE_BILINEAR", tflite_resize_bilinear, nullptr, -1, Codes::numbers,
       tflite_resized_codes},
      {77, "SHAPE", tflite_shape, nullptr, -1, Codes::any},
      {110, "RANK", tflite_moved, "Rank", -1, Codes::any},
      {94, "FILL", tflite_moved, "Fill", -1, Codes::moved},
      {96, "RANGE", tflite_moved, "Range"},
      {93, "ZEROS_LIKE", tflite_moved, "ZerosLike"},
      {113, "MATRIX_DIAG", tflite_moved, "MatrixDiag", -1, Codes::moved},
      {115, "MATRIX_SET_DIAG", tflite_moved, "MatrixSetDiag", -1, Codes::moved},
      {68, "SPARSE_TO_DENSE", tflite_moved, "SparseToDense", -1, Codes::moved},
      {103, "UNIQUE", tflite_unique, "Unique"},
      {147, "BUCKETIZE", tflite_bucketize},
      {120, "NON_MAX_SUPPRESSION_V4", tflite_suppress, "NonMaxSuppressionV4"},
      {121, "NON_MAX_SUPPRESSION_V5", tflite_suppress, "NonMaxSuppressionV5"},
      {10, "HASHTABLE_LOOKUP", tflite_hashed, nullptr, -1, Codes::moved},
      {125, "SEGMENT_SUM", tflite_moved, "SegmentSum"},
      {155, "UNSORTED_SEGMENT_SUM", tflite_moved, "UnsortedSegmentSum"},
      {153, "UNSORTED_SEGMENT_PROD", tflite_moved, "UnsortedSegmentProd"},
      {154, "UNSORTED_SEGMENT_MAX", tflite_moved, "UnsortedSegmentMax"},
      {157, "UNSORTED_SEGMENT_MIN", tflite_moved, "UnsortedSegmentMin"},
  };
  return kRows;
}

}  // namespace tandem::onnx
