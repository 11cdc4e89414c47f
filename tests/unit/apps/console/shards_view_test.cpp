#include "apps/console/views.hpp"
#include "messages/envelope.hpp"

#include <catch2/catch.hpp>

#include <limits>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::apps::console;

namespace {

// How it can fail: a figure in another's column; a host that goes by an old assignment is not
// named, or what it goes by is shown as what holds; a lost shard disappears.

struct report {
  msg::draft<msg::NodeReport> draft;
  explicit report(const char* host) { draft->setHost(host); }
  void to(shards_view& view) {
    const auto e = std::move(draft).freeze().value();
    view.add(*msg::view<msg::NodeReport>{e});
  }
};

void assigned(msg::Shards::Builder out, std::uint64_t generation,
              const std::vector<std::pair<std::string, double>>& parts) {
  out.setTerm(3);
  out.setGeneration(generation);
  auto list = out.initAssigned(static_cast<unsigned>(parts.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    list[i].setShard(parts[i].first);
    list[i].setSlices(32 + i);
    list[i].setPart(parts[i].second);
  }
}

bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

shards_view two_hosts() {
  shards_view view;
  report a{"h0"};
  auto s = a.draft->initShards();
  assigned(s, 17, {{"router/2", 0.25}, {"router/10", 0.75}});
  auto l = s.initHere(1)[0];
  l.setShard("router/10");
  l.setRequestsPerSecond(2.5);
  l.setMisrouted(4);
  l.setBlocks(55);
  l.setLeases(6);
  l.initRanges(1)[0].setLoad(0.125);
  auto c = s.initControl();
  c.setPresent(true);
  c.setTerm(3);
  c.setGeneration(17);
  c.setMadeMs(12'000);
  c.setImbalance(1.05);
  c.setChurn(0.03);
  c.initLost(1).set(0, "router/2");
  c.setProblem("the disk is full");
  a.to(view);
  report b{"h1"};
  auto old = b.draft->initShards();
  assigned(old, 16, {{"router/2", 0.5}, {"router/10", 0.5}});
  old.initSilent(1).set(0, "router/7");
  b.to(view);
  msg::draft<msg::NodeReport> d;
  auto e = d->initDirectory(2);
  e[0].setName("router/10");
  e[0].setHost("h0");
  e[0].setRole(msg::Role::ROUTER);
  e[0].setState(msg::EntryState::READY);
  e[0].setGeneration(9);
  e[1].setName("requests/h0");
  e[1].setRole(msg::Role::REQUESTS);
  const auto names = std::move(d).freeze().value();
  view.add_directory(*msg::view<msg::NodeReport>{names});
  view.finish();
  return view;
}

}  // namespace

TEST_CASE("shards are shown with what they have and do, and who decides") {
  const auto view = two_hosts();
  const auto text = view.text();
  CHECK(contains(text, "assignment 3.17; control on h0 made 3.17 12 s ago, imbalance 1.05, moved "
                       "3.0%\ncounted out: router/2\n"));
  CHECK(text.find("router/2") < text.find("router/10"));
  CHECK(contains(text, "25.0%"));
  CHECK(contains(text, "lost"));
  CHECK_FALSE(contains(text, "requests/h0"));
  rapidjson::StringBuffer buffer;
  json_writer w{buffer};
  view.json(w);
  const std::string json = buffer.GetString();
  for (const auto* part :
       {"\"shard\": \"router/10\"", "\"host\": \"h0\"", "\"state\": \"ready\"", "\"generation\": 9",
        "\"slices\": 33", "\"part\": \"75.0%\"", "\"requests_per_s\": \"2.50\"",
        "\"load\": \"0.125\"", "\"misrouted\": 4", "\"blocks\": 55", "\"leases\": 6",
        "\"h1\": \"3.16\"", "\"assignment\": \"3.17\"", "\"made_ms\": 12000", "\"made\": \"3.17\""})
    CHECK(contains(json, part));
}

TEST_CASE("what is amiss with shards is named") {
  const auto view = two_hosts();
  CHECK(view.problems() ==
        std::vector<std::string>{"control on h0: the disk is full",
                                 "host h1: goes by assignment 3.16, others by 3.17",
                                 "host h1: router/7 does not answer"});
}

TEST_CASE("of two control hosts the one whose word holds is shown, and both are named") {
  shards_view view;
  for (const auto& [host, term] : {std::pair{"h1", 5}, std::pair{"h0", 4}}) {
    report r{host};
    auto c = r.draft->initShards().initControl();
    c.setPresent(true);
    c.setTerm(static_cast<std::uint64_t>(term));
    c.setProblem("there is another");
    // Nothing of a peer's makes the answer unreadable.
    c.setImbalance(std::numeric_limits<double>::infinity());
    c.setChurn(std::numeric_limits<double>::quiet_NaN());
    r.to(view);
  }
  view.finish();
  CHECK(view.problems() == std::vector<std::string>{
                               "control on h0 and on h1: only one host may decide; stop the other",
                               "control on h0: there is another",
                               "control on h1: there is another"});
  CHECK(contains(view.text(), "control on h1 made 5.0"));
  rapidjson::StringBuffer buffer;
  json_writer w{buffer};
  view.json(w);
  const std::string json = buffer.GetString();
  CHECK(contains(json, "\"imbalance\": 0.0"));
  CHECK(contains(json, "\"churn\": 0.0"));
}

TEST_CASE("without a control host only what the cluster file says is there") {
  shards_view view;
  report a{"h0"};
  assigned(a.draft->initShards(), 0, {{"router/0", 1}});
  a.to(view);
  view.finish();
  CHECK(contains(view.text(), "no control host tells of it"));
  CHECK(view.problems().empty());
}
