// SPDX-License-Identifier: Apache-2.0

// Package bmctest has BMCs inside the process, for tests: one that speaks IPMI 2.0, by the server of go-ipmi, and one
// that speaks Redfish, by the schema of DMTF.
package bmctest

import (
	"slices"
	"sync"

	"github.com/contiv/cluster/inventory/bmc"
)

// TB is the part of a test, or of a benchmark, that a BMC needs.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(do func())
}

// The user of every BMC.
const (
	User     = "admin"
	Password = "correct-horse"
)

// Machine is a machine behind a BMC. All methods may be called at once. A new one is off.
type Machine struct {
	mu    sync.Mutex
	on    bool
	lag   int // how often it is still on after it was asked to shut down
	asked bool
	calls []string
	boot  bmc.Boot
}

// On reports whether the machine is on.
func (m *Machine) On() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on
}

// Switch turns the machine on or off, as its button does.
func (m *Machine) Switch(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on = on
}

// Lag has the BMC find the machine on for a number of times after its operating system was asked to shut down.
func (m *Machine) Lag(times int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lag = times
}

// power reports whether the BMC finds the machine on.
func (m *Machine) power() bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.asked {
		m.lag--
		m.on = m.lag >= 0
		m.asked = m.on
	}

	return m.on
}

// Calls returns what the BMC was told to do to the machine, in the words of Redfish.
func (m *Machine) Calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// Boot returns what the machine boots from.
func (m *Machine) Boot() bmc.Boot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boot
}

// do carries out what the BMC was told, and reports whether the BMC can do that now.
func (m *Machine) do(call string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, call)

	switch call {
	case "On":
		m.on = true
	case "ForceOff":
		m.on = false
	case "GracefulShutdown":
		m.asked = m.on
	case "ForceRestart", "PowerCycle":
		return m.on
	default:
		return false
	}

	return true
}

func (m *Machine) setBoot(b bmc.Boot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot = b
}
