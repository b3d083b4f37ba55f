#include "core/staging.h"

#include <string>

namespace jaxrec {
namespace {

Status copied(int code) {
  if (code == 0) return {};
  return internal_error("the device's driver could not copy control values (error " +
                        std::to_string(code) + ")");
}

}  // namespace

void* Staging::room_for(size_t bytes) {
  copies_.push_back(std::unique_ptr<char[]>(new char[bytes]));
  return copies_.back().get();
}

Status Staging::fetch(Array& array) {
  const size_t bytes = bytes_of(array);
  void* host = room_for(bytes);
  const int code = bytes > 0 ? engine_->to_host(host, array.data, bytes, stream_) : 0;
  array.data = host;
  return copied(code);
}

Status Staging::read(std::vector<Array>& arrays) {
  if (!copies()) return {};
  for (Array& array : arrays)
    if (Status status = fetch(array); !status.ok()) return status;
  return wait();
}

Status Staging::read(Array& array) {
  if (!copies()) return {};
  if (Status status = fetch(array); !status.ok()) return status;
  return wait();
}

Status Staging::wait() { return copied(engine_->wait(stream_)); }

Status Staging::read_elements(const Array& vector, int64_t first, int64_t last, char* host) {
  const size_t size = byte_width(vector.dtype), begin = static_cast<size_t>(first) * size;
  const char* from = vector.as<const char>() + begin;
  const size_t bytes = static_cast<size_t>(last - first) * size;
  return copied(engine_->to_host(host + begin, from, bytes, stream_));
}

void Staging::write(std::vector<Array>& arrays) {
  if (!copies()) return;
  for (Array& array : arrays) {
    void* device = array.data;
    array.data = room_for(bytes_of(array));
    writes_.push_back({device, array});
  }
}

Status Staging::flush(const std::vector<int64_t>* elements) {
  for (size_t i = 0; i < writes_.size(); ++i) {
    const auto& [device, host] = writes_[i];
    const size_t bytes = elements != nullptr ? bytes_of(host, (*elements)[i]) : bytes_of(host);
    if (bytes == 0) continue;
    const int code = engine_->to_device(device, host.data, bytes, stream_);
    if (Status status = copied(code); !status.ok()) return status;
  }
  writes_.clear();
  return {};
}

Status TapeMirror::update(Staging& staging, const std::vector<int64_t>& rows,
                          std::vector<Array>& tapes) {
  copies_.resize(tapes.size());
  for (size_t i = 0; i < tapes.size(); ++i) {
    Copy& copy = copies_[i];
    if (copy.elements == nullptr) copy.elements.reset(new char[bytes_of(tapes[i])]);
    if (rows[i] > tapes[i].size()) return program_error("a tape of imports has too few rows");
    if (copy.known < rows[i]) {
      const Array& tape = tapes[i];
      Status status = staging.read_elements(tape, copy.known, rows[i], copy.elements.get());
      if (!status.ok()) return status;
    }
    copy.known = rows[i];
    tapes[i].data = copy.elements.get();
  }
  return staging.wait();
}

}  // namespace jaxrec
