// Greedy answers by llama.cpp called directly, by one engine, and by two engines with the KV handed
// over: the same token ids? One request at a time, the same chunks, an empty cache; then once more
// with the prefix cache on, reported apart.

#include "tools/bench/decode_rig.hpp"
#include "tools/bench/identity/reference.hpp"

#include <CLI/CLI.hpp>
#include <rapidjson/filewritestream.h>
#include <rapidjson/writer.h>

#include <cmath>
#include <cstdio>
#include <string>

namespace troupe::bench {
namespace {

struct settings {
  engine::llama_options model;
  std::size_t prompts = 40;
  std::size_t prompt_tokens_max = 6000;
  std::size_t answer_tokens = 64;
  std::uint64_t seed = 1;
  bool reuse = true;
  std::string reference_file;
};

struct sample {
  std::vector<token_id> prompt;
  std::vector<token_id> expected;
};

/// Lengths from 1 to the longest, evenly on a logarithmic scale.
std::size_t length_of(std::size_t index, const settings& s) {
  if (s.prompts == 1) return s.prompt_tokens_max;
  const auto part = static_cast<double>(index) / static_cast<double>(s.prompts - 1);
  return static_cast<std::size_t>(
      std::lround(std::pow(static_cast<double>(s.prompt_tokens_max), part)));
}

engine::batching_limits limits_of(const settings& s, bool reuse) {
  engine::batching_limits out;
  out.slots = 4;
  out.kv_tokens = s.model.cells;
  out.step_tokens = s.model.step_tokens;
  out.cached_prefixes = reuse ? 8 : 1;
  out.prefix_reuse = reuse;
  return out;
}

std::vector<token_id> together(rig& one, job_id id, const sample& s) {
  if (auto in = one.machine().submit(
          greedy_job(id, s.prompt, static_cast<std::uint32_t>(s.expected.size())));
      !in)
    give_up(in.error().message);
  for (const auto before = one.done; one.done == before;) one.step();
  return one.ids[id];
}

std::vector<token_id> apart(rig& prefill, rig& decode, job_id id, const sample& s) {
  auto job = greedy_job(id, s.prompt, static_cast<std::uint32_t>(s.expected.size()));
  job.prefill_here = false;
  if (auto in = decode.machine().submit(std::move(job)); !in) give_up(in.error().message);
  engine::prefill_spec spec;
  spec.id = id;
  spec.tokens = s.prompt;
  if (auto in = prefill.machine().submit(std::move(spec)); !in) give_up(in.error().message);
  bool granted = false;
  for (const auto before = decode.done; decode.done == before;) {
    prefill.step();
    decode.step();
    if (!granted && decode.import_ready.contains(id)) {
      prefill.machine().grant_delivery(id, decode.import_ready[id]);
      granted = true;
    }
    for (; !prefill.pieces.empty(); prefill.pieces.pop_front())
      decode.machine().import_piece(std::move(prefill.pieces.front()));
  }
  return decode.ids[id];
}

/// Prints and counts.
class scoreboard {
 public:
  explicit scoreboard(std::string name) : name_(std::move(name)) {}
  void add(const sample& s, const std::vector<token_id>& got) {
    ++all_;
    if (got == s.expected) {
      ++same_;
      return;
    }
    std::size_t at = 0;
    while (at < got.size() && at < s.expected.size() && got[at] == s.expected[at]) ++at;
    fmt::print("  {}: the answer to {} tokens differs from token {} on\n", name_, s.prompt.size(),
               at);
  }
  bool all_same() const { return same_ == all_; }
  void print() const { fmt::print("{:<44} {}/{} identical\n", name_, same_, all_); }

