#pragma once

#include "apps/sim/phases.hpp"
#include "apps/sim/workload.hpp"
#include "apps/sim/world.hpp"

#include "actors/request/submission.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::sim {

/// What one client got, and when.
struct client_record {
  std::size_t number = 0;
  request::request_id id;
  std::string name;
  planned_request plan;
  std::string host;  ///< whose gateway it asked
  process_id gateway = no_process;
  bool submitted = false;
  bool refused = false;  ///< at the desk: nothing was begun
  time_point begun{};
  time_point ended{};
  int accepted = 0;
  int endings = 0;           ///< how often it was told an end
  bool early_delta = false;  ///< tokens before the acceptance
  bool late_word = false;    ///< anything after the end
  bool index_gap = false;    ///< tokens repeated or missing, by their index
  bool left = false;         ///< the client went away
  bool cut_off = false;      ///< its gateway's process ended
  std::vector<expected_choice> got;
  std::optional<request::totals> sum;
  std::optional<request::failure> failure;

  std::function<void()> on_failed;

  bool over() const { return endings > 0 || left || cut_off || refused; }
};

/// A client that keeps what it is given and goes away as planned. It stands for the gateway's
/// sink, in the gateway's process.
class client final : public request::client_sink {
 public:
  client(world& w, std::shared_ptr<client_record> record, std::shared_ptr<request::desk> desk,
         phase_watch& phases);

  /// As the gateway's sinks do: without an end, the request was lost.
  ~client() override;
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  void on_accepted(std::uint16_t prompt, std::uint32_t prompt_tokens, std::uint32_t cached_tokens,
                   const std::string& echo_text) override;
  void on_delta(std::uint16_t prompt, msg::StreamDelta::Reader delta) override;
  void on_finished(const request::totals& sum) override;
  void on_failed(const request::failure& why) override;

 private:
  bool gone();
  void ended();

  world& world_;
  std::shared_ptr<client_record> record_;
  std::shared_ptr<request::desk> desk_;
  phase_watch& phases_;
  std::uint32_t tokens_ = 0;
};

/// Asks as planned. The node must be up.
void submit(world& w, const std::shared_ptr<client_record>& record, phase_watch& phases);

}  // namespace troupe::sim
