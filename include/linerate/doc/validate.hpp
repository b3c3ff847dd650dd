// The rules by which files are read, for documents that a program hands to a call.
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
/// sums of sizes, and values that are no numbers. `place` stands before the path; empty: the
/// document by its name. Each call of linerate that takes a document does this, and save() does it
/// before it writes.
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
