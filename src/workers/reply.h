// What a worker's replies mean, checked field by field: they come from a process that may have gone wrong. Pure
// functions; workers/worker_backend.h calls them.
#pragma once

#include <nlohmann/json.hpp>

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
// Outputs of more than `most_bytes` together are refused.
Expected<Outcome> read_run(const nlohmann::json& reply, const FileDescriptor& arena, std::int64_t most_bytes);

}  // namespace opdiff
