#include "apps/sim/client.hpp"

#include <algorithm>
#include <utility>

namespace troupe::sim {

client::client(world& w, std::shared_ptr<client_record> record, std::shared_ptr<request::desk> desk,
               phase_watch& phases)
    : world_(w), record_(std::move(record)), desk_(std::move(desk)), phases_(phases) {
  record_->got.resize(catalogue()[record_->plan.shape].choices);
}

client::~client() {
  if (!record_->over() && !gone())
    on_failed({503, "request_lost", "the request was lost inside the server", "", {}});
}

/// Whatever is said to a client that is not there any more.
bool client::gone() {
  if (record_->cut_off || record_->left || !world_.when().alive(record_->gateway)) return true;
  if (record_->endings > 0) record_->late_word = true;
  return false;
}

void client::on_accepted(std::uint16_t, std::uint32_t, std::uint32_t, const std::string&) {
  if (gone()) return;
  ++record_->accepted;
  world_.log().tell(world_.now(), record_->name, [] { return std::string{"accepted"}; });
}

void client::on_delta(std::uint16_t, msg::StreamDelta::Reader d) {
  if (gone()) return;
  record_->early_delta = record_->early_delta || record_->accepted == 0;
  auto& c = record_->got.at(d.getChoice());
  record_->index_gap = record_->index_gap || d.getFirstIndex() != c.ids.size();
  for (auto id : d.getIds()) c.ids.push_back(id);
  c.text += d.getText().cStr();
  if (d.getFinish() != msg::FinishReason::NONE) c.why = d.getFinish();
  tokens_ += d.getIds().size();
  phases_.tokens(record_->id,
                 std::all_of(record_->got.begin(), record_->got.end(),
                             [](const auto& x) { return x.why != msg::FinishReason::NONE; }));
  world_.log().tell(world_.now(), record_->name, [&] {
    return std::to_string(d.getIds().size()) + " tokens of choice " +
           std::to_string(d.getChoice()) + " from " + std::to_string(d.getFirstIndex());
  });
  const auto limit = record_->plan.leaves_after_tokens;
  if (limit > 0 && tokens_ >= limit) {
    record_->left = true;
    phases_.ends(record_->id);
    record_->ended = world_.now();
    world_.log().tell(world_.now(), record_->name, [] { return std::string{"goes away"}; });
    desk_->cancel(record_->id, "the client went away");
  }
}

void client::on_finished(const request::totals& sum) {
  if (gone()) return;
  record_->sum = sum;
  ended();
}

void client::on_failed(const request::failure& why) {
  if (gone()) return;
  record_->failure = why;
  ended();
}

void client::ended() {
  if (record_->failure) {
    phases_.ends(record_->id);
    if (record_->on_failed) record_->on_failed();
  }
  ++record_->endings;
  record_->ended = world_.now();
  world_.log().tell(world_.now(), record_->name, [&] {
    return record_->failure ? "failed: " + record_->failure->code + ": " + record_->failure->message
                            : std::string{"finished"};
  });
}

void submit(world& w, const std::shared_ptr<client_record>& record, phase_watch& phases) {
  auto& n = w.node_at(record->host);
  const auto& shape = catalogue()[record->plan.shape];
  record->gateway = n.process;
  record->submitted = true;
  record->begun = w.now();
  auto desk = n.tree->data().front();
  request::submission s;
  s.id = record->id;
  s.external_id = record->name;
  s.model = "m";
  s.prompts = {shape.content};
  s.choices = shape.choices;
  s.max_tokens = shape.max_tokens;
  s.timeout = record->plan.timeout;
  s.session = record->plan.session;
  const auto sink = std::make_shared<client>(w, record, desk, phases);
  s.client = sink;
  w.log().tell(w.now(), record->name, [&] {
    return "asks " + record->host + ": shape " + std::to_string(record->plan.shape) + ", " +
           std::to_string(shape.prompt.size()) + " bytes, " + std::to_string(shape.max_tokens) +
           " tokens, " + std::to_string(shape.choices) + " choices";
  });
  if (auto taken = desk->submit(std::move(s)); !taken) {
    record->refused = true;
    record->ended = w.now();
    record->failure = request::failure{503, taken.error().code, taken.error().message, "", {}};
    return;
  }
  if (record->plan.leaves_after.count() > 0)
    w.when().after(record->plan.leaves_after, n.process, [&w, &phases, record, desk] {
      if (record->over()) return;
      record->left = true;
      phases.ends(record->id);
      record->ended = w.now();
      w.log().tell(w.now(), record->name, [] { return std::string{"goes away"}; });
      desk->cancel(record->id, "the client went away");
    });
}

}  // namespace troupe::sim
