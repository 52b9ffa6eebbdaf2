#include "cm/last_words.h"

#include "cm/limits.h"

namespace ucm::cm {

void LastWords::add(TimeNs due, const Word& word) {
  if (words_.in_use() >= kLastWordsMax) return;
  const auto index = words_.take();
  words_[index] = word;
  timers_.set(index, due);
}

LastWords::Word LastWords::take() {
  const auto index = timers_.pop();
  words_.give_back(index);
  return words_[index];
}

void LastWords::add_to(StateHash& hash) const {
  for (Slab<Word>::Index index = 0; index < words_.capacity(); ++index) {
    hash.add(timers_.deadline_of(index));
    if (timers_.deadline_of(index) == kNever) continue;
    const Word& word = words_[index];
    hash.add(Bytes(word.path.remote.bytes));
    hash.add(Bytes(word.mad));
    hash.add(word.wait);
    hash.add(word.repetitions);
  }
}

}  // namespace ucm::cm
