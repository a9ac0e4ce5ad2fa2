// SPDX-License-Identifier: Apache-2.0
// Datasets of files that hold many samples each: TFRecord files of tf.train.Example and
// WebDataset's tar shards. Files are mapped; a sample is decoded when it is asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tandem/data/damaged.h"
#include "tandem/data/datasets.h"
#include "tandem/io/image.h"
#include "tandem/io/tar.h"
#include "tandem/io/tfrecord.h"

namespace tandem::data {

/// "train-{000000..000003}.tar" as four names (several braces: all combinations); another name as
/// it is. Throws Value for braces without two numbers.
TD_API std::vector<std::string> expand_shards(const std::string& pattern);

struct TFRecordOptions {
  /// Features of an example. A list of bytes with one entry is a picture (as io::decode_image()
  /// reads) or, with `x_raw`, numbers of that type, little-endian; floats and ints are taken as
  /// they are.
  std::string x = "image", y = "label";
  std::optional<DType> x_raw = {};
  IntList x_shape = {};  ///< of numbers; empty: [how many there are]
  io::ImageMode mode = io::ImageMode::rgb;
  /// A record that cannot be read is replaced by the next one that can, what follows a damaged
  /// length in a file is left out (lengths are how the next record is found), and both are counted
  /// in damaged(); else they throw Format naming file and record.
  bool skip_damaged = false;
};
/// Examples of TFRecord files, one file after the other: x a picture u8 [c, h, w] or numbers, y i64
/// or f32, 0-d for one number.
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
  /// How often a damaged record was met and passed over.
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
  /// What follows the first '.' of an entry's name; several, by ';', are tried in order.
  std::string x = "jpg;jpeg;png;webp", y = "cls";
  io::ImageMode mode = io::ImageMode::rgb;
  /// A sample that cannot be read is replaced by the next one that can; samples without x or y, and
  /// what follows a damaged head in a shard, are left out; all are counted in damaged().
  bool skip_damaged = false;
};
/// Tar shards in which entries of one name up to the first '.' are one sample: x the picture u8 [c,
/// h, w]; y the number that the entry `y` holds as text, i64 0-d.
class TD_API WebDataset {
 public:
  static constexpr const char* kName = "WebDataset";
  /// Throws Io, Format; Value when a sample lacks x or y, naming shard and sample.
  explicit WebDataset(const std::vector<std::string>& shards, WebDatasetOptions options = {});
  int64_t size() const { return static_cast<int64_t>(samples_.size()); }
  Example get(int64_t i) const;
  /// "shard.tar: name" of sample i.
  std::string name_of(int64_t i) const;
  /// The bytes of another entry of sample i; throws Value naming those that it has.
  std::string_view entry(int64_t i, const std::string& extension) const;
  /// How often a damaged sample was met and passed over.
  int64_t damaged() const { return damaged_.count(); }

 private:
  Example read(int64_t i) const;
  struct Sample {
    const io::TarFile* shard;
    size_t first, count;  ///< entries
    size_t x, y;
  };
  const Sample& at(int64_t i) const;
  WebDatasetOptions options_;
  std::vector<std::shared_ptr<const io::TarFile>> shards_;
  std::vector<Sample> samples_;
  Damaged damaged_;
};

}  // namespace tandem::data
