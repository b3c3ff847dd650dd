// What every call asks of the documents that a program hands it: the rules by which files are read.
#pragma once

#include <string>

namespace linerate::doc {

struct Workload;
struct Cluster;
struct Plan;
struct Timeline;
struct Evaluation;
struct Predictions;
struct Advice;

/// Throws InputError with the JSON path of what X_from_json() would refuse: ranges, order, indices,
/// sums of sizes, and what is no number. `place` stands before it; empty: the document by its name.
/// Each call of linerate that takes a document does this, save() before it writes.
void validate(const Workload& workload, const std::string& place = {});
/// The same.
void validate(const Cluster& cluster, const std::string& place = {});
/// The same.
void validate(const Timeline& timeline, const std::string& place = {});
/// The same.
void validate(const Evaluation& evaluation, const std::string& place = {});
/// The same.
void validate(const Predictions& predictions, const std::string& place = {});
/// The same.
void validate(const Advice& advice, const std::string& place = {});
/// The same; validate(plan) without a place is linerate's check of what it planned itself.
void validate(const Plan& plan, const std::string& place);

}  // namespace linerate::doc
