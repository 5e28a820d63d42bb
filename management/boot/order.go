// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/image/installer/report"
	"github.com/contiv/cluster/configuration/image/netboot"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Boots are the newest boots of a machine. The last one is open until it has ended: then, and only then, the machine
// gets more than its address.
type Boots struct {
	Node string     `json:"node"`
	All  []api.Boot `json:"all"` // the oldest first

	// Of the last one: the token with which the machine fetches what it boots, and reports; what it does after the
	// report of its facts; and those facts, compressed, or else why it has none.
	Secrets configuration.Vars `json:"secrets,omitempty"`
	Then    string             `json:"then,omitempty"`
	Facts   []byte             `json:"facts,omitempty"`
	Problem string             `json:"problem,omitempty"`
	// Install is what the last one installs; nil: nothing. The configuration of the first start is among Secrets.
	Install *Install `json:"install,omitempty"`
}

// BootsKind are the boots of machines, by the names of their nodes.
var BootsKind = record.Kind[Boots]{
	Name: "boots", ByNode: true,
	Key: func(b *Boots) string { return b.Node },
	Secret: func(b *Boots, convert record.Convert) (*Boots, error) {
		if len(b.Secrets) == 0 {
			return b, nil
		}

		converted, err := convert([]string{"boots", b.Node}, b.Secrets)
		out := *b
		out.Secrets = converted

		return &out, err
	},
}

const (
	secretToken = "token"
	// keptBoots is the number of boots that are kept of a node.
	keptBoots = 5
	// keptEvents is the number of different events of a boot. The first ones are kept, and the newest.
	keptEvents = 60
	maxEvent   = 500 // bytes of its text
)

// Open returns the boot that has not ended, or nil. b may be nil.
func (b *Boots) Open() *api.Boot {
	if b == nil || len(b.All) == 0 {
		return nil
	}
	if last := &b.All[len(b.All)-1]; last.Ended == nil {
		return last
	}

	return nil
}

// Serves reports whether the machine is given more than its address: until it has reported its facts, or that it is
// installed.
func (b *Boots) Serves() bool {
	open := b.Open()
	return open != nil && len(b.Facts) == 0 && b.Problem == "" && !isInstalled(open.Stage)
}

// Has reports whether the token is that of the last boot.
func (b *Boots) Has(token string) bool {
	if b == nil {
		return false
	}

	own := b.token()

	return own != "" && subtle.ConstantTimeCompare([]byte(own), []byte(token)) == 1
}

// token returns the token of the last boot; "": it cannot be read.
func (b *Boots) token() string {
	text, _ := b.reveal(secretToken)
	return text
}

// Found returns the facts that the machine has reported, nil if it has not yet, or why there are none.
func (b *Boots) Found() (*facts.Facts, error) {
	switch {
	case b.Problem != "" && b.Install != nil:
		return nil, inventory.Errorf(inventory.KindUnavailable, "%s", b.Problem)
	case b.Problem != "":
		return nil, inventory.Errorf(inventory.KindUnavailable, "its boot environment cannot tell the facts: %s",
			b.Problem).Do("look at its console, then try again")
	case len(b.Facts) == 0:
		return nil, nil
	}

	text, err := record.Expand(b.Facts)
	if err != nil {
		return nil, err
	}

	found, err := facts.Parse(text)

	return &found, err
}

// last returns a copy whose last boot can be changed, and that one.
func (b *Boots) last() (*Boots, *api.Boot) {
	out := *b
	out.All = slices.Clone(b.All)
	last := &out.All[len(out.All)-1]
	last.Events = slices.Clone(last.Events)

	return &out, last
}

// note adds an event to a boot.
func note(b *api.Boot, e api.BootEvent) {
	e.Text = inventory.Shorten(e.Text, maxEvent)

	for i := range slices.Backward(b.Events) {
		if has := &b.Events[i]; has.From == e.From && has.Text == e.Text {
			has.At, has.Count = e.At, max(has.Count, 1)+max(e.Count, 1)
			return
		}
	}

	if len(b.Events) >= keptEvents {
		b.Events = slices.Delete(b.Events, keptEvents/2, keptEvents/2+1)
	}
	b.Events = append(b.Events, e)
}

// Order says what a machine boots for.
type Order struct {
	Node, Job string
	Purpose   string
	// Then says what it does after its report: Off or Restart. It is asked before a boot is opened.
	Then func(context.Context) (string, error)
	// Install is what is written to the disk; nil: nothing.
	Install *Install
}

