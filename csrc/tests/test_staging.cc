// Copies between the host and a device, by an engine that does them late, as a device may.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "core/staging.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

struct Stream {
  std::vector<std::function<void()>> waiting;
  int fails = 0;
  size_t copied = 0;
};

Stream& of(void* stream) { return *static_cast<Stream*>(stream); }

const CopyEngine kLate = {
    [](void* to, const void* from, size_t bytes, void* stream) {
      of(stream).copied += bytes;
      of(stream).waiting.push_back([=] { std::memcpy(to, from, bytes); });
      return of(stream).fails;
    },
    [](void* to, const void* from, size_t bytes, void* stream) {
      of(stream).copied += bytes;
      std::memcpy(to, from, bytes);
      return of(stream).fails;
    },
    [](void* stream) {
      for (const auto& copy : of(stream).waiting) copy();
      of(stream).waiting.clear();
      return 0;
    },
};

struct Vector {
  explicit Vector(int64_t size) : elements(static_cast<size_t>(size)), dims{size} {
    std::iota(elements.begin(), elements.end(), 1);
  }
  Array array() { return {elements.data(), DType::kI32, dims}; }

  std::vector<int32_t> elements;
  std::vector<int64_t> dims;
};

void test_what_is_on_the_host_stays() {
  Vector vector(4);
  std::vector<Array> arrays{vector.array()};
  Staging staging;
  CHECK(staging.read(arrays).ok());
  staging.write(arrays);
  CHECK(arrays[0].data == vector.elements.data());
  CHECK(staging.flush().ok());
}

void test_read() {
  Vector first(5), none(0);
  std::vector<Array> arrays{first.array(), none.array()};
  Stream stream;
  Staging staging(&kLate, &stream);
  CHECK(staging.read(arrays).ok());
  CHECK(arrays[0].data != first.elements.data());
  CHECK(std::equal(first.elements.begin(), first.elements.end(), arrays[0].as<int32_t>()));
  CHECK(stream.copied == 20);
  Array one = first.array();
  CHECK(staging.read(one).ok());
  CHECK(std::equal(first.elements.begin(), first.elements.end(), one.as<int32_t>()));
}

void test_write() {
  Vector vector(3), none(0);
  std::vector<Array> arrays{vector.array(), none.array()};
  Stream stream;
  Staging staging(&kLate, &stream);
  staging.write(arrays);
  for (int32_t i = 0; i < 3; ++i) arrays[0].as<int32_t>()[i] = 10 * i;
  CHECK(vector.elements == (std::vector<int32_t>{1, 2, 3}));
  CHECK(staging.flush().ok());
  CHECK(vector.elements == (std::vector<int32_t>{0, 10, 20}));
}

void test_write_of_a_part() {
  Vector vector(3), whole(2);
  std::vector<Array> arrays{vector.array(), whole.array()};
  Stream stream;
  Staging staging(&kLate, &stream);
  staging.write(arrays);
  for (int32_t i = 0; i < 3; ++i) arrays[0].as<int32_t>()[i] = 10 * i;
  for (int32_t i = 0; i < 2; ++i) arrays[1].as<int32_t>()[i] = 7;
  const std::vector<int64_t> elements{1, 2};
  CHECK(staging.flush(&elements).ok());
  CHECK(vector.elements == (std::vector<int32_t>{0, 2, 3}));
  CHECK(whole.elements == (std::vector<int32_t>{7, 7}));
}

void test_errors_of_the_driver() {
  Vector vector(3);
  std::vector<Array> arrays{vector.array()};
  Stream stream;
  stream.fails = 700;
  Staging staging(&kLate, &stream);
  const Status read = staging.read(arrays);
  CHECK(read.code == Code::kInternal);
  CHECK(read.text.find("error 700") != std::string::npos);
  staging.write(arrays);
  CHECK(!staging.flush().ok());
}

void test_a_mirror_copies_what_is_new() {
  Vector tape(8);
  Stream stream;
  TapeMirror mirror;
  int64_t known = 0;
  for (const int64_t rows : {0, 3, 3, 8}) {
    const size_t before = stream.copied;
    std::vector<Array> tapes{tape.array()};
    Staging staging(&kLate, &stream);
    CHECK(mirror.update(staging, {rows}, tapes).ok());
    CHECK(stream.copied - before == static_cast<size_t>(rows - known) * 4);
    CHECK(std::equal(tape.elements.begin(), tape.elements.begin() + rows, tapes[0].as<int32_t>()));
    known = rows;
  }
  std::vector<Array> tapes{tape.array()};
  Staging staging(&kLate, &stream);
  CHECK(mirror.update(staging, {9}, tapes).code == Code::kProgram);
}

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::test_what_is_on_the_host_stays();
  jaxrec::test_read();
  jaxrec::test_write();
  jaxrec::test_write_of_a_part();
  jaxrec::test_errors_of_the_driver();
  jaxrec::test_a_mirror_copies_what_is_new();
  return jaxrec::report("staging");
}
