// How connections begin and end.
#include "gpu/transfer/ucx/core.hpp"
#include "gpu/transfer/ucx/library.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <utility>

namespace troupe::transfer::ucx {

namespace {

/// What a dead process has left in a shared-memory queue is at most a queue full; this many rounds
/// empty it.
constexpr int drain_rounds_max = 10'000;

std::uint64_t random_number() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

/// UCX 1.13 aborts the process when a worker is destroyed that has an endpoint whose connecting
/// hangs.
void keep_for_good(std::unique_ptr<lane> hanging) {
  static std::mutex mutex;
  static auto* kept = new std::vector<std::unique_ptr<lane>>;
  std::lock_guard lock(mutex);
  kept->push_back(std::move(hanging));
}

/// The transports named in UCX's description of an endpoint: "lane[0]:  0:tcp/lo.0 md[0]".
std::string names_of_transports(const std::string& description) {
  std::string found;
  for (const char* name : {"self", "tcp", "sysv", "posix", "cma", "rc_mlx5", "rc_verbs", "dc_mlx5",
                           "ud_mlx5", "ud_verbs"})
    if (description.find(":" + std::string(name) + "/") != std::string::npos)
      found += (found.empty() ? "" : ",") + std::string(name);
  return found;
}

}  // namespace

core::core(events& sink, shared_state& shared, memory_table& memory,
           std::function<void(std::function<void()>)> post)
    : sink_(sink), shared_(shared), memory_(memory), post_(std::move(post)) {}

core::~core() = default;

expected<void> core::open(const std::array<lane_options, lane_count>& options,
                          std::uint64_t instance) {
  worker_address mine;
  mine.instance = instance;
  for (std::size_t i = 0; i < lane_count; ++i) {
    if (options[i].tls == "none") continue;
    auto& argument = arguments_[i];
    argument.owner = this;
    auto made = lane::open(static_cast<lane_kind>(i), options[i],
                           {&core::on_control, &core::on_piece, &core::on_connection, &argument});
    if (!made) return std::move(made).error();
    lanes_[i] = *std::move(made);
    argument.via = lanes_[i].get();
    mine.lanes[i] = lanes_[i]->address();
  }
  local_address_ = encode(mine);
  if (local_address_.size() > address_bytes_max)
    return error{"transport_unavailable",
                 "UCX found so many network devices that the worker's address exceeds its limit; "
                 "name some in UCX_NET_DEVICES"};
  return ok;
}

std::array<shared_context, lane_count> core::contexts() const {
  std::array<shared_context, lane_count> all;
  for (std::size_t i = 0; i < lane_count; ++i)
    if (lanes_[i]) all[i] = lanes_[i]->context();
  return all;
}

peer* core::find(peer_id id) {
  auto found = peers_.find(static_cast<std::uint64_t>(id));
  return found == peers_.end() ? nullptr : found->second.get();
}

peer* core::find_connection(std::uint64_t connection) {
  auto found = by_connection_.find(connection);
  return found == by_connection_.end() ? nullptr : found->second;
}

peer_id core::next_id() {
  std::lock_guard lock(shared_.mutex);
  return peer_id{shared_.next_peer++};
}

peer& core::add_peer(peer_id id, lane& via) {
  auto made = std::make_unique<peer>();
  made->owner = this;
  made->id = id;
  made->via = &via;
  return *(peers_[static_cast<std::uint64_t>(id)] = std::move(made));
}

void core::introduce(peer& known, std::uint64_t connection, std::uint64_t instance) {
  known.known = true;
  known.connection = connection;
  by_connection_[connection] = &known;
  std::lock_guard lock(shared_.mutex);
  shared_.peers.try_emplace(static_cast<std::uint64_t>(known.id), instance, known.via->kind(),
                            false);
}

void core::connect(peer_id id, const worker_address& address, lane_kind kind) {
  if (!has(kind)) return;  // shut down meanwhile
  auto& made = add_peer(id, *lanes_[static_cast<std::size_t>(kind)]);
  introduce(made, random_number(), address.instance);
  auto endpoint = made.via->connect(address.lane(kind), &core::on_failure, &made);
  if (!endpoint) return lose(made, endpoint.error(), ending::broken, true);
  made.endpoint = *endpoint;
  queue_control(made, control_kind::hello, local_address_);
}

void core::become_ready(peer& greeted) {
  greeted.ready = true;
  if (greeted.lost) return forget_if_over(greeted);
  start_next_control(greeted);
  for (auto& send : std::exchange(greeted.early_sends, {})) send();
}

void core::disconnect(peer_id id, bool certainly_dead) {
  auto* gone = find(id);
  if (gone == nullptr) return;
  if (certainly_dead) {
    lose(*gone, {"peer_failed", "the peer's process has ended"}, ending::broken, !gone->lost);
    // Losing may have been enough, where the transport handles errors.
    if (auto* still = find(id); still != nullptr && !still->closing) abandon(*still);
    return;
  }
  lose(*gone, {"cancelled", "the KV connection was closed here"}, ending::orderly, false);
}

void core::lose(peer& gone, const error& why, ending how, bool tell) {
  if (gone.lost) return;
  gone.lost = true;
  const auto id = gone.id;
  {
    std::lock_guard lock(shared_.mutex);
    auto named = shared_.peers.find(static_cast<std::uint64_t>(gone.id));
    if (named != shared_.peers.end()) named->second.lost = true;
  }
  drop_unsent(gone);
  const bool farewell = how == ending::orderly && gone.ready && gone.endpoint != nullptr &&
                        !gone.via->handles_errors();
  if (gone.endpoint != nullptr && gone.via->handles_errors() && gone.ready) close(gone);
  for (auto at = offers_.begin(); at != offers_.end();) {
    if (at->second.from != &gone) {
      ++at;
      continue;
    }
    if (farewell)
      decline(at->second);
    else
      release(*gone.via, at->second.descriptor);
    at = offers_.erase(at);
  }
  gone.offers = 0;
  if (farewell) queue_control(gone, control_kind::goodbye, {});  // may be over with it at once
  if (tell) sink_.on_peer_lost(id, why);
  auto* still = find(id);
  if (still == nullptr) return;
  if (how == ending::broken && !may_close(*still))
    abandon(*still);
  else
    forget_if_over(*still);
}

void core::not_connected(const lane& via) {
  if (via.device_changed()) ++shared_.device_changed;
}

void core::drop_unsent(peer& gone) {
  for (auto& unsent : gone.control_queue)
    if (unsent->release_after != nullptr)
      release(*gone.via, std::exchange(unsent->release_after, nullptr));
  gone.control_queue.clear();
  // They find the peer lost and end as failed.
  for (auto& send : std::exchange(gone.early_sends, {})) send();
}

bool core::may_close(const peer& gone) { return gone.ready || !gone.via->handles_errors(); }

void core::close(peer& gone) {
  gone.closing = true;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_FLAGS;
  // By force, UCX ends what it still works on with an error; it can only where it handles errors,
  // elsewhere it flushes.
  param.flags = gone.via->handles_errors() ? UCP_EP_CLOSE_FLAG_FORCE : 0;
  param.cb.send = &core::on_closed;
  param.user_data = &gone;
  auto* request = ucp_ep_close_nbx(std::exchange(gone.endpoint, nullptr), &param);
  if (!UCS_PTR_IS_PTR(request)) {
    gone.closing = false;
    abandon(gone);
  }
}

void core::on_closed(void* request, ucs_status_t, void* user_data) {
  auto& closed = *static_cast<peer*>(user_data);
  ucp_request_free(request);
  closed.closing = false;
  closed.owner->abandon(closed);
}

void core::abandon(peer& gone) {
  // What its process wrote into shared memory before it ended is taken out first: after that,
  // nothing writes to our buffers.
  if (gone.endpoint != nullptr)
    for (int round = 0; round < drain_rounds_max && gone.via->progress(); ++round) {
    }
  drop_unsent(gone);
  auto operations = std::move(gone.operations);
  gone.operations.clear();
  const auto due = std::chrono::steady_clock::now() + settle_ms;
  for (auto& failed : std::exchange(gone.parked, {})) settling_.push_back({due, std::move(failed)});
  for (auto& [key, op] : operations) {
    auto& ended = *op;
    ended.with = nullptr;
    if (ended.what == operation::kind::receive_piece && gone.via->handles_errors()) {
      // UCX never ends this request; a stand-in carries its report.
      auto stand_in = std::make_unique<operation>();
      stand_in->owner = this;
      stand_in->what = ended.what;
      stand_in->done = std::exchange(ended.done, nullptr);
      stand_in->memory = ended.memory;
      settling_.push_back({due, std::move(stand_in)});
      abandoned_[key] = std::move(op);
      continue;
    }
    abandoned_[key] = std::move(op);
    --active_;
    report(ended, UCS_ERR_CONNECTION_RESET, 0);
  }
  if (gone.known) by_connection_.erase(gone.connection);
  {
    std::lock_guard lock(shared_.mutex);
    shared_.peers.erase(static_cast<std::uint64_t>(gone.id));
  }
  if (auto node = peers_.extract(static_cast<std::uint64_t>(gone.id)))
    (gone.endpoint != nullptr ? forgotten_ : ended_).push_back(std::move(node.mapped()));
}

void core::forget_if_over(peer& gone) {
  if (!gone.lost || gone.closing || !gone.operations.empty() || !gone.control_queue.empty()) return;
  if (gone.endpoint == nullptr)
    abandon(gone);
  else if (may_close(gone))
    close(gone);
}

std::string core::transports(peer_id id) {
  auto* found = find(id);
  if (found == nullptr || found->endpoint == nullptr) return {};
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = ::open_memstream(&text, &size);
  if (stream == nullptr) return {};
  ucp_ep_print_info(found->endpoint, stream);
  std::fclose(stream);
  std::string description(text, size);
  std::free(text);
  return names_of_transports(description);
}

bool core::hangs(const lane& via) const {
  return via.handles_errors() &&
         std::any_of(forgotten_.begin(), forgotten_.end(), [&](const auto& one) {
           return one->via == &via && !one->ready && !one->failed;
         });
}

void core::begin_shut_down() {
  shutting_down_ = true;
  std::vector<peer_id> all;
  for (auto& [id, known] : peers_) all.push_back(known->id);
  for (auto id : all) disconnect(id, false);
}

void core::end_shut_down() {
  for (auto& lane : lanes_)
    if (lane) lane->stop_listening();
  std::vector<peer_id> all;
  for (auto& [id, known] : peers_) all.push_back(known->id);
  for (auto id : all)
    if (auto* still = find(id)) abandon(*still);
  // Destroying a worker frees its endpoints and requests; nothing calls back after that, nor
  // without progress.
  for (auto& lane : lanes_)
    if (lane && hangs(*lane))
      keep_for_good(std::move(lane));
    else
      lane.reset();
  end_settled(true);
  abandoned_.clear();
  forgotten_.clear();
  ended_.clear();
}

}  // namespace troupe::transfer::ucx
