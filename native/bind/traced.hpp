#pragma once

#include <nanobind/nanobind.h>

namespace overt {

// Attention with the scores of a program.
void bind_traced(nanobind::module_& module);

}  // namespace overt
