// The same UCX calls as Troupe's backend makes, in the shortest loop that makes them: what UCX
// gives with a ring of buffers, which ucx_perftest hasn't.
#include "tools/bench/kv_transfer/measure.hpp"

#include <poll.h>
#include <ucp/api/ucp.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace troupe::bench {

namespace {

void check(ucs_status_t status) {
  if (status != UCS_OK)
    throw std::runtime_error(std::string("plain UCX: ") + ucs_status_string(status));
}

struct plain {
  const setting& how;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  ucp_ep_h endpoint = nullptr;
  ucp_mem_h registered = nullptr;
  std::byte* memory = nullptr;
  int wake = -1;
  std::size_t under_way = 0;
  std::size_t done = 0;
  std::size_t next = 0;

  explicit plain(const setting& s) : how(s) {
    ucp_config_t* config = nullptr;
    check(ucp_config_read(nullptr, nullptr, &config));
    check(ucp_config_modify(config, "TLS", s.tls().c_str()));
    check(ucp_config_modify(config, "NET_DEVICES", "lo"));
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    check(ucp_init(&params, config, &context));
    ucp_config_release(config);
    ucp_worker_params_t worker_params{};
    check(ucp_worker_create(context, &worker_params, &worker));
    check(ucp_worker_get_efd(worker, &wake));
    const auto bytes = s.slots() * s.piece_bytes;
    memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
    std::memset(memory, 1, bytes);
    ucp_mem_map_params_t map{};
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = memory;
    map.length = bytes;
    check(ucp_mem_map(context, &map, &registered));
  }
  // Ended by its process' end.

  std::byte* slot() { return memory + (next++ % how.slots()) * how.piece_bytes; }

  std::vector<std::byte> address() {
    ucp_address_t* found = nullptr;
    std::size_t size = 0;
    check(ucp_worker_get_address(worker, &found, &size));
    auto first = reinterpret_cast<const std::byte*>(found);
    return {first, first + size};
  }
  void connect(const std::vector<std::byte>& to) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(to.data());
    params.err_mode = how.where == transfer::proximity::other_host ? UCP_ERR_HANDLING_MODE_PEER
                                                                   : UCP_ERR_HANDLING_MODE_NONE;
    check(ucp_ep_create(worker, &params, &endpoint));
  }
  void step(int also = -1) {
    if (ucp_worker_progress(worker) != 0) return;
    if (ucp_worker_arm(worker) != UCS_OK) return;
    pollfd watched[2] = {{wake, POLLIN, 0}, {also, POLLIN, 0}};
    ::poll(watched, also < 0 ? 1 : 2, -1);
  }
  static void ended(void* request, ucs_status_t status, void* user) {
    check(status);
    ucp_request_free(request);
    auto& self = *static_cast<plain*>(user);
    --self.under_way;
    ++self.done;
  }
  void send() {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                         UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMH;
    param.flags = UCP_AM_SEND_FLAG_RNDV;
    param.cb.send = [](void* request, ucs_status_t status, void* user) {
      ended(request, status, user);
    };
    param.user_data = this;
    param.memh = registered;
    ++under_way;
    auto* request = ucp_am_send_nbx(endpoint, 0, nullptr, 0, slot(), how.piece_bytes, &param);
    if (!UCS_PTR_IS_PTR(request)) {
      check(UCS_PTR_STATUS(request));
      --under_way;
      ++done;
    }
  }
  void run(std::size_t pieces) {
    std::size_t posted = 0;
    for (done = 0; done < pieces;) {
      while (under_way < outstanding && posted < pieces) {
        send();
        ++posted;
      }
      step();
    }
  }
  static ucs_status_t on_message(void* argument, const void*, std::size_t, void* data,
                                 std::size_t size, const ucp_am_recv_param_t*) {
    auto& self = *static_cast<plain*>(argument);
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                         UCP_OP_ATTR_FIELD_MEMH;
    param.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* user) {
      ended(request, status, user);
    };
    param.user_data = &self;
    param.memh = self.registered;
    ++self.under_way;
    auto* request = ucp_am_recv_data_nbx(self.worker, data, self.slot(), size, &param);
    if (!UCS_PTR_IS_PTR(request)) {
      check(UCS_PTR_STATUS(request));
      --self.under_way;
    }
    return UCS_OK;
  }
  void listen() {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = 0;
    param.cb = &plain::on_message;
    param.arg = this;
    check(ucp_worker_set_am_recv_handler(worker, &param));
  }
};

}  // namespace

std::optional<double> measure_plain(const setting& s) {
  auto receive = [&](int fd) {
    plain self(s);
    self.listen();
    put(fd, self.address());
    for (pollfd watched{fd, POLLIN, 0}; ::poll(&watched, 1, 0) == 0;) self.step(fd);
  };
  auto send = [&](int fd) -> std::optional<double> {
    plain self(s);
    self.connect(get(fd));
    self.run(warm_up);
    const auto begin = std::chrono::steady_clock::now();
    self.run(s.pieces());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    put(fd, std::vector<std::byte>(1));
    return static_cast<double>(s.pieces() * s.piece_bytes) / (1U << 20U) / took.count();
  };
  return in_two_processes(receive, send);
}

}  // namespace troupe::bench
