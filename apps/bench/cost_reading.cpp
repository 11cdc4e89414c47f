#include "apps/bench/cost_reading.hpp"

#include <fmt/format.h>
#include <simdjson.h>

namespace troupe::bench {

namespace {

double number(const simdjson::dom::element& e, const char* key) {
  double value = 0;
  return e[key].get(value) ? 0 : value;
}

std::uint32_t count(const simdjson::dom::element& e, const char* key) {
  return static_cast<std::uint32_t>(number(e, key));
}

std::string_view text(const simdjson::dom::element& e, const char* key) {
  std::string_view value;
  return e[key].get(value) ? std::string_view{} : value;
}

bool flag(const simdjson::dom::element& e, const char* key) {
  bool value = false;
  return !e[key].get(value) && value;
}

constexpr double ms = 1e-3;

}  // namespace

expected<capacity::measured_request> read_cost(std::string_view timeline) {
  simdjson::dom::parser parser;
  simdjson::dom::element root, cost;
  if (parser.parse(timeline.data(), timeline.size()).get(root))
    return error{"not_measured", "what the server tells of a request is not JSON"};
  const auto status = text(root, "status");
  if (status == "running" || (status == "done" && root["cost"].get(cost)))
    return error{"not_settled", "the server does not tell (yet) what a request has cost"};
  simdjson::dom::array attempts;
  if (status != "done" || root["attempts"].get(attempts) || attempts.size() != 1)
    return error{"not_measured", fmt::format("request {} was not computed at one go (it is {})",
                                             text(root, "id"), status)};
  if (flag(cost, "guessed"))
    return error{"not_measured", fmt::format("request {}: a worker does not tell what it has cost",
                                             text(root, "id"))};
  capacity::measured_request r;
  r.shape.prompt_tokens = count(root, "prompt_tokens");
  r.shape.cached_tokens = count(root, "cached_tokens");
  r.shape.output_tokens = count(root, "completion_tokens");
  r.prefill_seconds = number(cost, "prefill_ms") * ms;
  r.decode_seconds = number(cost, "decode_ms") * ms;
  r.computed_tokens = number(cost, "computed_tokens");
  r.computed_context = number(cost, "computed_context");
  r.sampled_tokens = number(cost, "sampled_tokens");
  r.sampled_context = number(cost, "sampled_context");
  r.step_shares = number(cost, "step_shares");
  return r;
}

expected<measured_hardware> read_hardware(std::string_view workers, const std::string& model) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::array list;
  if (parser.parse(workers.data(), workers.size()).get(root) || root["workers"].get(list))
    return error{"no_worker", "the server's /debug/workers cannot be read; is it Troupe's?"};
  measured_hardware found;
  bool any = false;
  for (const auto worker : list) {
    if (text(worker, "model") != model || !flag(worker, "ready")) continue;
    const auto its = text(worker, "device_class");
    if (its.empty())
      return error{"unknown_device_class",
                   fmt::format("{} does not tell what it computes on", text(worker, "name"))};
    if (any && its != found.device_class)
      return error{"several_device_classes",
                   fmt::format("\"{}\" is computed on \"{}\" and on \"{}\"; calibrate them apart, "
                               "in a cluster of one class each",
                               model, found.device_class, its)};
    any = true;
    found.device_class = std::string{its};
    ++found.all_engines;
    if (text(worker, "role") != "prefill") ++found.engines;
    found.idle = found.idle && flag(worker, "idle");
  }
  if (found.engines == 0)
    return error{"no_worker", fmt::format("no engine of \"{}\" is ready", model)};
  return found;
}

}  // namespace troupe::bench
