// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/selector"
)

// Max bounds the number of windows.
const Max = 64

// maxDuration bounds the duration of a window.
const maxDuration = 31 * 24 * time.Hour

// Spec is a maintenance window as it is configured: a time that comes again and again, in
// which the nodes of some groups, or those of a selector, may change.
type Spec struct {
	Name     string
	Cron     string // when it opens, in five fields
	Duration time.Duration
	TimeZone string   // of the IANA database; empty: UTC
	Groups   []string // these, or
	Selector string
}

// Window is a maintenance window.
type Window struct {
	Spec

	schedule schedule
	selector selector.Selector
	latest   atomic.Pointer[span] // of the answers of Open: openings that follow each other are costly to walk
}

// span is a time in which a window is open.
type span struct{ opened, closes time.Time }

// Calendar is all maintenance windows. The zero value has none. It is immutable.
type Calendar struct{ windows []*Window }

// New returns the calendar of the specs. It does not check the openings, see Check.
// Errors begin with the number or the name of the window.
func New(specs []Spec, groups inventory.Groups) (Calendar, error) {
	var c Calendar

	if len(specs) > Max {
		return c, fmt.Errorf("there are %d windows; %d fit", len(specs), Max)
	}

	for i, s := range specs {
		if err := inventory.CheckEntryName(s.Name); err != nil {
			return c, fmt.Errorf("window %d: %w", i+1, err)
		}

		if slices.ContainsFunc(c.windows, func(w *Window) bool { return w.Name == s.Name }) {
			return c, fmt.Errorf("window %d: the name %s is taken by another window", i+1, s.Name)
		}

		w, err := s.parse(groups)
		if err != nil {
			return c, fmt.Errorf("window %d, %s: %w", i+1, s.Name, err)
		}
		c.windows = append(c.windows, w)
	}

	return c, nil
}

// Check refuses windows that New refuses, and those that never open or that open again
// before they are closed.
func Check(specs []Spec, groups inventory.Groups) error {
	c, err := New(specs, groups)
	if err != nil {
		return err
	}

	for i, w := range c.windows {
		if err := w.schedule.check(w.Cron); err != nil {
			return fmt.Errorf("window %d, %s: %w", i+1, w.Name, err)
		}
	}

	return nil
}

// parse returns the window.
func (s Spec) parse(groups inventory.Groups) (*Window, error) {
	w := &Window{Spec: s, schedule: schedule{duration: s.Duration}}

	var err error
	if w.schedule.expression, err = parseCron(s.Cron); err != nil {
		return nil, fmt.Errorf("cron: %w", err)
	}

	switch {
	case s.Duration <= 0:
		return nil, fmt.Errorf("duration: %s is not longer than zero", s.Duration)
	case s.Duration%time.Minute != 0:
		return nil, fmt.Errorf("duration: %s is not whole minutes", s.Duration)
	case s.Duration > maxDuration:
		return nil, fmt.Errorf("duration: %s is longer than %s", Short(s.Duration), Short(maxDuration))
	}

	if w.schedule.zone, err = loadZone(s.TimeZone); err != nil {
		return nil, err
	}

	return w, w.parseNodes(groups)
}

// parseNodes reads the choice of the nodes of the window.
func (w *Window) parseNodes(groups inventory.Groups) error {
	checkGroup := func(name string) error {
		_, err := groups.Get(name)
		return err
	}

	if (len(w.Groups) > 0) == (w.Selector != "") {
		return errors.New("write either groups or a selector")
	}

	for _, name := range w.Groups {
		if err := checkGroup(name); err != nil {
			return fmt.Errorf("groups: %w", err)
		}
	}

	if w.Selector == "" {
		return nil
	}

	var err error
	if w.selector, err = selector.Parse(w.Selector, checkGroup); err != nil {
		return fmt.Errorf("selector: %w", err)
	}

	if field := w.selector.Judged(); field != "" {
		return fmt.Errorf("selector: %s is not in the record of a node; leave it out", field)
	}

	return nil
}

// Next returns the first opening after t; zero if there is none.
func (w *Window) Next(t time.Time) time.Time { return w.schedule.next(t) }

// Open returns when the window that is open at t closes; zero if it is closed.
func (w *Window) Open(t time.Time) time.Time {
	if s := w.latest.Load(); s != nil && !t.Before(s.opened) && t.Before(s.closes) {
		return s.closes
	}

	s := w.schedule.open(t)
	if !s.closes.IsZero() {
		w.latest.Store(&s)
	}
	return s.closes
}

// Format returns a time as the zone of the window shows it.
func (w *Window) Format(t time.Time) string {
	return t.In(w.schedule.zone).Format("Mon 2006-01-02 15:04 MST")
}

// Concerns reports whether the window is for the node, or for nodes of one of the
// groups. n may be nil.
func (w *Window) Concerns(n *inventory.Node, groups ...string) bool {
	if w.Selector != "" {
		return n != nil && w.selector.Matches(n)
	}

	if n != nil {
		groups = append(groups, n.Group)
	}
	return slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(w.Groups, g) })
}

// Windows returns the windows, in the order of the configuration.
func (c Calendar) Windows() []*Window { return c.windows }

// Of returns the windows for the node, or for nodes of one of the groups.
func (c Calendar) Of(n *inventory.Node, groups ...string) []*Window {
	var of []*Window

	for _, w := range c.windows {
		if w.Concerns(n, groups...) {
			of = append(of, w)
		}
	}

	return of
}

// names joins the names of windows.
func names(windows []*Window) string {
	all := make([]string, len(windows))
	for i, w := range windows {
		all[i] = w.Name
	}

	return strings.Join(all, " and ")
}
