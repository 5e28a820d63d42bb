# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
systemd-sysusers clusterm.conf >/dev/null 2>&1 || :
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi
