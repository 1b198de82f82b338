// SPDX-License-Identifier: Apache-2.0
#include "plan/quantity.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace meron {
namespace {

struct Good {
  const char* text;
  QuantityKind kind;
  double value;
};

TEST(Quantity, AsPeopleWriteThem) {
  using enum QuantityKind;
  for (const Good& good : {Good{"80 GiB", bytes, 80.0 * (1 << 30)},
                           {"80GiB", bytes, 80.0 * (1 << 30)},
                           {"1.5   kB", bytes, 1500},
                           {"0 B", bytes, 0},
                           {"2e3 MB", bytes, 2e9},
                           {"1 PiB", bytes, 1125899906842624.0},
                           {"100 Gb/s", byte_rate, 12.5e9},
                           {"8 b/s", byte_rate, 1},
                           {"2.5 Tb/s", byte_rate, 312.5e9},
                           {"3.35 TB/s", byte_rate, 3.35e12},
                           {"1 MiB/s", byte_rate, 1048576},
                           {"5 us", seconds, 5e-6},
                           {"0 s", seconds, 0},
                           {"250 ns", seconds, 250e-9},
                           {"1.5 ms", seconds, 1.5e-3},
                           {"400 TFLOP/s", work_rate, 4e14},
                           {"1 PFLOP/s", work_rate, 1e15}}) {
    const Result<double> got = parse_quantity(good.text, good.kind);
    ASSERT_TRUE(got.ok()) << good.text << ": " << got.error().info().what;
    EXPECT_DOUBLE_EQ(*got, good.value) << good.text;
  }
}

struct Bad {
  const char* text;
  QuantityKind kind;
  const char* what;
  const char* advice;
};

TEST(Quantity, WhatIsNone) {
  using enum QuantityKind;
  for (const Bad& bad : {Bad{"", bytes, "\"\" is not a number of bytes", "80 GiB"},
                         {"GiB", bytes, "is not a number of bytes", "80 GiB"},
                         {" 1 B", bytes, "is not a number of bytes", ""},
                         {"-1 B", bytes, "is not a number of bytes", ""},
                         {"-0 B", bytes, "is not a number of bytes", ""},
                         {"+1 B", bytes, "is not a number of bytes", ""},
                         {"nan B", bytes, "is not a number of bytes", ""},
                         {"inf s", seconds, "is not a time", "5 us"},
                         {"1e999 s", seconds, "is not a time", ""},
                         {"0x10 B", bytes, "\"x10 B\" is not a unit", ""},
                         {"100", byte_rate, "\"100\" has no unit", "known units: \"b/s\""},
                         {"100 ", byte_rate, "has no unit", ""},
                         {"100 Gb", byte_rate, "\"Gb\" is not a unit of a rate", "\"Gb/s\""},
                         {"100 gb/s", byte_rate, "\"gb/s\" is not a unit", "did you mean"},
                         {"5 us ", seconds, "\"us \" is not a unit", "\"us\""},
                         {"5 us 6", seconds, "is not a unit", ""},
                         {"5 GB", seconds, "is not a unit of a time", "\"ms\""},
                         {"80 GiB/s", bytes, "is not a unit of a number of bytes", "\"GiB\""},
                         {"2e18 B", bytes, "more than is possible", "check"},
                         {"1e300 PiB", bytes, "more than is possible", ""},
                         {"1e7 s", seconds, "more than is possible", ""}}) {
    SCOPED_TRACE(bad.text);
    expect_error(parse_quantity(bad.text, bad.kind), MERON_E_PARSE, bad.what, bad.advice);
  }
}

TEST(Quantity, TimesForPeople) {
  EXPECT_EQ(human_seconds(0), "0 s");
  EXPECT_EQ(human_seconds(12.34), "12.3 s");
  EXPECT_EQ(human_seconds(1), "1 s");
  EXPECT_EQ(human_seconds(0.99999), "1 s");
  EXPECT_EQ(human_seconds(0.9994), "999 ms");
  EXPECT_EQ(human_seconds(12345), "12345 s");
  EXPECT_EQ(human_seconds(4.56e-3), "4.56 ms");
  EXPECT_EQ(human_seconds(5e-6), "5 us");
  EXPECT_EQ(human_seconds(3e-9), "3 ns");
  EXPECT_EQ(human_seconds(3e-12), "0.003 ns");
}

TEST(Quantity, RatesForPeople) {
  EXPECT_EQ(human_rate(0), "0 B/s");
  EXPECT_EQ(human_rate(999), "999 B/s");
  EXPECT_EQ(human_rate(12.5e9), "12.5 GB/s");
  EXPECT_EQ(human_rate(3.35e12), "3.35 TB/s");
}

}  // namespace
}  // namespace meron
