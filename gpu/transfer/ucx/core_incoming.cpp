// What comes in: UCX's callbacks note it, `progress` acts on it afterwards, so that endpoints are
// never made or closed inside UCX.
#include "gpu/transfer/ucx/core.hpp"
#include "gpu/transfer/ucx/library.hpp"

#include <algorithm>

namespace troupe::transfer::ucx {

ucs_status_t core::on_control(void* argument, const void* header, std::size_t header_size,
                              void* data, std::size_t size, const ucp_am_recv_param_t* param) {
  auto& [self, via] = *static_cast<handler_argument*>(argument);
  auto read = read_header<control_header>(header, header_size);
  if (!read || size > control_bytes_max) return UCS_ERR_INVALID_PARAM;  // not ours
  incoming in;
  in.via = via;
  in.control = *read;
  in.size = size;
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    if (!self->knows(read->connection)) return UCS_ERR_REJECTED;
    in.what = incoming::kind::large_control;
    in.descriptor = data;
    self->inbox_.push_back(std::move(in));
    return UCS_INPROGRESS;
  }
  if (read->kind == control_kind::decline) {
    // Now rather than afterwards: UCX's acknowledgement of the declined piece may be in the same
    // batch.
    if (auto* from = self->find_connection(read->connection))
      self->on_declined(*from, {static_cast<const std::byte*>(data), size});
    return UCS_OK;
  }
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) in.reply = param->reply_ep;
  auto first = static_cast<const std::byte*>(data);
  in.bytes.assign(first, first + size);
  self->inbox_.push_back(std::move(in));
  return UCS_OK;
}

ucs_status_t core::on_piece(void* argument, const void* header, std::size_t header_size, void* data,
                            std::size_t size, const ucp_am_recv_param_t* param) {
  auto& [self, via] = *static_cast<handler_argument*>(argument);
  auto read = read_header<piece_header>(header, header_size);
  if (!read || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) return UCS_ERR_INVALID_PARAM;
  if (!self->knows(read->connection)) return UCS_ERR_REJECTED;
  incoming in;
  in.what = incoming::kind::piece;
  in.via = via;
  in.piece = *read;
  in.size = size;
  in.descriptor = data;
  self->inbox_.push_back(std::move(in));
  return UCS_INPROGRESS;
}

void core::fail_late(peer& gone) {
  // It was only waiting for its connection to stand.
  if (!gone.closing && !may_close(gone)) abandon(gone);
}

bool core::knows(std::uint64_t connection) {
  if (auto* known = find_connection(connection)) return !known->lost;
  return std::any_of(inbox_.begin(), inbox_.end(), [connection](const incoming& in) {
    return in.what == incoming::kind::control && in.control.kind == control_kind::hello &&
           in.control.connection == connection;
  });
}

void core::on_connection(ucp_conn_request_h request, void* argument) {
  auto& [self, via] = *static_cast<handler_argument*>(argument);
  self->post_([self = self, kind = via->kind(), request] { self->accept(kind, request); });
}

void core::on_failure(void* argument, ucp_ep_h, ucs_status_t status) {
  auto& failed = *static_cast<peer*>(argument);
  incoming in;
  in.what = incoming::kind::failure;
  in.via = failed.via;
  in.failed = &failed;
  in.status = status;
  failed.owner->inbox_.push_back(std::move(in));
}

bool core::progress() {
  bool worked = false;
  ended_.clear();
  for (auto& lane : lanes_)
    if (lane) worked |= lane->progress();
  if (!worked) worked = end_settled(false);
  // Handling may progress a lane again (see `abandon`), which adds to the inbox.
  for (std::size_t i = 0; i < inbox_.size(); ++i) {
    auto in = std::move(inbox_[i]);
    handle(in);
    worked = true;
  }
  inbox_.clear();
  return worked;
}

