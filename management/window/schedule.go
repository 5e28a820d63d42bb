// SPDX-License-Identifier: Apache-2.0

package window

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the host need not have the time zones

	"github.com/robfig/cron/v3"

	"github.com/contiv/cluster/inventory"
)

// schedule is the openings of a window, and how long each lasts.
type schedule struct {
	expression expression // on the wall clock, as if that were UTC
	zone       *time.Location
	duration   time.Duration
}

// cronFields are the fields of a cron expression, in order.
var cronFields = []string{"minute", "hour", "day of the month", "month", "day of the week"}

// The parser also takes time zones (TZ=…) and words such as @every; windows take neither.
var cronChars = regexp.MustCompile(`^[0-9A-Za-z*/,? -]{1,200}$`)

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// expression is the minutes of a cron expression. Its own Next takes microseconds, because it walks field by field.
type expression struct {
	*cron.SpecSchedule

	minutes []int // of a day that matches, sorted
}

// parseCron parses an expression of five fields. An error names the field.
func parseCron(text string) (expression, error) {
	fields := strings.Fields(text)
	if !cronChars.MatchString(text) || len(fields) != len(cronFields) {
		return expression{}, fmt.Errorf(
			"%q is not a cron expression: write five fields, minute, hour, day of the month, "+
				"month and day of the week, such as 0 2 * * 6",
			shorten(text),
		)
	}

	for i, field := range fields {
		// The parser names no field, so each is parsed by itself.
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = field

		if _, err := cronParser.Parse(strings.Join(alone, " ")); err != nil {
			return expression{}, fmt.Errorf("%q: field %d, the %s, is %q: %w", text, i+1, cronFields[i], field, err)
		}
	}

	parsed, err := cronParser.Parse(text)
	if err != nil {
		return expression{}, err
	}
	e := expression{SpecSchedule: parsed.(*cron.SpecSchedule)}

	for m := range minutesPerDay {
		if has(e.Hour, m/60) && has(e.Minute, m%60) {
			e.minutes = append(e.minutes, m)
		}
	}

	return e, nil
}

const (
	day           = 24 * time.Hour
	minutesPerDay = 24 * 60
	searchedDays  = checkedYears * 366 // 29 February comes once in eight years at least
)

func has(field uint64, value int) bool { return field&(1<<value) != 0 }

// matches reports whether the expression names the day of the time. If it restricts both the day of the month and the
// day of the week, either is enough.
func (e expression) matches(t time.Time) bool {
	const star = 63 // the parser marks a field that is a star

	ofMonth, ofWeek := has(e.Dom, t.Day()), has(e.Dow, int(t.Weekday()))
	if has(e.Dom, star) || has(e.Dow, star) {
		return has(e.Month, int(t.Month())) && ofMonth && ofWeek
	}
	return has(e.Month, int(t.Month())) && (ofMonth || ofWeek)
}

// next returns the first time after t; zero if there is none.
func (e expression) next(t time.Time) time.Time {
	date := t.Truncate(day)
	first := int(t.Sub(date)/time.Minute) + 1

	for range searchedDays {
		if i, _ := slices.BinarySearch(e.minutes, first); i < len(e.minutes) && e.matches(date) {
			return date.Add(time.Duration(e.minutes[i]) * time.Minute)
		}

		date, first = date.Add(day), 0
	}

	return time.Time{}
}

// last returns the newest time that is not after t; zero if there is none.
func (e expression) last(t time.Time) time.Time {
	date := t.Truncate(day)
	after := int(t.Sub(date)/time.Minute) + 1

	for range searchedDays {
		if i, _ := slices.BinarySearch(e.minutes, after); i > 0 && e.matches(date) {
			return date.Add(time.Duration(e.minutes[i-1]) * time.Minute)
		}

		date, after = date.Add(-day), minutesPerDay
	}

	return time.Time{}
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
	if s.expression.next(checkedFrom).IsZero() {
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

	// next is always later than its argument, so this finds an opening at checkedFrom itself too.
	last := s.expression.next(checkedFrom.Add(-time.Second))

	for range checkedOpenings {
		next := s.expression.next(last)
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
	_, next := s.around(t)
	if next.IsZero() {
		return time.Time{}
	}
	return s.instant(next)
}

// around returns the newest opening that is not after t and the first one after it, on the wall clock; zero if there
// is none.
func (s schedule) around(t time.Time) (last, next time.Time) {
	local := t.In(s.zone)
	wall := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(),
		local.Nanosecond(), time.UTC)

	last, next = s.expression.last(wall), s.expression.next(wall)

	// In an hour that comes twice, the next time on the clock may be over already.
	for !next.IsZero() && !s.instant(next).After(t) {
		last, next = next, s.expression.next(next)
	}

	return last, next
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

// open returns the time around t in which the window is open; zero if it is closed. Openings that follow each other on
// the clocks are one, so that it stays open between them where the clocks go back.
func (s schedule) open(t time.Time) span {
	last, next := s.around(t)
	if last.IsZero() {
		return span{}
	}
	opened := s.instant(last)

	for range joined {
		if next.IsZero() || next.After(last.Add(s.duration)) && s.instant(next).After(s.closes(last)) {
			break
		}

		last, next = next, s.expression.next(next)
	}

	if closes := s.closes(last); closes.After(t) {
		return span{opened, closes}
	}

	return span{}
}

// closes returns when an opening by itself ends.
func (s schedule) closes(wall time.Time) time.Time { return s.instant(wall).Add(s.duration) }

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
