#!/bin/sh
# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# For moira-reduce: a program is interesting (exit code 1) while it counts.
! grep -q 'moe.count' "$1"
