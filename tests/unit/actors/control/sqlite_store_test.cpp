#include "actors/control/sqlite_store.hpp"

#include <catch2/catch.hpp>
#include <sqlite3.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::control;

namespace {

// How it can fail: a record that is gone, or half there, after the process; a term that is taken
// twice; a damaged or foreign file that is written over, or read as if nothing had been; an error
// that says nothing.

namespace fs = std::filesystem;

struct folder {
  std::string path;
  folder() {
    std::string pattern = (fs::temp_directory_path() / "troupe-store-XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~folder() { fs::remove_all(path); }
  std::string file(const char* name = "control.db") const { return path + "/" + name; }
};

const auto some = assignment::make({3, 7}, {"router/0", "router/1"},
                                   {{0, {0}}, {5, {0, 1}}, {~key64{0}, {1}}})
                      .value();

expected<void> write_to(store& s, record r) {
  std::promise<expected<void>> done;
  s.write(std::move(r), [&](expected<void> result) { done.set_value(std::move(result)); });
  return done.get_future().get();
}

std::string why_not(const std::string& path, const std::string& cluster = "c",
                    const char* code = "state_unusable") {
  auto s = sqlite_store::open(path, cluster);
  REQUIRE_FALSE(s);
  CHECK(s.error().code == code);
  CHECK(s.error().message.find(path) != std::string::npos);
  return s.error().message;
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

void execute(const std::string& path, const char* sql) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  REQUIRE(sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(db);
}

}  // namespace

TEST_CASE("a record is there after the process that wrote it") {
  const folder f;
  {
    auto s = sqlite_store::open(f.file(), "c").value();
    CHECK(s->last().term == 0);
    CHECK_FALSE(s->last().last);
    REQUIRE(write_to(*s, {9, some}));
    CHECK(s->last().term == 9);
  }
  {
    auto s = sqlite_store::open(f.file(), "c").value();
    CHECK(s->last().term == 9);
    REQUIRE(s->last().last);
    CHECK(s->last().last->number() == some.number());
    CHECK(s->last().last->shards() == some.shards());
    CHECK(s->last().last->slices() == some.slices());
    REQUIRE(write_to(*s, {10, std::nullopt}));
  }
  auto s = sqlite_store::open(f.file(), "c").value();
  CHECK(s->last().term == 10);
  CHECK_FALSE(s->last().last);
}

TEST_CASE("the largest assignment that there can be is kept") {
  std::vector<std::string> shards;
  for (std::size_t i = 0; i < shards_max; ++i) shards.push_back("router/" + std::to_string(i));
  std::vector<slice> slices;
  for (std::size_t i = 0; i < slices_max; ++i) {
    slice x{i, {}};
    for (std::uint16_t r = 0; r < replicas_max; ++r) x.replicas.push_back(r);
    slices.push_back(std::move(x));
  }
  const auto large = assignment::make({1, 1}, shards, slices).value();
  const folder f;
  REQUIRE(write_to(*sqlite_store::open(f.file(), "c").value(), {1, large}));
  CHECK(sqlite_store::open(f.file(), "c").value()->last().last->slices() == large.slices());
}

TEST_CASE("what was given to it is written before it ends") {
  const folder f;
  bool told = false;
  {
    auto s = sqlite_store::open(f.file(), "c").value();
    s->write({5, some}, [&](const expected<void>& r) { told = bool{r}; });
  }
  CHECK(told);
  CHECK(sqlite_store::open(f.file(), "c").value()->last().term == 5);
}

TEST_CASE("a file that cannot be used is named, with what to do") {
  const folder f;
  CHECK(contains(why_not(f.file("no/such.db")), "its folder has to be there"));
  CHECK(contains(why_not(f.path), "cannot be opened or made"));

  std::ofstream{f.file("text")} << std::string(5'000, 'x');
  CHECK(contains(why_not(f.file("text")), "is damaged or no SQLite file"));
  std::ifstream text{f.file("text")};
  CHECK(std::string{std::istreambuf_iterator<char>{text}, {}} == std::string(5'000, 'x'));

  execute(f.file("other"), "CREATE TABLE t (x); INSERT INTO t VALUES (1)");
  CHECK(contains(why_not(f.file("other")), "is another program's"));

  REQUIRE(write_to(*sqlite_store::open(f.file(), "c").value(), {9, some}));
  CHECK(contains(why_not(f.file(), "d"), "is cluster \"c\"'s, not \"d\"'s"));
  execute(f.file(), "PRAGMA user_version = 2");
  CHECK(contains(why_not(f.file()), "has form 2, and this build knows form 1"));
}

TEST_CASE("a damaged file is not taken for an empty one") {
  const folder f;
  REQUIRE(write_to(*sqlite_store::open(f.file(), "c").value(), {9, some}));
  const auto damage = [&](const char* sql) {
    fs::copy_file(f.file(), f.file("copy"), fs::copy_options::overwrite_existing);
    execute(f.file("copy"), sql);
    CHECK(contains(why_not(f.file("copy")), "is damaged"));
  };
  damage("UPDATE control SET assignment = x'00'");
  damage("UPDATE control SET assignment = x'0000000001000000000000000000000000'");
  damage("UPDATE control SET term = -1");
  // Pages of the table itself.
  const auto size = fs::file_size(f.file());
  REQUIRE(size > 4'096);
  {
    std::fstream file{f.file(), std::ios::in | std::ios::out | std::ios::binary};
    file.seekp(4'096);
    file << std::string(size - 4'096, 'x');
  }
  CHECK(contains(why_not(f.file()), "is damaged"));
}

TEST_CASE("one process at a time has it") {
  const folder f;
  const auto s = sqlite_store::open(f.file(), "c").value();
  CHECK(contains(why_not(f.file(), "c", "state_unavailable"), "another process has it"));
}

TEST_CASE("a full disk is an error of the one write, and leaves what was there") {
  const folder f;
  const auto s = sqlite_store::open(f.file(), "c").value();
  REQUIRE(write_to(*s, {1, some}));
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit none{100, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &none);
  const auto refused = write_to(*s, {2, some});
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == "state_not_written");
  CHECK(contains(refused.error().message, f.file()));
  CHECK(contains(refused.error().message, "is the disk full"));
  CHECK(s->last().term == 1);
  REQUIRE(write_to(*s, {3, some}));
  CHECK(s->last().term == 3);
}
