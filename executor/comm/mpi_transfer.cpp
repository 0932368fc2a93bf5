#include "executor/comm/mpi_transfer.h"

#include <algorithm>
#include <memory>

#include "executor/comm/poll_pause.h"
#include "executor/error.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// MPI counts are int; longer payloads travel in pieces of this many bytes.
constexpr std::int64_t kPiece = std::int64_t{1} << 30;

std::string text_of(const TransferHeader& h) {
  const auto kind = static_cast<InstructionKind>(h.kind);
  const auto purpose = static_cast<Purpose>(h.purpose);
  return std::string(instruction_name(kind)) + " for " + std::string(purpose_name(purpose)) +
         " of " + std::to_string(h.bytes) + " bytes";
}

enum class Progress : std::uint8_t { kNotStarted, kHeader, kPayload, kDone };

struct Active {
  const Transfer* transfer = nullptr;
  TransferHeader header;  // as sent, or as received
  Progress progress = Progress::kNotStarted;
  std::vector<MPI_Request> requests;
};

class Transfers {
 public:
  Transfers(MPI_Comm comm, const CallSite& site, const TransferLimits& limits,
            const std::vector<Transfer>& transfers)
      : comm_(comm), site_(site), limits_(limits) {
    active_.resize(transfers.size());
    for (std::size_t i = 0; i < transfers.size(); ++i) active_[i].transfer = &transfers[i];
  }

  Clock::time_point run() {
    std::size_t left = active_.size();
    PollPause idle;
    while (left > 0) {
      bool moved = false;
      for (Active& a : active_) {
        if (a.progress == Progress::kDone) continue;
        if (a.progress == Progress::kNotStarted && blocked(a)) continue;
        if (!advance(a)) continue;
        moved = true;
        if (a.progress == Progress::kDone) --left;
      }
      if (moved) {
        idle.restart();
      } else if (left > 0) {
        pause(idle);
      }
    }
    limits_.awaiting->store(-1, std::memory_order_relaxed);
    return matched_at_;
  }

 private:
  bool same_lane(const Transfer& a, const Transfer& b) const {
    return a.is_send == b.is_send && a.peer == b.peer && a.tag == b.tag;
  }

  /// A receive's header and payload must be posted before those of the next one behind it.
  bool blocked(const Active& a) const {
    if (a.transfer->is_send) return false;  // posted at once, in order
    for (const Active& other : active_) {
      if (&other == &a) return false;
      const bool open = other.progress < Progress::kPayload;
      if (open && same_lane(*other.transfer, *a.transfer)) return true;
    }
    return false;
  }

  /// One step; true when something happened.
  bool advance(Active& a) {
    const Transfer& t = *a.transfer;
    switch (a.progress) {
      case Progress::kNotStarted:
        a.header = t.header;
        if (t.is_send) {
          post_header(a);
          post_payload(a);
          a.progress = Progress::kPayload;
        } else {
          post_header(a);
          a.progress = Progress::kHeader;
        }
        return true;
      case Progress::kHeader:
        if (!finished(a)) return false;
        matched_at_ = Clock::now();
        if (a.header != t.header) {
          throw error(FailureKind::kMismatch, t.peer,
                      "rank " + std::to_string(limits_.rank) + " expects " + text_of(t.header) +
                          ", rank " + std::to_string(t.peer) + " sends " + text_of(a.header) +
                          (a.header.magic != t.header.magic ? " (not a header)" : ""));
        }
        post_payload(a);
        a.progress = a.requests.empty() ? Progress::kDone : Progress::kPayload;
        return true;
      case Progress::kPayload:
        if (!finished(a)) return false;
        a.progress = Progress::kDone;
        return true;
      case Progress::kDone:
        break;
    }
    return false;
  }

  void post(Active& a, void* data, std::int64_t bytes) {
    const Transfer& t = *a.transfer;
    MPI_Request request = MPI_REQUEST_NULL;  // completed by finished()
    const int count = static_cast<int>(bytes);
    const int code = t.is_send ? MPI_Isend(data, count, MPI_BYTE, t.peer, t.tag, comm_, &request)
                               : MPI_Irecv(data, count, MPI_BYTE, t.peer, t.tag, comm_, &request);
    a.requests.push_back(request);
    check(code, t.peer);
  }  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker)
  void post_header(Active& a) { post(a, &a.header, sizeof(TransferHeader)); }
  void post_payload(Active& a) {
    const std::int64_t bytes = a.transfer->header.bytes;
    for (std::int64_t at = 0; at < bytes; at += kPiece) {
      post(a, a.transfer->data + at, std::min(kPiece, bytes - at));
    }
  }

  bool finished(Active& a) {
    while (!a.requests.empty()) {
      int flag = 0;
      check(MPI_Test(&a.requests.back(), &flag, MPI_STATUS_IGNORE), a.transfer->peer);
      if (flag == 0) return false;
      a.requests.pop_back();
    }
    return true;
  }

  void pause(PollPause& idle) {
    if (idle.pauses() == 0) {
      // Rank of the first receive that misses something, else of the first send.
      int awaited = -1;
      for (const bool sends : {true, false}) {
        for (const Active& a : active_) {
          if (a.progress != Progress::kDone && a.transfer->is_send == sends) {
            awaited = a.transfer->peer;
            break;
          }
        }
      }
      limits_.awaiting->store(awaited, std::memory_order_relaxed);
    }
    idle.pause();
    if (idle.waited_seconds() > limits_.deadline_seconds) {
      const int awaited = limits_.awaiting->load(std::memory_order_relaxed);
      throw error(FailureKind::kStalled, awaited,
                  "nothing came from rank " + std::to_string(awaited) + " for " +
                      std::to_string(limits_.deadline_seconds) + " s");
    }
  }

  void check(int code, int peer) const {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw error(FailureKind::kFailed, peer,
                "MPI, talking to rank " + std::to_string(peer) + ": " +
                    std::string(text.data(), static_cast<std::size_t>(length)));
  }

  ExecutorError error(FailureKind kind, int awaited, const std::string& cause) const {
    return {limits_.rank, site_.step, std::string(site_.instruction), cause, kind, awaited};
  }

  MPI_Comm comm_;
  const CallSite& site_;
  const TransferLimits& limits_;
  std::vector<Active> active_;
  Clock::time_point matched_at_{};
};

}  // namespace

Clock::time_point run_transfers(MPI_Comm comm, const CallSite& site, const TransferLimits& limits,
                                const std::vector<Transfer>& transfers) {
  auto running = std::make_unique<Transfers>(comm, site, limits, transfers);
  try {
    return running->run();
  } catch (...) {
    // MPI may still write into the headers.
    static_cast<void>(running.release());
    throw;
  }
}

}  // namespace bayplan::exec
