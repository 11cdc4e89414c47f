#include "gpu/transfer/ucx/memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace troupe::transfer::ucx {

expected<std::shared_ptr<registered_memory>> registered_memory::map(std::size_t bytes, std::span<const shared_context> contexts) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::shared_ptr<registered_memory> made(new registered_memory);
  const auto whole = (bytes + page - 1) / page * page;
  void* at = whole < bytes || bytes == 0 ? MAP_FAILED : ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (at == MAP_FAILED)
    return error{"out_of_memory", fmt::format("{} bytes of transfer memory: {}", bytes, std::strerror(errno))};
  made->mapped_bytes_ = whole;
  made->bytes_ = {static_cast<std::byte*>(at), bytes};
  for (std::size_t i = 0; i < contexts.size(); ++i) {
    if (!contexts[i])
      continue;
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    params.address = at;
    params.length = whole;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    if (auto status = ucp_mem_map(contexts[i].get(), &params, &made->handles_[i]); status != UCS_OK)
      return error{"registration_failed", fmt::format("registering {} bytes with UCX: {}", bytes, ucs_status_string(status))};
    made->contexts_[i] = contexts[i];
  }
  return made;
}

registered_memory::~registered_memory() {
  for (std::size_t i = 0; i < lane_count; ++i)
    if (handles_[i] != nullptr)
      ucp_mem_unmap(contexts_[i].get(), handles_[i]);
  if (bytes_.data() != nullptr)
    ::munmap(bytes_.data(), mapped_bytes_);
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
  if (after == by_begin_.begin())
    return nullptr;
  auto memory = std::prev(after)->second.lock();
  if (!memory)
    return nullptr;
  const auto whole = memory->bytes();
  const bool inside = bytes.data() + bytes.size() <= whole.data() + whole.size();
  return inside ? memory : nullptr;
}

}  // namespace troupe::transfer::ucx
