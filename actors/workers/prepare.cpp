#include "actors/workers/prepare.hpp"

#include "actors/workers/offload.hpp"

#include <capnp/serialize.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

namespace troupe::workers {

namespace {

constexpr int client_closed_request = 499;

capnp::ReaderOptions content_limits(std::size_t words) {
  capnp::ReaderOptions o;
  o.traversalLimitInWords = 4 * words + 1'024;
  o.nestingLimit = 64;
  return o;
}

refusal engine_refusal(error why) {
  const bool full = why.code == "queue_full";
  return {std::move(why), full ? 503 : 400, full};
}

refusal refusal_of(error why) {
  const int status = why.code == "cancelled" ? client_closed_request : 400;
  return {std::move(why), status, false};
}

/// A stream that moves here comes with its answer so far, which must be what its request has, too.
expected<void> take_answer_off(std::vector<engine::token_id>& tokens, std::uint32_t answer,
                               const std::vector<engine::resumed_choice>& resume) {
  if (answer == 0) return ok;
  const auto at_the_end = [&](const std::vector<engine::token_id>& ids) {
    return ids.size() == answer && tokens.size() > ids.size() &&
           std::equal(ids.begin(), ids.end(), tokens.end() - std::ssize(ids));
  };
  if (resume.size() != 1 || !at_the_end(resume.front().ids))
    return error{"resume_mismatch",
                 "the KV that came is not of the answer that the request has so far"};
  tokens.resize(tokens.size() - answer);
  return ok;
}

/// Errors are refusals: the second of the pair.
std::optional<refusal> submit(preparation& p, msg::Completion::Reader request,
                              text::rendered_prompt prompt, prepared& result) {
  result.prompt_tokens = static_cast<std::uint32_t>(prompt.tokens.size());
  if (!request.getEcho()) prompt.echo_text.clear();
  if (prompt.echo_text.size() > echo_bytes_max)
    return refusal{{"echo_too_long",
                    "the prompt is too long for `echo`; at most " + std::to_string(echo_bytes_max) +
                        " bytes can be given back",
                    "echo"},
                   413,
                   false};
  auto& engine = p.host->engine();
  if (p.kind != job_kind::receive)
    p.host->accept_when_started(p.id, {result.prompt_tokens, std::move(prompt.echo_text)});
  if (p.kind == job_kind::prefill) {
    if (auto fits = check_context(request, prompt.tokens.size(), p.context); !fits)
      return refusal{std::move(fits).error(), 400, false};
    const auto& info = p.host->info();
    auto offer = std::make_shared<transfer::offer_of_kv>();
    offer->tokens = prompt.tokens;
    offer->kv_until = static_cast<engine::position>(prompt.tokens.size() - 1);
    offer->bytes_per_token = info.kv_bytes_per_token;
    offer->layout = info.kv_layout;
    offer->plan = std::move(prompt.plan);
    engine::prefill_spec spec;
    spec.id = p.id;
    spec.tokens = std::move(prompt.tokens);
    spec.priority = p.priority;
    spec.resumed = !p.resume.empty();
    spec.alone = p.alone;
    spec.chain = std::move(p.chain);
    spec.prefix_scope = p.prefix_scope;
    if (auto submitted = engine.submit(std::move(spec)); !submitted)
      return engine_refusal(std::move(submitted).error());
    result.offer = std::move(offer);
    return std::nullopt;
  }
  const auto answer = p.kind == job_kind::receive ? p.offer->answer : 0;
  if (auto apart = take_answer_off(prompt.tokens, answer, p.resume); !apart)
    return refusal{std::move(apart).error(), 503, true};
  result.plan = std::make_shared<engine::output_plan>(prompt.plan);
  auto spec = make_generate_spec(request, std::move(prompt.tokens), std::move(prompt.plan),
                                 p.context);
  if (!spec) return refusal{std::move(spec).error(), 400, false};
  result.max_tokens = spec->max_tokens;
  result.choices = spec->choices;
  spec->resumed_kv = answer > 0;
  spec->id = p.id;
  spec->priority = p.priority;
  spec->alone = p.alone;
  spec->probe = p.probe;
  spec->chain = std::move(p.chain);
  spec->prefix_scope = p.prefix_scope;
  spec->resume = std::move(p.resume);
  spec->prefill_here = p.kind == job_kind::whole;
  if (auto submitted = engine.submit(*std::move(spec)); !submitted)
    return engine_refusal(std::move(submitted).error());
  return std::nullopt;
}

}  // namespace

prepared prepare(preparation p) {
  const crash::preparing_mark mark{p.host->board(), p.key};
  prepared result;
  result.id = p.id;
  result.content_bytes = p.content->size() * sizeof(capnp::word);
  offload_pool::works_at(result.content_bytes);
  try {
    capnp::FlatArrayMessageReader reader{*p.content, content_limits(p.content->size())};
    const auto request = reader.getRoot<msg::Completion>();
    auto prompt = p.kind == job_kind::receive
                      ? expected<text::rendered_prompt>{text::rendered_prompt{
                            std::move(p.offer->tokens), std::move(p.offer->plan), {}}}
                      : p.text->render(request, [&p] {
                          offload_pool::got_on();
                          return !*p.unwanted;
                        });
    offload_pool::got_on();
    if (!prompt)
      result.refused = refusal_of(std::move(prompt).error());
    else if (prompt->tokens.empty())
      result.refused = refusal{
          {"empty_prompt", "a prompt needs at least one token", "prompt"}, 400, false};
    else if (*p.unwanted)
      result.refused = refusal_of({"cancelled", "the job was cancelled"});
    else
      result.refused = submit(p, request, *std::move(prompt), result);
  } catch (const kj::Exception& e) {
    result.refused = refusal{
        {"content_malformed",
         std::string{"the job's content cannot be read: "} + e.getDescription().cStr()},
        500,
        false};
  } catch (const std::exception& e) {
    // Mostly for want of memory, which others' jobs have now: another engine may have it.
    result.refused = refusal{
        {"not_prepared", std::string{"the job could not be prepared: "} + e.what()}, 503, true};
  }
  return result;
}

}  // namespace troupe::workers
