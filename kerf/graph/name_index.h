// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace kerf {

// Numbers by name, for a million names: eight bytes an entry in one flat table, names stay where
// they are. `name_of(number)` must give the name a number was added under.
class NameIndex {
 public:
  static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

  // kNone: no such name.
  template <class NameOf>
  std::uint32_t find(std::string_view name, const NameOf& name_of) const {
    return slots_.empty() ? kNone : slots_[place(name, tag_of(name), name_of)].number;
  }

  // False when the name is there already: nothing is changed.
  template <class NameOf>
  bool add(std::string_view name, std::uint32_t number, const NameOf& name_of) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    const std::uint32_t tag = tag_of(name);
    Slot& slot = slots_[place(name, tag, name_of)];
    if (slot.number != kNone) return false;
    slot = {tag, number};
    ++used_;
    return true;
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t number = kNone;
  };

  static std::uint32_t tag_of(std::string_view name) {
    return static_cast<std::uint32_t>(std::hash<std::string_view>()(name));
  }
  // The slot that holds the name, or the free one where it belongs.
  template <class NameOf>
  std::size_t place(std::string_view name, std::uint32_t tag, const NameOf& name_of) const {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = tag & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.number == kNone || (slot.tag == tag && name_of(slot.number) == name)) return i;
    }
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : 2 * slots_.size());
    old.swap(slots_);
    const std::size_t mask = slots_.size() - 1;
    for (const Slot& slot : old) {
      if (slot.number == kNone) continue;
      std::size_t i = slot.tag & mask;
      while (slots_[i].number != kNone) i = (i + 1) & mask;
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most half of them used
  std::size_t used_ = 0;
};

}  // namespace kerf
