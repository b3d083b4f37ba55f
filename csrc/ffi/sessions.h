// The steppers of a compiled program that are under way.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "core/array.h"
#include "core/staging.h"
#include "core/stepper.h"
#include "xla/ffi/api/ffi.h"

namespace jaxrec {

class Sessions;

/// A stepper between its first handler and its last.
struct Session {
  std::unique_ptr<Stepper> stepper;
  Sessions* home;
  const void* handle;  // where the first handler has put this one's address
  int64_t run;         // which execution of the program it belongs to
  std::vector<Array> arguments = {}, results = {};  // of the handler under way
  TapeMirror mirror = {};                           // where the tapes are on a device
};

/// Owns the steppers that one place of a compiled program begins.
///
/// A program that is stopped halfway, by a callback that raises or another custom call that fails,
/// never calls the handler that ends its stepper, and XLA tells nobody. What is left behind so goes
/// when another execution begins one in the same memory, or else with the program: while a program
/// runs it keeps its memory, so one whose memory another execution has got is over.
class Sessions {
 public:
  static xla::ffi::TypeId id;
  static const xla::ffi::TypeInfo info;

  /// Takes a stepper whose handle is to be written to `handle`, in execution `run`.
  Session* begin(std::unique_ptr<Stepper> stepper, const void* handle, int64_t run);

  /// Frees a stepper.
  static void end(Session* session);

 private:
  std::mutex mutex_;
  std::list<Session> sessions_;
};

/// The same for programs of NVIDIA's GPUs: each platform of XLA numbers its own types.
class CudaSessions : public Sessions {
 public:
  static xla::ffi::TypeId id;
  static const xla::ffi::TypeInfo info;
};

}  // namespace jaxrec
