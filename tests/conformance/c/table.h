// SPDX-License-Identifier: Apache-2.0
// The table of cases as data: what cases.txt says, token by token.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace conformance {

// One operation: its name, the object it is about ("" for none), its arguments.
struct Statement {
  int line = 0;
  std::string operation;
  std::string name;
  std::vector<std::pair<std::string, std::string>> arguments;

  bool has(const std::string& key) const;
  // The argument's text; throws Malformed if it is missing.
  const std::string& get(const std::string& key) const;
  std::string get(const std::string& key, const std::string& otherwise) const;
  std::vector<std::string> list(const std::string& key) const;
  double number(const std::string& key, double otherwise) const;
};

// The value of an enum, by its name in an argument; throws Malformed for a name that is not known.
int32_t one_of(const Statement& statement, const std::string& key,
               const std::map<std::string, int32_t>& known);

struct Case {
  std::string name;
  std::vector<std::string> ranks{"1", "2", "3"};
  std::vector<std::string> plans{"zero3"};
  std::vector<std::string> transports{"self", "local", "shm", "custom"};
  std::vector<std::string> needs;
  std::vector<Statement> statements;
};

// The file, or an operation in it, does not say what README.md asks for.
struct Malformed {
  std::string what;
};

std::vector<Case> read_cases(const std::string& path);

std::vector<std::string> split(const std::string& text, char separator);
bool contains(const std::vector<std::string>& words, const std::string& word);
// Throws Malformed unless all of the text is a number.
double to_number(const std::string& text);
long long to_integer(const std::string& text);

}  // namespace conformance
