// What the places of a compiled program that plan remember.
#pragma once

#include "core/kept_tables.h"
#include "xla/ffi/api/ffi.h"

namespace jaxrec {

/// The state of a handler that plans.
class Plans : public KeptTables {
 public:
  static xla::ffi::TypeId id;
  static const xla::ffi::TypeInfo info;
};

/// The same for programs of NVIDIA's GPUs: each platform of XLA numbers its own types.
class CudaPlans : public KeptTables {
 public:
  static xla::ffi::TypeId id;
  static const xla::ffi::TypeInfo info;
};

}  // namespace jaxrec
