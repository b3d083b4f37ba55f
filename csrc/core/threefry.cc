#include "core/threefry.h"

namespace jaxrec {
namespace {

constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
constexpr uint32_t kParity = 0x1BD11BDA;  // of the third word of a key

inline uint32_t rotate(uint32_t x, int by) { return (x << by) | (x >> (32 - by)); }

inline void encrypt(const uint32_t (&key)[3], uint32_t& high, uint32_t& low) {
  high += key[0];
  low += key[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (const int by : kRotations[group % 2]) {
      high += low;
      low = rotate(low, by) ^ high;
    }
    high += key[(group + 1) % 3];
    low += key[(group + 2) % 3] + group + 1;
  }
}

}  // namespace

void threefry(const uint32_t* keys, const uint32_t* first, int64_t num_keys, int64_t num_counters,
              uint32_t* high, uint32_t* low) {
  for (int64_t k = 0; k < num_keys; ++k, high += num_counters, low += num_counters) {
    const uint32_t key[3] = {keys[2 * k], keys[2 * k + 1], keys[2 * k] ^ keys[2 * k + 1] ^ kParity};
    for (int64_t i = 0; i < num_counters; ++i) {
      uint32_t x = 0, y = first[k] + static_cast<uint32_t>(i);
      encrypt(key, x, y);
      high[i] = x;
      low[i] = y;
    }
  }
}

}  // namespace jaxrec
