// Sends and receives, of pieces and of control messages.
#include "gpu/transfer/ucx/core.hpp"
#include "gpu/transfer/ucx/library.hpp"

#include <utility>

namespace troupe::transfer::ucx {

namespace {

const error peer_is_gone{"peer_failed", "there is no KV connection to this peer any more"};

}  // namespace

void core::send_control(peer_id to, std::vector<std::byte> bytes, backlog_counter waiting) {
  auto* target = find(to);
  if (target != nullptr && !target->lost)
    queue_control(*target, control_kind::message, std::move(bytes), std::move(waiting));
  else if (waiting)
    --*waiting;  // its loss is being reported
}

void core::queue_control(peer& to, control_kind kind, std::vector<std::byte> bytes,
                         backlog_counter waiting, void* release_after) {
  auto made = std::make_unique<operation>();
  made->waiting = std::move(waiting);
  made->release_after = release_after;
  made->what = operation::kind::send_control;
  made->control = {.kind = kind, .connection = to.connection};
  made->size = bytes.size();
  made->control_bytes = std::move(bytes);
  to.control_queue.push_back(std::move(made));
  start_next_control(to);
}

void core::start_next_control(peer& to) {
  auto may_go = [&] {
    return to.ready || to.control_queue.front()->control.kind == control_kind::hello;
  };
  while (!to.control_busy && !to.control_queue.empty() && to.endpoint != nullptr && may_go()) {
    auto next = std::move(to.control_queue.front());
    to.control_queue.pop_front();
    to.control_busy = true;
    auto& op = begin(to, std::move(next));
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                         UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = op.control_bytes.size() <= eager_control_bytes_max ? UCP_AM_SEND_FLAG_EAGER
                                                                     : UCP_AM_SEND_FLAG_RNDV;
    if (op.control.kind == control_kind::hello)
      param.flags |=
          UCP_AM_SEND_FLAG_REPLY;  // shows the receiver over which of its endpoints we speak
    param.cb.send = &core::on_sent;
    param.user_data = &op;
    started(op, ucp_am_send_nbx(to.endpoint, am_control, &op.control, sizeof op.control,
                                op.control_bytes.data(), op.control_bytes.size(), &param));
  }
}

void core::send(peer_id to, piece_tag tag, std::span<const std::byte> bytes, completion done) {
  auto* target = find(to);
  if (target == nullptr || target->lost) return done({false, 0, peer_is_gone});
  if (target->ready) return send_now(*target, tag, bytes, std::move(done));
  target->early_sends.push_back([this, to, tag, bytes, done = std::move(done)]() mutable {
    send(to, tag, bytes, std::move(done));
  });
}

void core::send_now(peer& to, piece_tag tag, std::span<const std::byte> bytes, completion done) {
  auto made = std::make_unique<operation>();
  made->what = operation::kind::send_piece;
  made->piece = {.piece = tag.piece,
                 .connection = to.connection,
                 .transfer = tag.transfer,
                 .begin = tag.begin,
                 .end = tag.end,
                 .number = to.next_number++};
  made->size = bytes.size();
  made->done = std::move(done);
  made->memory = memory_.find(bytes);
  auto& op = begin(to, std::move(made));
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.flags = UCP_AM_SEND_FLAG_RNDV;
  param.cb.send = &core::on_sent;
  param.user_data = &op;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  if (op.memory) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param.memh = op.memory->handle(to.via->kind());
  }
  started(op, ucp_am_send_nbx(to.endpoint, am_piece, &op.piece, sizeof op.piece, bytes.data(),
                              bytes.size(), &param));
}

void core::receive(std::uint64_t number, std::span<std::byte> into, completion done) {
  auto found = offers_.find(number);
  if (found == offers_.end()) return done({false, 0, peer_is_gone});
  const auto taken = found->second;
  if (into.size() < taken.size) {
    decline(number);
    return done({false, 0, {"truncated", "the buffer is smaller than the piece"}});
  }
  offers_.erase(found);
  --taken.from->offers;
  auto made = std::make_unique<operation>();
  made->what = operation::kind::receive_piece;
  made->size = taken.size;
  made->done = std::move(done);
  made->memory = memory_.find(into.first(taken.size));
  auto& op = begin(*taken.from, std::move(made));
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv_am = &core::on_received;
  param.user_data = &op;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  if (op.memory) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param.memh = op.memory->handle(taken.from->via->kind());
  }
  started(op, ucp_am_recv_data_nbx(taken.from->via->worker(), taken.descriptor, into.data(),
                                   taken.size, &param));
}

