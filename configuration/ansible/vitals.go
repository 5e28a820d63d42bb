// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
)

// readVitals prints the boot id, the uptime in seconds, and the start of the agent in
// microseconds of the uptime. It needs no privilege.
const readVitals = "cat /proc/sys/kernel/random/boot_id /proc/uptime; " +
	"systemctl show --property=ActiveEnterTimestampMonotonic --value clusterm-agent 2>/dev/null; true"

// maxVitals is the size of the output of readVitals that is read, in bytes.
const maxVitals = 4 << 10

// Vitals logs in to a host, as Probe does, and reads its signs of life. Values that are
// missing, or in another form, stay zero.
func (p *Prober) Vitals(ctx context.Context, h configuration.Host) (configuration.Vitals, configuration.Reach) {
	out := beginning{limit: maxVitals}
	r := p.reach(ctx, h, readVitals, &out)
	return parseVitals(out.String()), r
}

var bootID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// maxUptime refuses an uptime that no host has.
const maxUptime = 100 * 365 * 24 * time.Hour

// parseVitals reads the output of readVitals, which is the host's and untrusted.
func parseVitals(text string) (v configuration.Vitals) {
	lines := strings.Split(text, "\n")
	line := func(i int) string {
		if i < len(lines) {
			return strings.TrimSpace(lines[i])
		}
		return ""
	}

	if bootID.MatchString(line(0)) {
		v.Boot = line(0)
	}

	up, _, _ := strings.Cut(line(1), " ")

	seconds, err := strconv.ParseFloat(up, 64)
	if err != nil || !(seconds > 0 && seconds < maxUptime.Seconds()) {
		return v
	}
	v.Uptime = time.Duration(seconds * float64(time.Second))

	micros, err := strconv.ParseInt(line(2), 10, 64)
	if err != nil || micros <= 0 || micros > v.Uptime.Microseconds() {
		return v
	}
	v.Agent = v.Uptime - time.Duration(micros)*time.Microsecond

	return v
}
