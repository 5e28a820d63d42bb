// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"reflect"
	"sync"
	"time"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/window"
)

// Window is a maintenance window, see window.Spec.
type Window struct {
	Name     string   `json:"name"               yaml:"name"`
	Cron     string   `json:"cron"               yaml:"cron"`
	Duration Duration `json:"duration"           yaml:"duration"`
	TimeZone string   `json:"time_zone,omitempty" yaml:"time_zone"` // empty: UTC
	Groups   []string `json:"groups,omitempty"   yaml:"groups"`
	Selector string   `json:"selector,omitempty" yaml:"selector"`
}

// specs returns the windows as package window takes them.
func specs(windows []Window) []window.Spec {
	out := make([]window.Spec, len(windows))
	for i, w := range windows {
		out[i] = window.Spec{
			Name: w.Name, Cron: w.Cron, Duration: time.Duration(w.Duration), TimeZone: w.TimeZone, Groups: w.Groups,
			Selector: w.Selector,
		}
	}

	return out
}

func (c *Config) checkWindows() error {
	if err := window.Check(specs(c.Windows), c.Groups); err != nil {
		return invalid("windows", "%w", err)
	}
	return nil
}

// calendarCache keeps the calendar of the configuration in force: every look at the queue
// takes it.
type calendarCache struct {
	mu       sync.Mutex
	windows  []Window
	groups   inventory.Groups
	calendar window.Calendar
}

// of returns the calendar of the configuration. Check has accepted it.
func (k *calendarCache) of(c Config) window.Calendar {
	k.mu.Lock()
	defer k.mu.Unlock()

	if reflect.DeepEqual(k.windows, c.Windows) && reflect.DeepEqual(k.groups, c.Groups) {
		return k.calendar
	}

	calendar, err := window.New(specs(c.Windows), c.Groups)
	if err != nil {
		return k.calendar
	}
	k.windows, k.groups, k.calendar = c.Windows, c.Groups, calendar

	return calendar
}

// Windows returns the maintenance windows in force.
func (s *Settings) Windows() window.Calendar { return s.calendar.of(s.Current()) }