void core::decline(std::uint64_t number) {
  auto found = offers_.find(number);
  if (found == offers_.end()) return;
  const auto refused = found->second;
  offers_.erase(found);
  --refused.from->offers;
  decline(refused);
}

void core::decline(const offer& refused) {
  std::vector<std::byte> number(sizeof refused.number);
  std::memcpy(number.data(), &refused.number, sizeof refused.number);
  if (refused.from->endpoint == nullptr) return release(*refused.from->via, refused.descriptor);
  queue_control(*refused.from, control_kind::decline, std::move(number), nullptr,
                refused.descriptor);
}

void core::on_declined(peer& by, std::span<const std::byte> bytes) {
  std::uint64_t number = 0;
  if (bytes.size() != sizeof number) return;
  std::memcpy(&number, bytes.data(), sizeof number);
  for (auto& [key, op] : by.operations)
    if (op->what == operation::kind::send_piece && op->piece.number == number)
      op->declined = true;  // UCX's acknowledgement follows, and ends it
}

void core::release(lane& via, void* descriptor) { ucp_am_data_release(via.worker(), descriptor); }

operation& core::begin(peer& with, std::unique_ptr<operation> made) {
  made->owner = this;
  made->with = &with;
  made->via = with.via->kind();
  auto* key = made.get();
  with.operations[key] = std::move(made);
  ++active_;
  return *key;
}

void core::started(operation& made, ucs_status_ptr_t result) {
  if (!UCS_PTR_IS_PTR(result)) finish(made, UCS_PTR_STATUS(result), made.size);
}

void core::on_sent(void* request, ucs_status_t status, void* user_data) {
  ucp_request_free(request);
  auto& op = *static_cast<operation*>(user_data);
  op.owner->finish(op, status, op.size);
}

void core::on_received(void* request, ucs_status_t status, std::size_t size, void* user_data) {
  ucp_request_free(request);
  auto& op = *static_cast<operation*>(user_data);
  op.owner->finish(op, status, size);
}

void core::finish(operation& ended, ucs_status_t status, std::size_t size) {
  if (ended.with == nullptr) {
    abandoned_.erase(&ended);
    return;
  }
  auto& with = *ended.with;
  const auto id = with.id;
  auto node = with.operations.extract(&ended);
  if (status != UCS_OK && ended.what == operation::kind::receive_piece &&
      with.via->handles_errors())
    return park(with, std::move(node.mapped()));
  --active_;
  report(ended, status, size);
  // The report may have led back here and ended the peer.
  if (auto* still = find(id)) {
    if (ended.what == operation::kind::send_control) {
      still->control_busy = false;
      start_next_control(*still);
    }
    forget_if_over(*still);
  }
}

void core::park(peer& with, std::unique_ptr<operation> failed) {
  with.parked.push_back(std::move(failed));
  if (!with.lost)
    lose(with, {"peer_failed", "a piece of KV failed in transit"}, ending::broken, true);
  else
    forget_if_over(with);
}

bool core::end_settled(bool all) {
  bool any = false;
  while (!settling_.empty() && (all || settling_.front().due <= std::chrono::steady_clock::now())) {
    auto next = std::move(settling_.front());
    settling_.pop_front();
    --active_;
    any = true;
    report(*next.failed, UCS_ERR_CONNECTION_RESET, 0);
  }
  return any;
}

void core::report(operation& ended, ucs_status_t status, std::size_t size) {
  if (ended.release_after != nullptr)
    release(*ended.owner->lanes_[static_cast<std::size_t>(ended.via)],
            std::exchange(ended.release_after, nullptr));
  if (status == UCS_OK && ended.declined) status = UCS_ERR_REJECTED;
  const bool fine = status == UCS_OK;
  switch (ended.what) {
  case operation::kind::send_piece:
    if (fine) {
      shared_.sent_bytes += size;
      ++shared_.pieces_sent;
    }
    break;
  case operation::kind::receive_piece:
    if (fine) {
      shared_.received_bytes += size;
      ++shared_.pieces_received;
    }
    break;
  case operation::kind::send_control:
    if (fine && ended.control.kind == control_kind::message) shared_.control_bytes += size;
    break;
  case operation::kind::receive_control:
    if (fine && ended.with != nullptr && !ended.with->lost)
      handle_control(*ended.with, ended.control, ended.control_bytes);
    break;
  }
  if (ended.done)
    std::exchange(ended.done,
                  nullptr)(fine ? outcome{true, size, {}}
                                : outcome{false, 0, to_error(status, "moving a piece of KV")});
}

}  // namespace troupe::transfer::ucx
