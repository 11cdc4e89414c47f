// The engine on its own thread, everybody else on theirs.

#include "tests/unit/gpu/engine/engine_fixture.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

using namespace troupe::engine;
using namespace troupe::engine::test;
using namespace std::chrono_literals;

namespace {

/// Counts ends; checks nothing that other threads would see.
class end_counter final : public event_sink {
 public:
  std::atomic<int> ended{0};
  std::atomic<int> deltas{0};

  void on_import_ready(job_id, position) override {}
  std::unique_ptr<piece_buffer> acquire_piece_buffer(job_id, std::size_t) override {
    return nullptr;
  }
  void on_piece(kv_piece) override {}
  void on_prefill_done(job_id, position, std::chrono::microseconds,
                       std::chrono::microseconds) override {
    finish();
  }
  void on_adopted(job_id) override {}
  void on_started(job_id, position) override {}
  void on_delta(choice_delta) override { ++deltas; }
  void on_done(job_id, std::uint32_t, std::chrono::microseconds) override { finish(); }
  void on_failed(job_failure) override { finish(); }
  void on_cancelled(job_id) override { finish(); }
  void on_leaving(job_id, std::vector<token_id>, std::uint32_t) override {}
  void on_stays(job_id, troupe::error) override {}
  void on_prefixes(std::span<const std::uint64_t>, std::span<const std::uint64_t>) override {}

  void wait_for(int count) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, 60s, [&] { return ended >= count; }));
  }

 private:
  void finish() {
    const std::lock_guard lock(mutex_);
    ++ended;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace

TEST_CASE("threads: jobs and cancels from several threads; each job ends exactly once, and the "
          "books balance") {
  constexpr int threads = 3;
  constexpr int jobs_each = 150;
  simulated_options model;
  model.prefill_tokens_per_second = 3e6;
  model.decode_step_us = 20;
  model.end_tokens = {258, 259};
  auto machine = make_batching_engine(std::make_unique<simulated_runner>(model),
                                      troupe::text::make_byte_text_model(8192), {});
  end_counter sink;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> mismatches{0};
  std::thread engine_thread([&] {
    while (!stop) {
      if (!machine->step(sink).worked) machine->wait(1000ms);
      mismatches += machine->audit().mismatches.size();
    }
  });
  std::vector<std::thread> clients;
  for (int t = 0; t < threads; ++t) {
    clients.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < jobs_each; ++i) {
        const auto id = static_cast<job_id>(t) * 1000 + static_cast<job_id>(i);
        while (!machine->submit(generate(
            id, prompt_of(1 + random() % 400, static_cast<unsigned>(t)), 1 + random() % 20)))
          std::this_thread::sleep_for(1ms);
        if (random() % 3 == 0)
          machine->cancel(static_cast<job_id>(t * 1000) + random() % static_cast<unsigned>(i + 1));
        if (random() % 20 == 0) machine->wake();
        (void)machine->gauges();
      }
    });
  }
  for (auto& c : clients) c.join();
  sink.wait_for(threads * jobs_each);
  stop = true;
  machine->wake();
  engine_thread.join();
  CHECK(sink.ended == threads * jobs_each);
  CHECK(mismatches == 0);
  CHECK(machine->gauges().kv_referenced == 0);
}

TEST_CASE("threads: a wait ends by a submit, a cancel or a wake, and a wake is never lost") {
  rig r;
  r.machine->wake();
  r.machine->wait(60s);  // returns at once, or the test runs out of its time
  std::thread other([&] { (void)r.machine->submit(generate(1, prompt_of(5), 1)); });
  r.machine->wait(60s);
  other.join();
  r.run();
  CHECK(r.events.done.contains(1));
}
