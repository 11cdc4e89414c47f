#include "actors/trust/certificate.hpp"

#include "actors/trust/openssl_handles.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <openssl/pem.h>
#include <openssl/rand.h>

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <ctime>

namespace troupe::trust {

namespace {

/// Random bits of a serial number: more than enough to be the only one.
constexpr int serial_bits = 127;
constexpr long x509_version_3 = 2;
constexpr const char* curve = "P-256";
constexpr const char* organisation = "troupe";

error failed(const char* what) {
  return {"openssl_failed", fmt::format("cannot {}: {}", what, openssl_reasons())};
}

key_ptr key_from(const std::string& pem) {
  const bio_ptr in{BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))};
  // A key with a passphrase would make OpenSSL ask at the terminal.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  return key_ptr{in ? PEM_read_bio_PrivateKey(in.get(), nullptr, no_passphrase, nullptr) : nullptr};
}

template <class Write>
std::string pem_of(Write write) {
  const bio_ptr out{BIO_new(BIO_s_mem())};
  if (!out || write(out.get()) != 1) return {};
  char* data = nullptr;
  const auto size = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

expected<identity_pem> to_pem(X509* certificate, EVP_PKEY* key) {
  identity_pem out;
  out.certificate = pem_of([&](BIO* to) { return PEM_write_bio_X509(to, certificate); });
  out.key = pem_of([&](BIO* to) {
    return PEM_write_bio_PKCS8PrivateKey(to, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
  if (out.certificate.empty() || out.key.empty()) return failed("write a certificate");
  return out;
}

bool set_serial(X509* x) {
  const handle<BIGNUM, &BN_free> number{BN_new()};
  return number && BN_rand(number.get(), serial_bits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(x)) != nullptr;
}

bool set_times(X509* x, time_point from, time_point to) {
  const auto set = [](ASN1_TIME* field, time_point t) {
    return ASN1_TIME_set(field, std::chrono::system_clock::to_time_t(t)) != nullptr;
  };
  return set(X509_getm_notBefore(x), from) && set(X509_getm_notAfter(x), to);
}

bool set_subject(X509* x, std::string_view unit, const std::string& name) {
  auto* subject = X509_get_subject_name(x);
  const auto add = [&](const char* field, std::string_view value) {
    return X509_NAME_add_entry_by_txt(subject, field, MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(value.data()),
                                      static_cast<int>(value.size()), -1, 0) == 1;
  };
  return add("O", organisation) && add("OU", unit) && add("CN", name);
}

bool extend(X509* x, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, x, nullptr, nullptr, 0);
  const handle<X509_EXTENSION, &X509_EXTENSION_free> extension{
      X509V3_EXT_conf_nid(nullptr, &context, kind, value)};
  return extension && X509_add_ext(x, extension.get(), -1) == 1;
}

bool add_names(X509* x, const request& what) {
  if (what.dns.empty() && what.addresses.empty()) return true;
  const names_ptr names{GENERAL_NAMES_new()};
  const auto add = [&](int kind, ASN1_STRING* value, const void* bytes, std::size_t size) {
    auto* name = GENERAL_NAME_new();
    if (name == nullptr || value == nullptr ||
        ASN1_STRING_set(value, bytes, static_cast<int>(size)) != 1 ||
        sk_GENERAL_NAME_push(names.get(), name) == 0) {
      GENERAL_NAME_free(name);
      ASN1_STRING_free(value);
      return false;
    }
    GENERAL_NAME_set0_value(name, kind, value);
    return true;
  };
  for (const auto& name : what.dns)
    if (!add(GEN_DNS, ASN1_IA5STRING_new(), name.data(), name.size())) return false;
  for (const auto& address : what.addresses) {
    std::array<unsigned char, sizeof(in6_addr)> binary{};
    const bool four = inet_pton(AF_INET, address.c_str(), binary.data()) == 1;
    if (!four && inet_pton(AF_INET6, address.c_str(), binary.data()) != 1) return false;
    if (!add(GEN_IPADD, ASN1_OCTET_STRING_new(), binary.data(), four ? 4 : binary.size()))
      return false;
  }
  return X509_add1_ext_i2d(x, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) == 1;
}

bool add_uses(X509* x, X509* issuer, role as) {
  if (as == role::ca)
    return extend(x, issuer, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           extend(x, issuer, NID_key_usage, "critical,keyCertSign,cRLSign") &&
           extend(x, issuer, NID_subject_key_identifier, "hash");
  return extend(x, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
         extend(x, issuer, NID_key_usage, "critical,digitalSignature") &&
         extend(x, issuer, NID_ext_key_usage,
                as == role::host ? "serverAuth,clientAuth" : "clientAuth") &&
         extend(x, issuer, NID_subject_key_identifier, "hash") &&
         extend(x, issuer, NID_authority_key_identifier, "keyid");
}

expected<identity_pem> sign(EVP_PKEY* key, const request& what, time_point from, time_point to,
                            X509* ca, EVP_PKEY* ca_key) {
  const x509_ptr x{X509_new()};
  auto* issuer = ca == nullptr ? x.get() : ca;
  if (!x || X509_set_version(x.get(), x509_version_3) != 1 || !set_serial(x.get()) ||
      !set_times(x.get(), from, to) || !set_subject(x.get(), to_string(what.as), what.name) ||
      X509_set_issuer_name(x.get(), X509_get_subject_name(issuer)) != 1 ||
      X509_set_pubkey(x.get(), key) != 1 || !add_names(x.get(), what) ||
      !add_uses(x.get(), issuer, what.as) ||
      X509_sign(x.get(), ca_key == nullptr ? key : ca_key, EVP_sha256()) == 0)
    return failed("make a certificate");
  return to_pem(x.get(), key);
}

time_point time_of(const ASN1_TIME* t) {
  std::tm parts{};
  ASN1_TIME_to_tm(t, &parts);
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

std::string entry_of(X509_NAME* name, int kind) {
  const int at = X509_NAME_get_index_by_NID(name, kind, -1);
  if (at < 0) return {};
  const auto* data = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at));
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(data)),
          static_cast<std::size_t>(ASN1_STRING_length(data))};
}

error unreadable(const char* what) {
  return {"certificate_unreadable",
          fmt::format("{} is not a certificate in PEM: {}", what, openssl_reasons())};
}

}  // namespace

std::string_view to_string(role r) {
  switch (r) {
  case role::ca:
    return "ca";
  case role::host:
    return "host";
  case role::operator_:
    return "operator";
  case role::viewer:
    return "viewer";
  case role::none:
    break;
  }
  return "none";
}

role role_from(std::string_view text) {
  for (const auto r : {role::ca, role::host, role::operator_, role::viewer})
    if (text == to_string(r)) return r;
  return role::none;
}

std::string format_date(time_point t) {
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::chrono::system_clock::to_time_t(t)));
}

