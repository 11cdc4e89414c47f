#include "runner_fixture.hpp"

#include <llama.h>

#include <fstream>

#include <unistd.h>

namespace troupe::engine {
namespace {

using namespace testing;

struct temporary_file {
  explicit temporary_file(std::string_view bytes)
      : path(std::filesystem::temp_directory_path() /
             ("troupe-load-test-" + std::to_string(::getpid()) + ".gguf")) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~temporary_file() { std::filesystem::remove(path); }
  std::filesystem::path path;
};

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

error load_error(const llama_options& options) {
  auto runner = llama_runner::load(options);
  REQUIRE_FALSE(runner);
  INFO(runner.error().message);
  CHECK(runner.error().message.size() > 20);
  return runner.error();
}

TEST_CASE("a loaded model says what it is") {
  auto runner = load(tiny_options());
  const auto& info = runner->info();
  CHECK(info.name == "tiny");
  CHECK(info.context_tokens == 8192);
  CHECK(info.vocabulary > 700);
  CHECK(info.ranges);
  CHECK(info.kv_bytes_per_token >=
        2 * 2 * 32 * 2);  // K and V, two layers of 32 half-precision values
  CHECK(info.kv_layout != 0);
  CHECK(std::count(info.end_tokens.begin(), info.end_tokens.end(), 2) == 1);
  CHECK(runner->cells() == 2048);
  CHECK(runner->slots() == 8);
  CHECK(runner->truth().used_cells == 0);
  CHECK(runner->ticks() > 0);
}

TEST_CASE("the layout digest is the same for the same model, and another for another file") {
  auto options = tiny_options();
  const auto layout = load(options)->info().kv_layout;
  CHECK(load(options)->info().kv_layout == layout);
  auto bytes = file_bytes(TROUPE_TINY_GGUF);
  bytes[bytes.size() - 100] ^= 1;  // one weight
  const temporary_file other(bytes);
  options.path = other.path;
  CHECK(load(options)->info().kv_layout != layout);
}

TEST_CASE("a missing, foreign or truncated model file is named with what to do") {
  auto options = tiny_options();
  options.path = "/nowhere/model.gguf";
  auto why = load_error(options);
  CHECK(why.code == "model_missing");
  CHECK(why.message.find("/nowhere/model.gguf") != std::string::npos);

  const auto whole = file_bytes(TROUPE_TINY_GGUF);
  for (const auto& bytes : {std::string(), std::string("GG"),
                            std::string("version https://git-lfs.github.com/spec/v1\n"),
                            std::string("GGUF"), whole.substr(0, 1000),
                            whole.substr(0, whole.size() / 2), whole.substr(0, whole.size() - 1)}) {
    INFO("a file of " << bytes.size() << " bytes");
    const temporary_file file(bytes);
    options.path = file.path;
    why = load_error(options);
    CHECK(why.code == "model_corrupt");
    CHECK(why.message.find(file.path.string()) != std::string::npos);
  }
}

TEST_CASE("loading shows progress and can be given up") {
  auto options = tiny_options();
  std::vector<float> seen;
  options.progress = [&](float done) {
    seen.push_back(done);
    return true;
  };
  load(options);
  REQUIRE_FALSE(seen.empty());
  CHECK(seen.back() == 1.0F);
  options.progress = [](float) { return false; };
  CHECK(load_error(options).code == "model_load_cancelled");
}

TEST_CASE("what a model cannot do is refused at load") {
  auto options = tiny_options();
  options.context_tokens = 100'000;
  CHECK(load_error(options).code == "context_too_long");
  options = tiny_options();
  options.slots = 1000;
  CHECK(load_error(options).code == "too_many_slots");
  options = tiny_options();
  options.step_tokens = 0;
  CHECK(load_error(options).code == "invalid_options");
}

TEST_CASE("spare slots are as many as there is room for") {
  auto options = tiny_options();
  options.slots = 3;
  options.spare_slots = 8;
  CHECK(load(options)->slots() == 11);
  options.slots = 250;
  CHECK(load(options)->slots() == llama_slots_max(false));
}

TEST_CASE("any number of slots and step tokens makes a runner") {
  for (const slot_id slots : {1, 2, 40, 255}) {
    for (const std::uint32_t step : {1U, 3U, 64U, 512U}) {
      INFO(slots << " slots, " << step << " tokens a step");
      auto options = tiny_options();
      options.slots = slots;
      options.step_tokens = step;
      auto runner = load(options);
      const auto tokens = some_tokens(10, runner->info());
      prefill(*runner, slots - 1, tokens, 0, 10, step);
      CHECK(runner->truth().used_cells == 10);
    }
  }
}

TEST_CASE(
    "layers for a GPU are refused where there is none, and not computed elsewhere in silence") {
  if (llama_supports_gpu_offload()) return;
  auto options = tiny_options();
  options.gpu_layers = 1;
  const auto why = load_error(options);
  CHECK(why.code == "device_missing");
  CHECK_THAT(why.message, Catch::Contains("gpu_layers"));
}

}  // namespace
}  // namespace troupe::engine
