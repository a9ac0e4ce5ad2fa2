// SPDX-License-Identifier: Apache-2.0
// Texts of functions of the file: sums of products of codes (code_sums.cpp).
#pragma once

namespace tandem::edge {

/// What the functions below use on processors with vectors.
extern const char* const kCodeVectors;
/// Rows of weights times two columns of 16-bit codes, and times one of 8-bit codes.
extern const char *const kDotsOfColumns, *const kDotsOfCodes;
/// Taps times what they see in a plane of 16-bit codes.
extern const char* const kSumsOfPlane;

}  // namespace tandem::edge
