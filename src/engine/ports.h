#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "base/strong_id.h"
#include "engine/request.h"
#include "kv/token_range.h"

namespace tandem::engine {

// The ports between an engine and who moves K and V between engines. What the engine calls must
// return quickly and not block; it may call the engine's own ports back at once. Those take effect
// at the engine's next step.

/// One try to bring K and V of one request to this engine. Another try gets another id, so what is
/// late from an old one says nothing about the new one.
using ImportId = StrongId<struct ImportTag, uint64_t>;

/// Pages that wait for K and V: the request is in the state AwaitingKv.
struct KvReservation {
  ImportId import;
  RequestId request;
  std::span<const TokenId> tokens;  ///< n: the prompt, and what was generated before a preemption
  kv::TokenRange range;             ///< to bring: [m, n-1), never empty; m is this engine's own hit
  std::span<const PageId> pages;    ///< from the one that holds range.first on, of the range only
};

/// Who brings K and V; called on the engine's thread.
class KvSource {
 public:
  virtual ~KvSource() = default;
  /// The views are valid during the call. KvImport::drained is owed, whatever happens.
  virtual void reserve(const KvReservation& reservation) = 0;
  /// Nobody waits for this import any more: stop it.
  virtual void abandon(ImportId import) = 0;
};

/// What becomes of a request whose import failed.
enum class AfterFailure {
  kEnd,        ///< it ends with the error
  kRecompute,  ///< this engine computes its K and V itself
  kRetry,      ///< it reserves other pages for another import
};

/// The engine's side of imports: the only way out of AwaitingKv but for cancel(). The way in is a
/// request with KvWay::kImport, once its pages are reserved. Ids that are not waited for are
/// ignored. Whatever becomes of the request, nobody else gets the pages before drained().
class KvImport {
 public:
  virtual ~KvImport() = default;
  /// All of the range is in its pages, and proved to be right. Writes that still land write the
  /// same again.
  virtual void arrived(ImportId import) = 0;
  /// It will not arrive. Its pages are in quarantine.
  virtual void failed(ImportId import, Error error, AfterFailure then) = 0;
  /// No write can land in the import's pages any more. May come long after, but must come, once,
  /// and not before arrived(), failed() or KvSource::abandon.
  virtual void drained(ImportId import) = 0;
};

/// A part of a step that computes K and V for another engine.
struct ScheduledTokens {
  RequestId request;
  kv::TokenRange tokens;          ///< positions that the step computes
  std::span<const PageId> pages;  ///< from the one with position 0 on; valid until delivered()
};

/// Who sends K and V as they are computed. Called on the engine's thread, but for
/// on_layer_progress, which comes from the thread that watches the ranks (progress_watch.h).
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// A request with KvWay::kExport has its pages, and the first `cached_tokens` positions are in
  /// them already: they may be sent at once. `pages` is as in ScheduledTokens.
  virtual void on_admitted(RequestId request, uint32_t cached_tokens,
                           std::span<const PageId> pages) = 0;
  /// Before step `step` runs; steps count from 1. Only if it computes for others.
  virtual void on_scheduled(uint64_t step, std::span<const ScheduledTokens> parts) = 0;
  /// That step is over, in whichever way: nothing more of it will be written.
  virtual void on_step_ended(uint64_t /*step*/) {}
  /// A rank has written K and V of layers [0, layer] of this step, and of all steps before it.
  /// Values may be skipped.
  virtual void on_layer_progress(int rank, uint64_t step, uint32_t layer) = 0;
};

/// The engine's side of exports. The pages of a request with KvWay::kExport are leased from its end
/// on, whatever the end, until this call.
class KvExport {
 public:
  virtual ~KvExport() = default;
  /// Nothing is read from the request's pages any more: everything was delivered, or given up and
  /// drained. Owed for every request that on_admitted named.
  virtual void delivered(RequestId request) = 0;
};

}  // namespace tandem::engine
