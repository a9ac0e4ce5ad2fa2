// SPDX-License-Identifier: Apache-2.0
// check_files: reads all pictures, sounds and shards of a folder once, and says which are damaged
// and why. `tandem data validate FOLDER` prints it.
#pragma once

#include <string>
#include <vector>

#include "tandem/base/file.h"
#include "tandem/io/json.h"

namespace tandem::data {

/// Something that could not be read.
struct DamagedFile {
  std::string path;    ///< below the folder; of an entry of a shard "shard.tar: entry"
  std::string reason;  ///< without the path
};
struct FolderReport {
  struct Kind {
    std::string
        what;  ///< "pictures", "sounds", "records of TFRecord files", "entries of tar shards"
    int64_t readable = 0, damaged = 0;
  };
  std::vector<Kind> kinds;           ///< those that occur
  std::vector<DamagedFile> damaged;  ///< sorted by path
  int64_t other = 0;                 ///< files of kinds that are not read
  int64_t readable() const;
  TD_API io::Json to_json() const;
};
/// Every file below `folder`, by its extension: pictures (.jpg, .jpeg, .png, .webp, .tif, .tiff,
/// .jp2, .bmp, .ppm, .pgm) and sounds (.wav, .flac) are decoded whole; the sums of TFRecord files
/// (.tfrecord, .tfrecords) and the heads of tar shards (.tar) are checked and the pictures and
/// sounds in shards decoded. On all threads. Throws Io for a folder that cannot be listed; Value
/// when there is nothing of these in it.
TD_API FolderReport check_files(const FilePath& folder);

}  // namespace tandem::data
