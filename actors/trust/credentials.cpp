#include "actors/trust/credentials.hpp"

#include "actors/trust/certificate_files.hpp"
#include "actors/trust/openssl_handles.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <sys/stat.h>

#include <string_view>

namespace troupe::trust {

namespace {

using context_ptr = handle<SSL_CTX, &SSL_CTX_free>;

/// Of ALPN: length and name.
constexpr std::string_view http_1_1 = "\x08http/1.1";

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* offered, unsigned offered_size, void*) {
  const auto* ours = reinterpret_cast<const unsigned char*>(http_1_1.data());
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_size, ours, static_cast<unsigned>(http_1_1.size()),
                            offered, offered_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

error at_file(const std::string& path, const error& why) {
  return {why.code, path + ": " + why.message};
}

/// The chain's first certificate is our own; those behind it lead to a CA that clients know.
bool use_chain(SSL_CTX* context, const std::string& pem) {
  const bio_ptr in{BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))};
  if (!in) return false;
  const x509_ptr own{PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr)};
  if (!own || SSL_CTX_use_certificate(context, own.get()) != 1) return false;
  while (auto* more = PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr))
    if (SSL_CTX_add0_chain_cert(context, more) != 1) {
      X509_free(more);
      return false;
    }
  ERR_clear_error();  // the end of the file
  return true;
}

bool use_key(SSL_CTX* context, const std::string& pem) {
  const bio_ptr in{BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))};
  const key_ptr key{in ? PEM_read_bio_PrivateKey(in.get(), nullptr, nullptr, nullptr) : nullptr};
  return key && SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

bool trust_ca(SSL_CTX* context, const std::string& pem) {
  const auto ca = certificate_from(pem);
  if (!ca || X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca.get()) != 1) return false;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  // Each connection proves itself: nothing is taken up from an earlier one.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  // What goes over it has lengths of its own: a connection that just ends is like any other's end.
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
  return SSL_CTX_set_num_tickets(context, 0) == 1;
}

}  // namespace

expected<std::shared_ptr<credentials>> credentials::load(credential_files files, tls_use use) {
  std::shared_ptr<credentials> out{new credentials{std::move(files), use}};
  out->seen_ = out->look();
  auto first = out->read();
  if (!first) return std::move(first).error();
  out->now_ = *std::move(first);
  return out;
}

credentials::stamps credentials::look() const {
  stamps out{};
  std::size_t i = 0;
  for (const auto* path : {&files_.certificate, &files_.key, &files_.ca}) {
    struct stat s {};
    if (!path->empty() && ::stat(path->c_str(), &s) == 0)
      out[i] = {s.st_mtim.tv_sec * 1'000'000'000 + s.st_mtim.tv_nsec, s.st_ino,
                static_cast<std::uint64_t>(s.st_size)};
    ++i;
  }
  return out;
}

expected<credentials::loaded> credentials::read() const {
  auto pair = read_identity(files_.certificate, files_.key);
  if (!pair) return std::move(pair).error();
  auto own = read_certificate(pair->certificate);
  if (!own) return at_file(files_.certificate, own.error());
  std::string ca;
  if (!files_.ca.empty()) {
    auto text = read_pem_file(files_.ca);
    if (!text) return std::move(text).error();
    ca = *std::move(text);
    const auto issued = check_issued(pair->certificate, ca, std::chrono::system_clock::now());
    if (!issued)
      return at_file(issued.error().code == "certificate_unreadable" ? files_.ca
                                                                     : files_.certificate,
                     issued.error());
  }
  ERR_clear_error();
  context_ptr context{SSL_CTX_new(TLS_method())};
  const int least = use_ == tls_use::clients ? TLS1_2_VERSION : TLS1_3_VERSION;
  if (!context || SSL_CTX_set_min_proto_version(context.get(), least) != 1 ||
      !use_chain(context.get(), pair->certificate) || !use_key(context.get(), pair->key) ||
      (!ca.empty() && !trust_ca(context.get(), ca)))
    return error{"openssl_failed",
                 fmt::format("{}: no TLS with it: {}", files_.certificate, openssl_reasons())};
  // Buffers of quiet connections are given back; what is written may have moved meanwhile.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  if (use_ == tls_use::clients) SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, nullptr);
  return loaded{{context.release(), &SSL_CTX_free}, *std::move(own)};
}

std::shared_ptr<SSL_CTX> credentials::context(clock::time_point now) {
  const std::lock_guard lock{mutex_};
  if (now - looked_ < look_interval) return now_.context;
  looked_ = now;
  const auto there = look();
  if (there == seen_) return now_.context;
  seen_ = there;
  auto next = read();
  if (!next) {
    spdlog::error("event=certificate_refused file={} code={} reason=\"{}\" "
                  "hint=\"the one before stays in use\"",
                  files_.certificate, next.error().code, next.error().message);
  } else {
    now_ = *std::move(next);
    spdlog::info("event=certificate_reloaded file={} until={}", files_.certificate,
                 format_date(now_.own.not_after));
  }
  return now_.context;
}

facts credentials::own() const {
  const std::lock_guard lock{mutex_};
  return now_.own;
}

facts peer_of(const SSL* connection) {
  const x509_ptr shown{SSL_get1_peer_certificate(connection)};
  return shown ? facts_of(shown.get()) : facts{};
}

}  // namespace troupe::trust
