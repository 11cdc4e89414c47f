#include "gpu/transfer/hand_over_service.hpp"

#include "gpu/transfer/hand_over_driver.hpp"

#include <utility>

namespace troupe::transfer {

hand_over_service::hand_over_service(std::shared_ptr<driver> d) : driver_(std::move(d)) {}

hand_over_service::~hand_over_service() { driver_->stop(); }

expected<std::unique_ptr<hand_over_service>> hand_over_service::start(
    const options& how, const make_backend& transport) {
  auto made = std::make_shared<driver>(how);
  if (auto started = made->start(transport); !started) {
    made->stop();
    return started.error();
  }
  return std::unique_ptr<hand_over_service>(new hand_over_service(std::move(made)));
}

std::vector<std::byte> hand_over_service::local_address() const { return driver_->local_address(); }
std::string hand_over_service::transport_name() const { return driver_->transport_name(); }
expected<void> hand_over_service::start_send(outgoing what, send_callbacks calls) {
  return driver_->start_send(std::move(what), std::move(calls));
}
std::unique_ptr<engine::piece_buffer> hand_over_service::acquire_piece_buffer(const job_key& key,
                                                                              std::size_t size) {
  return driver_->acquire_piece_buffer(key, size);
}
void hand_over_service::send_piece(const job_key& key, engine::kv_piece piece) {
  driver_->send_piece(key, std::move(piece));
}
void hand_over_service::finish_send(const job_key& key) { driver_->finish_send(key); }
expected<void> hand_over_service::expect(incoming what, receive_callbacks calls) {
  return driver_->expect(what, std::move(calls));
}
void hand_over_service::grant(const job_key& key, engine::position keep) {
  driver_->grant(key, keep);
}
void hand_over_service::refuse(const job_key& key, error why) {
  driver_->refuse(key, std::move(why));
}
void hand_over_service::adopted(const job_key& key) { driver_->adopted(key); }
void hand_over_service::cancel(const job_key& key, error why) {
  driver_->cancel(key, std::move(why));
}
void hand_over_service::cancel_all(const error& why) { driver_->cancel_all(why); }

void hand_over_service::tick(time_point now) { driver_->tick(now); }
void hand_over_service::worker_gone(std::span<const std::byte> address, bool certainly_dead) {
  driver_->worker_gone(address, certainly_dead);
}
void hand_over_service::on_buffer_free(std::function<void()> call) {
  driver_->on_buffer_free(std::move(call));
}
hand_over_service::gauges hand_over_service::read_gauges() const { return driver_->read_gauges(); }

}  // namespace troupe::transfer
