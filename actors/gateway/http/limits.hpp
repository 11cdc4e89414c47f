#pragma once

#include <chrono>
#include <cstddef>

namespace troupe::gateway::http {

// Limits beside those of the cluster file.

/// Read at once from a socket.
inline constexpr std::size_t read_bytes_max = 64 * 1024;
/// What a client may send ahead of an answer (pipelining). Above it all of that is thrown away and
/// the connection ends with the answer. Reading doesn't stop: the end of a client that stands
/// behind bytes which nobody reads would never be seen.
inline constexpr std::size_t pipelined_bytes_max = 256 * 1024;
/// So many bytes are thrown away; above it the client counts as gone.
inline constexpr std::size_t discarded_bytes_max = 64 * 1024 * 1024;
/// JSON needs more bytes than the prompt that it carries: escapes, tools, keys. A body may be this
/// much larger than `prompt_bytes_max`: a quarter, and this. Above: 413.
inline constexpr std::size_t body_extra_bytes = 256 * 1024;
/// Memory of a stream that is used again for its next tokens.
inline constexpr std::size_t spare_bytes_max = 4 * 1024;
/// An answer's bytes are kept for the connection's next one up to this capacity.
inline constexpr std::size_t out_bytes_kept_max = 64 * 1024;
/// What a client should wait that was refused since too many bodies are being received.
inline constexpr std::chrono::milliseconds bodies_retry_after{1'000};
/// A stalled client's stream may grow to this multiple of `stream_buffer_bytes_max` while
/// `stalled_client_timeout` runs; above it the stream ends at once.
inline constexpr std::size_t overflow_factor = 4;
/// Kept by the kernel for one client; fixed, so that a client that doesn't read can't grow it.
inline constexpr int socket_send_buffer_bytes = 256 * 1024;
/// After an error or `Connection: close`: how long what the client still sends is read and thrown
/// away, so that the answer isn't lost to a reset.
inline constexpr std::chrono::milliseconds linger_timeout{2'000};
/// How long a stalled client's last event may take.
inline constexpr std::chrono::milliseconds last_words_timeout{1'000};
/// At `connections_max`, none of them idle: how long the next client waits for room. When it has
/// waited in vain, it and those that follow get 503 at once, until there is room again.
inline constexpr std::chrono::milliseconds room_wait{1'000};
/// Connections beyond `connections_max` that are being told so; further clients wait for their
/// turn.
inline constexpr std::size_t turned_away_max = 64;
/// What a client that was turned away should wait.
inline constexpr std::chrono::milliseconds turned_away_retry_after{1'000};
/// After `accept` failed for want of descriptors or memory.
inline constexpr std::chrono::milliseconds accept_retry_delay{100};
/// Deadlines are looked at this often at most and at least.
inline constexpr std::chrono::milliseconds sweep_interval_max{250};
inline constexpr std::chrono::milliseconds sweep_interval_min{10};

}  // namespace troupe::gateway::http