// Ready returns why a machine cannot boot from the network, or nil. It does not block.
func (s *Service) Ready(r record.Reader, node string) error {
	m := record.Get(r, &state.Machines, node)

	switch {
	case len(s.Config().Interfaces) == 0:
		return refused("the manager serves no network on which machines boot").
			Do("set boot.interfaces in the configuration file, and reload clusterm")
	case m == nil || len(m.Ports) == 0:
		return notRegistered(node)
	}

	if err := s.serves(); err != nil {
		return err
	}

	known := machines(r)
	problem := ""

	for _, p := range m.Ports {
		switch is := known[p.MAC]; {
		case is.Twin != "":
			problem = fmt.Sprintf("both %s and %s have the MAC %s", is.Node, is.Twin, p.MAC)
		case is.Problem == "":
			_, err := s.Environments.For(r, archOf(r, node))
			return err
		case problem == "":
			problem = is.Problem
		}
	}

	return refused("%s gets no address: %s", node, problem).
		Do("the warnings in health say what to do about it").About(node)
}

// serves returns why no machine can boot on any interface of this instance, or nil.
func (s *Service) serves() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	var problem error
	for _, name := range slices.Sorted(maps.Keys(s.servers)) {
		if problem = s.servers[name].problem; problem == nil {
			break
		}
	}

	if problem != nil {
		return refused("no network is served on which machines boot: %w", problem).
			Do("correct boot.interfaces in the configuration file, or what keeps the interface from being served")
	}

	if !slices.ContainsFunc(netboot.Files(), s.hasProgram) {
		return refused("iPXE is not in %s, and firmware loads it first", s.Config().IPXE).
			Do("install Debian's package ipxe on the hosts of all instances, or set boot.ipxe to its folder")
	}

	return nil
}

// hasProgram reports whether this instance can give a program of iPXE.
func (s *Service) hasProgram(name string) bool {
	is, err := os.Stat(filepath.Join(s.Config().IPXE, name))
	return err == nil && is.Mode().IsRegular()
}

// archOf returns the architecture of a machine as images have it.
func archOf(r record.Reader, node string) string {
	arch := ""
	if m := record.Get(r, &state.Machines, node); m != nil {
		arch = m.Arch
	}
	if n := record.Get(r, &job.Nodes, node); n != nil && n.Hardware != nil && n.Hardware.Arch != "" {
		arch = n.Hardware.Arch
	}

	if arch == "aarch64" || arch == "arm64" {
		return "arm64"
	}

	return "amd64"
}

// Begin opens a boot of a machine for a job, and returns it. One that is open for the job goes on, whatever has become
// of its image or address. Otherwise it makes the files of the environment if they are missing, which may take half a
// minute. It waits while the store is unavailable, and for nothing else.
func (s *Service) Begin(ctx context.Context, o Order) (api.Boot, error) {
	r, _ := s.Store.Latest()
	if open := record.Get(r, &BootsKind, o.Node).Open(); open != nil && open.Job == o.Job {
		return *open, nil
	}

	image, err := s.Environments.For(r, archOf(r, o.Node))
	if err != nil {
		return api.Boot{}, err
	}
	if o.Install != nil {
		if err := s.Installs(r, o.Node, o.Install.Image); err != nil {
			return api.Boot{}, err
		}
	}
	if err := s.Environments.Make(ctx, image); err != nil {
		return api.Boot{}, err
	}

	// The boot environment has the address of the machine, and asks nobody for it.
	if len(givenTo(r, o.Node)) == 0 {
		if _, err := s.Allocate(ctx, access.Caller{Principal: principal}, []string{o.Node}); err != nil {
			return api.Boot{}, err
		}
	}

	then, err := o.Then(ctx)
	if err != nil {
		return api.Boot{}, err
	}

	var made api.Boot

	err = state.RetryUnavailable(ctx, retryEvery, func(error) {}, func() (err error) {
		made, _, err = record.Decide(ctx, s.Store, func(tx *record.Tx) (api.Boot, error) {
			return open(tx, o, image, then), nil
		})

		return err
	})

	return made, err
}

// retryEvery is the first delay before a write is repeated while the store is unavailable.
const retryEvery = 100 * time.Millisecond

// open opens a boot, unless one is open for the job, and returns it.
func open(tx *record.Tx, o Order, image, then string) api.Boot {
	b := record.Get(tx, &BootsKind, o.Node)

	now := time.Now().UTC()
	next := &Boots{Node: o.Node}

	if b != nil && len(b.All) > 0 {
		if is := b.Open(); is != nil && is.Job == o.Job {
			return *is
		}

		var last *api.Boot
		if next, last = b.last(); last.Ended == nil {
			last.Ended, last.Result = &now, "job "+o.Job+" has begun another one"
		}
	}

	made := api.Boot{Job: o.Job, Purpose: o.Purpose, Image: image, Begun: now, Events: []api.BootEvent{}}
	next.Secrets, next.Then = configuration.Vars{secretToken: rand.Text()}, then
	next.Facts, next.Problem, next.Install = nil, "", o.Install

	if o.Install != nil {
		made.Installs = o.Install.Image
		next.Secrets[secretConfig] = o.Install.config
	}

	next.All = append(next.All, made)
	next.All = next.All[max(0, len(next.All)-keptBoots):]
	record.Put(tx, &BootsKind, next)

	return next.All[len(next.All)-1]
}

