// Load by TLS, against our own gateway.

#include "actors/gateway/gateway.hpp"
#include "apps/bench/bench_run.hpp"
#include "tests/support/certificates.hpp"
#include "tests/support/fake_desk.hpp"

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

using namespace troupe;
using bench::bench_settings;

namespace {

struct https_server {
  explicit https_server(bool tls = true) {
    certificates.write_host("h0");  // for h0 and 127.0.0.1
    const auto& f = certificates.folder;
    gateway::gateway_options o;
    o.models = {"words"};
    if (tls)
      o.credentials = trust::credentials::load({f.host("h0"), f.host_key("h0"), {}},
                                               trust::tls_use::clients)
                          .value();
    server = std::make_unique<gateway::http_gateway>(o, std::make_shared<test::fake_desk>());
    REQUIRE(server->start());
  }
  std::string url(const char* scheme, const char* host = "127.0.0.1") const {
    return fmt::format("{}://{}:{}", scheme, host, server->local_port());
  }

  test::certificates certificates;
  std::unique_ptr<gateway::http_gateway> server;
};

struct result {
  int code = 0;
  std::string out;
  std::string err;
};

result run(bench_settings s) {
  if (s.rate == 0) s.connections = 2;
  s.requests = 6;
  s.max_tokens = "3";
  if (s.duration_s == 0) s.duration_s = 20;
  std::ostringstream out, err;
  result r;
  r.code = run_bench(s, out, err);
  r.out = out.str();
  r.err = err.str();
  return r;
}

bench_settings at(const std::string& url) {
  bench_settings s;
  s.urls = {url};
  return s;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("https, by the CA that is named or by anybody's word", "[bench][tls]") {
  const https_server server;
  auto s = at(server.url("https") + "/v1");
  s.ca_file = server.certificates.folder.ca();
  s.strict = true;
  for (const bool stream : {true, false}) {
    s.no_stream = !stream;
    const auto r = run(s);
    INFO(r.err << r.out);
    CHECK(r.code == 0);
    CHECK(has(r.out, "6 measured: 6 whole, 0 failed"));
    CHECK(has(r.out, server.url("https")));
  }
  s.ca_file.clear();
  s.insecure = true;
  CHECK(run(s).code == 0);
  s.urls = {server.url("https", "localhost")};  // not in the certificate
  s.wait_ready_s = 1;
  CHECK(run(s).code == 0);
}

TEST_CASE("a certificate that is not believed is an error that says what to do", "[bench][tls]") {
  const https_server server;
  auto s = at(server.url("https"));
  auto r = run(s);
  CHECK(r.code == 1);
  CHECK(has(r.err, "the server's certificate is not believed: "));
  CHECK(has(r.err, "--ca-file"));
  s.urls = {server.url("https", "localhost")};
  s.ca_file = server.certificates.folder.ca();
  r = run(s);
  CHECK(r.code == 1);
  CHECK(has(r.err, "ostname mismatch"));
  // Also where nothing is asked before the load: then each request fails, and not as fast as it
  // can.
  s.model = "words";
  s.duration_s = 0.3;
  r = run(s);
  CHECK(r.code == 1);
  CHECK(has(r.out, "tls_failed"));
}

TEST_CASE("http and https taken for each other", "[bench][tls]") {
  const https_server encrypted;
  const https_server plain{false};
  auto s = at(plain.url("https"));
  s.insecure = true;
  auto r = run(s);
  CHECK(r.code == 1);
  CHECK(has(r.err, "begin the URL with http://"));
  s = at(encrypted.url("http"));
  r = run(s);
  CHECK(r.code == 1);
  CHECK(has(r.err, "HTTP 400"));
}

TEST_CASE("options of TLS that make no sense", "[bench][tls]") {
  test::certificates c;
  const auto usage = [](const bench_settings& s, std::string_view what) {
    const auto r = run(s);
    INFO(r.err);
    CHECK(r.code == 2);
    CHECK(has(r.err, what));
  };
  auto s = at("http://127.0.0.1:1");
  s.insecure = true;
  usage(s, "no effect without an https:// URL");
  s = at("https://127.0.0.1:1");
  s.insecure = true;
  s.ca_file = c.folder.ca();
  usage(s, "contradict");
  s.insecure = false;
  s.ca_file = "/nowhere/ca.pem";
  usage(s, "/nowhere/ca.pem");
  const auto text = c.folder.path + "/no.pem";
  std::ofstream{text} << "no certificate\n";
  s.ca_file = text;
  usage(s, "no.pem");
}
