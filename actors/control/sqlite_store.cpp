#include "actors/control/sqlite_store.hpp"

#include "messages/envelope.hpp"

#include <fmt/format.h>
#include <kj/exception.h>
#include <sqlite3.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

namespace troupe::control {

namespace {

/// In the file's header: whose it is ("Trpc"), and in which form.
constexpr int application_id = 0x54727063;
constexpr int form_version = 1;
/// For whoever had the file before, on its way out.
constexpr int busy_ms_max = 1'000;

struct closer {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};
using database = std::unique_ptr<sqlite3, closer>;
using statement = std::unique_ptr<sqlite3_stmt, closer>;

/// What SQLite said last; thrown within this file.
struct sqlite_failure {
  int code;
  std::string message;
};

[[noreturn]] void fail(sqlite3* db) {
  throw sqlite_failure{sqlite3_errcode(db), sqlite3_errmsg(db)};
}

void run(sqlite3* db, const char* sql) {
  if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail(db);
}

statement prepare(sqlite3* db, const char* sql) {
  sqlite3_stmt* s = nullptr;
  if (sqlite3_prepare_v2(db, sql, -1, &s, nullptr) != SQLITE_OK) fail(db);
  return statement{s};
}

/// Whether there is a row (more).
bool step(sqlite3* db, const statement& s) {
  const auto result = sqlite3_step(s.get());
  if (result != SQLITE_ROW && result != SQLITE_DONE) fail(db);
  return result == SQLITE_ROW;
}

std::int64_t number(sqlite3* db, const char* sql) {
  const auto s = prepare(db, sql);
  return step(db, s) ? sqlite3_column_int64(s.get(), 0) : 0;
}

std::string text(sqlite3* db, const char* sql) {
  const auto s = prepare(db, sql);
  if (!step(db, s)) return {};
  const auto* t = sqlite3_column_text(s.get(), 0);
  return {reinterpret_cast<const char*>(t),
          static_cast<std::size_t>(sqlite3_column_bytes(s.get(), 0))};
}

kj::Array<capnp::word> bytes_of(const assignment& a) {
  msg::draft<msg::Assignment> d{a.slices().size() * 40 + 4'096};
  write(*d, a);
  // A message holds the largest assignment that there can be.
  return std::move(d).freeze().value().body.to_words();
}

expected<assignment> read_assignment(std::span<const std::byte> bytes) {
  auto body = msg::frozen_message::from_bytes(bytes);
  if (!body) return std::move(body).error();
  try {
    return read(*msg::view<msg::Assignment>{*body});
  } catch (const kj::Exception& e) {
    return error{"bad_assignment", e.getDescription().cStr()};
  }
}

error unusable(const std::string& path, const std::string& why, bool for_now = false) {
  return {for_now ? "state_unavailable" : "state_unusable",
          fmt::format("the control host's state {}: {}", path, why)};
}

bool for_now(const sqlite_failure& f) {
  const auto code = f.code & 0xff;
  return code == SQLITE_BUSY || code == SQLITE_LOCKED || code == SQLITE_FULL ||
         code == SQLITE_IOERR;
}

/// What a person can do about it.
std::string explain(const sqlite_failure& f) {
  switch (f.code & 0xff) {
  case SQLITE_CANTOPEN:
    return fmt::format("cannot be opened or made ({}): its folder has to be there, and this "
                       "process has to be allowed to write in it",
                       f.message);
  case SQLITE_READONLY:
  case SQLITE_PERM:
    return fmt::format("cannot be written ({}): allow it, also in its folder", f.message);
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    return fmt::format("another process has it ({}): is this node running already?", f.message);
  case SQLITE_CORRUPT:
  case SQLITE_NOTADB:
    return fmt::format("is damaged or no SQLite file ({}): restore it, or move it away; without it "
                       "this host begins with the same part for each shard",
                       f.message);
  case SQLITE_FULL:
  case SQLITE_IOERR:
    return fmt::format("cannot be read or written ({}): is the disk full, or broken?", f.message);
  default:
    return f.message;
  }
}

}  // namespace

class sqlite_store::impl {
 public:
  impl(database db, std::string path, std::string cluster, record first)
      : db_(std::move(db)), path_(std::move(path)), cluster_(std::move(cluster)),
        last_(std::move(first)), thread_([this] { work(); }) {}
  ~impl() {
    {
      const std::lock_guard lock{mutex_};
      ending_ = true;
    }
    more_.notify_one();
    thread_.join();
  }

  record last() const {
    const std::lock_guard lock{mutex_};
    return last_;
  }

  void write(record next, std::function<void(expected<void>)> done) {
    {
      const std::lock_guard lock{mutex_};
      jobs_.emplace_back(std::move(next), std::move(done));
    }
    more_.notify_one();
  }

  /// Throws sqlite_failure.
  static void put(sqlite3* db, const std::string& cluster, const record& r) {
    run(db, "BEGIN IMMEDIATE");
    try {
      const auto s = prepare(
          db, "INSERT OR REPLACE INTO control (id, cluster, term, assignment) VALUES (1, ?, ?, ?)");
      sqlite3_bind_text(s.get(), 1, cluster.data(), static_cast<int>(cluster.size()),
                        SQLITE_STATIC);
      sqlite3_bind_int64(s.get(), 2, static_cast<sqlite3_int64>(r.term));
      kj::Array<capnp::word> words;
      if (r.last) {
        words = bytes_of(*r.last);
        sqlite3_bind_blob(s.get(), 3, words.begin(),
                          static_cast<int>(words.size() * sizeof(capnp::word)), SQLITE_STATIC);
      }
      step(db, s);
      run(db, "COMMIT");
    } catch (const sqlite_failure&) {
      // Some failures have rolled it back already.
      sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
      throw;
    }
  }