// change changes the boot that is open for a job.
func (s *Service) change(ctx context.Context, node, job string, change func(b *Boots, last *api.Boot)) error {
	_, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (any, error) {
		b := record.Get(tx, &BootsKind, node)
		if open := b.Open(); open == nil || open.Job != job {
			return nil, errEnded(node)
		}

		next, last := b.last()
		change(next, last)
		record.Put(tx, &BootsKind, next)

		return nil, nil
	})

	return err
}

func errEnded(node string) error {
	return refused("no boot of %s from the network is open", node).About(node)
}

// Started records that the machine was told to start, and how.
func (s *Service) Started(ctx context.Context, node, job, how string) error {
	return s.change(ctx, node, job, func(_ *Boots, last *api.Boot) {
		now := time.Now().UTC()
		last.Started = &now
		note(last, api.BootEvent{At: now, From: FromManager, Text: how})
	})
}

// End ends the boot of a job with a result, if it has not ended. Nothing of it is served any more.
func (s *Service) End(ctx context.Context, node, job, result string) error {
	err := s.change(ctx, node, job, func(b *Boots, last *api.Boot) {
		now := time.Now().UTC()
		last.Ended, last.Result = &now, inventory.Shorten(result, maxEvent)
		b.Facts = nil // they are kept elsewhere
	})
	if inventory.KindOf(err) == inventory.KindRefused {
		return nil
	}

	return err
}

// Progress is how far a boot has come.
type Progress struct {
	api.Boot

	Facts *facts.Facts // nil: not reported yet, or not what it boots for
	// Over: the machine has done what it boots for. It has told its facts, or it runs the system that was installed.
	Over bool
}

// Await blocks until the boot of a job has more events than were seen, or is over, and returns it. It returns
// KindRefused if the boot has ended, why it failed, and the error of ctx.
func (s *Service) Await(ctx context.Context, node, job string, seen int) (Progress, error) {
	for {
		changed := s.Store.Changed()
		r, _ := s.Store.Latest()
		b := record.Get(r, &BootsKind, node)

		open := b.Open()
		if open == nil || open.Job != job {
			return Progress{}, errEnded(node)
		}

		found, err := b.Found()
		if p := (Progress{*open, found, found != nil || open.Stage == api.BootRunning}); p.Over || err != nil ||
			len(open.Events) > seen {
			return p, err
		}

		select {
		case <-ctx.Done():
			return Progress{Boot: *open}, ctx.Err()
		case <-changed:
		}
	}
}

// report records what a machine says, and returns what it does next. A report that came before is answered alike.
func (s *Service) report(ctx context.Context, node, token string, m report.Message) (string, error) {
	then, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (string, error) {
		b := record.Get(tx, &BootsKind, node)
		if !b.Has(token) {
			return "", errEnded(node)
		}

		next, boot := b.last()

		take := next.takeFacts
		if b.Install != nil {
			take = next.takeInstall
		}

		then, events, err := take(boot, m)
		if err != nil || boot.Ended != nil { // the answer to the last report was lost
			return then, err
		}

		for _, text := range events {
			note(boot, api.BootEvent{At: time.Now().UTC(), From: FromReport, Text: text})
		}
		record.Put(tx, &BootsKind, next)

		return then, nil
	})

	return then, err
}

// takeFacts takes what a machine says that boots for its facts. It returns what the machine does next, and the report
// in words.
func (b *Boots) takeFacts(boot *api.Boot, m report.Message) (then string, events []string, err error) {
	last := m.Facts != nil || m.Stage == report.Problem
	events = eventsOf(m)

	switch {
	case boot.Ended != nil && last && slices.ContainsFunc(boot.Events, isLast):
		return b.Then, nil, nil
	case boot.Ended != nil:
		return "", nil, errEnded(b.Node)
	case m.Facts != nil:
		text, err := json.Marshal(m.Facts)
		if err != nil {
			return "", nil, err
		}

		b.Facts = record.Compress(text)

		return b.Then, append(events, factsText), nil
	case last:
		b.Problem = inventory.Shorten(oneLine(m.Message), maxEvent)
		return b.Then, append(events, problemText), nil
	}

	return report.Continue, events, nil
}

