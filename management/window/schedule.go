// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // the host need not have the time zones

	"github.com/robfig/cron/v3"

	"github.com/contiv/cluster/inventory"
)

// schedule is the openings of a window, and how long each lasts.
type schedule struct {
	expression cron.Schedule // on the wall clock, as if that were UTC
	zone       *time.Location
	duration   time.Duration
}

// cronFields are the fields of a cron expression, in order.
var cronFields = []string{"minute", "hour", "day of the month", "month", "day of the week"}

// The parser also takes time zones (TZ=…) and words such as @every; windows take neither.
var cronChars = regexp.MustCompile(`^[0-9A-Za-z*/,? -]{1,200}$`)

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// parseCron parses an expression of five fields. An error names the field.
func parseCron(text string) (cron.Schedule, error) {
	fields := strings.Fields(text)
	if !cronChars.MatchString(text) || len(fields) != len(cronFields) {
		return nil, fmt.Errorf("%q is not a cron expression: write five fields, minute, hour, day of the month, "+
			"month and day of the week, such as 0 2 * * 6", shorten(text))
	}

	for i, field := range fields {
		// The parser names no field, so each is parsed by itself.
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = field

		if _, err := cronParser.Parse(strings.Join(alone, " ")); err != nil {
			return nil, fmt.Errorf("%q: field %d, the %s, is %q: %w", text, i+1, cronFields[i], field, err)
		}
	}

	return cronParser.Parse(text)
}

// An expression is checked for checkedYears from checkedFrom on: two leap years are in them.
// checkedOpenings bounds the openings that are looked at.
var checkedFrom = time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)

const (
	checkedYears    = 8
	checkedOpenings = 10_000
)

// check refuses a schedule that never opens, or that opens again before it is closed.
func (s schedule) check(cronText string) error {
	if s.expression.Next(checkedFrom).IsZero() {
		return fmt.Errorf("cron: %q never comes: no year has such a day", cronText)
	}

	if interval := s.shortest(); interval > 0 && interval < s.duration {
		return fmt.Errorf("duration: %s is longer than %s, the shortest time between two openings",
			Short(s.duration), Short(interval))
	}

	return nil
}

// shortest returns the shortest time between two openings; 0 if there are not two.
func (s schedule) shortest() time.Duration {
	var shortest time.Duration

	// Next is always later than its argument, so this finds an opening at checkedFrom itself too.
	last := s.expression.Next(checkedFrom.Add(-time.Second))

	for range checkedOpenings {
		next := s.expression.Next(last)
		if next.IsZero() || next.After(checkedFrom.AddDate(checkedYears, 0, 0)) {
			break
		}

		if interval := next.Sub(last); shortest == 0 || interval < shortest {
			shortest = interval
		}

		last = next
	}

	return shortest
}

// next returns the first opening after t; zero if there is none.
func (s schedule) next(t time.Time) time.Time {
	local := t.In(s.zone)
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(),
		local.Nanosecond(), time.UTC)

	// In an hour that comes twice, the next time on the clock may be over already.
	for {
		wall = s.expression.Next(wall)
		if wall.IsZero() {
			return time.Time{}
		}

		if opening := s.instant(wall); opening.After(t) {
			return opening
		}
	}
}

// instant returns when the clocks of the zone show the wall time. A time that they show
// twice is its first instant, and for one that they leave out it is the change itself: a
// window opens exactly once.
func (s schedule) instant(wall time.Time) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, s.zone)
	start, end := t.ZoneBounds()

	shown := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)

	switch {
	case shown.After(wall) && !start.IsZero():
		return start
	case shown.Before(wall) && !end.IsZero():
		return end
	case start.IsZero():
		return t
	}

	_, before := start.Add(-time.Second).Zone()
	if first := wall.Add(-time.Duration(before) * time.Second); first.Before(start) {
		return first.In(s.zone)
	}

	return t
}

// joined bounds the openings that count as one where each begins as the last one ends.
const joined = 1000

// open returns when the window that is open at t closes; zero if it is closed.
func (s schedule) open(t time.Time) time.Time {
	// An opening a whole duration before t has closed at t, so only later ones matter.
	opening := s.next(t.Add(-s.duration))
	if opening.IsZero() || opening.After(t) {
		return time.Time{}
	}

	closes := opening.Add(s.duration)

	for range joined {
		opening = s.next(opening)
		if opening.IsZero() || opening.After(closes) {
			break
		}

		closes = opening.Add(s.duration)
	}

	return closes
}

// Short returns a duration in whole seconds, without zero units at its end.
func Short(d time.Duration) string {
	return inventory.ShortDuration(d.Round(time.Second))
}

// shorten cuts a text of an operator for a message.
func shorten(text string) string {
	const limit = 100
	if len(text) > limit {
		return text[:limit] + "…"
	}

	return text
}
