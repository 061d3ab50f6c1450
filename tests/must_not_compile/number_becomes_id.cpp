// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: conversion from|cannot convert|no viable conversion
#include "kerf/base/id.h"

kerf::NodeId node{1};
kerf::NodeId good(3);
#ifdef KERF_MUST_NOT_COMPILE
kerf::NodeId bad = 3;
#endif