// What a machine does after its last report.
const (
	Off     = report.Off
	Restart = report.Restart
)

// The sources of events.
const (
	FromManager = "manager"
	FromDHCP    = "dhcp"
	FromTFTP    = "tftp"
	FromHTTP    = "http"
	FromReport  = "report"
)

// The events of the last report.
const (
	factsText   = "these are the facts of the machine"
	problemText = "the environment cannot tell the facts"
)

func isLast(e api.BootEvent) bool {
	return e.From == FromReport && (e.Text == factsText || e.Text == problemText)
}

// principal is who gives addresses.
const principal = "clusterm boot"

// heard is what was heard of a machine, and is not recorded yet.
type heard struct {
	job    string // of its boot
	events []api.BootEvent
}

// happened notes an event of an open boot. It does not block: the event is recorded a moment later.
func (s *Service) happened(node, from, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	r, _ := s.Store.Latest()

	open := record.Get(r, &BootsKind, node).Open()
	if open == nil {
		return
	}

	h := s.heard[node]
	if h.job != open.Job {
		h = heard{job: open.Job}
	}
	if len(h.events) < keptEvents {
		h.events = append(h.events, api.BootEvent{At: time.Now().UTC(), From: from, Text: text})
		s.heard[node] = h
	}
	s.Serving.Kick()
}

// recordEvents records what was heard, also of boots that have ended since.
func (s *Service) recordEvents(ctx context.Context) error {
	s.mu.Lock()
	all := s.heard
	s.heard = map[string]heard{}
	s.mu.Unlock()

	for node, h := range all {
		_, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (any, error) {
			b := record.Get(tx, &BootsKind, node)
			if b == nil || len(b.All) == 0 || b.All[len(b.All)-1].Job != h.job {
				return nil, nil
			}

			next, last := b.last()
			for _, e := range h.events {
				note(last, e)
			}
			record.Put(tx, &BootsKind, next)

			return nil, nil
		})
		if err != nil {
			s.hearAgain(all)
			return err
		}
		delete(all, node)
	}

	return nil
}

// hearAgain keeps what could not be recorded for the next time, before what was heard since.
func (s *Service) hearAgain(all map[string]heard) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for node, h := range all {
		if since := s.heard[node]; since.job == h.job {
			h.events = append(h.events, since.events...)
			h.events = h.events[:min(len(h.events), keptEvents)]
		} else if since.job != "" {
			continue // it boots for another job
		}
		s.heard[node] = h
	}
}

// tidyBoots removes the boots of machines that are gone, and ends those of jobs that have ended without it: a job that
// is cancelled twice, or whose instance dies for good, does not come to the end of its step.
func (s *Service) tidyBoots(ctx context.Context) error {
	r, _ := s.Store.Latest()

	for _, b := range record.List(r, &BootsKind) {
		if record.Get(r, &job.Nodes, b.Node) != nil && !left(r, b) {
			continue
		}

		if _, _, err := record.Decide(ctx, s.Store, func(tx *record.Tx) (any, error) {
			now := record.Get(tx, &BootsKind, b.Node)

			switch {
			case record.Get(tx, &job.Nodes, b.Node) == nil:
				record.Remove(tx, &BootsKind, b.Node)
			case left(tx, now):
				next, last := now.last()
				at := time.Now().UTC()
				last.Ended, last.Result = &at, "its job has ended"
				next.Facts = nil
				record.Put(tx, &BootsKind, next)
			}

			return nil, nil
		}); err != nil {
			return err
		}
	}

	return nil
}

// left reports whether a boot is open whose job has ended. b may be nil.
func left(r record.Reader, b *Boots) bool {
	open := b.Open()
	if open == nil {
		return false
	}

	j := record.Get(r, &job.Kind, open.Job)

	return j == nil || j.Status.Ended()
}

// NodeBoots returns the newest boots of a node.
func NodeBoots(r record.Reader, node string) api.NodeBoots {
	out := api.NodeBoots{Node: node, Boots: []api.Boot{}}
	if b := record.Get(r, &BootsKind, node); b != nil {
		out.Boots = b.All
	}

	return out
}

// UsersOf returns the jobs that boot machines with an image, or install it, as words for a person.
func UsersOf(r record.Reader, image string) (all []string) {
	for _, b := range record.List(r, &BootsKind) {
		open := b.Open()

		switch {
		case open == nil:
		case open.Installs == image:
			all = append(all, "job "+open.Job+" installs it on "+b.Node)
		case open.Image == image:
			all = append(all, "job "+open.Job+" boots "+b.Node+" with it")
		}
	}

	return all
}
