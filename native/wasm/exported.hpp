// Functions that the page calls by name.
#pragma once

#define EXPORTED(name) extern "C" __attribute__((export_name(#name)))
