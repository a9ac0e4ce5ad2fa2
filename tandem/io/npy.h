// SPDX-License-Identifier: Apache-2.0
// NumPy's files: .npy (one array, versions 1.0 to 3.0) and .npz (a zip of them, stored or
// deflated), both ways. https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include "tandem/base/file.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::io {

/// The array of a .npy file: f8 f4 f2 i8 i4 i2 i1 u1 b1, in either byte order; an array in
/// Fortran's order comes with strides. The tensor shows the mapped file (never written in place),
/// unless its data is not aligned or big-endian. Throws Io when the file cannot be read, Format
/// when it is cut, hostile or of another kind, or holds Python objects, texts or records.
TD_API Tensor load_npy(const FilePath& path);

/// Write a .npy file of version 1.0 in C's order, all or nothing (beside, fsync, rename). Throws
/// DType for bfloat16, which NumPy does not have, Value (undefined), Unsupported (a trace), Io.
TD_API void save_npy(const Tensor& x, const FilePath& path);

/// The arrays of a .npz file by their names without ".npy", in the order of the file. Stored
/// members whose data is aligned (as save_npz writes them) show the mapped file. Checksums are
/// verified; throws as load_npy.
TD_API StateDict load_npz(const FilePath& path);

struct SaveNpzOptions {
  bool compressed = false;  ///< deflate the members, as numpy.savez_compressed
};
/// Write a .npz file, all or nothing. The same tensors give the same bytes. Throws as save_npy.
TD_API void save_npz(const StateDict& arrays, const FilePath& path, SaveNpzOptions options = {});

}  // namespace tandem::io
