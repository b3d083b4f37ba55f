#include <algorithm>

#include "core/rows.h"
#include "ffi/handlers.h"
#include "ffi/request.h"

namespace jaxrec {
namespace {

namespace ffi = xla::ffi;
using Rows = ffi::BufferR1<ffi::S32>;
using Numbers = ffi::BufferR2<ffi::S32>;

Span<const int32_t> view(const Rows& rows) { return {rows.typed_data(), rows.element_count()}; }

// Whether several elements share a byte, so that a row need not begin at one.
bool is_packed(ffi::DataType type) {
  switch (type) {
    case ffi::S1:
    case ffi::S2:
    case ffi::S4:
    case ffi::U1:
    case ffi::U2:
    case ffi::U4:
    case ffi::F4E2M1FN: return true;
    default: return false;
  }
}

// Several tapes of one shape, one after the other: how many, the rows of each, elements of a row.
struct Tapes {
  int64_t count = 1, rows = 0, row_size = 1;

  int64_t size() const { return rows * row_size; }
};

// Reads the shape of tapes on as many axes in front of their rows.
bool split(const ffi::AnyBuffer& buffer, size_t axes, Tapes& tapes) {
  const auto dimensions = buffer.dimensions();
  if (dimensions.size() <= axes) return false;
  for (size_t i = 0; i < axes; ++i) tapes.count *= dimensions[i];
  tapes.rows = dimensions[axes];
  for (size_t i = axes + 1; i < dimensions.size(); ++i) tapes.row_size *= dimensions[i];
  return true;
}

// Reads the shapes of tapes, and of as many results of so many rows; false if they do not fit.
bool fit(const ffi::AnyBuffer& in, ffi::Result<ffi::AnyBuffer> out, size_t axes, size_t rows,
         Tapes& tapes, Tapes& results) {
  return split(in, axes, tapes) && split(*out, axes, results) && tapes.count == results.count &&
         tapes.row_size == results.row_size && results.rows == static_cast<int64_t>(rows) &&
         in.element_type() == out->element_type();
}

Status gather(const ffi::AnyBuffer& tape, Span<const int32_t> rows, ffi::Result<ffi::AnyBuffer> out,
              size_t axes = 0) {
  Tapes tapes, results;
  if (!fit(tape, out, axes, rows.size(), tapes, results) || is_packed(tape.element_type()))
    return program_error("the rows gathered are not rows of the tape");
  const auto width = static_cast<int64_t>(ffi::ByteWidth(tape.element_type()));
  for (int64_t k = 0; k < tapes.count; ++k) {
    const char* from = static_cast<const char*>(tape.untyped_data()) + k * tapes.size() * width;
    char* to = static_cast<char*>(out->untyped_data()) + k * results.size() * width;
    const Status status = gather_rows(from, tapes.rows, tapes.row_size * width, rows, to);
    if (!status.ok()) return status;
  }
  return {};
}

template <class T>
Status sum_each(const Tapes& tapes, const Tapes& results, const T* from,
                Span<const int32_t> readers, Span<const int32_t> pointers, T* to) {
  for (int64_t k = 0; k < tapes.count; ++k, from += tapes.size(), to += results.size()) {
    const Status status = sum_rows(from, tapes.rows, tapes.row_size, readers, pointers, to);
    if (!status.ok()) return status;
  }
  return {};
}

Status sum(const ffi::AnyBuffer& tape, Span<const int32_t> readers, Span<const int32_t> pointers,
           ffi::Result<ffi::AnyBuffer> out, size_t axes = 0) {
  Tapes tapes, results;
  if (pointers.size() == 0 || !fit(tape, out, axes, pointers.size() - 1, tapes, results))
    return program_error("the rows summed are not rows of the tape");
  if (tape.element_type() == ffi::F32)
    return sum_each(tapes, results, tape.typed_data<float>(), readers, pointers,
                    out->typed_data<float>());
  if (tape.element_type() == ffi::F64)
    return sum_each(tapes, results, tape.typed_data<double>(), readers, pointers,
                    out->typed_data<double>());
  return program_error("cotangents of a type that is neither float32 nor float64");
}

// What a wave reads, from arguments and results in order; see `jaxrec_read`.
class WaveReader {
 public:
  WaveReader(const Numbers& waves, int32_t number, ffi::RemainingArgs args,
             ffi::Result<ffi::BufferR1<ffi::S32>> wave, ffi::RemainingRets rets, size_t axes)
      : waves_(waves), number_(number), args_(args), wave_(wave), rets_(rets), axes_(axes) {}

  Status run(int64_t gathers, int64_t sums, int64_t first, int64_t calls) {
    if (Status status = find(first, calls); !status.ok()) return status;
    for (int64_t k = 0; k < gathers; ++k)
      if (Status status = copy(); !status.ok()) return status;
    for (int64_t k = 0; k < sums; ++k)
      if (Status status = add(); !status.ok()) return status;
    return {};
  }

