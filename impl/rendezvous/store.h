// SPDX-License-Identifier: Apache-2.0
// How ranks find each other if the launcher gives neither a token nor MPI: by small files in a
// directory that all of them share, for example over NFS.
//
// Rank 0's card is a call with a random number; each other rank's card answers with that number.
// Once all have answered, rank 0 calls again, to see who is still alive. Then it writes the
// outcome, that is, the cards and the token, to a file named after the call. Files of an earlier
// job do no harm: a rank answers a stale call until a fresh one replaces it, and accepts an outcome
// only if that lists its own card. No clock, lock or age of a file counts. A process that opens as
// a rank that is there already replaces it, as after a restart, and the earlier one gets an error.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "rendezvous/join.h"
#include "rendezvous/store_json.h"

namespace meron {

class Store {
 public:
  // `directory` exists; the job has a folder of its own in it.
  static Result<Store> open(const std::string& directory, const std::string& job);
  // Removes this rank's files. By then the ranks have joined, or failed to: all have read them.
  ~Store();
  Store(Store&& other) noexcept;
  Store& operator=(Store&&) = delete;

  // Blocks until all ranks have arrived, or the deadline, whose error names the missing ones.
  Result<Outcome> meet(const MeetingOptions& options);

 private:
  explicit Store(std::string folder) : folder_(std::move(folder)) {}

  std::string path_of(int rank) const;
  std::string outcome_path(const std::string& call) const;
  Status put(const std::string& path, const std::string& text) const;
  std::optional<Card> card_of(int rank) const;
  Status hold_own();
  Result<std::vector<bool>> present(int world_size) const;
  Outcome summary(const std::map<int, Card>& arrived) const;
  Result<bool> listen(std::map<int, Card>& arrived) const;
  void dismiss(std::map<int, Card>& arrived, const Error& error) const;
  Status call_anew();
  Result<Outcome> call(const MeetingOptions& options);
  Result<Outcome> answer(const MeetingOptions& options);
  Error replaced_by(const Card& other) const;

  std::string folder_;  // empty: moved from
  Card own_;
};

}  // namespace meron
