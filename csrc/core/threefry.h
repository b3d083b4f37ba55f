// Random words as jax.random makes them: a block cipher of counters, with which each element of an
// array is computed from its index alone.
//
// Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section
// 3.3: Threefry-2x32 with 20 rounds.
#pragma once

#include <cstdint>

namespace jaxrec {

/// For each key, which is two words, the blocks of `num_counters` counters from its own first one
/// on: `high` and `low`, [num_keys, num_counters] each. Counters have 32 bits and wrap around.
void threefry(const uint32_t* keys, const uint32_t* first, int64_t num_keys, int64_t num_counters,
              uint32_t* high, uint32_t* low);

}  // namespace jaxrec
