// Which worker of a real scheduler runs what, and when: see actors/link/thrifty_sharing.hpp and
// scheduler.hpp.

#include "actors/link/system_config.hpp"
#include "messages/base/exit_codes.hpp"
#include "tests/support/little_memory.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <caf/all.hpp>
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

using namespace troupe::link;

namespace {

/// Nothing takes that long when all is well.
constexpr std::chrono::seconds patience{30};

using go_atom = caf::atom_constant<caf::atom("go")>;

/// A turn: what runs when its actor gets `go`.
using turn = std::function<void()>;

caf::behavior runs(caf::event_based_actor*, const turn& what) {
  return {[what](go_atom) { what(); }};
}

/// What an actor does first. CAF 0.17.6 makes a reference of a null pointer for one without
/// arguments, so here it is one.
using beginning = std::function<caf::behavior(caf::event_based_actor*)>;

caf::behavior begins(caf::event_based_actor* self, const beginning& how) { return how(self); }

/// Something that is waited for, and said on another thread.
struct event {
  void say() { promise.set_value(); }
  bool wait() { return future.wait_for(patience) == std::future_status::ready; }
  std::promise<void> promise;
  std::future<void> future = promise.get_future();
};

struct scheduling {
  caf::actor actor(turn what) {
    all.push_back(system.spawn(runs, std::move(what)));
    return all.back();
  }
  caf::actor actor_that(beginning how) {
    all.push_back(system.spawn(begins, std::move(how)));
    return all.back();
  }
  ~scheduling() {
    for (auto& a : all) caf::anon_send_exit(a, caf::exit_reason::kill);
  }
  static void go(const caf::actor& a) { caf::anon_send(a, go_atom::value); }

  system_config config;
  caf::actor_system system{config};
  std::vector<caf::actor> all;
};

/// What the policy sees of a coordinator and of its workers.
struct pool {
  thrifty_sharing::coordinator_data& data() { return shared; }
  thrifty_sharing::coordinator_data shared{nullptr};
};
struct worker {
  pool* parent() { return &all; }
  pool& all;
};
struct job final : caf::resumable, caf::ref_counted {
  resume_result resume(caf::execution_unit*, std::size_t) override { return done; }
  void intrusive_ptr_add_ref_impl() override { ref(); }
  void intrusive_ptr_release_impl() override { deref(); }
};

}  // namespace

TEST_CASE("a few that one turn makes runnable stay with its worker; one more wakes another") {
  pool all;
  thrifty_sharing policy;
  std::vector<job> few(thrifty_sharing::turns_ahead);
  job first, one_more;
  worker one{all}, two{all};
  policy.central_enqueue(&all, &first);
  REQUIRE(policy.dequeue(&one) == &first);  // this thread is a worker from here on
  const auto sleeps = [&] {
    const std::lock_guard lock{all.shared.mutex};
    return all.shared.asleep == 1;
  };
  std::promise<caf::resumable*> taken;
  std::thread sleeper{[&] { taken.set_value(policy.dequeue(&two)); }};
  while (!sleeps()) std::this_thread::yield();
  for (auto& x : few) policy.internal_enqueue(&one, &x);
  // Whoever had been woken would have taken one by then.
  std::this_thread::sleep_for(std::chrono::milliseconds{50});
  CHECK(sleeps());
  policy.internal_enqueue(&one, &one_more);
  auto other = taken.get_future();
  const bool woken = other.wait_for(patience) == std::future_status::ready;
  CHECK(woken);
  if (!woken) std::thread{[&] { policy.external_enqueue(&two, &first); }}.join();
  sleeper.join();
  CHECK(other.get() == &few[0]);
  for (std::size_t i = 1; i < few.size(); ++i) CHECK(policy.dequeue(&one) == &few[i]);
  CHECK(policy.dequeue(&one) == &one_more);
}

TEST_CASE_METHOD(scheduling,
                 "behind a turn that takes long, what waits goes on when anything comes "
                 "from outside") {
  event waits, waiting_ran, outside_ran, over;
  const auto waiting = actor([&] { waiting_ran.say(); });
  bool ran = false;
  go(actor([&] {
    go(waiting);
    waits.say();
    ran = waiting_ran.wait() && outside_ran.wait();
    over.say();
  }));
  REQUIRE(waits.wait());
  go(actor([&] { outside_ran.say(); }));  // from this thread, which is no worker
  REQUIRE(over.wait());
  CHECK(ran);
}

namespace {

/// Has a timeout that is far away, until it gets `go`.
class patient final : public caf::event_based_actor {
 public:
  patient(caf::actor_config& config, std::shared_ptr<event> gone)
      : caf::event_based_actor(config), gone_(std::move(gone)) {}
  ~patient() override { gone_->say(); }
  caf::behavior make_behavior() override {
    return {[this](go_atom) { quit(); }, caf::after(std::chrono::seconds{3'600}) >> [] {}};
  }

 private:
  std::shared_ptr<event> gone_;
};

}  // namespace

TEST_CASE_METHOD(scheduling, "timeouts pass, and an actor's own end with it") {
  event receive_timeout, request_timeout;
  const auto gone = std::make_shared<event>();
  actor_that([&](caf::event_based_actor*) -> caf::behavior {
    return {[](go_atom) {}, caf::after(std::chrono::milliseconds{1}) >>
                                [&, told = false]() mutable {
                                  if (!std::exchange(told, true)) receive_timeout.say();
                                }};
  });
  CHECK(receive_timeout.wait());
  const auto silent = actor_that([](caf::event_based_actor* self) -> caf::behavior {
    return {[self](go_atom) { return self->make_response_promise<caf::unit_t>(); }};
  });
  actor_that([&](caf::event_based_actor* self) -> caf::behavior {
    self->request(silent, std::chrono::milliseconds{1}, go_atom::value)
        .then([](caf::unit_t) {}, [&](caf::error&) { request_timeout.say(); });
    return {[](go_atom) {}};
  });
  CHECK(request_timeout.wait());
  // A timeout that stayed set would hold it.
  go(system.spawn<patient>(gone));
  CHECK(gone->wait());
}

TEST_CASE_METHOD(scheduling, "thousands of turns from several threads all run") {
  constexpr int senders = 4;
  constexpr int each = 5'000;
  std::atomic<int> left{senders * each * 2};
  event over;
  const auto done = [&] {
    if (--left == 0) over.say();
  };
  const auto last = actor(done);
  const auto relay = actor([&, last] {
    go(last);
    done();
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < senders; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < each; ++k) go(relay);
    });
  for (auto& t : threads) t.join();
  CHECK(over.wait());
}

namespace {

/// In a process of its own, which may have the memory of a few more threads' stacks, and no more.
[[noreturn]] void start_with_too_little_memory() {
  const troupe::test::little_memory some_stacks{20U << 20U};  // of 8 MiB each
  ::alarm(10);
  system_config config;
  config.set("scheduler.max-threads", std::size_t{16});
  const caf::actor_system system{config};
  std::_Exit(98);  // it had enough
}

}  // namespace

TEST_CASE("a process that gets no more threads while it starts ends, and does not hang") {
  if (!troupe::test::memory_can_be_little) return;
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) start_with_too_little_memory();
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));  // SIGALRM: it hung
  CHECK(WEXITSTATUS(status) == troupe::exit_internal);
}