expected<identity_pem> make_ca(const std::string& cluster_id, days validity, time_point now) {
  ERR_clear_error();
  const key_ptr key{EVP_EC_gen(curve)};
  if (!key) return failed("make a key");
  request what;
  what.name = "CA of " + cluster_id;
  what.as = role::ca;
  return sign(key.get(), what, now - clock_slack, now + validity, nullptr, nullptr);
}

expected<identity_pem> issue(const identity_pem& ca, const request& what, time_point now,
                             const std::string& key) {
  ERR_clear_error();
  if (auto fits = check_pair(ca); !fits) return std::move(fits).error();
  const auto issuer = certificate_from(ca.certificate);
  const auto ca_key = key_from(ca.key);
  const key_ptr own{key.empty() ? EVP_EC_gen(curve) : key_from(key).release()};
  if (!own)
    return key.empty()
               ? failed("make a key")
               : error{"key_unreadable", "the private key cannot be read: " + openssl_reasons()};
  const auto end = time_of(X509_get0_notAfter(issuer.get()));
  if (end <= now)
    return error{"certificate_expired",
                 "the CA's own certificate ended on " + format_date(end) + "; make a new CA"};
  return sign(own.get(), what, now - clock_slack, std::min<time_point>(now + what.validity, end),
              issuer.get(), ca_key.get());
}

