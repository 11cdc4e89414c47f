#include "apps/node/descriptors.hpp"
#include "tests/support/few_descriptors.hpp"

#include <catch2/catch.hpp>

#include <sys/resource.h>

using namespace troupe;

namespace {

rlim_t limit_now() {
  rlimit now{};
  ::getrlimit(RLIMIT_NOFILE, &now);
  return now.rlim_cur;
}

}  // namespace

TEST_CASE("a gateway's connections need descriptors") {
  config::cluster c;
  c.limits.connections_max = 5'000;
  c.gateways.emplace_back().host = "h0";
  CHECK(apps::descriptors_needed(c, "h0") > 5'000);
  CHECK(apps::descriptors_needed(c, "h1") < 5'000);
}

TEST_CASE("the limit of open files is raised as far as it may be, and never lowered") {
  const test::few_descriptors few{10};
  const auto before = limit_now();
  CHECK(apps::allow_descriptors(1) == before);
  CHECK(limit_now() == before);
  CHECK(apps::allow_descriptors(before + 7) == before + 7);
  CHECK(limit_now() == before + 7);
  rlimit hard{};
  ::getrlimit(RLIMIT_NOFILE, &hard);
  CHECK(apps::allow_descriptors(RLIM_INFINITY - 1) == hard.rlim_max);
}
