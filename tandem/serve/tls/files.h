// SPDX-License-Identifier: Apache-2.0
// What a server shows and a client trusts when a connection is encrypted (TLS 1.2 and 1.3).
#pragma once

#include <string>

#include "tandem/base/export.h"

namespace tandem::serve {

/// Whether TLS was built in.
TD_API bool tls_available();

/// Files in PEM form of a server. Without a certificate it speaks plain HTTP.
struct TlsFiles {
  std::string certificate = "";  ///< the server's, then those between it and the root
  std::string key = "";          ///< its private key; "": it stands in the certificate's file
  std::string client_ca = "";    ///< clients must show a certificate that one of these signed
  bool empty() const { return certificate.empty(); }
};

/// What a client trusts, and how it proves who it is.
struct TlsTrust {
  std::string ca = "";                     ///< signers of servers, in PEM; "": those of the system
  std::string certificate = "", key = "";  ///< its own, where the server asks for one
};

}  // namespace tandem::serve
