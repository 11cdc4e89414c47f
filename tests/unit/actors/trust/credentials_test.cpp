#include "actors/trust/credentials.hpp"
#include "tests/support/certificates.hpp"

#include <catch2/catch.hpp>

#include <openssl/ssl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

using namespace troupe;
using namespace troupe::trust;
using namespace std::chrono_literals;

namespace {

const credentials::clock::time_point start{1'000s};

struct fixture {
  fixture() { certificates.write_host("h0"); }

  credential_files files(bool with_ca) const {
    const auto& f = certificates.folder;
    return {f.host("h0"), f.host_key("h0"), with_ca ? f.ca() : ""};
  }
  expected<std::shared_ptr<credentials>> load(tls_use use = tls_use::cluster) const {
    return credentials::load(files(use == tls_use::cluster), use);
  }
  void spoil(const std::string& path) const { std::ofstream{path} << "nonsense"; }

  test::certificates certificates;
};

}  // namespace

TEST_CASE("files that fit make a context, and new ones a new one", "[trust]") {
  fixture f;
  const auto c = f.load().value();
  CHECK(c->own().name == "h0");
  const auto first = c->context(start);
  CHECK(c->context(start + 10s) == first);
  f.certificates.write_host("h0");
  // Not looked at yet.
  CHECK(c->context(start + 10s + look_interval - 1ms) == first);
  CHECK(c->context(start + 10s + look_interval) != first);
}

TEST_CASE("what is no file is refused, and keeps nobody waiting", "[trust]") {
  fixture f;
  const auto path = f.certificates.folder.host("h0");
  std::filesystem::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const auto c = f.load();
  REQUIRE_FALSE(c);
  CHECK(c.error().code == "file_unreadable");
  CHECK(c.error().message == path + ": it is not a file");
}

TEST_CASE("new files that do not fit are refused, and the old ones stay in use", "[trust]") {
  fixture f;
  const auto c = f.load().value();
  const auto first = c->context(start);
  const auto& folder = f.certificates.folder;
  f.spoil(folder.host("h0"));
  CHECK(c->context(start + 2s) == first);
  // A key of another certificate.
  f.certificates.write_host("h0");
  (void)write_pem_file(folder.host_key("h0"), f.certificates.issue("h0").key, true,
                       existing::replace);
  CHECK(c->context(start + 4s) == first);
  // Of another CA.
  test::certificates others;
  f.certificates.write_host("h0", others.issue("h0"));
  CHECK(c->context(start + 6s) == first);
  std::filesystem::remove(folder.host("h0"));
  CHECK(c->context(start + 8s) == first);
  // Mended.
  f.certificates.write_host("h0");
  CHECK(c->context(start + 10s) != first);
}

TEST_CASE("what cannot be used at the start is named by its file", "[trust]") {
  fixture f;
  const auto& folder = f.certificates.folder;
  const auto refused = [&](const char* code, const std::string& file) {
    const auto c = f.load();
    REQUIRE_FALSE(c);
    CHECK(c.error().code == code);
    CHECK(c.error().message.find(file + ": ") == 0);
  };
  f.certificates.write_host(
      "h0", f.certificates.issue("h0", role::host, f.certificates.now() - days{366}));
  refused("certificate_expired", folder.host("h0"));
  f.certificates.write_host("h0",
                            f.certificates.issue("h0", role::host, f.certificates.now() + days{2}));
  refused("certificate_not_yet_valid", folder.host("h0"));
  f.certificates.write_host("h0", test::certificates{}.issue("h0"));
  refused("not_signed_by_ca", folder.host("h0"));
  f.certificates.write_host("h0");
  f.spoil(folder.host_key("h0"));
  refused("key_unreadable", folder.host_key("h0"));
  f.spoil(folder.host("h0"));
  refused("certificate_unreadable", folder.host("h0"));
  f.certificates.write_host("h0");
  f.spoil(folder.ca());
  refused("certificate_unreadable", folder.ca());
  std::filesystem::remove(folder.ca());
  refused("file_unreadable", folder.ca());
}

TEST_CASE("clients get TLS 1.2, the cluster 1.3 and certificates both ways", "[trust]") {
  fixture f;
  const auto clients = f.load(tls_use::clients).value()->context(start);
  CHECK(SSL_CTX_get_min_proto_version(clients.get()) == TLS1_2_VERSION);
  CHECK(SSL_CTX_get_verify_mode(clients.get()) == SSL_VERIFY_NONE);
  const auto cluster = f.load().value()->context(start);
  CHECK(SSL_CTX_get_min_proto_version(cluster.get()) == TLS1_3_VERSION);
  CHECK(SSL_CTX_get_verify_mode(cluster.get()) ==
        (SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT));
}
