// SPDX-License-Identifier: Apache-2.0
// Objects may die in any order, the context among them: 10,000 random orders (fewer under
// sanitizers).
#include <algorithm>
#include <memory>

#include "tests/capi/hpp/world.h"

namespace meron::test {
namespace {

// Mapping memory is slow under sanitizers, and opening a context maps some.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kOrders = 2'000;
#else
constexpr int kOrders = 10'000;
#endif

// Something of any type that can be destroyed.
class Held {
 public:
  virtual ~Held() = default;
};
template <class T>
class Holder : public Held {
 public:
  explicit Holder(T value) : value_(std::move(value)) {}

 private:
  T value_;
};

using Objects = std::vector<std::unique_ptr<Held>>;

template <class T>
void hold(Objects& objects, T value) {
  objects.push_back(std::make_unique<Holder<T>>(std::move(value)));
}

// Objects of every kind, made from `context`, which is one of them in the end.
Objects make_objects(Context context, std::mt19937& random) {
  Objects objects;
  Param weight = context.param("weight", {300});
  Param bias = context.param("bias", {3}, {DType::bf16});
  Unit first = context.unit("first", weight);
  Unit second = context.unit("second", bias);
  Group world = context.world();
  hold(objects, adamw({first, second}));
  hold(objects, schedule({first, second}));
  if (random() % 2 == 0) update(first).publish();
  if (random() % 2 == 0) {
    hold(objects, random() % 2 == 0 ? update(second) : update_begin(second));
  } else {
    hold(objects, gather_begin(second));
  }
  if (random() % 2 == 0) {
    hold(objects, gather(first));
  } else {
    hold(objects, gather_copy(first));
  }
  hold(objects, reduce_begin(first));
  hold(objects, world.barrier_begin());
  hold(objects, context.flight_record());
  hold(objects, Plan::preset("zero2"));
  hold(objects, std::move(world));
  hold(objects, std::move(first));
  hold(objects, std::move(second));
  hold(objects, std::move(weight));
  hold(objects, std::move(bias));
  hold(objects, std::move(context));
  return objects;
}

TEST(Drop, InRandomOrders) {
  std::mt19937 random(20261121);
  for (int i = 0; i < kOrders; ++i) {
    Objects objects = make_objects(open_self(), random);
    std::shuffle(objects.begin(), objects.end(), random);
    while (!objects.empty()) objects.pop_back();
  }
}

TEST(Drop, OnTwoRanksInTheMiddleOfThings) {
  for (int round = 0; round < 50; ++round) {
    run_ranks(2, [&](Context& context) {
      std::mt19937 random(static_cast<uint32_t>(round * 2 + context.rank()));
      // A rank may release an object that its peers still need: their errors are expected.
      try {
        const Param param = context.param("p", {100});
        const Unit unit = context.unit("u", param);
        Objects objects;
        update(unit).publish();
        hold(objects, gather_begin(unit));
        hold(objects, context.world().barrier_begin());
        std::shuffle(objects.begin(), objects.end(), random);
        if (random() % 4 == 0) context = Context(nullptr);
        objects.clear();
      } catch (const Error& error) {
        EXPECT_EQ(MERON_E_PEER_CLOSED, error.status()) << error.what();
      }
    });
  }
}

}  // namespace
}  // namespace meron::test
