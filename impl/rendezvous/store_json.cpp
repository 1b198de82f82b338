// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "plan/json_out.h"
#include "plan/json_text.h"

namespace meron {
namespace {

constexpr JsonText::Limits kLimits = {.bytes = kMaxOutcomeBytes, .depth = 8};

std::string text_of(const JsonValue& object, std::string_view key) {
  const auto found = object.find(key);
  if (!found) return {};
  const auto text = found->string();
  return text.ok() ? std::string(*text) : std::string();
}

int number_of(const JsonValue& object, std::string_view key, int otherwise) {
  const auto found = object.find(key);
  if (!found) return otherwise;
  const auto value = found->number();
  const bool fits = value.ok() && *value == std::floor(*value) &&
                    *value >= std::numeric_limits<int>::min() &&
                    *value <= std::numeric_limits<int>::max();
  return fits ? static_cast<int>(*value) : otherwise;
}

JsonOut json_of(const Card& card) {
  return JsonOut::object({{"version", card.version},
                          {"protocol", card.protocol},
                          {"rank", card.rank},
                          {"world_size", card.world_size},
                          {"host", card.host},
                          {"node", card.node},
                          {"pid", card.pid},
                          {"number", card.number},
                          {"call", card.call}});
}

std::optional<Card> card_of(const JsonValue& json) {
  if (!json.object().ok()) return {};
  Card card;
  card.rank = number_of(json, "rank", -1);
  card.world_size = number_of(json, "world_size", 0);
  card.number = text_of(json, "number");
  card.call = text_of(json, "call");
  card.version = text_of(json, "version");
  card.protocol = static_cast<uint32_t>(number_of(json, "protocol", 0));
  card.host = text_of(json, "host");
  card.node = text_of(json, "node");
  card.pid = number_of(json, "pid", 0);
  if (card.rank < 0 || card.number.empty()) return {};
  return card;
}

}  // namespace

const Card* Outcome::find(int rank) const {
  for (const Card& card : cards) {
    if (card.rank == rank) return &card;
  }
  return nullptr;
}

std::string Outcome::places() const {
  // By node, in the order of their first ranks, each with ranges of ranks.
  std::vector<std::pair<const Card*, std::vector<std::pair<int, int>>>> nodes;
  for (const Card& card : cards) {
    auto node = std::find_if(nodes.begin(), nodes.end(),
                             [&](const auto& each) { return each.first->node == card.node; });
    if (node == nodes.end()) node = nodes.insert(nodes.end(), {&card, {}});
    auto& ranges = node->second;
    if (!ranges.empty() && ranges.back().second + 1 == card.rank) {
      ranges.back().second = card.rank;
    } else {
      ranges.emplace_back(card.rank, card.rank);
    }
  }
  std::vector<std::string> texts;
  for (const auto& [first, ranges] : nodes) {
    std::vector<std::string> names;
    for (const auto& [begin, end] : ranges) {
      names.push_back(begin == end ? fmt::format("{}", begin) : fmt::format("{}-{}", begin, end));
    }
    const bool one = ranges.size() == 1 && ranges.front().first == ranges.front().second;
    texts.push_back(fmt::format("{} {} on host {}", one ? "rank" : "ranks", fmt::join(names, ", "),
                                first->host));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

int Outcome::nodes() const {
  std::set<std::string_view> names;
  for (const Card& card : cards) names.insert(card.node);
  return static_cast<int>(names.size());
}

std::string to_text(const Card& card) {
  return json_of(card).dump(-1) + "\n";
}

std::string to_text(const Outcome& outcome) {
  JsonOut json = JsonOut::object();
  if (outcome.failure) {
    const ErrorInfo& info = outcome.failure->info();
    json.add("failure", JsonOut::object({{"status", info.code},
                                         {"what", info.what},
                                         {"advice", info.advice},
                                         {"peer", info.peer}}));
  } else {
    json.add("token", outcome.token.hex());
  }
  JsonOut cards = JsonOut::array();
  for (const Card& card : outcome.cards) cards.push(json_of(card));
  return json.add("cards", cards).dump(-1) + "\n";
}

std::optional<Card> read_card(std::string_view text) {
  const auto json = JsonText::parse(text, "card", kLimits);
  if (!json.ok()) return {};
  return card_of(json->root());
}

std::optional<Outcome> read_outcome(std::string_view text) {
  const auto json = JsonText::parse(text, "outcome", kLimits);
  if (!json.ok() || !json->root().object().ok()) return {};
  const JsonValue root = json->root();
  Outcome outcome;
  const auto cards = root.find("cards");
  if (!cards || !cards->array().ok()) return {};
  for (auto each = cards->first(); each; each = each->next()) {
    auto card = card_of(*each);
    if (!card) return {};
    outcome.cards.push_back(std::move(*card));
  }
  if (const auto failure = root.find("failure"); failure && failure->object().ok()) {
    const int status = number_of(*failure, "status", MERON_E_INTERNAL);
    outcome.failure = Error(status < 0 ? status : MERON_E_INTERNAL, text_of(*failure, "what"),
                            text_of(*failure, "advice"))
                          .blaming(number_of(*failure, "peer", MERON_RANK_NONE));
    return outcome;
  }
  auto token = parse_token(text_of(root, "token"));
  if (!token.ok()) return {};
  outcome.token = *token;
  return outcome;
}

}  // namespace meron
