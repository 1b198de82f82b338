// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace conformance {
namespace {

std::vector<std::string> tokens_of(const std::string& line) {
  std::vector<std::string> tokens;
  std::istringstream stream(line);
  for (std::string token; stream >> token && token.front() != '#';) tokens.push_back(token);
  return tokens;
}

Statement statement_of(int line, const std::vector<std::string>& tokens) {
  Statement statement;
  statement.line = line;
  statement.operation = tokens.front();
  for (size_t i = 1; i < tokens.size(); ++i) {
    const size_t equals = tokens[i].find('=');
    if (equals != std::string::npos) {
      statement.arguments.emplace_back(tokens[i].substr(0, equals), tokens[i].substr(equals + 1));
    } else if (statement.name.empty()) {
      statement.name = tokens[i];
    } else {
      throw Malformed{"line " + std::to_string(line) + ": a second name, '" + tokens[i] + "'"};
    }
  }
  return statement;
}

}  // namespace

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Malformed{path + ": cannot be read"};
  std::vector<Case> cases;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const std::vector<std::string> tokens = tokens_of(line);
    if (tokens.empty()) continue;
    const std::vector<std::string> rest(tokens.begin() + 1, tokens.end());
    if (tokens.front() == "case" && rest.size() == 1) {
      cases.emplace_back().name = rest.front();
      continue;
    }
    if (cases.empty()) throw Malformed{path + ": line " + std::to_string(number) + ": no case yet"};
    Case& current = cases.back();
    if (tokens.front() == "ranks") {
      current.ranks = rest;
    } else if (tokens.front() == "plans") {
      current.plans = rest;
    } else if (tokens.front() == "transports") {
      current.transports = rest;
    } else if (tokens.front() == "needs") {
      current.needs = rest;
    } else {
      current.statements.push_back(statement_of(number, tokens));
    }
  }
  return cases;
}

bool Statement::has(const std::string& key) const {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const auto& argument) { return argument.first == key; });
}

const std::string& Statement::get(const std::string& key) const {
  for (const auto& [known, value] : arguments) {
    if (known == key) return value;
  }
  throw Malformed{"'" + operation + "' lacks " + key + "="};
}

std::string Statement::get(const std::string& key, const std::string& otherwise) const {
  return has(key) ? get(key) : otherwise;
}

std::vector<std::string> Statement::list(const std::string& key) const {
  return has(key) ? split(get(key), ',') : std::vector<std::string>();
}

double Statement::number(const std::string& key, double otherwise) const {
  return has(key) ? to_number(get(key)) : otherwise;
}

int32_t one_of(const Statement& statement, const std::string& key,
               const std::map<std::string, int32_t>& known) {
  const auto found = known.find(statement.get(key));
  if (found == known.end()) throw Malformed{"unknown " + key + " '" + statement.get(key) + "'"};
  return found->second;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

double to_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') throw Malformed{"'" + text + "' is no number"};
  return value;
}

long long to_integer(const std::string& text) {
  long long value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) throw Malformed{"'" + text + "' is no whole number"};
  return value;
}

}  // namespace conformance