void core::handle(incoming& in) {
  switch (in.what) {
  case incoming::kind::failure:
    // The pointer is only compared until it is found to be current: an earlier entry of the inbox
    // may have ended the peer.
    for (auto& [id, candidate] : peers_)
      if (candidate.get() == in.failed) {
        in.failed->failed = true;
        if (!in.failed->ready) not_connected(*in.via);
        return in.failed->lost ? fail_late(*in.failed)
                               : lose(*in.failed, to_error(in.status, "the KV connection failed"),
                                      ending::broken, in.failed->known);
      }
    return;
  case incoming::kind::control:
    if (in.control.kind == control_kind::hello) return greet(in);
    if (auto* from = find_connection(in.control.connection))
      handle_control(*from, in.control, in.bytes);
    return;
  case incoming::kind::large_control: {
    auto* from = find_connection(in.control.connection);
    if (from == nullptr || from->lost) return release(*in.via, in.descriptor);
    return receive_large_control(*from, in);
  }
  case incoming::kind::piece: {
    auto* from = find_connection(in.piece.connection);
    if (from == nullptr) return release(*in.via, in.descriptor);
    if (from->lost || from->offers >= offers_per_peer_max)
      return decline({from, in.descriptor, in.size, in.piece.number});
    return offer_piece(*from, in);
  }
  }
}

void core::handle_control(peer& from, const control_header& header,
                          std::span<const std::byte> bytes) {
  if (header.kind == control_kind::welcome) return become_ready(from);
  if (from.lost) return;
  if (header.kind == control_kind::goodbye)
    return lose(from, {"peer_left", "the peer closed the KV connection"}, ending::orderly, true);
  if (header.kind == control_kind::message) {
    shared_.control_bytes += bytes.size();
    sink_.on_control(from.id, bytes);
  }
}

void core::accept(lane_kind kind, ucp_conn_request_h request) {
  if (!has(kind)) return;  // the listener has gone, and its requests with it
  auto& via = *lanes_[static_cast<std::size_t>(kind)];
  if (peers_.size() >= peers_max) return via.reject(request);
  auto& made = add_peer(next_id(), via);
  if (auto endpoint = via.accept(request, &core::on_failure, &made)) {
    made.endpoint = *endpoint;
  } else {
    // UCX 1.13 leaves the other side waiting.
    not_connected(via);
    return lose(made, endpoint.error(), ending::broken, false);
  }
  if (shutting_down_) lose(made, {"cancelled", "this worker ends"}, ending::orderly, false);
}

void core::greet(const incoming& in) {
  auto address = decode_address(in.bytes);
  if (!address || find_connection(in.control.connection) != nullptr) return;
  if (in.via->kind() == lane_kind::network) {
    // The endpoint exists already; this is the first that we hear over it.
    for (auto& [id, candidate] : peers_)
      if (in.reply != nullptr && candidate->endpoint == in.reply && !candidate->known) {
        if (candidate->lost) return become_ready(*candidate);
        introduce(*candidate, in.control.connection, address->instance);
        return welcome(*candidate);
      }
    return;
  }
  if (peers_.size() >= peers_max) return;
  auto& made = add_peer(next_id(), *in.via);
  auto endpoint = in.via->connect(address->lane(in.via->kind()), &core::on_failure, &made);
  if (!endpoint) return lose(made, endpoint.error(), ending::broken, false);
  made.endpoint = *endpoint;
  introduce(made, in.control.connection, address->instance);
  welcome(made);
}

void core::welcome(peer& greeted) {
  greeted.ready = true;
  queue_control(greeted, control_kind::welcome, {});
}

void core::receive_large_control(peer& from, incoming& in) {
  auto made = std::make_unique<operation>();
  made->what = operation::kind::receive_control;
  made->control = in.control;
  made->control_bytes.resize(in.size);
  auto& op = begin(from, std::move(made));
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv_am = &core::on_received;
  param.user_data = &op;
  started(op, ucp_am_recv_data_nbx(in.via->worker(), in.descriptor, op.control_bytes.data(),
                                   op.control_bytes.size(), &param));
}

void core::offer_piece(peer& from, incoming& in) {
  const auto number = next_offer_++;
  offers_[number] = {&from, in.descriptor, in.size, in.piece.number};
  ++from.offers;
  sink_.on_offer(from.id, {in.piece.transfer, in.piece.piece, in.piece.begin, in.piece.end},
                 in.size, number);
}

}  // namespace troupe::transfer::ucx
