// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace meron {

// Makes the next `more` elements that are added need no memory. Grows as push_back() does.
template <class T>
void make_room(std::vector<T>& all, size_t more) {
  if (all.capacity() - all.size() >= more) return;
  all.reserve(std::max(all.size() + more, 2 * all.capacity()));
}

}  // namespace meron
