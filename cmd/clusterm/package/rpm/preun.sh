# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# 0: the last one is removed, this is no upgrade.
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
	systemctl --no-reload disable --now clusterm.service clusterm-agent.service clusterm-monitor.service || :
fi
