// SPDX-License-Identifier: Apache-2.0
// Certificates that tests make for themselves.
#pragma once

#include <string>

namespace tandem::serve {

/// A signer, or with `signer` what it signs: its certificate and key in PEM form, of P-256, for a
/// day. Names: 127.0.0.1 and localhost.
struct Certificate {
  std::string certificate, key;
};
Certificate make_certificate(const std::string& name, const Certificate* signer = nullptr,
                             bool expired = false);

}  // namespace tandem::serve
