#include "ffi/sessions.h"

#include <iterator>
#include <utility>

namespace jaxrec {

xla::ffi::TypeId Sessions::id = {};
const xla::ffi::TypeInfo Sessions::info = xla::ffi::MakeTypeInfo<Sessions>();
xla::ffi::TypeId CudaSessions::id = {};
const xla::ffi::TypeInfo CudaSessions::info = xla::ffi::MakeTypeInfo<CudaSessions>();

Session* Sessions::begin(std::unique_ptr<Stepper> stepper, const void* handle, int64_t run) {
  std::list<Session> left_behind;  // freed last, without the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const auto next = std::next(it);
    if (it->handle == handle && it->run != run)
      left_behind.splice(left_behind.end(), sessions_, it);
    it = next;
  }
  return &sessions_.emplace_back(Session{std::move(stepper), this, handle, run});
}

void Sessions::end(Session* session) {
  std::list<Session> ended;
  const std::lock_guard<std::mutex> lock(session->home->mutex_);
  std::list<Session>& all = session->home->sessions_;
  for (auto it = all.begin(); it != all.end(); ++it) {
    if (&*it != session) continue;
    ended.splice(ended.end(), all, it);
    return;
  }
}

}  // namespace jaxrec
