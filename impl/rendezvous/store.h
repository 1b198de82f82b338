// SPDX-License-Identifier: Apache-2.0
// How ranks find each other whose launcher brings neither a token nor MPI: by small files in a
// directory that all of them see, for example over NFS.
//
// Rank 0's card is a call, by a random number; each other rank's card answers it by that number.
// Once all have, rank 0 calls again, to see who is still there; then it writes down who has met,
// and the token, in a file named after the call. So
// nobody takes what an earlier job left for news: a rank answers a stale call until a fresh one
// takes its place, and believes an outcome only if that lists its own card. No clock, lock or age
// of a file counts. Who comes again under a rank's name takes its place, as after a restart, and
// the one before is told.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "rendezvous/join.h"
#include "rendezvous/store_file.h"

namespace meron {

class Store {
 public:
  // `directory` is there; the job has a folder of its own in it.
  static Result<Store> open(const std::string& directory, const std::string& job);
  // Takes this rank's files back. By then every rank has read what it needs of them: the ranks have
  // joined, or failed to.
  ~Store();
  Store(Store&& other) noexcept;
  Store& operator=(Store&&) = delete;

  // Blocks until all ranks have come, at most the deadline, after which it names who has not.
  Result<Outcome> meet(const MeetingOptions& options);

 private:
  explicit Store(std::string folder) : folder_(std::move(folder)) {}

  std::string path_of(int rank) const;
  std::string outcome_path(const std::string& call) const;
  Status put(const std::string& path, const std::string& text) const;
  std::optional<Card> card_of(int rank) const;
  Status hold_own();
  Result<std::vector<bool>> present(int world_size) const;
  Outcome summary(const std::map<int, Card>& guests) const;
  Result<bool> listen(std::map<int, Card>& guests) const;
  void dismiss(std::map<int, Card>& guests, const Error& error) const;
  Status call_anew();
  Result<Outcome> call(const MeetingOptions& options);
  Result<Outcome> answer(const MeetingOptions& options);
  Error replaced_by(const Card& other) const;

  std::string folder_;  // empty: moved from
  Card own_;
};

}  // namespace meron
