#include "core/kept_tables.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace jaxrec {
namespace {

constexpr size_t kSmallOperands = size_t{1} << 14;  // bytes, copied at once
constexpr size_t kMostTimesTables = 4;

bool is_worth_it(const std::vector<Array>& operands, const std::vector<Array>& buffers,
                 const std::vector<int64_t>& written) {
  size_t read = 0, made = 0;
  for (const Array& operand : operands) read += bytes_of(operand);
  for (size_t i = 0; i < buffers.size(); ++i) made += bytes_of(buffers[i], written[i]);
  return read <= std::max(kSmallOperands, kMostTimesTables * made);
}

}  // namespace

KeptTables::Bytes::Bytes(const void* from, size_t bytes) : data(new char[bytes]), size(bytes) {
  if (bytes > 0) std::memcpy(data.get(), from, bytes);
}

bool KeptTables::Bytes::equal(const void* other, size_t bytes) const {
  return bytes == size && (bytes == 0 || std::memcmp(data.get(), other, bytes) == 0);
}

bool KeptTables::Kept::has(const std::vector<Array>& others) const {
  if (others.size() != operands.size()) return false;
  for (size_t i = 0; i < others.size(); ++i)
    if (!operands[i].equal(others[i].data, bytes_of(others[i]))) return false;
  return true;
}

std::shared_ptr<const KeptTables::Kept> KeptTables::last() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_;
}

bool KeptTables::write(const std::vector<Array>& operands, const std::vector<Array>& buffers,
                       std::vector<int64_t>& written) const {
  const std::shared_ptr<const Kept> kept = last();
  if (kept == nullptr || kept->tables.size() != buffers.size() || !kept->has(operands))
    return false;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Bytes& table = kept->tables[i];
    if (table.size > bytes_of(buffers[i])) return false;
    if (table.size > 0) std::memcpy(buffers[i].data, table.data.get(), table.size);
  }
  written = kept->written;
  return true;
}

void KeptTables::note(const std::vector<Array>& operands, const std::vector<Array>& buffers,
                      const std::vector<int64_t>& written) {
  if (!is_worth_it(operands, buffers, written)) return;
  const std::shared_ptr<const Kept> before = last();
  auto kept = std::make_shared<Kept>();
  try {
    for (const Array& operand : operands)
      kept->operands.emplace_back(operand.data, bytes_of(operand));
    if (before != nullptr && before->has(operands)) {
      for (size_t i = 0; i < buffers.size(); ++i)
        kept->tables.emplace_back(buffers[i].data, bytes_of(buffers[i], written[i]));
      kept->written = written;
    }
  } catch (const std::bad_alloc&) {
    return;  // it will be planned again
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  last_ = std::move(kept);
}

}  // namespace jaxrec
