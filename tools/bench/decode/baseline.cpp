#include "tools/bench/decode/baseline.hpp"

#include "tools/bench/decode_rig.hpp"

#include <llama.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <random>

namespace troupe::bench {
namespace {

/// One argument of a shell's command line.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) give_up("cannot run " + command);
  std::string out;
  std::array<char, 4096> buffer;
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;)
    out.append(buffer.data(), n);
  return out;
}

class direct {
 public:
  explicit direct(const decode_settings& s)
      : model_(nullptr, llama_model_free), context_(nullptr, llama_free) {
    model_.reset(llama_model_load_from_file(s.model.c_str(), llama_model_default_params()));
    if (!model_) give_up("llama.cpp cannot load " + s.model);
    auto params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>(s.cells);
    params.n_batch = static_cast<std::uint32_t>(s.step_tokens);
    params.n_ubatch = params.n_batch;
    params.n_seq_max = static_cast<std::uint32_t>(s.batch) + 1;
    params.n_outputs_max = params.n_seq_max;
    params.n_threads = static_cast<std::int32_t>(s.threads);
    params.n_threads_batch = params.n_threads;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.swa_full = true;
    params.kv_unified = true;
    context_.reset(llama_init_from_model(model_.get(), params));
    if (!context_) give_up("llama.cpp cannot make a context");
    batch_ = llama_batch_init(static_cast<std::int32_t>(s.step_tokens), 0, 1);
    vocabulary_ = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
  }
  direct(const direct&) = delete;
  direct& operator=(const direct&) = delete;
  ~direct() { llama_batch_free(batch_); }

  void add(llama_seq_id sequence, llama_pos pos, bool logits) {
    const auto i = batch_.n_tokens++;
    batch_.token[i] = static_cast<llama_token>(random_() % static_cast<std::uint64_t>(vocabulary_));
    batch_.pos[i] = pos;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = sequence;
    batch_.logits[i] = logits ? 1 : 0;
  }
  void compute() {
    if (batch_.n_tokens == 0) return;
    if (llama_decode(context_.get(), batch_) != 0) give_up("llama.cpp cannot compute");
    llama_synchronize(context_.get());
    batch_.n_tokens = 0;
  }
  void fill(llama_seq_id sequence, std::size_t tokens, std::size_t step) {
    for (std::size_t p = 0; p < tokens; ++p) {
      add(sequence, static_cast<llama_pos>(p), false);
      if (static_cast<std::size_t>(batch_.n_tokens) == step) compute();
    }
    compute();
  }

 private:
  std::unique_ptr<llama_model, void (*)(llama_model*)> model_;
  std::unique_ptr<llama_context, void (*)(llama_context*)> context_;
  llama_batch batch_{};
  std::int32_t vocabulary_ = 0;
  std::mt19937_64 random_{1};
};

}  // namespace

double batched_bench_rate(const decode_settings& s) {
  const auto command = fmt::format(
      "{} -m {} -c {} -b {} -ub {} -npp {} -ntg {} -npl {} -t {} -tb {} -fa on --kv-unified "
      "--swa-full --output-format jsonl -lv 3 2>/dev/null",
      quoted(s.batched_bench), quoted(s.model), s.cells, s.step_tokens, s.step_tokens,
      s.prompt_tokens, s.answer_tokens, s.batch, s.threads, s.threads);
  const auto out = output_of(command);
  const auto begin = out.find('{');
  const auto end = out.find('}', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) give_up("no result from: " + command);
  simdjson::dom::parser parser;
  double rate = 0;
  if (parser.parse(out.substr(begin, end - begin + 1))["speed_tg"].get(rate) != simdjson::SUCCESS)
    give_up("no speed in the result of: " + command);
  return rate;
}

double direct_rate(const decode_settings& s, std::size_t idle_tokens) {
  direct loop(s);
  const auto idle = static_cast<llama_seq_id>(s.batch);
  loop.fill(idle, idle_tokens, s.step_tokens);
  for (std::size_t j = 0; j < s.batch; ++j)
    loop.fill(static_cast<llama_seq_id>(j), s.prompt_tokens, s.step_tokens);
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < s.answer_tokens; ++i) {
    for (std::size_t j = 0; j < s.batch; ++j)
      loop.add(static_cast<llama_seq_id>(j), static_cast<llama_pos>(s.prompt_tokens + i), true);
    loop.compute();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return static_cast<double>(s.batch * s.answer_tokens) / took.count();
}

}  // namespace troupe::bench
