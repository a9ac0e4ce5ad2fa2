// SPDX-License-Identifier: Apache-2.0
#include "tests/serve/certificate_helper.h"

#if __has_include(<openssl/ssl.h>)
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <stdexcept>

namespace tandem::serve {
namespace {

std::string text_of(BIO* b) {
  char* at = nullptr;
  const long n = BIO_get_mem_data(b, &at);
  std::string out(at, static_cast<size_t>(n));
  BIO_free(b);
  return out;
}
BIO* bio_of(const std::string& text) {
  return BIO_new_mem_buf(text.data(), static_cast<int>(text.size()));
}
void extend(X509* x, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, x, nullptr, nullptr, 0);
  X509_EXTENSION* e = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
  if (!e) throw std::runtime_error("no extension");
  X509_add_ext(x, e, -1);
  X509_EXTENSION_free(e);
}

}  // namespace

Certificate make_certificate(const std::string& name, const Certificate* signer, bool expired) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> x(X509_new(), X509_free);
  constexpr long kDay = 24 * 3600;
  static long serial = 1;
  X509_set_version(x.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(x.get()), -2 * kDay);
  X509_gmtime_adj(X509_getm_notAfter(x.get()), expired ? -kDay : kDay);
  X509_set_pubkey(x.get(), key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509* issuer = x.get();
  EVP_PKEY* by = key.get();
  if (signer) {
    BIO* c = bio_of(signer->certificate);
    issuer = PEM_read_bio_X509(c, nullptr, nullptr, nullptr);
    BIO_free(c);
    BIO* k = bio_of(signer->key);
    by = PEM_read_bio_PrivateKey(k, nullptr, nullptr, nullptr);
    BIO_free(k);
  }
  X509_set_issuer_name(x.get(), X509_get_subject_name(issuer));
  extend(x.get(), issuer, NID_basic_constraints, signer ? "CA:FALSE" : "critical,CA:TRUE");
  extend(x.get(), issuer, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
  X509_sign(x.get(), by, EVP_sha256());
  if (signer) {
    X509_free(issuer);
    EVP_PKEY_free(by);
  }
  Certificate out;
  BIO* b = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(b, x.get());
  out.certificate = text_of(b);
  b = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(b, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  out.key = text_of(b);
  return out;
}

}  // namespace tandem::serve

#else

namespace tandem::serve {
Certificate make_certificate(const std::string&, const Certificate*, bool) { return {}; }
}  // namespace tandem::serve

#endif
