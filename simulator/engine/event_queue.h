// Pending events in time order. A four-ary heap of small records: the engine keeps one or two per
// rank, so the heap stays in cache. Not for: what an event means (engine.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bayplan::sim {

/// `key` orders events of equal time and identifies them; equal records are never pushed twice.
struct Event {
  std::int64_t time = 0;
  std::uint64_t key = 0;
};

/// `Record` has members time and key.
template <class Record>
class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  const Record& top() const { return heap_.front(); }
  void reserve(std::size_t n) { heap_.reserve(n); }

  void push(Record event) {
    std::size_t hole = heap_.size();
    heap_.push_back(event);
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / kArity;
      if (!before(event, heap_[parent])) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = event;
  }

  /// Removes and returns the earliest event; the queue must not be empty.
  Record pop() {
    const Record first = heap_.front();
    const Record moved = heap_.back();
    heap_.pop_back();
    const std::size_t n = heap_.size();
    if (n == 0) return first;
    std::size_t hole = 0;
    for (;;) {
      const std::size_t begin = hole * kArity + 1;
      if (begin >= n) break;
      const std::size_t end = begin + kArity < n ? begin + kArity : n;
      std::size_t least = begin;
      for (std::size_t child = begin + 1; child < end; ++child) {
        if (before(heap_[child], heap_[least])) least = child;
      }
      if (!before(heap_[least], moved)) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = moved;
    return first;
  }

 private:
  static constexpr std::size_t kArity = 4;
  static bool before(const Record& a, const Record& b) {
    return a.time != b.time ? a.time < b.time : a.key < b.key;
  }

  std::vector<Record> heap_;
};

}  // namespace bayplan::sim
