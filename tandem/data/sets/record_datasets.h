// SPDX-License-Identifier: Apache-2.0
// Datasets whose files hold many samples each: TFRecord files of tf.train.Example and WebDataset's
// tar shards. Files are mapped; a sample is decoded on access.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/data/damaged.h"
#include "tandem/data/sets/datasets.h"
#include "tandem/io/image.h"
#include "tandem/io/tar.h"
#include "tandem/io/tensorflow/tfrecord.h"

namespace tandem::data {

/// "train-{000000..000003}.tar" as four names (several braces: all combinations); other names
/// unchanged. Throws Value for braces without two numbers.
TD_API std::vector<std::string> expand_shards(const std::string& pattern);

struct TFRecordOptions {
  /// Feature names. A list of bytes with one entry is an image (as io::decode_image() reads)
  /// or, with `x_raw`, numbers of that type, little-endian; floats and ints are taken as
  /// stored.
  std::string x = "image", y = "label";
  std::optional<DType> x_raw = {};
  IntList x_shape = {};  ///< shape of numbers; empty: [count]
  io::ImageMode mode = io::ImageMode::rgb;
  /// Replace a record that cannot be read by the next one that can, skip the rest of a file after a
  /// damaged length (which is needed to find the next record), and count both in damaged();
  /// otherwise throw Format naming file and record.
  bool skip_damaged = false;
};
/// Examples from TFRecord files, file after file: x an image u8 [c, h, w] or numbers, y i64 or f32,
/// 0-d for one number.
class TD_API TFRecordDataset {
 public:
  static constexpr const char* kName = "TFRecordDataset";
  /// `files`: names, or one pattern for expand_shards(). Throws Io, Format.
  explicit TFRecordDataset(const std::vector<std::string>& files, TFRecordOptions options = {});
  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Throws Index; Format naming file, record and feature.
  Example get(int64_t i) const;
  /// The whole example; its bytes live as long as the dataset.
  io::TFExample example(int64_t i) const;
  /// How often a damaged record was skipped.
  int64_t damaged() const { return damaged_.count(); }

 private:
  Example read(int64_t i) const;
  const io::TFRecordFile& file_of(int64_t& i) const;
  std::string name_of(int64_t i) const;
  TFRecordOptions options_;
  std::vector<std::shared_ptr<const io::TFRecordFile>> files_;
  std::vector<int64_t> ends_;
  Damaged damaged_;
};

struct WebDatasetOptions {
  /// The part of an entry's name after the first '.'; alternatives, separated by ';', in order.
  std::string x = "jpg;jpeg;png;webp", y = "cls";
  io::ImageMode mode = io::ImageMode::rgb;
  /// Replace a sample that cannot be read by the next one that can; skip samples without x or y,
  /// and the rest of a shard after a damaged header; count all in damaged().
  bool skip_damaged = false;
};
/// Tar shards in which the entries that share their name up to the first '.' form a sample: x the
/// image u8 [c, h, w]; y the number that entry `y` holds as text, i64 0-d.
class TD_API WebDataset {
 public:
  static constexpr const char* kName = "WebDataset";
  /// Throws Io, Format; Value when a sample lacks x or y, naming shard and sample.
  explicit WebDataset(const std::vector<std::string>& shards, WebDatasetOptions options = {});
  int64_t size() const { return static_cast<int64_t>(samples_.size()); }
  Example get(int64_t i) const;
  /// "shard.tar: name" of sample i.
  std::string name_of(int64_t i) const;
  /// The bytes of another entry of sample i; throws Value listing the existing ones.
  std::string_view entry(int64_t i, const std::string& extension) const;
  /// How often a damaged sample was skipped.
  int64_t damaged() const { return damaged_.count(); }

 private:
  Example read(int64_t i) const;
  struct Sample {
    const io::TarFile* shard;
    size_t first, count;  ///< indices of entries
    size_t x, y;
  };
  const Sample& at(int64_t i) const;
  WebDatasetOptions options_;
  std::vector<std::shared_ptr<const io::TarFile>> shards_;
  std::vector<Sample> samples_;
  Damaged damaged_;
};

}  // namespace tandem::data
