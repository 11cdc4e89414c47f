#include "apps/cert/cert_actions.hpp"

#include "actors/trust/certificate_files.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace troupe;
using namespace troupe::apps;
namespace fs = std::filesystem;

namespace {

const trust::time_point now = std::chrono::system_clock::from_time_t(1'800'000'000);

/// A folder with a cluster file of two hosts.
struct fixture {
  fixture() {
    std::string name = (fs::temp_directory_path() / "troupe-cert-XXXXXX").string();
    root = ::mkdtemp(name.data());
    config = root + "/cluster.toml";
    write_config("127.0.0.1");
  }
  ~fixture() { fs::remove_all(root); }

  void write_config(const std::string& address) const {
    std::ofstream{config} << "[cluster]\nid = 'c'\n"
                          << "[[host]]\nname = 'h0'\naddress = '" << address << "'\nport = 1\n"
                          << "[[host]]\nname = 'h1'\naddress = '127.0.0.9'\nport = 1\n"
                          << "[[model]]\nname = 'm'\n[[pool]]\nname = 'p'\nmodel = 'm'\n"
                          << "hosts = ['h0', 'h1']\nengine = 'simulated'\n"
                          << "[[gateway]]\nhost = 'h0'\naddress = '127.1.0.1'\nport = 2\n"
                          << "[[router]]\nhost = 'h0'\n";
  }
  template <class F>
  int run(F action, trust::time_point at = now) {
    std::ostringstream o, e;
    const int code = action(cert::surroundings{o, e, at});
    out = o.str();
    err = e.str();
    return code;
  }
  int create(bool new_ca = false) {
    return run([&](const auto& at) { return cert::create({config, trust::days{90}, new_ca}, at); });
  }
  int show(trust::time_point at = now) {
    return run([&](const auto& where) { return cert::show(config, where); }, at);
  }
  std::string read(const std::string& name) const {
    std::ifstream in{root + "/certificates/" + name};
    return {std::istreambuf_iterator<char>{in}, {}};
  }
  unsigned mode(const std::string& name) const {
    struct stat s {};
    REQUIRE(::stat((root + "/certificates/" + name).c_str(), &s) == 0);
    return s.st_mode & 0777U;
  }

  std::string root, config, out, err;
};

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("create makes a CA and a certificate for each host, keys for their owner only",
          "[cert]") {
  fixture f;
  ::umask(0);  // also where the shell lets everybody read
  REQUIRE(f.create() == 0);
  CHECK(f.err.empty());
  for (const auto* key : {"ca.key", "host-h0.key", "host-h1.key"}) CHECK(f.mode(key) == 0600);
  CHECK(f.mode("ca.pem") == 0644);
  const auto h0 = trust::read_certificate(f.read("host-h0.pem")).value();
  CHECK(h0.dns == std::vector<std::string>{"h0"});
  CHECK(h0.addresses == std::vector<std::string>{"127.0.0.1", "127.1.0.1"});
  CHECK(trust::check_issued(f.read("host-h1.pem"), f.read("ca.pem"), now));
  CHECK(f.show() == 0);
  CHECK(has(f.out, "host-h0.pem: host \"h0\", until 2027-04-15 (90 days left)"));
}

TEST_CASE("create again changes nothing, and fills in what is missing", "[cert]") {
  fixture f;
  REQUIRE(f.create() == 0);
  const auto ca = f.read("ca.pem"), h0 = f.read("host-h0.pem"), key = f.read("host-h1.key");
  fs::remove(f.root + "/certificates/host-h1.pem");
  REQUIRE(f.create() == 0);
  CHECK(f.read("ca.pem") == ca);
  CHECK(f.read("host-h0.pem") == h0);
  CHECK(has(f.out, "host-h0.pem: kept"));
  // Its key was there: the new certificate is for it.
  CHECK(f.read("host-h1.key") == key);
  CHECK(trust::check_pair({f.read("host-h1.pem"), key}));
}

TEST_CASE("create says which certificate no longer fits, and leaves it", "[cert]") {
  fixture f;
  REQUIRE(f.create() == 0);
  const auto before = f.read("host-h0.pem");
  f.write_config("127.0.0.2");
  CHECK(f.create() == 1);
  CHECK(has(f.err, "host-h0.pem: kept, but the cluster file has 127.0.0.2 for it"));
  CHECK(has(f.err, "troupe cert renew"));
  CHECK(f.read("host-h0.pem") == before);
}

TEST_CASE("renew makes new certificates for the same keys, of the hosts that are named", "[cert]") {
  fixture f;
  REQUIRE(f.create() == 0);
  const auto pem = f.read("host-h0.pem"), key = f.read("host-h0.key"),
             other = f.read("host-h1.pem");
  f.write_config("127.0.0.2");
  REQUIRE(f.run([&](const auto& at) {
    return cert::renew({f.config, {"h0"}, trust::days{7}, false}, at);
  }) == 0);
  CHECK(f.read("host-h0.pem") != pem);
  CHECK(f.read("host-h0.key") == key);
  CHECK(f.read("host-h1.pem") == other);
  CHECK(trust::read_certificate(f.read("host-h0.pem"))->addresses.front() == "127.0.0.2");
  REQUIRE(f.run([&](const auto& at) {
    return cert::renew({f.config, {}, trust::days{7}, true}, at);
  }) == 0);
  CHECK(f.read("host-h0.key") != key);
  CHECK(trust::check_pair({f.read("host-h0.pem"), f.read("host-h0.key")}));
  CHECK(f.run([&](const auto& at) {
    return cert::renew({f.config, {"h7"}, trust::days{7}, false}, at);
  }) == 3);
  CHECK(has(f.err, "no [[host]] is called 'h7'"));
}

TEST_CASE("a new CA replaces everything, only when told to", "[cert]") {
  fixture f;
  REQUIRE(f.create() == 0);
  const auto ca = f.read("ca.pem"), key = f.read("host-h0.key");
  REQUIRE(f.create(true) == 0);
  CHECK(f.read("ca.pem") != ca);
  CHECK(f.read("host-h0.key") != key);
  CHECK(trust::check_issued(f.read("host-h0.pem"), f.read("ca.pem"), now));
}

TEST_CASE("a CA's key whose certificate is gone is not gone round in circles with", "[cert]") {
  fixture f;
  REQUIRE(f.create() == 0);
  fs::remove(f.root + "/certificates/ca.pem");
  CHECK(f.create() == 1);
  CHECK(has(f.err, "ca.pem: it is gone"));
  CHECK(has(f.err, "--new-ca"));
  CHECK(f.create(true) == 0);
  CHECK(f.create() == 0);
}

TEST_CASE("without the CA's key nothing is made, and it is said where that is", "[cert]") {
  fixture f;
  REQUIRE(f.create() == 0);
  fs::remove(f.root + "/certificates/ca.key");
  CHECK(f.create() == 1);
  CHECK(has(f.err, "ca.key: the CA's key is not here"));
}

TEST_CASE("a console's certificate has its role, and is not overwritten", "[cert]") {
  fixture f;
  REQUIRE(f.create() == 0);
  const auto make = [&](bool replace) {
    return f.run([&](const auto& at) {
      return cert::make_console({f.config, "ada", trust::role::operator_, trust::days{7}, replace},
                                at);
    });
  };
  REQUIRE(make(false) == 0);
  const auto first = f.read("console-ada.pem");
  CHECK(f.mode("console-ada.key") == 0600);
  CHECK(trust::read_certificate(first)->as == trust::role::operator_);
  CHECK(make(false) == 1);
  CHECK(has(f.err, "console-ada.key: it exists, and is not overwritten"));
  CHECK(f.read("console-ada.pem") == first);
  REQUIRE(make(true) == 0);
  CHECK(f.read("console-ada.pem") != first);
}

TEST_CASE("show finds what is wrong", "[cert]") {
  fixture f;
  CHECK(f.show() == 1);
  CHECK(has(f.err, "there are no certificates"));
  REQUIRE(f.create() == 0);
  CHECK(f.show(now + trust::days{70}) == 1);
  CHECK(has(f.err, "host-h0.pem: renew it"));
  CHECK(f.show(now + trust::days{91}) == 1);
  CHECK(has(f.out, "(ended)"));
  CHECK(has(f.err, "host-h0.pem: it ended on 2027-04-15"));
  ::chmod((f.root + "/certificates/host-h1.key").c_str(), 0644);
  CHECK(f.show() == 1);
  CHECK(has(f.err, "host-h1.key: others than its owner may read it"));
  fs::remove(f.root + "/certificates/host-h1.pem");
  CHECK(f.show() == 1);
  CHECK(has(f.err, "host-h1.pem: missing"));
}

TEST_CASE("a bad cluster file is said as by config check", "[cert]") {
  fixture f;
  std::ofstream{f.config} << "nonsense";
  CHECK(f.create() == 3);
  CHECK(has(f.err, "cluster.toml:1:"));
}
