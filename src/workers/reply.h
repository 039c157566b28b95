// What a worker's replies mean, checked field by field: they come from a process that may have gone wrong. Pure
// functions; workers/worker_backend.h calls them.
#pragma once

#include <nlohmann/json.hpp>
#include <set>

#include "workers/backend.h"
#include "workers/wire.h"

namespace opdiff {

struct Reply {
  OutcomeKind outcome = OutcomeKind::ok;
  std::string reason;
  nlohmann::json body;
};

// The error says which rule the reply breaks.
Expected<Reply> parse_reply(std::string_view text, std::int64_t id);
Expected<BackendInfo> read_hello(const nlohmann::json& reply);
// Nothing where the reply does not speak of kernels. A kernel of a node that is not among `nodes` is refused.
Expected<std::optional<std::vector<Kernel>>> read_kernels(const nlohmann::json& reply,
                                                          const std::set<std::string>& nodes);
// Outputs of more than `most_bytes` together are refused.
Expected<Outcome> read_run(const nlohmann::json& reply, const FileDescriptor& arena, std::int64_t most_bytes);

}  // namespace opdiff
