// What module.cpp adds to the module for smoothing series.
#pragma once

#include <nanobind/nanobind.h>

namespace overt {

void bind_smoothing(nanobind::module_& module);
void bind_segments(nanobind::module_& module);

}  // namespace overt
