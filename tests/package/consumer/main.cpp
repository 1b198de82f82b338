// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <meron/meron.hpp>

int main() {
  meron::ContextOptions options;
  options.transport = "self";
  meron::Context context(options);
  const meron::Param weight = context.param("weight", {2, 3});
  const meron::Unit unit = context.unit("unit", weight);
  meron::Update update = meron::update(unit);
  for (float& x : update.view(weight).as<float>()) x = 7;
  update.publish();
  float sum = 0;
  const meron::Gather full = meron::gather(unit);
  for (const float x : full.view(weight).as<const float>()) sum += x;
  std::cout << meron::version_string() << '\n';
  return sum == 42 ? 0 : 1;
}
