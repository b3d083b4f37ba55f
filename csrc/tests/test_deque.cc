#include <atomic>
#include <thread>
#include <vector>

#include "core/deque.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

void owner_pops_what_it_pushed_last() {
  Deque<int> deque(2);
  std::vector<int> items(100);
  CHECK(deque.pop() == nullptr);
  for (int& item : items) deque.push(&item);  // grows
  for (size_t i = items.size(); i > 0; --i) CHECK(deque.pop() == &items[i - 1]);
  CHECK(deque.pop() == nullptr && deque.seems_empty());
}

void thief_takes_what_was_pushed_first() {
  Deque<int> deque(2);
  std::vector<int> items(10);
  int64_t index = -1;
  CHECK(deque.steal(index) == nullptr);
  for (int& item : items) deque.push(&item);
  for (int64_t i = 0; i < 5; ++i) {
    CHECK(deque.steal(index) == &items[i]);
    CHECK(index == i);
  }
  for (size_t i = 10; i > 5; --i) CHECK(deque.pop() == &items[i - 1]);
  CHECK(deque.steal(index) == nullptr && deque.pop() == nullptr);
}

// Every item is taken exactly once, and each thief's steals go up.
void threads_share_all_items(int num_thieves, int num_items) {
  Deque<std::atomic<int>> deque(4);
  std::vector<std::atomic<int>> taken(num_items);
  std::atomic<bool> done{false}, in_order{true};
  std::vector<std::thread> thieves;
  for (int t = 0; t < num_thieves; ++t)
    thieves.emplace_back([&] {
      int64_t last = -1, index = 0;
      while (!done || !deque.seems_empty())
        if (std::atomic<int>* item = deque.steal(index)) {
          item->fetch_add(1);
          if (index <= last) in_order = false;
          last = index;
        }
    });
  for (int i = 0; i < num_items; ++i) {
    deque.push(&taken[i]);
    if (i % 3 == 0)
      if (std::atomic<int>* item = deque.pop()) item->fetch_add(1);
  }
  while (std::atomic<int>* item = deque.pop()) item->fetch_add(1);
  done = true;
  for (std::thread& thief : thieves) thief.join();
  for (std::atomic<int>& count : taken) CHECK(count == 1);
  CHECK(in_order);
}

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::owner_pops_what_it_pushed_last();
  jaxrec::thief_takes_what_was_pushed_first();
  for (int thieves : {1, 3}) jaxrec::threads_share_all_items(thieves, 20'000);
  return jaxrec::report("deque");
}
