#include "gpu/transfer/ucx/memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace troupe::transfer::ucx {

namespace {

constexpr std::size_t huge_page_bytes = 2U << 20U;

}  // namespace

expected<std::shared_ptr<registered_memory>> registered_memory::map(
    std::size_t bytes, std::span<const shared_context> contexts) {
  std::shared_ptr<registered_memory> made(new registered_memory);
  const auto whole = (bytes + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
  const auto mapped = whole + huge_page_bytes;
  void* all = whole < bytes || bytes == 0 ? MAP_FAILED
                                          : ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED)
    return error{"out_of_memory",
                 fmt::format("{} bytes of transfer memory: {}", bytes, std::strerror(errno))};
  made->mapped_ = {static_cast<std::byte*>(all), mapped};
  std::size_t room = mapped;
  void* at = all;
  std::align(huge_page_bytes, whole, at, room);
  // A copy between processes walks the pages: with huge ones it is a third faster. Where the kernel
  // has none, small ones do.
  ::madvise(at, whole, MADV_HUGEPAGE);
  std::memset(at, 0, whole);  // present now rather than in the middle of a transfer
  made->bytes_ = {static_cast<std::byte*>(at), bytes};
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    if (!contexts[i]) continue;
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                        UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    params.address = at;
    params.length = whole;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    if (auto status = ucp_mem_map(contexts[i].get(), &params, &made->handles_[i]); status != UCS_OK)
      return error{"registration_failed", fmt::format("registering {} bytes with UCX: {}", bytes,
                                                      ucs_status_string(status))};
    made->contexts_[i] = contexts[i];
  }
  return made;
}

registered_memory::~registered_memory() {
  for (std::size_t i = 0; i < lane_count; ++i)
    if (handles_[i] != nullptr) ucp_mem_unmap(contexts_[i].get(), handles_[i]);
  if (mapped_.data() != nullptr) ::munmap(mapped_.data(), mapped_.size());
}

void memory_table::add(const std::shared_ptr<registered_memory>& memory) {
  std::lock_guard lock(mutex_);
  by_begin_[memory->bytes().data()] = memory;
}

void memory_table::remove(const registered_memory& memory) {
  std::lock_guard lock(mutex_);
  by_begin_.erase(memory.bytes().data());
}

std::shared_ptr<registered_memory> memory_table::find(std::span<const std::byte> bytes) const {
  std::lock_guard lock(mutex_);
  auto after = by_begin_.upper_bound(bytes.data());
  if (after == by_begin_.begin()) return nullptr;
  auto memory = std::prev(after)->second.lock();
  if (!memory) return nullptr;
  const auto whole = memory->bytes();
  const bool inside = bytes.data() + bytes.size() <= whole.data() + whole.size();
  return inside ? memory : nullptr;
}

}  // namespace troupe::transfer::ucx
