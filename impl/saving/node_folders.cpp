// SPDX-License-Identifier: Apache-2.0
#include "saving/node_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace meron {
namespace {

// One checkpoint, as the folders of all nodes have it together.
struct Candidate {
  std::string name, id, created;
  checkpoint::History history;  // `lineage` and `saved_ns`
  uint64_t step = 0;
  std::vector<uint32_t> nodes;      // that have files of it
  std::map<uint32_t, int> holders;  // by such a node: the first rank that has its files
  std::string defect;  // why a folder of it cannot be used; the other fields are then unknown
  int32_t damage = 0;  // the code, if it is more than missing files
  int rank = 0;        // the first in whose folder it is; with a defect, whose folder that is

  bool complete() const { return defect.empty() && holders.size() == nodes.size(); }
  auto age() const { return std::tie(step, created, history.saved_ns, name, id); }
};

constexpr char kDefect = '!';

std::string line_of(const checkpoint::Entry& entry) {
  if (!entry.complete()) {
    std::string defect = entry.defect;
    std::replace(defect.begin(), defect.end(), '\n', ' ');
    const int32_t damage = entry.damage ? entry.damage->code() : 0;
    return fmt::format("{}\t{}{}\t{}\n", entry.name, kDefect, -damage, defect);
  }
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", entry.name, entry.id, entry.created,
                     entry.step, entry.history.lineage, entry.history.saved_ns,
                     fmt::join(entry.nodes, ","), fmt::join(entry.nodes_there, "\t"));
}

std::string_view cut(std::string_view* text, char at) {
  const size_t end = std::min(text->find(at), text->size());
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return part;
}

uint64_t number_of(std::string_view digits) {
  uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

// Of those in the folder, or of one name: names have neither tabs nor line breaks.
Result<std::string> lines_of(const std::string& root, const std::string& name) {
  std::string lines;
  if (!name.empty()) {
    MERON_ASSIGN(const auto found, checkpoint::find_entry(root, name));
    return found ? line_of(*found) : lines;
  }
  const auto found = checkpoint::list(root);
  if (!found.ok() && found.error().code() != MERON_E_NOT_FOUND) return found.error();
  if (!found.ok()) return lines;
  for (const checkpoint::Entry& entry : *found) lines += line_of(entry);
  return lines;
}

std::vector<Candidate> candidates_of(std::span<const std::string> texts) {
  std::map<std::pair<std::string, std::string>, Candidate> all;
  std::vector<Candidate> out;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::string_view text = texts[rank];
    while (!text.empty()) {
      std::string_view line = cut(&text, '\n');
      Candidate one;
      one.name = cut(&line, '\t');
      one.rank = static_cast<int>(rank);
      if (line.starts_with(kDefect)) {
        line.remove_prefix(1);
        one.damage = -static_cast<int32_t>(number_of(cut(&line, '\t')));
        one.defect = line;
        out.push_back(std::move(one));
        continue;
      }
      one.id = cut(&line, '\t');
      one.created = cut(&line, '\t');
      one.step = number_of(cut(&line, '\t'));
      one.history.lineage = cut(&line, '\t');
      one.history.saved_ns = number_of(cut(&line, '\t'));
      for (std::string_view nodes = cut(&line, '\t'); !nodes.empty();) {
        one.nodes.push_back(static_cast<uint32_t>(number_of(cut(&nodes, ','))));
      }
      Candidate& known = all.try_emplace({one.name, one.id}, one).first->second;
      while (!line.empty()) {
        const uint64_t node = number_of(cut(&line, '\t'));
        known.holders.try_emplace(static_cast<uint32_t>(node), static_cast<int>(rank));
      }
    }
  }
  for (auto& [key, candidate] : all) out.push_back(std::move(candidate));
  // The line of the latest save is first: see checkpoint::list().
  std::map<std::string, std::pair<std::string, uint64_t>> lines;
  for (const Candidate& each : out) {
    auto& last = lines[each.history.lineage];
    last = std::max(last, std::pair(each.created, each.history.saved_ns));
  }
  std::sort(out.begin(), out.end(), [&](const Candidate& a, const Candidate& b) {
    return std::pair(lines[a.history.lineage], a.age()) >
           std::pair(lines[b.history.lineage], b.age());
  });
  return out;
}

// Of all nodes, newest first.
Result<std::vector<Candidate>> gather_candidates(Exchange& exchange, const std::string& root,
                                                 const std::string& name,
                                                 std::span<const int> nodes) {
  Result<std::string> own(std::string{});
  if (leads_node(nodes, exchange.rank())) own = lines_of(root, name);
  MERON_TRY(agree(exchange, own.ok() ? Status(Ok{}) : Status(own.error())));
  MERON_ASSIGN(const std::vector<std::string> texts, gather_texts(exchange, *own, true));
  return candidates_of(texts);
}

