// What `terrace plan --probe` prints, and `bench` beside a plan's prediction.
#pragma once

#include <string>

#include "coordinator/app/probe.h"
#include "coordinator/planner/outlook.h"
#include "coordinator/planner/prediction_file.h"

namespace terrace::app {

// On stdout: predicted rates, what limits them, each node lost, nodes that do not pay; with `explain` every term.
void print_outlook(const ProbeResult& probe, const planner::Outlook& outlook, bool explain);

// The time now, UTC: "2026-03-14T15:09:26Z".
std::string date_now();

}  // namespace terrace::app
