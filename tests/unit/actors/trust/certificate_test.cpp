#include "actors/trust/certificate.hpp"

#include <catch2/catch.hpp>

#include <chrono>

using namespace troupe;
using namespace troupe::trust;
using namespace std::chrono_literals;

namespace {

const time_point now = std::chrono::system_clock::from_time_t(1'800'000'000);

identity_pem ca_of(const std::string& cluster = "c", time_point at = now) {
  return make_ca(cluster, ca_validity, at).value();
}

request host(const std::string& name) {
  request r;
  r.name = name;
  r.dns = {name};
  r.addresses = {"10.0.0.1", "fd00::1"};
  return r;
}

}  // namespace

TEST_CASE("a host's certificate says what was asked for", "[trust]") {
  const auto made = issue(ca_of(), host("h0"), now).value();
  const auto says = read_certificate(made.certificate).value();
  CHECK(says.name == "h0");
  CHECK(says.as == role::host);
  CHECK(says.dns == std::vector<std::string>{"h0"});
  CHECK(says.addresses == std::vector<std::string>{"10.0.0.1", "fd00::1"});
  CHECK(says.not_before == now - clock_slack);
  CHECK(says.not_after == now + certificate_validity);
  CHECK(check_pair(made));
}

TEST_CASE("only the CA's own certificates pass, and only while they hold", "[trust]") {
  const auto ca = ca_of();
  const auto made = issue(ca, host("h0"), now).value();
  CHECK(check_issued(made.certificate, ca.certificate, now));
  // Another CA of the same name.
  const auto stranger = ca_of();
  CHECK(check_issued(made.certificate, stranger.certificate, now).error().code ==
        "not_signed_by_ca");
  const auto late = check_issued(made.certificate, ca.certificate, now + certificate_validity + 1s);
  CHECK(late.error().code == "certificate_expired");
  CHECK(late.error().message.find("ended on 2028-01-15") != std::string::npos);
  const auto early = check_issued(made.certificate, ca.certificate, now - clock_slack - 1s);
  CHECK(early.error().code == "certificate_not_yet_valid");
  // A host signs nobody.
  const auto by_host = issue(made, host("h1"), now).value();
  CHECK(check_issued(by_host.certificate, ca.certificate, now).error().code == "not_signed_by_ca");
}

TEST_CASE("a certificate for a key that is there keeps it, and never outlives its CA", "[trust]") {
  const auto ca = make_ca("c", days{10}, now).value();
  const auto first = issue(ca, host("h0"), now).value();
  CHECK(read_certificate(first.certificate)->not_after == now + days{10});
  const auto second = issue(ca, host("h0"), now, first.key).value();
  CHECK(second.certificate != first.certificate);
  CHECK(check_pair({second.certificate, first.key}));
  CHECK(issue(ca, host("h0"), now + days{11}).error().code == "certificate_expired");
}

TEST_CASE("what is no certificate, no key, or not a pair is said to be so", "[trust]") {
  const auto ca = ca_of();
  const auto a = issue(ca, host("h0"), now).value(), b = issue(ca, host("h0"), now).value();
  CHECK(check_pair({a.certificate, b.key}).error().code == "key_mismatch");
  CHECK(check_pair({"nonsense", b.key}).error().code == "certificate_unreadable");
  CHECK(check_pair({a.certificate, "nonsense"}).error().code == "key_unreadable");
  CHECK(read_certificate("").error().code == "certificate_unreadable");
  CHECK(issue({a.certificate, ca.key}, host("h1"), now).error().code == "key_mismatch");
}

TEST_CASE("roles of consoles are read back, and a stranger's subject gives none", "[trust]") {
  const auto ca = ca_of();
  for (const auto as : {role::operator_, role::viewer}) {
    request r;
    r.name = "ada";
    r.as = as;
    const auto says = read_certificate(issue(ca, r, now)->certificate).value();
    CHECK(says.as == as);
    CHECK(says.name == "ada");
  }
  CHECK(role_from("root") == role::none);
  CHECK(role_from("none") == role::none);
}

TEST_CASE("names that a certificate lacks are listed", "[trust]") {
  const auto says = read_certificate(issue(ca_of(), host("h0"), now)->certificate).value();
  auto wanted = host("h0");
  CHECK(missing_names(says, wanted).empty());
  wanted.addresses.emplace_back("10.0.0.2");
  wanted.dns.emplace_back("h9");
  CHECK(missing_names(says, wanted) == std::vector<std::string>{"h9", "10.0.0.2"});
}