 private:
  std::string name_;
  std::size_t same_ = 0;
  std::size_t all_ = 0;
};

void write_reference(const std::string& path, const std::vector<sample>& samples,
                     const text::text_model& text) {
  auto* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) give_up("cannot write " + path);
  char buffer[1U << 16U];
  rapidjson::FileWriteStream stream(file, buffer, sizeof(buffer));
  rapidjson::Writer<rapidjson::FileWriteStream> json(stream);
  const auto list = [&](const std::vector<token_id>& ids) {
    json.StartArray();
    for (const auto id : ids) json.Int(id);
    json.EndArray();
  };
  json.StartArray();
  for (const auto& s : samples) {
    auto output = text.make_output({}, {});
    std::string answer;
    for (const auto id : s.expected) answer += output->push(id).text;
    answer += output->finish().text;
    json.StartObject();
    json.Key("prompt");
    list(s.prompt);
    json.Key("ids");
    list(s.expected);
    json.Key("text");
    json.String(answer.data(), static_cast<rapidjson::SizeType>(answer.size()));
    json.EndObject();
  }
  json.EndArray();
  stream.Flush();
  std::fclose(file);
}

int run(const settings& s) {
  auto text = text::load_gguf_text_model(s.model.path, "", 0);
  if (!text) give_up(text.error().message);
  std::vector<sample> samples;
  {
    reference direct(s.model);
    for (std::size_t i = 0; i < s.prompts; ++i) {
      sample one{words_as_tokens(**text, length_of(i, s), s.seed + i), {}};
      one.expected = direct.greedy(one.prompt, s.answer_tokens);
      samples.push_back(std::move(one));
    }
  }
  if (!s.reference_file.empty()) write_reference(s.reference_file, samples, **text);
  fmt::print("{} prompts of 1 to {} tokens, {} tokens of answer each, chunks of {}, {} threads\n",
             s.prompts, s.prompt_tokens_max, s.answer_tokens, s.model.step_tokens, s.model.threads);

  scoreboard one_engine("one engine, empty cache");
  scoreboard two_engines("prefill and decode apart, empty cache");
  {
    rig both(s.model, limits_of(s, false), *text);
    for (std::size_t i = 0; i < samples.size(); ++i)
      one_engine.add(samples[i], together(both, i + 1, samples[i]));
  }
  {
    rig prefill(s.model, limits_of(s, false), *text);
    rig decode(s.model, limits_of(s, false), *text);
    for (std::size_t i = 0; i < samples.size(); ++i)
      two_engines.add(samples[i], apart(prefill, decode, i + 1, samples[i]));
  }
  one_engine.print();
  two_engines.print();
  if (s.reuse) {
    scoreboard first("one engine, prefix cache on, first time");
    scoreboard again("one engine, prefix cache on, asked again");
    rig both(s.model, limits_of(s, true), *text);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      first.add(samples[i], together(both, 2 * i + 1, samples[i]));
      again.add(samples[i], together(both, 2 * i + 2, samples[i]));
    }
    first.print();
    again.print();
  }
  return one_engine.all_same() && two_engines.all_same() ? 0 : 1;
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  troupe::bench::settings s;
  s.model.cells = 8192;
  s.model.slots = 16;
  s.model.threads = 2;
  CLI::App app("Compares greedy answers: llama.cpp directly, one engine, two engines with KV "
               "handed over. Exit status 1 when any differs from an empty cache.");
  app.add_option("--model", s.model.path, "GGUF file")->required();
  app.add_option("--prompts", s.prompts, "how many")->capture_default_str();
  app.add_option("--prompt-tokens-max", s.prompt_tokens_max, "longest prompt")
      ->capture_default_str();
  app.add_option("--answer-tokens", s.answer_tokens, "tokens of each answer")
      ->capture_default_str();
  app.add_option("--cells", s.model.cells, "KV cells of each engine")->capture_default_str();
  app.add_option("--step-tokens", s.model.step_tokens, "tokens of a chunk")->capture_default_str();
  app.add_option("--threads", s.model.threads, "that compute")->capture_default_str();
  app.add_option("--seed", s.seed, "of the prompts")->capture_default_str();
  app.add_option("--write-reference", s.reference_file,
                 "writes llama.cpp's own answers as JSON ([{prompt, ids, text}]), to compare a "
                 "running cluster with");
  app.add_flag("!--no-reuse", s.reuse, "leave out the prefix cache");
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a line at a time, also into a file
  return troupe::bench::run(s);
}