std::string defect_of(const Candidate& candidate) {
  if (!candidate.defect.empty()) {
    return fmt::format("in rank {}'s folder: {}", candidate.rank, candidate.defect);
  }
  std::vector<uint32_t> absent;
  for (const uint32_t node : candidate.nodes) {
    if (candidate.holders.count(node) == 0) absent.push_back(node);
  }
  return fmt::format("lacks the files of node {}", fmt::join(absent, ", "));
}

Error none_whole(const std::vector<Candidate>& candidates, const std::string& root,
                 const std::string& name) {
  std::string why;
  for (const Candidate& each : candidates) {
    why += fmt::format("; {} {}", each.name, defect_of(each));
  }
  return Error(MERON_E_NOT_FOUND,
               name.empty() ? "the nodes' folders together have no complete checkpoint" + why
                            : fmt::format("the nodes' folders together have no complete checkpoint "
                                          "'{}'{}",
                                          name, why),
               "check the path, add the node that has the files, or copy them to a node")
      .on(root);
}

}  // namespace

bool leads_node(std::span<const int> nodes, int rank) {
  const int own = nodes[static_cast<size_t>(rank)];
  return std::find(nodes.begin(), nodes.end(), own) - nodes.begin() == rank;
}

std::vector<uint32_t> node_numbers(std::span<const int> nodes) {
  std::map<int, uint32_t> numbers;
  std::vector<uint32_t> out;
  for (const int node : nodes) {
    out.push_back(numbers.try_emplace(node, static_cast<uint32_t>(numbers.size())).first->second);
  }
  return out;
}

Result<bool> name_is_free(Exchange& exchange, const std::string& root, const std::string& name,
                          std::span<const int> nodes) {
  MERON_ASSIGN(const std::vector<Candidate> candidates,
               gather_candidates(exchange, root, name, nodes));
  return std::none_of(candidates.begin(), candidates.end(), [](const Candidate& each) {
    return each.complete() || !each.defect.empty();
  });
}

Result<NodeCheckpoint> find_on_nodes(Exchange& exchange, const std::string& root,
                                     const std::string& name, std::span<const int> nodes) {
  const int rank = exchange.rank();
  MERON_ASSIGN(const std::vector<Candidate> candidates,
               gather_candidates(exchange, root, name, nodes));
  for (const Candidate& each : candidates) {
    if (each.damage == 0 || !name.empty()) continue;
    return Error(each.damage,
                 fmt::format("'{}', which may be the newest checkpoint, cannot be loaded, {}",
                             each.name, defect_of(each)),
                 "mend it or move it elsewhere, or load another one by its name")
        .on(root);
  }
  const auto chosen = std::find_if(candidates.begin(), candidates.end(),
                                   [](const Candidate& each) { return each.complete(); });
  if (chosen == candidates.end()) return none_whole(candidates, root, name);

  // Each that reads files looks at its own manifest, and so does the one that sends it to all.
  const std::string path = root + "/" + chosen->name;
  const auto reads = [&](const auto& holder) { return holder.second == rank; };
  Status fits = Ok{};
  std::string manifest;
  if (rank == chosen->rank || std::any_of(chosen->holders.begin(), chosen->holders.end(), reads)) {
    auto opened = checkpoint::open_checkpoint(path);
    if (!opened.ok()) {
      fits = opened.error();
    } else if (opened->manifest.id != chosen->id) {
      fits =
          Error(MERON_E_STATE, "another checkpoint got the name meanwhile", "load again").on(path);
    } else {
      manifest = checkpoint::to_json(opened->manifest);
    }
  }
  MERON_TRY(agree(exchange, fits));
  MERON_ASSIGN(const std::string shared,
               share(exchange, Result<std::string>(manifest), chosen->rank));
  NodeCheckpoint found;
  found.checkpoint.path = path;
  found.checkpoint.history = chosen->history;
  MERON_ASSIGN(found.checkpoint.manifest, checkpoint::parse_manifest(shared));
  for (const Candidate& each : candidates) {
    if (rank != 0 || !name.empty() || each.complete()) continue;
    found.checkpoint.skipped.push_back({.name = each.name, .reason = defect_of(each)});
  }
  for (const checkpoint::File& file : found.checkpoint.manifest.files) {
    found.readers.push_back(chosen->holders.at(file.node));
  }
  return found;
}

}  // namespace meron
