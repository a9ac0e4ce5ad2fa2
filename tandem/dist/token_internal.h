// SPDX-License-Identifier: Apache-2.0
// The secret that ranks of one job share, and what proves that somebody knows it.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace tandem::distributed {

using Bytes32 = std::array<unsigned char, 32>;

/// HMAC-SHA-256 (RFC 2104).
Bytes32 hmac(std::string_view key, std::string_view text);
/// Takes as long whatever differs.
bool equal(const Bytes32& a, const Bytes32& b);
/// From the system's generator; throws Io.
Bytes32 random_bytes();
/// 64 hexadecimal digits of them.
std::string random_token();
/// $TANDEM_TOKEN, else the secret of this user in the file dist-token of the private cache folder,
/// made where it is not there. Throws Io with the reason where there is neither.
std::string job_token();

}  // namespace tandem::distributed
