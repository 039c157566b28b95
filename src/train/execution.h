// A graph that several backends compute together: cut into convex segments of one backend each, every segment prepared
// once and kept, tensors passed from one to the next. A graph of one backend goes to it whole.
#pragma once

#include <string>
#include <vector>

#include "graph/segments.h"
#include "graph/uses.h"
#include "plan/comparison.h"
#include "plan/cut.h"
#include "train/assignment.h"

namespace opdiff {

// One backend of an assignment. Segments of the reference run in this process: it needs no worker.
struct Party {
  std::string spec;
  BackendSource open;  // empty: the reference
  int deaths = 0;      // its worker is another one after each
};

class AssignedGraph {
 public:
  // `graph`, `types` and `parties` must outlive it; `training` the call only: it is told to a backend that gets the
  // whole graph. Labels are places in `parties`.
  AssignedGraph(const Graph& graph, const TypeMap& types, const std::vector<int>& labels, std::vector<Party>& parties,
                const Training* training = nullptr);
  ~AssignedGraph();
  AssignedGraph(const AssignedGraph&) = delete;
  AssignedGraph& operator=(const AssignedGraph&) = delete;

  // Prepares what is not prepared (at first everything, after a death what was lost), then runs. A failure names the
  // backend, and the nodes where the graph is cut.
  Outcome run(const TensorMap& inputs);
  std::size_t segment_count() const { return segments_.size(); }

 private:
  struct Segment {
    NodeSet nodes;
    int label = 0;
    Graph graph;
    const Graph* source = nullptr;  // `graph`, or the whole
    int handle = -1;
    int of_death = 0;  // Party::deaths when it was prepared
  };
  Outcome run_segment(Segment& segment, const TensorMap& inputs);
  Outcome failed(const Segment& segment, Outcome outcome);

  const Graph& graph_;
  std::vector<Party>& parties_;
  const Training* training_;
  std::vector<Segment> segments_;
  std::map<std::string, std::size_t> last_use_;
};

// Which of a party's nodes it cannot compute, with its reasons, found by giving it each of them alone. `inputs` are the
// graph's.
struct UnsupportedNode {
  int index = 0;
  std::string reason;
};
Expected<std::vector<UnsupportedNode>> unsupported_nodes(const Graph& graph, const TypeMap& types,
                                                         const TensorMap& inputs, const std::vector<int>& labels,
                                                         int label, Party& party);

}  // namespace opdiff
