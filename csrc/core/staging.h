// Copies of arrays that lie in a device's memory, for code that runs on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/array.h"
#include "core/status.h"

namespace jaxrec {

/// How a device's memory is copied, in the order of a stream. Each returns 0, or the driver's code.
/// `to_device` has read what it copies when it returns; `to_host` is done after `wait`.
struct CopyEngine {
  int (*to_host)(void* to, const void* from, size_t bytes, void* stream);
  int (*to_device)(void* to, const void* from, size_t bytes, void* stream);
  int (*wait)(void* stream);
};

/// Arrays as the host sees them. Those that lie there are left as they are.
class Staging {
 public:
  Staging() = default;  // everything lies on the host
  Staging(const CopyEngine* engine, void* stream) : engine_(engine), stream_(stream) {}

  bool copies() const { return engine_ != nullptr; }

  /// Makes arrays readable, in place.
  Status read(std::vector<Array>& arrays);
  Status read(Array& array);

  /// Copies some elements of a vector to where `host` has room for all; they are there after
  /// `wait`.
  Status read_elements(const Array& vector, int64_t first, int64_t last, char* host);

  Status wait();

  /// Makes arrays writable, in place. What is written is where it belongs after `flush`.
  void write(std::vector<Array>& arrays);

  /// Copies what was written; `elements`: how many of each array, if not all.
  Status flush(const std::vector<int64_t>* elements = nullptr);

 private:
  struct Write {
    void* device;
    Array host;
  };

  void* room_for(size_t bytes);
  Status fetch(Array& array);

  const CopyEngine* engine_ = nullptr;
  void* stream_ = nullptr;
  std::vector<std::unique_ptr<char[]>> copies_;
  std::vector<Write> writes_;
};

/// What the host knows of tapes that lie on a device and only grow.
class TapeMirror {
 public:
  /// Copies what is new on the tapes, each a vector.
  ///
  /// Args: the tapes, replaced by their copies; `rows`: how many of each are there.
  Status update(Staging& staging, const std::vector<int64_t>& rows, std::vector<Array>& tapes);

 private:
  struct Copy {
    std::unique_ptr<char[]> elements;
    int64_t known = 0;
  };
  std::vector<Copy> copies_;
};

}  // namespace jaxrec
