// The three functions of NVIDIA's driver that copies take. The driver is found when it is needed,
// as JAX finds it: what is built without CUDA runs where CUDA is.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include "ffi/memory.h"

namespace jaxrec {
namespace {

using Address = unsigned long long;  // of a device's memory, as the driver declares it

struct Driver {
  int (*to_host)(void*, Address, size_t, void*) = nullptr;
  int (*to_device)(Address, const void*, size_t, void*) = nullptr;
  int (*wait)(void*) = nullptr;

  bool is_there() const { return to_host != nullptr && to_device != nullptr && wait != nullptr; }
};

template <class F>
void find(void* library, const char* name, F*& out) {
  out = reinterpret_cast<F*>(dlsym(library, name));
}

Driver load() {
  Driver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return driver;
  find(library, "cuMemcpyDtoHAsync_v2", driver.to_host);
  find(library, "cuMemcpyHtoDAsync_v2", driver.to_device);
  find(library, "cuStreamSynchronize", driver.wait);
  return driver;
}

const Driver& driver() {
  static const Driver loaded = load();
  return loaded;
}

Address address_of(const void* memory) { return reinterpret_cast<uintptr_t>(memory); }

constexpr CopyEngine kEngine = {
    [](void* to, const void* from, size_t bytes, void* stream) {
      return driver().to_host(to, address_of(from), bytes, stream);
    },
    [](void* to, const void* from, size_t bytes, void* stream) {
      return driver().to_device(address_of(to), from, bytes, stream);
    },
    [](void* stream) { return driver().wait(stream); },
};

}  // namespace

const CopyEngine* cuda_engine() { return driver().is_there() ? &kEngine : nullptr; }

}  // namespace jaxrec
