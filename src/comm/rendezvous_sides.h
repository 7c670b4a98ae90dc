#pragma once

#include <chrono>
#include <string>

#include "comm/hello.h"
#include "comm/rendezvous.h"

namespace tandem::comm {

/// The two sides of a meeting (rendezvous.h) and what they agree on.
Result<Meeting> meet_as_host(const RendezvousOptions& options);   ///< rank 0
Result<Meeting> meet_as_guest(const RendezvousOptions& options);  ///< every other rank

/// A refused process may be slow to take the reason.
inline constexpr std::chrono::milliseconds kRefuseTimeout{2000};
/// Between two looks at who is still there.
inline constexpr std::chrono::milliseconds kLook{100};

Hello make_hello(const RendezvousOptions& options);
/// The key is the name of the local socket: who does not know it cannot ask for the memory.
std::string local_name(const std::string& key);

}  // namespace tandem::comm
