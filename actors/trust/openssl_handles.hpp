#pragma once

#include "actors/trust/certificate.hpp"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace troupe::trust {

/// OpenSSL's objects, freed by their own functions.
template <auto Free>
struct freed_by {
  template <class T>
  void operator()(T* x) const {
    Free(x);
  }
};
template <class T, auto Free>
using handle = std::unique_ptr<T, freed_by<Free>>;

using x509_ptr = handle<X509, &X509_free>;
using key_ptr = handle<EVP_PKEY, &EVP_PKEY_free>;
using bio_ptr = handle<BIO, &BIO_free_all>;
using store_ptr = handle<X509_STORE, &X509_STORE_free>;
using store_context_ptr = handle<X509_STORE_CTX, &X509_STORE_CTX_free>;
using names_ptr = handle<GENERAL_NAMES, &GENERAL_NAMES_free>;

/// The reasons that OpenSSL has noted on this thread, which are taken away.
inline std::string openssl_reasons() {
  std::string out;
  while (const auto code = ERR_get_error()) {
    const char* why = ERR_reason_error_string(code);
    if (!out.empty()) out += "; ";
    out += why == nullptr ? "error " + std::to_string(code) : why;
  }
  return out.empty() ? "no reason given" : out;
}

/// What a certificate says; see certificate.hpp.
facts facts_of(X509* x);

/// Null, with OpenSSL's reasons noted, when the text has none.
inline x509_ptr certificate_from(const std::string& pem) {
  const bio_ptr in{BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))};
  return x509_ptr{in ? PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr) : nullptr};
}

}  // namespace troupe::trust
