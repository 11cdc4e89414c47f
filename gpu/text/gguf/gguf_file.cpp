#include "gpu/text/gguf/gguf_file.hpp"

#include <fmt/format.h>
#include <llama.h>
#include <spdlog/spdlog.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string_view>
#include <system_error>
#include <vector>

namespace troupe::gguf {
namespace {

constexpr std::string_view magic = "GGUF";
constexpr std::uint64_t digest_head_bytes = 1U << 20U;
constexpr std::uint64_t digest_sample_bytes = 64U << 10U;
constexpr std::uint64_t digest_samples = 64;
/// Of a line that llama.cpp logs; longer ones are cut.
constexpr std::size_t log_line_bytes_max = 4096;

struct log_state {
  std::string line;
  ggml_log_level level = GGML_LOG_LEVEL_INFO;
  std::string last_error;
};

log_state& thread_log() {
  thread_local log_state state;
  return state;
}

void end_line(log_state& state) {
  if (state.line.empty()) return;
  if (state.level == GGML_LOG_LEVEL_ERROR) state.last_error = state.line;
  const bool matters = state.level == GGML_LOG_LEVEL_ERROR || state.level == GGML_LOG_LEVEL_WARN;
  spdlog::log(matters ? spdlog::level::debug : spdlog::level::trace, "llama.cpp: {}", state.line);
  state.line.clear();
}

/// Lines come in fragments; `CONT` goes on with the level of the one before.
void on_log(ggml_log_level level, const char* text, void* /*user*/) {
  auto& state = thread_log();
  if (level != GGML_LOG_LEVEL_CONT) state.level = level;
  for (const char c : std::string_view(text)) {
    if (c == '\n')
      end_line(state);
    else if (state.line.size() < log_line_bytes_max)
      state.line += c;
  }
}

bool on_progress(float done, void* user) {
  return (*static_cast<const std::function<bool(float)>*>(user))(done);
}

expected<std::ifstream> open_file(const std::string& path) {
  if (path.empty()) return error{"model_missing", "no model file is named"};
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return error{"model_missing",
                 fmt::format("cannot read the model file {}: {}; check `path` of the model in the "
                             "cluster file, and the file's permissions",
                             path, std::system_category().message(errno))};
  }
  return file;
}

error why_not(const std::string& path, const std::string& cause) {
  if (cause.find("unknown model architecture") != std::string::npos) {
    return {"model_unsupported",
            fmt::format("the model file {} is of a kind that this version of llama.cpp cannot run "
                        "({})",
                        path, cause)};
  }
  return {"model_corrupt",
          fmt::format("the model file {} cannot be loaded ({}); it may be truncated: download it "
                      "again, or compare its checksum",
                      path, cause.empty() ? "llama.cpp gives no reason" : cause)};
}

}  // namespace

void model_deleter::operator()(llama_model* model) const { llama_model_free(model); }

void start_backend() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(on_log, nullptr);
    llama_backend_init();
  });
}

std::string take_last_error() { return std::exchange(thread_log().last_error, {}); }

expected<model_ptr> open(const std::string& path, const open_options& options) {
  start_backend();
  auto file = open_file(path);
  if (!file) return file.error();
  char head[magic.size()] = {};
  file->read(head, sizeof(head));
  if (!*file || std::string_view(head, sizeof(head)) != magic) {
    return error{"model_corrupt",
                 fmt::format("{} is not a GGUF file: it doesn't begin with \"GGUF\"; a Git LFS "
                             "pointer or an error page in its place looks like this",
                             path)};
  }
  if (options.gpu_layers > 0 && !llama_supports_gpu_offload())
    return error{
        "device_missing",
        fmt::format("{} layers of {} are to be kept on a GPU (gpu_layers), and none can be "
                    "used: there is none, its driver does not answer, or this build has no "
                    "support for it",
                    options.gpu_layers, path)};
  auto params = llama_model_default_params();
  params.vocab_only = options.vocabulary_only;
  params.n_gpu_layers = options.gpu_layers;
  bool cancelled = false;
  const std::function<bool(float)> progress = [&](float done) {
    cancelled = options.progress && !options.progress(done);
    return !cancelled;
  };
  params.progress_callback = on_progress;
  params.progress_callback_user_data = const_cast<std::function<bool(float)>*>(&progress);
  take_last_error();
  model_ptr model;
  try {
    model.reset(llama_model_load_from_file(path.c_str(), params));
  } catch (const std::exception& e) {
    return why_not(path, e.what());
  }
  if (cancelled) {
    return error{"model_load_cancelled", fmt::format("loading {} was given up", path)};
  }
  if (!model) return why_not(path, take_last_error());
  return model;
}

expected<std::uint64_t> digest(const std::string& path) {
  auto file = open_file(path);
  if (!file) return file.error();
  file->seekg(0, std::ios::end);
  const auto size = static_cast<std::uint64_t>(std::max<std::streamoff>(file->tellg(), 0));
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), &size, sizeof(size));
  std::vector<char> buffer(digest_head_bytes);
  const auto add = [&](std::uint64_t at, std::uint64_t bytes) {
    file->clear();
    file->seekg(static_cast<std::streamoff>(at));
    file->read(buffer.data(), static_cast<std::streamsize>(bytes));
    XXH3_64bits_update(state.get(), buffer.data(), static_cast<std::size_t>(file->gcount()));
  };
  add(0, std::min(size, digest_head_bytes));
  for (std::uint64_t i = 1; i <= digest_samples && size > digest_sample_bytes; ++i)
    add((size - digest_sample_bytes) / digest_samples * i, digest_sample_bytes);
  return XXH3_64bits_digest(state.get());
}

}  // namespace troupe::gguf
