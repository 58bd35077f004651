// Scratch that grows to the largest size asked for and is kept.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace terrace::kernels {

// An array whose content is lost when it grows. 64-byte aligned, so that workers on neighbouring multiples of 16
// floats share no cache line.
template <class T>
class Grown {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // The array, of at least `size` elements; allocates only if it was never so large.
  T* at_least(std::size_t size) {
    if (size > size_) {
      data_.reset();
      data_.reset(static_cast<T*>(::operator new(size * sizeof(T), kAlignment)));
      size_ = size;
    }
    return data_.get();
  }

  T* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(T* p) const { ::operator delete(p, kAlignment); }
  };

  std::unique_ptr<T, Delete> data_;
  std::size_t size_ = 0;
};

}  // namespace terrace::kernels