 private:
  // The numbers of the wave, and its first row.
  Status find(int64_t first, int64_t calls) {
    const int64_t rows = waves_.dimensions()[0], columns = waves_.dimensions()[1];
    const bool fits = 0 <= number_ && number_ < rows && first < columns && calls < columns &&
                      static_cast<int64_t>(wave_->element_count()) == columns;
    if (!fits) return program_error("the wave is none of the table");
    const int32_t* numbers = waves_.typed_data() + number_ * columns;
    std::copy_n(numbers, columns, wave_->typed_data());
    start_ = first < 0 ? 0 : numbers[first];
    if (calls >= 0) calls_ = numbers[calls];
    is_right_aligned_ = calls >= 0;
    return {};
  }

  Status copy() {
    auto tape = args_.get<ffi::AnyBuffer>(next_arg_++);
    auto table = args_.get<Rows>(next_arg_++);
    auto out = rets_.get<ffi::AnyBuffer>(next_ret_++);
    if (!tape.has_value() || !table.has_value() || !out.has_value()) return wrong_arguments();
    Span<const int32_t> rows;
    if (!own_rows(*table, **out, 0, rows)) return wrong_arguments();
    return gather(*tape, rows, *out, axes_);
  }

  Status add() {
    auto tape = args_.get<ffi::AnyBuffer>(next_arg_++);
    auto readers = args_.get<Rows>(next_arg_++);
    auto table = args_.get<Rows>(next_arg_++);
    auto out = rets_.get<ffi::AnyBuffer>(next_ret_++);
    if (!tape.has_value() || !readers.has_value() || !table.has_value() || !out.has_value())
      return wrong_arguments();
    Span<const int32_t> pointers;
    if (!own_rows(*table, **out, 1, pointers)) return wrong_arguments();
    return sum(*tape, view(*readers), pointers, *out, axes_);
  }

  // The wave's rows of a table, and some more; false if it has them not.
  bool own_rows(const Rows& table, const ffi::AnyBuffer& out, int64_t more,
                Span<const int32_t>& rows) const {
    Tapes results;
    if (!split(out, axes_, results)) return false;
    const int64_t width = results.rows;
    const int64_t start = is_right_aligned_ ? start_ + calls_ - width : start_;
    if (start < 0 || start + width + more > static_cast<int64_t>(table.element_count()))
      return false;
    rows = {table.typed_data() + start, static_cast<size_t>(width + more)};
    return true;
  }

  static Status wrong_arguments() { return program_error("the wave reads what is not there"); }

  const Numbers& waves_;
  int32_t number_;
  ffi::RemainingArgs args_;
  ffi::Result<ffi::BufferR1<ffi::S32>> wave_;
  ffi::RemainingRets rets_;
  size_t axes_;
  size_t next_arg_ = 0, next_ret_ = 0;
  int64_t start_ = 0, calls_ = 0;
  bool is_right_aligned_ = false;
};

ffi::Error gather_impl(ffi::AnyBuffer tape, Rows rows, ffi::Result<ffi::AnyBuffer> out) {
  return handle([&] { return gather(tape, view(rows), out); });
}

ffi::Error sum_impl(ffi::AnyBuffer tape, Rows readers, Rows pointers,
                    ffi::Result<ffi::AnyBuffer> out) {
  return handle([&] { return sum(tape, view(readers), view(pointers), out); });
}

ffi::Error read_impl(Numbers waves, ffi::BufferR0<ffi::S32> number, ffi::RemainingArgs args,
                     ffi::Result<ffi::BufferR1<ffi::S32>> wave, ffi::RemainingRets rets,
                     ffi::Span<const int64_t> place) {
  return handle([&]() -> Status {
    if (place.size() != 5) return program_error("the place of a wave has five numbers");
    return WaveReader(waves, *number.typed_data(), args, wave, rets, static_cast<size_t>(place[4]))
        .run(place[0], place[1], place[2], place[3]);
  });
}

}  // namespace
}  // namespace jaxrec

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_gather_rows, jaxrec::gather_impl,
                              xla::ffi::Ffi::Bind()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<jaxrec::Rows>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_sum_rows, jaxrec::sum_impl,
                              xla::ffi::Ffi::Bind()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<jaxrec::Rows>()
                                  .Arg<jaxrec::Rows>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_read, jaxrec::read_impl,
                              xla::ffi::Ffi::Bind()
                                  .Arg<jaxrec::Numbers>()
                                  .Arg<xla::ffi::BufferR0<xla::ffi::S32>>()
                                  .RemainingArgs()
                                  .Ret<xla::ffi::BufferR1<xla::ffi::S32>>()
                                  .RemainingRets()
                                  .Attr<xla::ffi::Span<const int64_t>>("place"));
