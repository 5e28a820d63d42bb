# SPDX-License-Identifier: Apache-2.0
systemd-sysusers clusterm.conf >/dev/null 2>&1 || :
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi
