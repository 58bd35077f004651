// In the place of a leg that is out, so that an epoch holds no session of it: owns nothing and is never asked.
#pragma once

#include <memory>
#include <string>

#include "coordinator/legs/leg.h"

namespace terrace::legs {

// state: kLost or kWrong. why: a sentence that names the leg, as the board shows it.
std::shared_ptr<Leg> make_out_leg(std::string name, LegKind kind, LegState state, std::string why);

}  // namespace terrace::legs
