#include "actors/console/tree_walk.hpp"

#include <caf/all.hpp>

#include <deque>
#include <memory>
#include <utility>

namespace troupe::console {

namespace {

/// Lives as long as an answer is due.
struct walk : std::enable_shared_from_this<walk> {
  struct place {
    tree_node node;
    std::size_t parent = 0;
    int depth = 0;
  };
  static constexpr std::size_t no_parent = ~std::size_t{0};

  caf::event_based_actor* self;
  std::function<void(std::vector<tree_node>)> done;
  std::deque<place> all;  // references stay good when it grows
  std::size_t open = 0;

  walk(caf::event_based_actor* s, std::function<void(std::vector<tree_node>)> d)
      : self(s), done(std::move(d)) {}

  void ask(supervision::child_report child, std::size_t parent, int depth) {
    const auto at = all.size();
    all.push_back({{std::move(child), std::nullopt, {}, {}, {}}, parent, depth});
    auto& node = all.back().node;
    if (!node.child.actor) return;
    if (depth >= tree_depth_max || at >= tree_nodes_max) {
      node.silent = "not asked: the tree is too large";
      return;
    }
    ++open;
    self->request(node.child.actor, describe_timeout, supervision::describe_actor{})
        .then([me = shared_from_this(), at](supervision::actor_report& r) { me->told(at, r); },
              [me = shared_from_this(), at](const caf::error& e) { me->failed(at, e); });
  }

  void told(std::size_t at, supervision::actor_report& r) {
    auto& p = all[at];
    p.node.mailbox = r.mailbox;
    p.node.facts = std::move(r.facts);
    for (auto& child : r.children) ask(std::move(child), at, p.depth + 1);
    one_less();
  }

  void failed(std::size_t at, const caf::error& e) {
    auto& silent = all[at].node.silent;
    if (e == caf::sec::request_timeout)
      silent = "does not answer";
    else if (e == caf::sec::request_receiver_down)
      silent = "has just ended";
    else
      silent = "says nothing of itself";
    one_less();
  }

  void one_less() {
    if (--open == 0) finish();
  }

  void finish() {
    // Children were added after their parents: backwards, each is whole when it is moved.
    std::vector<tree_node> roots;
    for (auto i = all.rbegin(); i != all.rend(); ++i) {
      auto& siblings = i->parent == no_parent ? roots : all[i->parent].node.children;
      siblings.insert(siblings.begin(), std::move(i->node));
    }
    done(std::move(roots));
  }
};

}  // namespace

void walk_tree(caf::event_based_actor* self, const std::vector<tree_root>& roots,
               std::function<void(std::vector<tree_node>)> done) {
  auto w = std::make_shared<walk>(self, std::move(done));
  ++w->open;  // until all roots are asked
  for (const auto& r : roots) {
    supervision::child_report c;
    c.id = r.name;
    c.actor = r.actor;
    c.now = r.actor ? supervision::child_report::condition::running
                    : supervision::child_report::condition::ended;
    w->ask(std::move(c), walk::no_parent, 0);
  }
  w->one_less();
}

}  // namespace troupe::console
