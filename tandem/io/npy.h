// SPDX-License-Identifier: Apache-2.0
// NumPy's files: reads and writes .npy (one array, versions 1.0 to 3.0) and .npz (a zip of them,
// stored or deflated). https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include "tandem/base/budget.h"
#include "tandem/base/files/file.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::io {

/// The array in an .npy file: f8 f4 f2 i8 i4 i2 i1 u1 b1, in either byte order; an array in Fortran
/// order gets strides. The tensor maps the file (and never writes to it), unless its data is
/// unaligned or big-endian. Throws Io when the file cannot be read, Format when it is truncated,
/// hostile or of another kind, or holds Python objects, strings or records.
TD_API Tensor load_npy(const FilePath& path);

/// Write an .npy file of version 1.0 in C order, all or nothing (temporary file, fsync, rename).
/// Throws DType for bfloat16, which NumPy lacks, Value (undefined), Unsupported (a trace), Io.
TD_API void save_npy(const Tensor& x, const FilePath& path);

/// The arrays of an .npz file by their names without ".npy", in the file's order. Stored members
/// whose data is aligned (as save_npz writes them) map the file. Checksums are verified; throws as
/// load_npy does, and Format where the arrays come to more than `limits`.
TD_API StateDict load_npz(const FilePath& path, const BudgetLimits& limits = {});

struct SaveNpzOptions {
  bool compressed = false;  ///< deflate the members, as numpy.savez_compressed
};
/// Write an .npz file, all or nothing. Equal tensors give equal bytes. Throws as save_npy does.
TD_API void save_npz(const StateDict& arrays, const FilePath& path, SaveNpzOptions options = {});

}  // namespace tandem::io
