// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"time"
)

// Times are the times of a cron expression on the clocks of a time zone. The zero value has
// none.
type Times struct {
	text     string
	schedule schedule
}

// ParseTimes reads a cron expression of five fields, and a time zone of the IANA database;
// empty: UTC. It does not check that the times ever come, see Check.
func ParseTimes(cron, zone string) (Times, error) {
	t := Times{text: cron}

	var err error
	if t.schedule.expression, err = parseCron(cron); err != nil {
		return Times{}, fmt.Errorf("cron: %w", err)
	}

	if t.schedule.zone, err = loadZone(zone); err != nil {
		return Times{}, err
	}

	return t, nil
}

// loadZone returns the time zone of that name.
func loadZone(name string) (*time.Location, error) {
	// Local would be another zone on each instance.
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("time_zone: %q is not in the IANA database; write one such as Europe/Berlin or UTC",
			shorten(name))
	}

	return zone, nil
}

// Check refuses times that never come.
func (t Times) Check() error { return t.schedule.check(t.text) }

// Shortest returns the shortest time between two of the times, within some years; 0 if there
// are not two. It looks at thousands of them.
func (t Times) Shortest() time.Duration { return t.schedule.shortest() }

// String returns the expression with its time zone.
func (t Times) String() string {
	if t.schedule.zone == nil {
		return t.text
	}
	return t.text + " " + t.schedule.zone.String()
}

// Next returns the first time after at; zero if there is none.
func (t Times) Next(at time.Time) time.Time {
	if t.schedule.zone == nil {
		return time.Time{}
	}
	return t.schedule.next(at)
}

// Last returns the newest time that is not after at; zero if there is none.
func (t Times) Last(at time.Time) time.Time {
	if t.schedule.zone == nil {
		return time.Time{}
	}

	last, _ := t.schedule.around(at)
	if last.IsZero() {
		return time.Time{}
	}
	return t.schedule.instant(last)
}
