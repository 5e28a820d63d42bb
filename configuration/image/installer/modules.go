// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration/image/kernel"
	"github.com/contiv/cluster/inventory"
)

const (
	// quietRounds is for how many rounds no device may have appeared before the search for devices ends.
	quietRounds = 8
	// maxRounds bounds the search on a machine whose devices come and go.
	maxRounds = 240
	// moduleTime is how long a module may take: it looks at its devices meanwhile, and some controllers take a minute.
	moduleTime = 2 * time.Minute
	// maxStuck is how many modules may be stuck before no other one is loaded.
	maxStuck = 3
)

// decodeIndex reads the index of the modules. Unlike an order, it may have fields that this program does not know.
func decodeIndex(b []byte) (kernel.Index, error) {
	var index kernel.Index

	if err := json.Unmarshal(b, &index); err != nil {
		return kernel.Index{}, inventory.Errorf(inventory.KindInvalid, "cannot read %s: %s", kernel.IndexFile, err).
			Do("make the initrd again")
	}

	for _, m := range index.Modules {
		if m.Name == "" || !filepath.IsLocal(m.Path) {
			return kernel.Index{}, inventory.Errorf(inventory.KindInvalid,
				"cannot read %s: the module %q has the path %q", kernel.IndexFile, m.Name, m.Path).
				Do("make the initrd again")
		}
	}

	return index, nil
}

// modules loads modules for devices.
type modules struct {
	all      []kernel.Module
	insert   func(kernel.Module) error
	result   map[string]result // of each module that was tried, by name
	excused  map[string]error  // why a module failed that nothing needed so far, by name
	seen     map[string]bool   // the devices so far, by modalias
	problems []error
}

// patient loads one module at a time, and goes on without one that is stuck in its device.
type patient struct {
	console io.Writer
	insert  func(kernel.Module) error
	stuck   int
}

func (p *patient) load(m kernel.Module) error {
	if p.stuck == maxStuck {
		return fmt.Errorf("%d others are stuck", maxStuck)
	}

	// If the whole machine hangs, this is the last line.
	say(p.console, "Loading the module %s.", m.Name)

	// The kernel does not interrupt it: a module that is stuck ends with the machine.
	ended := make(chan error, 1)
	go func() { ended <- p.insert(m) }()

	select {
	case err := <-ended:
		return err
	case <-time.After(moduleTime):
		p.stuck++
		say(p.console, "The module %s is stuck. Going on without it.", m.Name)

		return fmt.Errorf("it has not ended in %s: its device may be broken", moduleTime)
	}
}

type result int

const (
	untried result = iota
	loading        // its dependencies are
	failed
	loaded
)

// newModules returns the modules of an index. insert loads one whose dependencies are loaded.
func newModules(index kernel.Index, insert func(kernel.Module) error) *modules {
	return &modules{
		all: index.Modules, insert: insert,
		result: map[string]result{}, excused: map[string]error{}, seen: map[string]bool{},
	}
}

// settle loads the modules for all devices, which make other devices appear, until no new one does. pause waits between
// two rounds.
func (m *modules) settle(devices func() []string, pause func()) {
	quiet := 0
	for range maxRounds {
		if m.drive(devices()) {
			quiet = 0
			continue
		}

		if quiet++; quiet == quietRounds {
			return
		}
		pause()
	}

	m.problems = append(m.problems,
		errors.New("new devices still appear: some may be without their modules, and missing in the facts"))
}

// drive loads the modules for the devices, and reports whether one of these is new.
func (m *modules) drive(modaliases []string) (more bool) {
	for _, device := range modaliases {
		if m.seen[device] {
			continue
		}
		m.seen[device], more = true, true

		for _, module := range m.all {
			drives := func(pattern string) bool { return matches(pattern, device) }
			if slices.ContainsFunc(module.Aliases, drives) {
				m.load(module, true)
			}
		}
	}

	return more
}

// load loads a module and, before it, its dependencies. Each module is tried once. If it is not needed, a failure is no
// problem. The result is untried if the module waits for one that is being loaded.
func (m *modules) load(module kernel.Module, needed bool) result {
	switch m.result[module.Name] {
	case untried:
	case failed:
		if err := m.excused[module.Name]; needed && err != nil {
			delete(m.excused, module.Name)
			m.problems = append(m.problems, err)
		}
		return failed
	case loading:
		return untried
	default:
		return loaded
	}

	m.result[module.Name] = loading

	for _, name := range module.Depends {
		first, ok := m.find(name)
		if !ok {
			return m.fail(module, needed, "it needs %s, which the environment lacks", name)
		}

		switch r := m.load(first, needed); {
		// Not now: this one is a mere wish of what it waits for.
		case r == untried && !needed:
			m.result[module.Name] = untried
			return untried
		case r != loaded:
			return m.fail(module, needed, "it needs %s, which is not loaded", name)
		}
	}

	m.wish(module.Before)

	if err := m.insert(module); err != nil {
		return m.fail(module, needed, "%w", err)
	}
	m.result[module.Name] = loaded

	// Those before that had to wait for this one can be loaded now.
	m.wish(module.Before)
	m.wish(module.After)

	return loaded
}

// wish loads modules that others work without.
func (m *modules) wish(names []string) {
	for _, name := range names {
		if wished, ok := m.find(name); ok {
			m.load(wished, false)
		}
	}
}

func (m *modules) find(name string) (kernel.Module, bool) {
	i := slices.IndexFunc(m.all, func(other kernel.Module) bool { return other.Name == name })
	if i < 0 {
		return kernel.Module{}, false
	}
	return m.all[i], true
}

func (m *modules) fail(module kernel.Module, needed bool, format string, args ...any) result {
	err := fmt.Errorf("cannot load the module %s: %w", module.Name, fmt.Errorf(format, args...))
	m.result[module.Name] = failed

	if needed {
		m.problems = append(m.problems, err)
	} else {
		m.excused[module.Name] = err
	}

	return failed
}

// matches reports whether the alias of a module, a pattern as in fnmatch(3), is for the device with a modalias.
func matches(pattern, modalias string) bool {
	// Most aliases are of another bus.
	if literal := strings.IndexAny(pattern, `*?[\`); literal >= 0 && !strings.HasPrefix(modalias, pattern[:literal]) {
		return false
	}

	// To fnmatch, a slash is a character as any other.
	const slash = "\x00"
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", slash), strings.ReplaceAll(modalias, "/", slash))

	return ok && err == nil
}

// findDevices returns the modalias of every device in a file system like /sys/devices. Devices may vanish meanwhile.
func findDevices(sys fs.FS) []string {
	var found []string

	_ = fs.WalkDir(sys, ".", func(folder string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil //nolint:nilerr // it has vanished
		}

		if modalias := modaliasOf(sys, folder); modalias != "" {
			found = append(found, modalias)
		}

		return nil
	})

	return found
}

// modaliasOf returns the modalias of the device with a folder; empty: it is none, or has none. Some devices, such as
// MMC cards, have it in their uevent alone, which may be slow to read while a driver looks at the device.
func modaliasOf(sys fs.FS, folder string) string {
	if b, err := fs.ReadFile(sys, path.Join(folder, "modalias")); err == nil {
		return strings.TrimSpace(string(b))
	}

	b, _ := fs.ReadFile(sys, path.Join(folder, "uevent"))
	for line := range strings.Lines(string(b)) {
		if modalias, ok := strings.CutPrefix(line, "MODALIAS="); ok {
			return strings.TrimSpace(modalias)
		}
	}

	return ""
}
