// The derivatives of attention, as functions of the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace overt {

void bind_derivatives(nanobind::module_& module);

}  // namespace overt
