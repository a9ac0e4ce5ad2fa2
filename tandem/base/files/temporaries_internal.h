// SPDX-License-Identifier: Apache-2.0
// Temporary files and folders beside their target, "<target>.tmp-<boot>-<pid>-<n>": what a killed
// process leaves is told from what a living one writes by a lock (base/files/file_lock.h), not by
// its pid, which a container's next process has again.
#pragma once

#include <string>
#include <string_view>

#include "tandem/base/export.h"

namespace tandem::detail {

enum class Locked : unsigned char { got, held, unsupported };
/// flock(2) of the whole file without waiting; `shared` only looks.
Locked try_lock(int fd, bool shared = false);
/// Eight hexadecimal digits that change when the machine starts again; the same in all containers.
const std::string& boot_mark();
/// A name beside `target` that no other call gives.
TD_API std::string temporary_name(const std::string& target);
/// Is it such a name?
TD_API bool is_temporary(std::string_view name);
/// Removes the temporary files in `folder` that no process holds any more; once per folder and
/// process. Errors are passed over.
void sweep_files_once(const std::string& folder);
/// Removes every temporary file and folder in `folder`, for the holder of its lock: `sure` when the
/// system really holds it. Without that, and for what another machine may have made (a boot mark of
/// its own, over a network file system without locks), only what is old counts.
TD_API void sweep_all(const std::string& folder, bool sure);
/// A write beyond the limit of file sizes (ulimit -f) is an error, EFBIG, in place of a signal that
/// ends the process. A handler of the program's own stays.
TD_API void ignore_file_size_signal();

}  // namespace tandem::detail
