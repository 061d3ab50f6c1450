// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: conversion from|cannot convert|no viable conversion
#include "kerf/base/id.h"
#include "kerf/base/units.h"

kerf::NodeId node{1};
kerf::Nanoseconds good = kerf::Nanoseconds{1};
#ifdef KERF_MUST_NOT_COMPILE
kerf::Nanoseconds bad = kerf::Bytes{1};
#endif
