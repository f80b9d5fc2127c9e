// What module.cpp adds to the module for measuring the machine itself.
#pragma once

#include <nanobind/nanobind.h>

namespace overt {

void bind_ceilings(nanobind::module_& module);

}  // namespace overt
