/* SPDX-License-Identifier: Apache-2.0 */
/* Sets a variable for the scenarios that run while the object lives. */
#ifndef SIMCUDA_ENVIRONMENT_H
#define SIMCUDA_ENVIRONMENT_H

#include <cstdlib>
#include <string>

#include "simcuda/rig.h"

namespace rig {

class Environment {
  public:
    Environment(const char *name, const std::string &value) : name_(name) {
        const char *before = getenv(name);
        had_ = before != nullptr;
        if (had_) before_ = before;
        setenv(name, value.c_str(), 1);
    }
    ~Environment() {
        if (had_)
            setenv(name_, before_.c_str(), 1);
        else
            unsetenv(name_);
    }
    Environment(const Environment &) = delete;
    void operator=(const Environment &) = delete;

  private:
    const char *name_;
    std::string before_;
    bool had_;
};

inline Outcome run_with(const char *name, const std::string &value, const char *scenario) {
    Environment setting(name, value);
    return run(scenario);
}

} // namespace rig

#endif