 private:
  void work() {
    std::unique_lock lock{mutex_};
    while (true) {
      more_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      auto [next, done] = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      auto result = try_put(next);
      lock.lock();
      if (result) last_ = std::move(next);
      lock.unlock();
      done(std::move(result));
      lock.lock();
    }
  }

  expected<void> try_put(const record& r) {
    try {
      put(db_.get(), cluster_, r);
      return ok;
    } catch (const sqlite_failure& f) {
      return error{"state_not_written",
                   fmt::format("the control host's state {}: {}", path_, explain(f))};
    }
  }

  database db_;
  const std::string path_;
  const std::string cluster_;
  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::pair<record, std::function<void(expected<void>)>>> jobs_;
  record last_;
  bool ending_ = false;
  std::thread thread_;  ///< the last: it uses all above
};

namespace {

/// Makes the table in a new file; refuses what is somebody else's.
expected<void> take(sqlite3* db, const std::string& path) {
  if (const auto found = text(db, "PRAGMA quick_check(1)"); found != "ok")
    throw sqlite_failure{SQLITE_CORRUPT, found};
  const auto whose = number(db, "PRAGMA application_id");
  if (whose == 0 && number(db, "SELECT count(*) FROM sqlite_schema") == 0) {
    run(db, fmt::format("BEGIN IMMEDIATE; PRAGMA application_id = {}; PRAGMA user_version = {};"
                        "CREATE TABLE control (id INTEGER PRIMARY KEY CHECK (id = 1), cluster TEXT "
                        "NOT NULL, term INTEGER NOT NULL, assignment BLOB); COMMIT",
                        application_id, form_version)
                .c_str());
    return ok;
  }
  if (whose != application_id)
    return unusable(path, "is another program's: name a file of its own, which is made if it is "
                          "not there");
  if (const auto form = number(db, "PRAGMA user_version"); form != form_version)
    return unusable(path, fmt::format("has form {}, and this build knows form {}: was it written "
                                      "by a newer one?",
                                      form, form_version));
  return ok;
}

expected<record> read_record(sqlite3* db, const std::string& path, const std::string& cluster_id) {
  const auto s = prepare(db, "SELECT cluster, term, assignment FROM control WHERE id = 1");
  if (!step(db, s)) return record{};
  const std::string cluster{reinterpret_cast<const char*>(sqlite3_column_text(s.get(), 0)),
                            static_cast<std::size_t>(sqlite3_column_bytes(s.get(), 0))};
  if (cluster != cluster_id)
    return unusable(path, fmt::format("is cluster \"{}\"'s, not \"{}\"'s: name another file",
                                      cluster, cluster_id));
  record r;
  const auto term = sqlite3_column_int64(s.get(), 1);
  if (term < 0) throw sqlite_failure{SQLITE_CORRUPT, fmt::format("term {}", term)};
  r.term = static_cast<std::uint64_t>(term);
  if (sqlite3_column_type(s.get(), 2) == SQLITE_NULL) return r;
  const auto* blob = static_cast<const std::byte*>(sqlite3_column_blob(s.get(), 2));
  auto a = read_assignment({blob, static_cast<std::size_t>(sqlite3_column_bytes(s.get(), 2))});
  if (!a) throw sqlite_failure{SQLITE_CORRUPT, "its assignment: " + a.error().message};
  r.last = *std::move(a);
  return r;
}

}  // namespace

expected<std::shared_ptr<sqlite_store>> sqlite_store::open(const std::string& path,
                                                           const std::string& cluster_id) {
  sqlite3* opened = nullptr;
  const auto result = sqlite3_open_v2(path.c_str(), &opened,
                                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  database db{opened};
  try {
    if (result != SQLITE_OK) throw sqlite_failure{result, sqlite3_errstr(result)};
    sqlite3_busy_timeout(db.get(), busy_ms_max);
    // One process has it for as long as it lives. A commit is on the disk when it returns, its
    // folder's entry too.
    run(db.get(), "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = EXTRA");
    if (auto taken = take(db.get(), path); !taken) return std::move(taken).error();
    auto r = read_record(db.get(), path, cluster_id);
    if (!r) return std::move(r).error();
    // Whether it can be written, too.
    impl::put(db.get(), cluster_id, *r);
    return std::shared_ptr<sqlite_store>{
        new sqlite_store{std::make_unique<impl>(std::move(db), path, cluster_id, *std::move(r))}};
  } catch (const sqlite_failure& f) {
    return unusable(path, explain(f), for_now(f));
  }
}

sqlite_store::sqlite_store(std::unique_ptr<impl> i) : impl_(std::move(i)) {}
sqlite_store::~sqlite_store() = default;

record sqlite_store::last() const { return impl_->last(); }

void sqlite_store::write(record next, std::function<void(expected<void>)> done) {
  impl_->write(std::move(next), std::move(done));
}

}  // namespace troupe::control