expected<facts> read_certificate(const std::string& pem) {
  ERR_clear_error();
  const auto x = certificate_from(pem);
  if (!x) return unreadable("this");
  return facts_of(x.get());
}

facts facts_of(X509* x) {
  facts out;
  auto* subject = X509_get_subject_name(x);
  out.name = entry_of(subject, NID_commonName);
  if (entry_of(subject, NID_organizationName) == organisation)
    out.as = role_from(entry_of(subject, NID_organizationalUnitName));
  out.not_before = time_of(X509_get0_notBefore(x));
  out.not_after = time_of(X509_get0_notAfter(x));
  const names_ptr names{
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(x, NID_subject_alt_name, nullptr, nullptr))};
  for (int i = 0; names && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int kind = 0;
    const auto* value = static_cast<ASN1_STRING*>(
        GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &kind));
    const auto* data = ASN1_STRING_get0_data(value);
    const auto size = static_cast<std::size_t>(ASN1_STRING_length(value));
    if (kind == GEN_DNS) out.dns.emplace_back(reinterpret_cast<const char*>(data), size);
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (kind == GEN_IPADD && (size == sizeof(in_addr) || size == sizeof(in6_addr)) &&
        inet_ntop(size == sizeof(in_addr) ? AF_INET : AF_INET6, data, text.data(), text.size()))
      out.addresses.emplace_back(text.data());
  }
  return out;
}

expected<void> check_pair(const identity_pem& pair) {
  ERR_clear_error();
  const auto x = certificate_from(pair.certificate);
  if (!x) return unreadable("it");
  const auto key = key_from(pair.key);
  if (!key) return error{"key_unreadable", "the private key cannot be read: " + openssl_reasons()};
  if (X509_check_private_key(x.get(), key.get()) != 1) {
    ERR_clear_error();
    return error{"key_mismatch", "the private key is not the certificate's"};
  }
  return ok;
}

expected<void> check_issued(const std::string& certificate, const std::string& ca, time_point now) {
  ERR_clear_error();
  const auto x = certificate_from(certificate);
  if (!x) return unreadable("it");
  const auto issuer = certificate_from(ca);
  if (!issuer) return unreadable("the CA's file");
  const store_ptr store{X509_STORE_new()};
  const store_context_ptr context{X509_STORE_CTX_new()};
  if (!store || !context || X509_STORE_add_cert(store.get(), issuer.get()) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), x.get(), nullptr) != 1)
    return failed("check a certificate");
  X509_STORE_CTX_set_time(context.get(), 0, std::chrono::system_clock::to_time_t(now));
  if (X509_verify_cert(context.get()) == 1) return ok;
  const int why = X509_STORE_CTX_get_error(context.get());
  ERR_clear_error();
  const auto what = facts_of(x.get());
  switch (why) {
  case X509_V_ERR_CERT_HAS_EXPIRED:
    return error{"certificate_expired", fmt::format("it ended on {}", format_date(what.not_after))};
  case X509_V_ERR_CERT_NOT_YET_VALID:
    return error{"certificate_not_yet_valid",
                 fmt::format("it holds from {} on, which is later than this machine's clock says",
                             format_date(what.not_before))};
  default:
    return error{"not_signed_by_ca",
                 fmt::format("it is not the CA's: {}", X509_verify_cert_error_string(why))};
  }
}

std::vector<std::string> missing_names(const facts& has, const request& what) {
  std::vector<std::string> out;
  const auto compare = [&](const std::vector<std::string>& a, const std::vector<std::string>& b) {
    for (const auto& name : a)
      if (std::find(b.begin(), b.end(), name) == b.end()) out.push_back(name);
  };
  compare(what.dns, has.dns);
  compare(what.addresses, has.addresses);
  return out;
}

}  // namespace troupe::trust
