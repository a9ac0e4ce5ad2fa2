// SPDX-License-Identifier: Apache-2.0
// check_files: reads all images, sounds and shards of a folder once, and reports which are damaged
// and why. `tandem data validate FOLDER` prints it.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/io/json.h"

namespace tandem::data {

/// Something that could not be read.
struct DamagedFile {
  std::string path;    ///< relative to the folder; for an entry of a shard "shard.tar: entry"
  std::string reason;  ///< without the path
};
struct FolderReport {
  struct Kind {
    std::string what;  ///< "images", "sounds", "records of TFRecord files", "entries of tar shards"
    int64_t readable = 0, damaged = 0;
  };
  std::vector<Kind> kinds;           ///< those that were found
  std::vector<DamagedFile> damaged;  ///< sorted by path
  int64_t other = 0;                 ///< files of other kinds, not read
  int64_t readable() const;
  TD_API io::Json to_json() const;
};
/// Checks every file below `folder`, by its extension: images (.jpg, .jpeg, .png, .webp, .tif,
/// .tiff, .jp2, .bmp, .ppm, .pgm) and sounds (.wav, .flac) are fully decoded; the checksums of
/// TFRecord files (.tfrecord, .tfrecords) and the headers of tar shards (.tar) are verified, and
/// the images and sounds in shards decoded. Uses all threads. Throws Io for a folder that cannot be
/// listed; Value when it contains none of these.
TD_API FolderReport check_files(const FilePath& folder);

}  // namespace tandem::data
