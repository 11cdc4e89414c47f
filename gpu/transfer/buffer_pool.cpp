#include "gpu/transfer/buffer_pool.hpp"
#include "messages/base/planted.hpp"

#include <mutex>
#include <utility>
#include <vector>

namespace troupe::transfer {

namespace {

constexpr std::size_t alignment_bytes = 4096;

}  // namespace

struct buffer_pool::state {
  std::mutex mutex;
  std::unique_ptr<region> memory;
  std::size_t stride = 0;
  std::size_t buffer_bytes = 0;
  std::size_t count = 0;
  std::vector<std::size_t> idle;
  std::function<void()> freed;
};

class buffer_pool::slot final : public engine::piece_buffer {
 public:
  slot(std::shared_ptr<state> owner, std::size_t index) : owner_(std::move(owner)), index_(index) {}
  ~slot() override {
    if (planted::is(planted::bug::leak_buffer) && index_ == 0) return;
    {
      std::lock_guard lock(owner_->mutex);
      owner_->idle.push_back(index_);
    }
    if (owner_->freed) owner_->freed();
  }
  std::span<std::byte> bytes() override {
    return owner_->memory->bytes().subspan(index_ * owner_->stride, owner_->buffer_bytes);
  }

 private:
  std::shared_ptr<state> owner_;
  std::size_t index_;
};

expected<std::unique_ptr<buffer_pool>> buffer_pool::make(backend& transport,
                                                         std::size_t buffer_bytes,
                                                         std::size_t count) {
  auto made = std::make_shared<state>();
  made->stride = (buffer_bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  made->buffer_bytes = buffer_bytes;
  made->count = count;
  auto memory = transport.allocate(made->stride * count, memory_kind::host);
  if (!memory) return std::move(memory).error();
  made->memory = *std::move(memory);
  for (std::size_t i = count; i > 0; --i) made->idle.push_back(i - 1);
  return std::unique_ptr<buffer_pool>(new buffer_pool(std::move(made)));
}

std::unique_ptr<engine::piece_buffer> buffer_pool::acquire(std::size_t size) {
  std::lock_guard lock(state_->mutex);
  if (size > state_->buffer_bytes || state_->idle.empty()) return nullptr;
  const auto index = state_->idle.back();
  state_->idle.pop_back();
  return std::make_unique<slot>(state_, index);
}

std::size_t buffer_pool::buffer_bytes() const { return state_->buffer_bytes; }
std::size_t buffer_pool::count() const { return state_->count; }

std::size_t buffer_pool::free() const {
  std::lock_guard lock(state_->mutex);
  return state_->idle.size();
}

void buffer_pool::on_free(std::function<void()> call) { state_->freed = std::move(call); }

}  // namespace troupe::transfer
